"""Limits and goodness of fit beside a bound: smooth and monotone in the data, fitted within."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import erf
from scipy.stats import kstest, norm, uniform

import implicit_delta as idm

PARABOLA, LINE = norm.ppf(0.95) ** 2, -2 * np.log(0.05)


def counting(n, b):
    """Count n over a known background b: a signal of at least zero."""
    return idm.from_loglik(
        lambda th: np.array([n * np.log1p(th[0] / b) - th[0]]), start=[1.0], bounds=[(0, None)]
    )


def mean_of(x):
    return idm.from_loglik(
        lambda th: np.full(4, -0.125) * (x - th[0]) ** 2, start=[1.0], bounds=[(0, None)]
    )


def signal_limit(model):
    return float(idm.limit(model, lambda th: th[0]))


@pytest.mark.parametrize("b", [3.0, 8.0, 20.0])
def test_one_event_more_never_lowers_the_limit(b):
    """With less background than that, counts are no business of large samples (b = 2: -3 %)."""
    counts = [*range(int(b) + 4)] if b < 9 else [0, 1, 3, 6, 10, 13, 15, 16, 17, 18, 19, 20, 21]
    limits = [signal_limit(counting(n, b)) for n in counts]
    assert limits[0] == pytest.approx(-np.log(0.05), rel=1e-5)
    assert np.all(np.diff(limits) > 0)


def test_limits_rise_smoothly_with_a_normal_estimate():
    """The jump was from 5.99 to 2.71 at two standard errors beyond the bound."""
    x = np.r_[np.linspace(-8, 1, 28), -2.0001, -1.9999]
    limits = np.array([signal_limit(mean_of(each)) for each in x])
    order = np.argsort(x)
    assert np.all(np.diff(limits[order]) > 0)
    assert limits[-1] - limits[-2] < 1e-3


@pytest.mark.parametrize("x", [-6.0, -2.5, -1.0, -0.1, 0.0, 0.7])
def test_quantiles_lie_between_parabola_and_line(x):
    deviance = (signal_limit(mean_of(x)) - x) ** 2 - min(x, 0.0) ** 2
    expected = PARABOLA + erf(max(-x, 0.0) / 2) * (LINE - PARABOLA)
    assert deviance == pytest.approx(expected, rel=1e-4)


SIDES = np.r_[np.linspace(0.05, 3.9, 42), np.linspace(6.1, 9.95, 42)]


def window(k):
    """A flat background outside of 4 to 6, and k events inside, one after the other."""
    events = 4 + 2 * np.modf(0.5 + 0.618034 * np.arange(k))[0]
    return np.r_[SIDES, events]


def peak_model(x, low=0.0):
    density = norm.pdf(x, 5, 0.4)
    return idm.from_loglik(
        lambda th: np.log(th.S * density + th.B / 10) - (th.S + th.B) / len(x),
        start={"S": 5.0, "B": 100.0},
        bounds={"S": (low, None), "B": (1, None)},
    )


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_more_events_in_the_peak_give_higher_limits():
    """Evenly spaced as in a report: 4.83, 5.50, 3.14, 4.57 for 8, 10, 12 and 16 events before."""
    limits = []
    for k in (0, 8, 10, 12, 16, 20):
        x = np.r_[SIDES, 4 + 2 * (np.arange(k) + 0.5) / max(k, 1)]
        limits.append(float(idm.limit(peak_model(x), "S")))
    assert np.all(np.diff(limits) > 0)


@pytest.mark.parametrize("parameter", [lambda th: th[0], lambda th: th[0] + th[1]])
def test_what_a_bound_of_another_holds_keeps_its_quantile(parameter):
    """A signal held at zero does not straighten the likelihood of an independent rate."""
    y = np.array([9.0, 12.0, 7.0])
    model = idm.from_loglik(
        lambda th: np.r_[y * np.log(th[0]) - th[0], -0.5 * (th[1] + 1.5) ** 2],
        start=[8.0, 0.5],
        bounds=[(0.1, None), (0, None)],
    )
    s = y.sum()
    end = brentq(lambda r: 2 * (s * np.log(s / 3 / r) + 3 * r - s) - PARABOLA, s / 3, 40)
    assert float(idm.limit(model, parameter)) == pytest.approx(end, rel=1e-4)


@pytest.mark.parametrize("truth", [0.0, 0.5, 2.0])
def test_limits_of_counts_cover(truth):
    """Signals of so many standard errors over backgrounds of 4 and 25: exact coverage."""
    from scipy.stats import poisson

    for b in (4.0, 25.0):
        signal = truth * np.sqrt(b)
        few = range(int(poisson.ppf(0.06, signal + b)) + 2)
        missed = [n for n in few if signal_limit(counting(n, b)) < signal]
        assert poisson.pmf(missed, signal + b).sum() <= 0.05 + 0.02


def drawn_peak(seed, strength):
    rng = np.random.default_rng(seed)
    return np.r_[rng.normal(5, 0.4, rng.poisson(strength)), rng.uniform(0, 10, rng.poisson(60))]


def peak_terms(th, x):
    return np.log(th.S * norm.pdf(x, 5, 0.4) + th.B / 10) - (th.S + th.B) / len(x)


def drawn_anew(th, rng):
    count = rng.poisson(th.S), rng.poisson(th.B)
    x = np.r_[rng.normal(5, 0.4, count[0]), rng.uniform(0, 10, count[1])]
    return partial(peak_terms, x=x)


def fitted_peak(x):
    return idm.from_loglik(
        partial(peak_terms, x=x),
        start={"S": 5.0, "B": 60.0},
        bounds={"S": (0, None), "B": (1, None)},
        simulate=drawn_anew,
    )


def distance(model):
    th, x = model.theta, model.rows.loglik.keywords["x"]
    share = th.S / (th.S + th.B)
    return kstest(
        x, lambda v: share * norm.cdf(v, 5, 0.4) + (1 - share) * uniform.cdf(v, 0, 10)
    ).statistic


@pytest.mark.parametrize("fixed", [{}, {"S": 0.0}])
@pytest.mark.parametrize("strength", [0.0, 4.0])
@pytest.mark.parametrize("statistic", [None, distance])
def test_goodness_of_fit_refits_within_bounds(strength, statistic, fixed):
    """Half of all draws end at the bound: none is lost, and no function is called beyond it."""
    model = fitted_peak(drawn_peak(11, strength))
    model = model.fix(**fixed) if fixed else model
    found = idm.goodness_of_fit(model, statistic, replicates=9, rng=0)
    assert found.failed == 0
    assert len(found.draws) == 9
    assert 0.1 <= found.p_value <= 1


def test_drawn_fits_beside_a_bound_are_the_constrained_maxima():
    """Normal estimates of a mean of at least zero: max(mean, 0) of each draw."""

    def loglik(th, y):
        return -0.5 * (y - th[0]) ** 2

    def simulate(th, rng):
        return partial(loglik, y=rng.normal(th[0], size=20))

    y = np.linspace(-1, 1.1, 20)
    model = idm.from_loglik(
        partial(loglik, y=y), start=[0.5], bounds=[(0, None)], simulate=simulate
    )

    def gap(m):
        return 1 + abs(m.theta[0] - max(m.rows.loglik.keywords["y"].mean(), 0.0))

    found = idm.goodness_of_fit(model, gap, replicates=30, rng=1)
    assert np.max(found.draws) == pytest.approx(1.0, abs=1e-6)


def test_goodness_of_fit_sees_a_bad_fit_beside_a_bound():
    x = np.r_[drawn_peak(3, 0.0), np.random.default_rng(0).uniform(8, 9, 40)]
    assert idm.goodness_of_fit(fitted_peak(x), distance, replicates=19, rng=0).p_value == 0.05
