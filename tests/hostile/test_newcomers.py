"""Habits of other packages: their keywords, their sign, their ways to ask for several things."""

import logging
import warnings

import numpy as np
import pytest

import implicit_delta as idm

RNG = np.random.default_rng(4)
X = RNG.uniform(0, 10, size=120)
P = np.exp(-0.5 * ((X - 5) / 0.4) ** 2) / 0.4 / np.sqrt(2 * np.pi)
T = np.linspace(0, 3, 21)
Y = 2.0 * np.exp(-T) + 0.4 * RNG.normal(size=21)
START = {"S": 5.0, "B": 100.0}


def terms(th):
    return np.log(th.S * P + th.B / 10) - (th.S + th.B) / X.size


def normal(th):
    return -(((Y - th.m) / np.exp(th.l)) ** 2) / 2 - th.l


def curve(**options):
    return idm.from_residuals(
        lambda th: Y - th.a * np.exp(-th.k * T), start={"a": 1.0, "k": 0.5}, **options
    )


NEGATED = {
    "within bounds": (terms, START, {"S": (0, None), "B": (1, None)}),
    "every parameter at a bound": (terms, START, {"S": (0, 50), "B": (1, 300)}),
    "without bounds": (terms, START, None),
    "a normal": (normal, {"m": 0.5, "l": 0.0}, None),
    "a bounded normal": (normal, {"m": 0.5, "l": 0.0}, {"m": (-5, 5), "l": (-3, 3)}),
}


@pytest.mark.parametrize("case", NEGATED)
def test_minus_a_log_likelihood_is_asked_for(case):
    loglik, start, bounds = NEGATED[case]
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            idm.from_loglik(lambda th: -loglik(th), start=start, bounds=bounds)
            told = " ".join(str(w.message) for w in record)
        except idm.ImplicitDeltaError as error:
            told = str(error)
    assert "minus" in told
    right = idm.from_loglik(loglik, start=start, bounds=bounds)
    assert f"{right.theta[0]:.3g}"[:4] in told


@pytest.mark.parametrize(
    ("loglik", "start", "bounds"),
    [
        (lambda th: -th.S * np.ones(5) / 5, {"S": 1.0}, {"S": (0, None)}),
        (lambda th: -(th.S + th.B) * np.ones(5), {"S": 1.0, "B": 2.0}, {"S": (0, 9), "B": (1, 9)}),
        (terms, START, {"S": (0, None), "B": (1, None)}),
        (lambda th: 1e6 + normal(th), {"m": 0.5, "l": 0.0}, None),
    ],
)
def test_a_log_likelihood_is_not(loglik, start, bounds):
    idm.from_loglik(loglik, start=start, bounds=bounds)  # a warning is an error


KEYWORDS = {
    "absolute_sigma": (lambda: curve(sigma=0.1, absolute_sigma=True), "variance=1.0"),
    "yerr": (lambda: curve(yerr=0.1), "sigma="),
    "limits": (lambda: curve(limits={"a": (0, None)}), "bounds="),
    "p0": (lambda: idm.from_residuals(lambda th: Y - th[0], p0=[1.0]), "start="),
    "jac": (lambda: curve(jac=lambda th: th), "jacobian="),
    "limits of a likelihood": (
        lambda: idm.from_loglik(terms, start=START, limits={"S": (0, None)}),
        "bounds=",
    ),
    "unknown": (lambda: curve(nonsense=1), "nonsense"),
}


@pytest.mark.parametrize("case", KEYWORDS)
def test_keywords_of_others_are_refused_with_ours(case):
    ask, words = KEYWORDS[case]
    with pytest.raises(TypeError, match=words):
        ask()


def test_too_small_a_sigma_names_the_remedy_once_and_it_works():
    model = curve(sigma=0.1, variance=1.0)
    with pytest.warns(idm.DispersionWarning, match="Leave out `variance=`") as record:
        est = idm.infer(model, "a")
    assert "binomial" not in str(record[0].message)
    again = idm.infer(model, "k")  # no second warning, and yet it is noted
    assert any("vary more" in text for text in again.diagnostics.warnings)
    assert idm.infer(curve(sigma=0.1), "a").standard_error > 2 * est.standard_error


def ratio(th):
    return th.S / th.B


SEVERAL = {
    "a dict": ({"ratio": ratio, "S": "S"}, ("ratio", "S")),
    "a dict of functions": ({"r": ratio, "s": lambda th: th.S}, ("r", "s")),
    "a list": ([ratio, "S"], ("ratio", "S")),
    "a list of functions": ([lambda th: ratio(th), lambda th: th.S], ("psi[0]", "psi[1]")),
    "a tuple": ((ratio, "S"), ("ratio", "S")),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_functions_and_names_together(case):
    psi, names = SEVERAL[case]
    model = idm.from_loglik(terms, start=START)
    est, right = (idm.infer(model, p) for p in (psi, lambda th: np.stack([ratio(th), th.S])))
    assert est.names == names
    np.testing.assert_allclose(est.value, right.value, rtol=1e-12)
    np.testing.assert_allclose(est.covariance, right.covariance, rtol=1e-9)
    many = idm.profile(model, psi)
    np.testing.assert_allclose(many[1].interval, idm.profile(model, "S").interval, rtol=1e-6)


@pytest.mark.parametrize("psi", [{}, {"a": 3}, {"a": "T"}, [ratio, 3], [ratio, "T"]])
def test_other_dicts_and_lists_are_refused(psi):
    with pytest.raises((TypeError, idm.EvaluationError)):
        idm.infer(idm.from_loglik(terms, start=START), psi)


def test_both_spellings_of_names():
    model = idm.from_loglik(terms, start=START)
    assert idm.infer(model, ratio, name="r").names == ("r",)
    assert idm.profile(model, ratio, names="r").name == "r"
    assert idm.contour(model, ["S", "B"], rays=8, name=["s", "b"]).names == ("s", "b")
    with pytest.raises(TypeError, match="one of the two"):
        idm.profile(model, ratio, names="r", name="r")


@pytest.mark.parametrize("switch", ["auto", "off", "on"])
def test_a_long_wait_is_foretold_without_a_terminal(monkeypatch, caplog, switch):
    monkeypatch.setenv("IMPLICIT_DELTA_PROGRESS", switch)
    clock = iter(range(10**9))
    monkeypatch.setattr("implicit_delta.models.loglik_rows.perf_counter", lambda: next(clock))
    start = {"m": 0.5, "l": 0.0}
    with caplog.at_level(logging.WARNING, logger="implicit_delta"):
        model = idm.from_loglik(normal, start=start)
        idm.contour(model, ["m", "l"], rays=8)
        idm.profile(model, idm.parameters)
        idm.infer(model, "m", idm.Bootstrap(20, rng=0))
        idm.from_loglik(normal, start=start, starts=2)
    lines = [record.getMessage().partition(" (")[0] for record in caplog.records]
    for label in ("maximizing", "contour", "profiles", "bootstrap", "starts"):
        assert (label in lines) == (switch == "auto"), (label, lines)
