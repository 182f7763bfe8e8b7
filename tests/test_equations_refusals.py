"""Equations that have no honest error bar are refused, with the reason, within seconds."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

import implicit_delta as idm

rng = np.random.default_rng(0)
N = 200
X = np.column_stack([np.ones(N), rng.normal(size=N)])
Y = X @ [1.0, 2.0] + rng.normal(size=N)
A = (rng.random(N) < expit(X @ [0.0, 1.0])) * 1.0
Z = np.column_stack([X, X[:, 1] ** 2])
OLS = np.linalg.lstsq(X, Y, rcond=None)[0]
WEAK = rng.normal(size=N)


def ols(b):
    return X * (Y - X @ b)[:, None]


def over(b):
    return Z * (Y - X @ b)[:, None]


def slope(b):
    return -X.T @ X


def median(b):
    return X * (0.5 - (X @ b > Y))[:, None]


def missing(b):
    y = Y.copy()
    y[7] = np.nan
    return X * (y - X @ b)[:, None]


def noisy(b):
    return ols(b) + 1e-3 * np.random.default_rng().normal(size=(N, 2))


def separated(b):
    return X * ((X[:, 1] > 0) - expit(X @ b))[:, None]


def averaged(b):
    return np.ones((N, 1)) * ols(b).mean(axis=0)


ATTACKS = {
    "summed": (lambda: idm.from_equations(lambda b: ols(b).sum(axis=0), OLS), ValueError, "sum"),
    "a number": (lambda: idm.from_equations(lambda b: 0.0, [1.0]), ValueError, "one row per"),
    "transposed": (lambda: idm.from_equations(lambda b: ols(b).T, OLS), ValueError, "transpose"),
    "q < d": (lambda: idm.from_equations(lambda b: ols(b[:2]), np.zeros(3)), ValueError, "q < d"),
    "three axes": (lambda: idm.from_equations(lambda b: ols(b)[None], OLS), ValueError, "(n, q)"),
    "text": (lambda: idm.from_equations(lambda b: ols(b).astype(str), OLS), ValueError, "type"),
    "neither point": (lambda: idm.from_equations(ols), ValueError, "theta= "),
    "both points": (lambda: idm.from_equations(ols, OLS, start=OLS), ValueError, "not both"),
    "missing values": (lambda: idm.from_equations(missing, OLS), ValueError, "observation 7"),
    "random": (lambda: idm.from_equations(noisy, OLS), idm.UnsupportedModelError, "two results"),
    "no root": (
        lambda: idm.from_equations(ols, OLS + np.array([0.0, 1.0])),
        idm.ConvergenceError,
        r"theta\[1\] by [\d.]+ standard errors",
    ),
    "nearly a root": (
        lambda: idm.from_equations(ols, OLS + np.array([0.0, 0.03]), names=["a", "b"]),
        idm.ConvergenceError,
        r"moves b by 0\.4 standard errors",
    ),
    "another weighting": (
        lambda: idm.from_equations(over, OLS + np.array([0.0, 0.1]), weighting=np.eye(3)),
        idm.ConvergenceError,
        "minimum of GMM",
    ),
    "unused parameter": (
        lambda: idm.from_equations(
            lambda b: np.column_stack([ols(b[:2]), ols(b[:2])[:, 0]]),
            np.append(OLS, 0.0),
            names=["a", "b", "idle"],
        ),
        idm.NotAMaximumError,
        "determine idle: ",
    ),
    "collinear": (
        lambda: idm.from_equations(
            lambda b: X[:, [0, 1, 1]] * (Y - X[:, [0, 1, 1]] @ b)[:, None],
            start=np.zeros(3),
            names=["one", "x", "copy"],
        ),
        idm.NotAMaximumError,
        "determine (x, copy|copy, x)",
    ),
    "the same equation twice": (
        lambda: idm.from_equations(
            lambda b: np.column_stack([over(b), over(b)[:, 1]]), start=np.zeros(2)
        ),
        idm.UnsupportedModelError,
        "linearly dependent",
    ),
    "no variance": (
        lambda: idm.from_equations(
            lambda b: np.column_stack([ols(b[:2]), over(b[:2])[:, 2], 0 * Y + b[2] - b[1]]),
            start=np.zeros(3),
        ),
        idm.UnsupportedModelError,
        "zero for every row",
    ),
    "jumps": (lambda: idm.from_equations(median, OLS), idm.UnsupportedModelError, "bootstrap"),
    "jumps from a start": (
        lambda: idm.from_equations(median, start=[0.0, 0.0]),
        idm.ImplicitDeltaError,
        "jump",
    ),
    "separated classes": (
        lambda: idm.from_equations(separated, start=[0.0, 0.0]),
        idm.ImplicitDeltaError,
        "separated",
    ),
    "no solution": (
        lambda: idm.from_equations(lambda b: (1 + (Y - b[0]) ** 2)[:, None], start=[0.0]),
        idm.ConvergenceError,
        "No root",
    ),
    "jacobian of the mean": (
        lambda: idm.from_equations(ols, OLS, jacobian=lambda b: slope(b) / N),
        ValueError,
        "mean instead of a sum",
    ),
    "jacobian with the other sign": (
        lambda: idm.from_equations(ols, OLS, jacobian=lambda b: -slope(b)),
        ValueError,
        "a sign",
    ),
    "jacobian of another shape": (
        lambda: idm.from_equations(ols, OLS, jacobian=lambda b: slope(b)[:1]),
        ValueError,
        r"\(q, d\) = \(2, 2\)",
    ),
    "jacobian of jumps, of the mean": (
        lambda: idm.from_equations(
            lambda b: 0.5 - (b[0] > Y), [np.median(Y)], jacobian=lambda b: [[-norm.pdf(0) / 2]]
        ),
        ValueError,
        "mean instead of a sum",
    ),
    "weighting of a root": (
        lambda: idm.from_equations(ols, OLS, weighting=np.eye(2)),
        ValueError,
        "Leave it out",
    ),
    "unknown weighting": (
        lambda: idm.from_equations(over, start=OLS, weighting="efficient"),
        ValueError,
        '"two-step"',
    ),
    "weighting of another shape": (
        lambda: idm.from_equations(over, start=OLS, weighting=np.eye(2)),
        ValueError,
        r"\(3, 3\)",
    ),
    "indefinite weighting": (
        lambda: idm.from_equations(over, OLS, weighting=np.diag([1.0, 1.0, -1.0])),
        ValueError,
        "positive definite",
    ),
    "two-step at theta": (
        lambda: idm.from_equations(over, OLS, weighting="two-step"),
        ValueError,
        "start=",
    ),
    "weights of other rows": (
        lambda: idm.from_equations(ols, OLS, weights=np.ones(5)),
        ValueError,
        "200 observations",
    ),
    "names": (lambda: idm.from_equations(ols, OLS, names=["a"]), ValueError, "1 names"),
    "rows that were averaged": (
        lambda: idm.infer(idm.from_equations(averaged, OLS), lambda b: b[1]),
        idm.EvaluationError,
        "zero in every row",
    ),
}


@pytest.mark.parametrize(("call", "error", "match"), ATTACKS.values(), ids=ATTACKS)
def test_bad_equations(call, error, match):
    with pytest.raises(error, match=match):
        call()


FITTED = idm.from_equations(ols, OLS)
SLOPE = lambda b: b[1]
ASKED = {
    "HC2": ({"robust": "HC2"}, "HC1"),
    "HC3": ({"robust": "HC3"}, "HC1"),
    "CR2": ({"robust": "CR2", "clusters": np.arange(N) % 50}, "CR1"),
    "Infinitesimal": ({"method": idm.Infinitesimal()}, "without"),
    "FiniteDifference": ({"method": idm.FiniteDifference()}, "without"),
    "Simulation": ({"method": idm.Simulation()}, "without"),
    "Bootstrap": ({"method": idm.Bootstrap()}, "without"),
}


@pytest.mark.parametrize(("options", "match"), ASKED.values(), ids=ASKED)
def test_what_equations_do_not_have(options, match):
    with pytest.raises(idm.UnsupportedModelError, match=match):
        idm.infer(FITTED, SLOPE, **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda: idm.profile(FITTED, SLOPE),
        lambda: idm.polish(FITTED),
    ],
)
def test_other_doors_are_closed(call):
    with pytest.raises(idm.UnsupportedModelError, match="no log-likelihood"):
        call()


def test_what_is_smoothed_is_drawn_from_the_sandwich():
    plain, smoothed = idm.infer(FITTED, SLOPE), idm.infer(FITTED, idm.Smoothed(SLOPE, rng=0))
    assert smoothed.standard_error == pytest.approx(plain.standard_error, rel=1e-6)


def test_the_advice_works():
    assert idm.infer(FITTED, SLOPE, robust="HC1").standard_error > 0
    clusters = np.arange(N) % 50
    assert idm.infer(FITTED, SLOPE, robust="CR1", clusters=clusters).standard_error > 0
    found = idm.from_equations(ols, start=OLS + np.array([0.0, 1.0]))
    np.testing.assert_allclose(found.theta, OLS)


def test_a_flat_psi_is_refused():
    with pytest.raises(idm.EvaluationError, match="exactly zero"):
        idm.infer(FITTED, lambda b: 1.0)


def test_a_weak_instrument_is_said():
    x = 0.02 * WEAK + np.random.default_rng(1).normal(size=N)
    with pytest.warns(idm.NonlinearityWarning, match="weakly determined"):
        idm.from_equations(lambda b: (WEAK * (Y - b[0] * x))[:, None], start=[0.0])


@pytest.mark.parametrize("weighting", ["two-step", "iterated", "2SLS"])
def test_weak_instruments_are_said_for_every_weighting(weighting):
    generator = np.random.default_rng(4)
    W = generator.normal(size=(N, 3))
    x = 0.05 * W.sum(axis=1) + generator.normal(size=N)
    W_ = np.linalg.inv(W.T @ W) if weighting == "2SLS" else weighting
    with pytest.warns(idm.NonlinearityWarning, match="weakly determined"):
        idm.from_equations(lambda b: W * (Y - b[0] * x)[:, None], start=[0.0], weighting=W_)


def test_equations_that_contradict_each_other_are_said():
    with pytest.warns(idm.ImplicitDeltaWarning, match="contradict"):
        idm.from_equations(lambda b: np.column_stack([Y - b[0], Y + 5 - b[0]]), start=[0.0])


def test_a_wrong_jacobian_of_smooth_equations_is_said():
    with pytest.warns(idm.NonlinearityWarning, match="20%"):
        idm.from_equations(ols, OLS, jacobian=lambda b: slope(b) / 1.2)


@pytest.mark.parametrize("scales", [(1e-6, 1e6), (1e5, 1e-3)])
def test_scales_of_parameters_do_not_matter(scales):
    scaled = idm.from_equations(lambda b: ols(b * scales), start=[0.0, 0.0])
    np.testing.assert_allclose(scaled.theta * scales, OLS, rtol=1e-8)
    errors = idm.infer(scaled, idm.parameters).standard_error * scales
    np.testing.assert_allclose(errors, idm.infer(FITTED, idm.parameters).standard_error, rtol=1e-8)


def test_a_robust_location_with_kinks():
    def huber(b):
        return np.clip(Y - b[0], -1.5, 1.5)

    model = idm.from_equations(huber, start=[0.0])
    r = Y - model.theta[0]
    by_hand = np.sqrt(np.sum(np.clip(r, -1.5, 1.5) ** 2)) / np.sum(abs(r) < 1.5)
    np.testing.assert_allclose(idm.infer(model, SLOPE_0).standard_error, by_hand, rtol=1e-8)


def SLOPE_0(b):
    return b[0]


def test_equations_that_change_their_argument_or_result():
    kept = np.empty((N, 2))

    def rude(b):
        np.multiply(X, (Y - X @ b)[:, None], out=kept)
        b[:] = 0
        return kept

    model = idm.from_equations(rude, start=[0.0, 0.0])
    np.testing.assert_allclose(model.theta, OLS)


def test_single_precision_is_right_or_refused():
    model = idm.from_equations(lambda b: ols(b).astype(np.float32), start=[0.0, 0.0])
    exact = idm.infer(FITTED, idm.parameters).standard_error
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, exact, rtol=1e-3)


def test_a_psi_that_bends_has_advice_for_equations():
    with pytest.warns(idm.NonlinearityWarning, match="closer to linear, or use `bootstrap"):
        idm.infer(FITTED, lambda b: np.exp(30 * b[1]), strict=False)
