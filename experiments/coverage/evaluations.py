"""Evaluations with kinks, jumps and optima, for the rows at hand and for the population.

The truth of a plain evaluation is psi at the true parameters on the very rows it is made of (the
paper's Theorem 4); that of an `Average` is its population mean.
"""

from functools import cache, partial

import numpy as np
from scipy.special import expit, wrightomega
from scipy.stats import norm

import implicit_delta as idm
from experiments.coverage.study import Study, covers

SIZES = (300, 1000, 3000)
REPLICATIONS = 400  # the binomial error of 95 % is 1.1 %

SIMULATION = partial(idm.Simulation, draws=200)
SMOOTHED = partial(idm.Smoothed, draws=200)
REFITS = idm.FiniteDifference(maximizer=idm.nelder_mead(tolerance=1e-2))


def covered(model, level, truth, cases):
    """Whether the interval of each evaluation with its method, by name, covers the truth."""
    return {
        name: covers(idm.infer(model, psi, method, strict=False).confidence_interval(level), truth)
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
    return covered(model, level, h(np.array([0.5, 1.0, -0.7])).mean(), cases)


def unmet_demand_of_the_population(rng, level, n):
    X, y = regression(rng, n)
    fresh = unmet(*regression(rng, n))
    cases = {
        "independent rows": (idm.Average(fresh, "independent"), None),
        "training rows": (idm.Average(unmet(X, y), "training"), None),
        "unknown rows (bound)": (idm.Average(unmet(X, y), "unknown"), None),
    }
    return covered(least_squares(X, y), level, norm.pdf(0), cases)


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
    rows_at_hand = covered(model, level, share(CLASSIFIER), cases)
    population = idm.Average(lambda b: rows @ b > 0)
    truth = norm.cdf(CLASSIFIER[0] / np.linalg.norm(CLASSIFIER[1:]))
    case = {"population: Simulation": (population, SIMULATION(rng=seed))}
    return rows_at_hand | covered(model, level, truth, case)


# Jumps: who is on top of a ranking, after a rule of the house

CLICKS = np.array([-1.2, -0.5, 0.6, 0.4, -0.7])
ITEMS = np.random.default_rng(0).normal(size=(12, 2))
CATEGORY = np.arange(12) % 3


def pairs(taste, items):
    """Constant, price, rating, category 0, price x taste."""
    price, rating = ITEMS[items].T if items.ndim == 1 else np.moveaxis(ITEMS[items], -1, 0)
    columns = [np.ones_like(taste + price), price, rating, CATEGORY[items] == 0, price * taste]
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def audience(rng, m):
    return pairs(rng.normal(size=(m, 1)), np.arange(12))


def share_on_top(audience):
    """Category 0 in the first three places, of which no category has more than two; by visitor."""

    def share(b):
        order = np.argsort(-(audience @ b), axis=1)
        category = CATEGORY[order]
        other = np.argmax((category != category[:, :1]) & (np.arange(12) >= 2), axis=1)
        third = np.where(category[:, 0] == category[:, 1], other, 2)
        placed = category[
            np.arange(len(order))[:, None], np.column_stack([third * 0, third * 0 + 1, third])
        ]
        return np.mean(placed == 0, axis=1)

    return share


@cache
def true_share_on_top():
    rng = np.random.default_rng(1)
    return np.mean([share_on_top(audience(rng, 20_000))(CLICKS).mean() for _ in range(25)])


def ranking(rng, level, n):
    X = pairs(rng.normal(size=n), rng.integers(12, size=n))
    model = logistic(X, (rng.random(n) < expit(X @ CLICKS)).astype(float))
    h = share_on_top(audience(rng, n))
    psi = lambda b: h(b).mean()
    seed = int(rng.integers(2**32))
    cases = {
        "Simulation": (psi, SIMULATION(rng=seed)),
        "Smoothed": (SMOOTHED(psi, rng=seed), None),
    }
    rows_at_hand = covered(model, level, psi(CLICKS), cases)
    case = {"population: Simulation": (idm.Average(h), SIMULATION(rng=seed))}
    return rows_at_hand | covered(model, level, true_share_on_top(), case)


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
    rows_at_hand = covered(model, level, psi(DEMAND), cases)
    case = {"population: Infinitesimal": (idm.Average(h), None)}
    return rows_at_hand | covered(model, level, true_profit(), case)


STUDIES = tuple(
    Study(task, n, partial(trial, n=n), replications=REPLICATIONS)
    for task, trial in (
        ("unmet demand", unmet_demand),
        ("unmet demand of the population", unmet_demand_of_the_population),
        ("share predicted positive", share_predicted_positive),
        ("share on top of a ranking", ranking),
        ("profit at the best price", pricing),
    )
    for n in SIZES
)
