"""Estimating equations: inverse probability weights, and strong and weak instruments."""

from functools import partial

import numpy as np
from scipy.special import expit

import implicit_delta as idm
from experiments.coverage.study import Study, asked

EFFECT = 1.0


def solved(equations, position, level, start, weighting=None):
    """Solve the equations and ask for the effect, which is one of the parameters."""
    return asked(
        lambda: idm.infer(
            idm.from_equations(equations, start=start, weighting=weighting),
            lambda th: th[position],
        ),
        EFFECT,
        level,
    )


def treated(rng, level, n=400):
    """A treatment that depends on two confounders; propensity (and outcomes) are estimated."""
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    a = (rng.random(n) < expit(X @ [0.2, 0.5, -0.5])) * 1.0
    y = EFFECT * a + X @ [1.0, 1.0, 0.5] + rng.normal(size=n)

    def weighted(th):
        p = expit(X @ th[1:])
        return np.column_stack([a * y / p - (1 - a) * y / (1 - p) - th[0], X * (a - p)[:, None]])

    def normalized(th):
        p = expit(X @ th[2:])
        means = [a * (y - th[0] - th[1]) / p, (1 - a) * (y - th[1]) / (1 - p)]
        return np.column_stack([*means, X * (a - p)[:, None]])

    def augmented(th):
        m1, m0, p = X @ th[1:4], X @ th[4:7], expit(X @ th[7:])
        effect = a * (y - m1) / p + m1 - (1 - a) * (y - m0) / (1 - p) - m0 - th[0]
        outcomes = [X * (a * (y - m1))[:, None], X * ((1 - a) * (y - m0))[:, None]]
        return np.column_stack([effect, *outcomes, X * (a - p)[:, None]])

    sizes = {"IPW": (weighted, 4), "normalized IPW": (normalized, 5), "AIPW": (augmented, 10)}
    return {
        name: solved(equations, 0, level, np.zeros(d)) for name, (equations, d) in sizes.items()
    }


def instrumented(rng, level, strength, n=200):
    """An endogenous regressor (correlation 0.8) with three instruments."""
    Z = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])
    e, v = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=n).T
    x = Z[:, 1:] @ np.full(3, strength) + v
    X = np.column_stack([np.ones(n), x])
    y = 1.0 + EFFECT * x + e * np.sqrt(0.5 + Z[:, 1] ** 2 / 2)

    def equations(b):
        return Z * (y - X @ b)[:, None]

    weightings = {"2SLS": np.linalg.inv(Z.T @ Z), "GMM, two-step": "two-step"}
    return {name: solved(equations, 1, level, np.zeros(2), W) for name, W in weightings.items()}


STUDIES = (
    Study("treatment effect by weights", 400, treated, replications=1000),
    *(
        Study(
            f"slope by {name} instruments (F about {F})",
            200,
            partial(instrumented, strength=strength),
            replications=1000,
        )
        for name, strength, F in (("strong", 0.5, 50), ("middling", 0.2, 9), ("weak", 0.05, 1.5))
    ),
)
