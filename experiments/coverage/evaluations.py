"""Evaluations with kinks, jumps and optima, for the rows at hand and for the population.

The truth of a plain evaluation is psi at the true parameters on the very rows it is made of (the
paper's Theorem 4); that of an `Average` is its population mean.
"""

from functools import cache, partial

import numpy as np
from scipy.special import expit, wrightomega
from scipy.stats import norm

import implicit_delta as idm
from experiments.coverage.study import Study, asked

SIZES = (300, 1000, 3000)
REPLICATIONS = 400  # the binomial error of 95 % is 1.1 %
MORE = 1000  # 0.7 %, so that a coverage of 98 %, once found in 400 data sets, is told from chance

SIMULATION = partial(idm.Simulation, draws=200)
SMOOTHED = partial(idm.Smoothed, draws=200)
REFITS = idm.FiniteDifference(maximizer=idm.nelder_mead(tolerance=1e-2))


def outcomes(model, level, truth, cases):
    """Ask for each evaluation with its method, by name."""
    return {
        name: asked(partial(idm.infer, model, psi, method), truth, level)
        for name, (psi, method) in cases.items()
    }


# Kinks: unmet demand of a linear regression


def regression(rng, n):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return X, X @ [0.5, 1.0, -0.7] + rng.normal(size=n)


def least_squares(X, y):
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    return idm.from_residuals(lambda b: y - X @ b, beta, jacobian=lambda b: -X)


def unmet(X, demand):
    return lambda b: np.maximum(demand - X @ b, 0.0)


def unmet_demand(rng, level, n):
    model = least_squares(*regression(rng, n))
    h = unmet(*regression(rng, n))
    psi = lambda b: h(b).mean()
    cases = {
        "Infinitesimal": (psi, idm.Infinitesimal()),
        "FiniteDifference": (psi, idm.FiniteDifference()),
    }
    return outcomes(model, level, h(np.array([0.5, 1.0, -0.7])).mean(), cases)


def unmet_demand_of_the_population(rng, level, n):
    X, y = regression(rng, n)
    fresh = unmet(*regression(rng, n))
    cases = {
        "independent rows": (idm.Average(fresh, "independent"), None),
        "training rows": (idm.Average(unmet(X, y), "training"), None),
        "unknown rows (bound)": (idm.Average(unmet(X, y), "unknown"), None),
    }
    return outcomes(least_squares(X, y), level, norm.pdf(0), cases)


# Jumps: the share predicted positive


def logistic(X, y):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(X.shape[1]),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )


CLASSIFIER = np.array([-0.5, 1.0, 0.5, -0.5])


def people(rng, n):
    return np.column_stack([np.ones(n), rng.normal(size=(n, 3))])


def share_predicted_positive(rng, level, n):
    X, rows = people(rng, n), people(rng, n)
    model = logistic(X, (rng.random(n) < expit(X @ CLASSIFIER)).astype(float))
    share = lambda b: np.mean(rows @ b > 0)
    seed = int(rng.integers(2**32))
    cases = {
        "Simulation": (share, SIMULATION(rng=seed)),
        "Smoothed": (SMOOTHED(share, rng=seed), None),
        "refits without gradient": (share, REFITS),
    }
    rows_at_hand = outcomes(model, level, share(CLASSIFIER), cases)
    population = idm.Average(lambda b: rows @ b > 0)
    truth = norm.cdf(CLASSIFIER[0] / np.linalg.norm(CLASSIFIER[1:]))
    case = {"population: Simulation": (population, SIMULATION(rng=seed))}
    return rows_at_hand | outcomes(model, level, truth, case)


# Optima: profit at the best price of each visitor

COST, HIGHEST = 2.0, 8.0
DEMAND = np.array([2.0, 0.8, -0.9, -0.2])


def offers(x, price):
    return np.column_stack([np.ones(len(x)), x, price, price * x])


def best_profit(x):
    """Expected profit of each visitor at the price that is best for the model."""

    def profit(b):
        s = np.minimum(b[2] + b[3] * x, -1e-9)
        price = COST - (1 + wrightomega(b[0] + b[1] * x + s * COST - 1)) / s
        price = np.minimum(price, HIGHEST)
        return expit(offers(x, price) @ b) * (price - COST)

    return profit


@cache
def true_profit():
    return best_profit(np.random.default_rng(1).normal(size=2_000_000))(DEMAND).mean()


def pricing(rng, level, n):
    X = offers(rng.normal(size=n), rng.uniform(COST, HIGHEST, size=n))
    model = logistic(X, (rng.random(n) < expit(X @ DEMAND)).astype(float))
    h = best_profit(rng.normal(size=n))
    psi = lambda b: h(b).mean()
    cases = {
        "Infinitesimal": (psi, None),
        "FiniteDifference": (psi, idm.FiniteDifference()),
        "Simulation": (psi, SIMULATION(rng=int(rng.integers(2**32)))),
    }
    rows_at_hand = outcomes(model, level, psi(DEMAND), cases)
    case = {"population: Infinitesimal": (idm.Average(h), None)}
    return rows_at_hand | outcomes(model, level, true_profit(), case)


STUDIES = tuple(
    Study(task, n, partial(trial, n=n), replications=replications)
    for task, trial, replications in (
        ("unmet demand", unmet_demand, REPLICATIONS),
        ("unmet demand of the population", unmet_demand_of_the_population, REPLICATIONS),
        ("share predicted positive", share_predicted_positive, REPLICATIONS),
        ("profit at the best price", pricing, MORE),
    )
    for n in SIZES
)
