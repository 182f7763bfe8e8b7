"""Bootstrap of a logit beside warm Newton steps by hand.

Run ``python -m benchmarks resampling``. CPU time in interleaved rounds, n = 2000, d = 10, B = 200:
refits by hand in NumPy, each from the fitted parameters; `Bootstrap` of models of statsmodels and
of `from_loglik` with and without a score; and ``kind="one-step"``.
"""

import warnings
from functools import partial

import numpy as np
import statsmodels.api as sm
from scipy.special import expit

import implicit_delta as idm
from benchmarks.timing import Case, cpu_seconds, timed


class Problem:
    """A logit, fitted in three ways."""

    def __init__(self, n=2000, d=10, replicates=200, seed=0):
        rng = np.random.default_rng(seed)
        self.replicates = replicates
        self.X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
        self.y = (rng.random(n) < expit(self.X @ rng.normal(size=d) / 3)).astype(float)
        self.theta = sm.Logit(self.y, self.X).fit(disp=0).params
        self.hosted = idm.from_statsmodels(sm.Logit(self.y, self.X).fit(disp=0))
        self.scored = idm.from_loglik(self.loglik, start=np.zeros(d), score=self.score)
        self.plain = idm.from_loglik(self.loglik, start=np.zeros(d))

    def loglik(self, b):
        eta = self.X @ b
        return self.y * eta - np.logaddexp(0, eta)

    def score(self, b):
        return (self.y - expit(self.X @ b))[:, None] * self.X

    @staticmethod
    def psi(b):
        return expit(b[0] + b[1])

    def hand(self):
        """Newton steps until the decrement is below 1e-7 of a standard error."""
        n, draws = len(self.y), []
        for stream in np.random.SeedSequence(0).spawn(self.replicates):
            w = np.random.default_rng(stream).multinomial(n, np.full(n, 1 / n)).astype(float)
            b, fall = self.theta.copy(), np.inf
            while fall > 1e-14:
                p = expit(self.X @ b)
                slope = self.X.T @ (w * (self.y - p))
                step = np.linalg.solve((self.X * (w * p * (1 - p))[:, None]).T @ self.X, slope)
                b, fall = b + step, step @ slope
            draws.append(self.psi(b))
        return np.std(draws, ddof=1)

    def ours(self, model, kind="resample"):
        method = idm.Bootstrap(self.replicates, kind, rng=0)
        return idm.infer(model, self.psi, method).standard_error


def cases():
    warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
    problem, name = Problem(), "Bootstrap, logit n = 2000, d = 10, B = 200: "
    ours = {
        "statsmodels": (2, 5.6, partial(problem.ours, problem.hosted)),
        "with score": (2, None, partial(problem.ours, problem.scored)),
        "one-step": (0.2, None, partial(problem.ours, problem.hosted, "one-step")),
    }
    for kind, (aim, before, call) in ours.items():
        yield Case(name + kind, aim, call, problem.hand, before=before)
    plain = partial(problem.ours, problem.plain)
    yield Case(name + "no score", 2, lambda: timed(plain, clock=cpu_seconds)[1], None, "s", 20)
