"""Own likelihoods in hostile hands: counts of zero, changed data, point nulls, names."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import xlogy
from scipy.stats import binom, norm, poisson

import implicit_delta as idm

Y = np.random.default_rng(0).normal(2, 1.5, 50)
NO_EVENT = -np.log(0.05)
HOURS = np.array([1.0, 2.0])


def rate(loglik, start=1.0, **given):
    return idm.from_loglik(loglik, start={"r": start}, bounds={"r": (0, None)}, **given)


def normal(data=Y, **given):
    return idm.from_loglik(
        lambda th: norm.logpdf(data, th.mu, th.s),
        start={"mu": 1.0, "s": 1.0},
        bounds={"s": (0.01, None)},
        **given,
    )


def poisson_end(count, quantile):
    top = count * np.log(count) - count
    return brentq(lambda a: 2 * (top - count * np.log(a) + a) - quantile, count, 100 * count)


# No event: a log-likelihood that is a line has no unit of its own.


@pytest.mark.parametrize("start", [0.01, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("exposure", [0.1, 1.0, 100.0])
def test_no_event_has_its_limit_for_any_start_and_exposure(start, exposure):
    model = rate(lambda th: np.array([-th.r * exposure]), start)
    assert float(idm.limit(model, "r")) * exposure == pytest.approx(NO_EVENT, rel=1e-5)
    high = idm.profile(model, "r").interval.high
    assert high * exposure == pytest.approx(1.959964**2 / 2, rel=1e-5)


@pytest.mark.parametrize(
    "loglik",
    [
        lambda th: -th.r * HOURS / 3,
        lambda th: np.array([-th.r - 3.0]),
        lambda th: poisson.logpmf(np.array([0]), th.r + 3.0),
        lambda th: poisson.logpmf(np.array([0]), th.r + 0.02),
        lambda th: poisson.logpmf(np.array([0, 0]), th.r * HOURS / 3 + 1.0),
        lambda th: xlogy(0, th.r) - np.array([th.r]),
    ],
    ids=["two rows", "constant", "background", "little background", "two channels", "xlogy"],
)
def test_no_event_has_its_limit_however_it_is_written(loglik):
    assert float(idm.limit(rate(loglik), "r")) == pytest.approx(NO_EVENT, rel=1e-5)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_channel_without_events_leaves_the_other_its_limit(count):
    model = idm.from_loglik(
        lambda th: np.array([count * np.log(th.a) - th.a, -th.b]),
        start={"a": 1.0, "b": 1.0},
        bounds={"a": (0, None), "b": (0, None)},
    )
    assert float(idm.limit(model, "a")) == pytest.approx(poisson_end(count, 2.705543), rel=1e-5)
    assert float(idm.limit(model, "b")) == pytest.approx(NO_EVENT, rel=1e-5)
