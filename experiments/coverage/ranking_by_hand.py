"""The share on top of a ranking once more, by formulas in NumPy alone, on other data sets.

A control: what of a coverage is the library's, what the method's, and what chance? The fit is by
Newton steps, the standard error that of `Simulation`: psi at antithetic draws with the exact second
moments of the parameters.
"""

from functools import partial

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from experiments.coverage.evaluations import SIZES
from experiments.coverage.ranking import CLICKS, pairs, share_on_top
from experiments.coverage.study import Outcome, Study

# Decided before the run, after 2000 data sets of the library at n = 3000 were two binomial errors
# low; trials with other seeds had shown none of it.
REPLICATIONS = 4000
PAIRS = 100  # of draws


def maximum(X, y):
    """Parameters of a logit and their covariance."""
    b, step = np.zeros(X.shape[1]), np.inf
    while np.max(abs(step)) > 1e-9:
        p = expit(X @ b)
        covariance = np.linalg.inv((X * (p * (1 - p))[:, None]).T @ X)
        step = covariance @ (X.T @ (y - p))
        b = b + step
    return b, covariance


def standard_error(psi, b, covariance, rng):
    """Spread of psi over draws of the parameters in pairs: of its odd and of its even part."""
    z = np.sqrt(PAIRS) * np.linalg.qr(rng.normal(size=(PAIRS, len(b))))[0]
    steps = z @ np.linalg.cholesky(covariance).T
    up, down = (np.array([psi(b + sign * step) for step in steps]) for sign in (1, -1))
    return np.sqrt(np.mean((up - down) ** 2) / 4 + np.var((up + down) / 2, ddof=1))


def ranking(rng, level, n):
    X = pairs(rng.normal(size=n), rng.integers(12, size=n))
    y = (rng.random(n) < expit(X @ CLICKS)).astype(float)
    visitors = share_on_top(rng.normal(size=n))
    psi = lambda b: visitors(b).mean()
    b, covariance = maximum(X, y)
    error = (psi(b) - psi(CLICKS)) / standard_error(psi, b, covariance, rng)
    return {"draws by hand": Outcome(bool(abs(error) <= norm.ppf((1 + level) / 2)), error=error)}


STUDIES = tuple(
    Study("share on top of a ranking, by hand", n, partial(ranking, n=n), replications=REPLICATIONS)
    for n in SIZES
)
