"""Null hypotheses at which a likelihood ratio has no chi-squared distribution, or half of one."""

import re

import numpy as np
import pytest
from scipy.stats import chi2, norm

import implicit_delta as idm

RNG = np.random.default_rng(2)
FLAT = RNG.uniform(0, 10, 200)
X = np.linspace(0, 4, 40)
Y = 1 + 0.3 * RNG.normal(size=40)


def peak(**options):
    def loglik(th):
        return np.log(th.f * norm.pdf(FLAT, th.mu, 0.4) + (1 - th.f) / 10)

    bounds = {"f": (0, 0.9), "mu": (0.5, 9.5)}
    return idm.from_loglik(loglik, start={"f": 0.05, "mu": 5.0}, bounds=bounds, **options)


def yields(x=FLAT, start=None):
    def loglik(th):
        density = th.S * norm.pdf(x, th.mu, th.sig) + th.B / 10
        return np.log(density) - (th.S + th.B) / len(x)

    return idm.from_loglik(
        loglik,
        start=start or {"S": 10.0, "B": 190.0, "mu": 5.0, "sig": 0.4},
        bounds={"S": (0, None), "B": (1, None), "mu": (1, 9), "sig": (0.2, 1)},
    )


def background():
    return idm.from_loglik(
        lambda th: np.log(th.B / 10) - th.B / len(FLAT) + 0 * FLAT, start={"B": 190.0}
    )


def decay(**options):
    return idm.from_residuals(
        lambda th: Y - th.c - th.A * np.exp(-th.k * X),
        start={"c": 1.0, "A": 0.5, "k": 1.0},
        bounds={"k": (0.3, 5)},
        **options,
    )


def combined_ways():
    """Under b = 0 only the sum of p and q matters; neither is flat on its own."""
    return idm.from_residuals(
        lambda th: Y - (th.p + th.q) - th.b * np.sin(X * (th.p - th.q)),
        start={"p": 1.2, "q": 0.1, "b": 0.1},
        bounds={"p": (0.3, 2)},
    )


def positions():
    return idm.from_loglik(
        lambda th: np.log(th[0] * norm.pdf(FLAT, th[1], 0.4) + (1 - th[0]) / 10),
        start=[0.05, 5.0],
        bounds=[(0, 0.9), (0.5, 9.5)],
    )


def against_itself(model, **values):
    return model.fix(**values), model


