"""Several starts: what the report of their maxima says."""

import numpy as np
import pytest
from scipy.stats import norm

import implicit_delta as idm
from implicit_delta.models.starts import spelled_optima

RNG = np.random.default_rng(0)
MIXED = np.r_[RNG.normal(-2, 0.7, 80), RNG.normal(2, 0.7, 80)]


def mixture(th):
    first, second = (norm.pdf(MIXED, mean, 0.7) for mean in (th.m1, th.m2))
    return np.log(th.w * first + (1 - th.w) * second)


START = {"w": 0.5, "m1": -1.0, "m2": 1.0}
SWAPPED = {"w": 0.5, "m1": 1.5, "m2": -1.5}
BOUNDS = {"w": (0.05, 0.95), "m1": (-5, 5), "m2": (-5, 5)}


def test_exchanged_components_are_named():
    model = idm.from_loglik(mixture, start=START, starts=[SWAPPED], bounds=BOUNDS)
    told = spelled_optima(model.facts.optima)
    assert "components exchanged, or a sign or a phase changed; a bound or a constraint" in told
    assert "lower by 0" not in told


def test_the_advice_leaves_one_of_them():
    order = {"type": "ineq", "fun": lambda th: np.atleast_1d(th[2] - th[1])}
    model = idm.from_loglik(
        mixture, start=START, starts=[SWAPPED], bounds=BOUNDS, constraints=[order]
    )
    assert "exchanged" not in spelled_optima(model.facts.optima)
    assert model.theta.m1 < model.theta.m2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_starts_without_a_maximum_are_counted():
    """From a far start the terms are flat, and the search ends nowhere."""
    y = np.array([0.1, -0.2, 0.3, 0.0])

    def loglik(th):
        return np.log(norm.pdf(y, th[0], 1.0))

    model = idm.from_loglik(loglik, start=[0.5], starts=[[1.0], [60.0]])
    told = spelled_optima(model.facts.optima)
    assert told.startswith("1 found in 2 fits, the best in 2 (1 more start led to no maximum)")