VANISHING = {
    "a peak of height zero": (lambda: against_itself(peak(), f=0.0), "f = 0", "mu"),
    "several starts": (lambda: against_itself(peak(starts=4), f=0.0), "f = 0", "mu"),
    "place and width": (lambda: against_itself(yields(), S=0.0), "S = 0", "mu and sig"),
    "fixed as well": (
        lambda: against_itself(yields(), S=0.0, mu=5.0, sig=0.4),
        "S = 0",
        "mu and sig",
    ),
    "one of them fixed": (lambda: against_itself(yields(), S=0.0, mu=5.0), "S = 0", "mu and sig"),
    "width fixed in both": (
        lambda: against_itself(yields().fix(sig=0.4), S=0.0),
        "S = 0",
        "mu",
    ),
    "a function of its own": (lambda: (background(), yields()), "S = 0", "mu and sig"),
    "least squares": (lambda: against_itself(decay(), A=0.0), "A = 0", "k"),
    "least squares, variance known": (
        lambda: against_itself(decay(variance=0.09), A=0.0),
        "A = 0",
        "k",
    ),
    "a direction": (lambda: against_itself(combined_ways(), b=0.0), "b = 0", "p and q"),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", VANISHING)
def test_what_means_nothing_under_the_null_has_no_p_value(name):
    make, null, lost = VANISHING[name]
    small, large = make()
    with pytest.raises(idm.UnsupportedModelError, match="Davies") as refused:
        idm.likelihood_ratio(small, large)
    assert f"Under {null} nothing depends on {lost}," in str(refused.value)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("make", [peak, yields, positions])
def test_the_advice_for_a_local_p_value_works(make):
    model = make()
    names = model.names or (0, 1)
    lost = ("mu", "sig") if make is yields else names[1:]
    null, given = {names[0]: 0.0}, {name: model.theta[list(names).index(name)] for name in lost}
    with pytest.raises(idm.UnsupportedModelError) as refused:
        idm.likelihood_ratio(model.fix(null), model)
    assert re.search("fix (it|them) in both fits", str(refused.value))
    assert "`large = model.fix(...)`, and `likelihood_ratio(values, large)`" in str(refused.value)
    assert 0 < idm.likelihood_ratio(null, model.fix(given)).p_value <= 1


REGULAR = {
    "elsewhere": lambda: against_itself(yields(), mu=5.0),
    "not at zero": lambda: against_itself(peak(), f=0.1),
    "place fixed in both": lambda: against_itself(yields().fix(mu=5.0, sig=0.4), S=0.0),
    "slope": lambda: against_itself(
        idm.from_residuals(lambda th: Y - th.a - th.b * X, start={"a": 1.0, "b": 0.1}), b=0.0
    ),
    "collinear": lambda: against_itself(
        idm.from_residuals(
            lambda th: Y - th.a - th.b * X - th.c * X**2 - th.e * (1e3 + X),
            start={"a": 1.0, "b": 0.1, "c": 0.0, "e": 0.0},
        ).fix(e=0.0),
        c=0.0,
    ),
    "one term": lambda: against_itself(
        idm.from_loglik(
            lambda th: np.array([-20 * (th.a - 1) ** 2 - 9 * (th.b - 0.2) ** 2 + th.a * th.b]),
            start={"a": 1.0, "b": 0.1},
        ),
        b=0.0,
    ),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", REGULAR)
def test_regular_tests_are_not_refused(name):
    assert 0 <= idm.likelihood_ratio(*REGULAR[name]()).p_value <= 1


def test_a_local_p_value_holds_its_level():
    """Background alone, the place given: rejected at 5 % in 5 % of data sets."""
    rejected, sets = 0, 200
    rng = np.random.default_rng(8)
    for _ in range(sets):
        x = rng.uniform(0, 10, 100)
        ratio = norm.pdf(x, 5, 0.8) * 10 - 1
        model = idm.from_loglik(
            lambda th, ratio=ratio: np.log1p(th.f * ratio),
            start={"f": 0.05},
            bounds={"f": (0, 0.9)},
        )
        statistic = 2 * float(model.rows.terms(np.array(model.theta)).sum())
        rejected += chi2.sf(statistic, 1) / 2 < 0.05
    assert abs(rejected / sets - 0.05) < 3 * np.sqrt(0.05 * 0.95 / sets)


def counted(z, upper=False):
    """Two normal estimates of correlation 0.5: a nuisance parameter, and a signal at its bound."""
    precision = np.linalg.inv([[1.0, 0.5], [0.5, 1.0]])
    sign = -1.0 if upper else 1.0

    def loglik(th):
        gap = np.array([0.3, z]) - np.array([th.B, sign * th.S])
        return np.full(2, -0.25 * gap @ precision @ gap)

    bounds = {"S": (None, 0) if upper else (0, None)}
    return idm.from_loglik(loglik, start={"B": 0.0, "S": -sign * -0.5}, bounds=bounds)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("z", [-3.0, -1.0, -0.05, 0.5, 2.0])
def test_all_three_are_one_sided_at_a_bound(z, upper):
    """A deficit is no evidence for a signal: z^2 above zero, and nothing below."""
    model = counted(z, upper)
    found = idm.likelihood_ratio(model.fix(S=0.0), model)
    statistic = max(z, 0.0) ** 2
    p_value = norm.sf(z) if z > 0 else 1.0
    for name in ("likelihood ratio", "Wald", "score"):
        assert found[name].statistic == pytest.approx(statistic, rel=1e-5, abs=1e-12)
        assert found[name].p_value == pytest.approx(p_value, rel=1e-4)


@pytest.mark.parametrize("z", [(-3.0, -1.0), (-2.0, 1.0), (1.0, 2.0)])
def test_score_beside_two_bounds_is_that_of_the_cone(z):
    model = idm.from_loglik(
        lambda th: np.full(2, -0.25 * np.sum((np.array(z) - [th.S, th.R]) ** 2) - 0.5 * th.B**2),
        start={"S": 0.5, "R": 0.5, "B": 0.1},
        bounds={"S": (0, None), "R": (0, None)},
    )
    found = idm.likelihood_ratio(model.fix(S=0.0, R=0.0), model)
    expected = np.sum(np.maximum(z, 0.0) ** 2)
    for name in ("likelihood ratio", "score"):
        assert found[name].statistic == pytest.approx(expected, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("shift", np.linspace(-2.0, -0.1, 7))
def test_a_statistic_of_zero_has_one_p_value(shift):
    """Rounding of the maximum at its bound must not decide between 0.5 and 1."""
    y = np.random.default_rng(0).normal(shift, 1.0, 30)
    y -= y.mean() - shift
    model = idm.from_loglik(
        lambda th: norm.logpdf(y, th.m, np.exp(th.s)),
        start={"m": 0.3, "s": 0.0},
        bounds={"m": (0, None)},
    )
    found = idm.likelihood_ratio(model.fix(m=0.0), model)
    assert [test.p_value for test in found.tests] == [1.0] * len(found.tests)
    assert [test.statistic for test in found.tests] == [0.0] * len(found.tests)


def test_help_opens_with_a_verb():
    assert idm.likelihood_ratio.__doc__.startswith("Test the smaller")
