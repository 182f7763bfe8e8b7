"""Estimating equations in other units: the same estimate and the same verdict, from 1e-9 to 1e9.

Each case makes equations of data in units u, a start (or a root), and the powers of u by which the
parameters scale. Nothing else may change.
"""

import warnings

import numpy as np
import pytest
from scipy.special import expit, ndtr

import implicit_delta as idm

UNITS = (1e-9, 1e-6, 1e-4, 1e-2, 10.0, 1e3, 1e6, 1e9)
N = 400
rng = np.random.default_rng(3)
x = rng.normal(size=N) + 2
y = 1.5 + 0.8 * x + rng.standard_t(5, size=N)
A = (rng.uniform(size=N) < expit(-1 + 0.7 * x)) * 1.0
counts = np.floor(abs(y))
instruments = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
common = rng.normal(size=N)
endogenous = instruments @ [0, 1, 0.5] + common
outcome = 2 * endogenous + common + rng.normal(size=N)
ONE = np.ones(N)


def opaque(function):
    """The same function, written so that no derivative can be traced through it."""
    return lambda th: function(np.array([float(t) for t in th]))


def regression(u, residual, start=(0.0, 0.0)):
    X = np.column_stack([ONE, x * u])
    return (lambda th: X * residual(X @ th)[:, None]), {"start": list(start)}, [0, -1]


def scalar(u, equation, start=0.0):
    Y = y * u
    return (lambda th: equation(Y, th[0], u)), {"start": [start]}, [1]


def hidden(case):
    def made(u):
        function, given, powers = case(u)
        return opaque(function), given, powers

    return made


def stacked(u):
    X, Y = np.column_stack([ONE, x]), y * u

    def equations(th):
        p = expit(X @ th[:2])
        return np.column_stack([X * (A - p)[:, None], A * Y / p - th[2]])

    return equations, {"start": [0.0, 0.0, 0.0]}, [0, 0, 1]


def plugged_in(u):
    """The last equation has no noise: it defines a ratio of means."""
    Y = y * u
    return (
        lambda th: np.column_stack([Y - th[0], x - th[1], np.full(N, th[2] * th[1] - th[0])]),
        {"start": [0.0, 1.0, 0.0]},
        [1, 0, 1],
    )


def moments(u):
    Y = y * u
    return (
        lambda th: np.column_stack([Y - th[0], (Y - th[0]) ** 2 - th[1]]),
        {"start": [0.0, 0.0]},
        [1, 2],
    )


def gmm(u, weighting="two-step"):
    Y = outcome * u
    return (
        lambda th: instruments * (Y - th[0] - th[1] * endogenous)[:, None],
        {"start": [0.0, 0.0], "weighting": weighting},
        [1, 1],
    )


def curved_gmm(u):
    Z, X = np.column_stack([ONE, x, x**2]), np.column_stack([ONE, x * u])
    return (
        lambda th: Z * (counts - np.exp(X @ th))[:, None],
        {"start": [0.0, 0.0], "weighting": "iterated"},
        [0, -1],
    )


def smoothed_median(u):
    width = 0.3 * u
    return scalar(u, lambda Y, m, u: ndtr((Y - m) / width) - 0.5)


def with_jacobian(u):
    Y = y * u
    h = 0.5 * u

    def slope(th):
        return np.array([[-np.sum(np.exp(-(((Y - th[0]) / h) ** 2) / 2) / np.sqrt(2 * np.pi) / h)]])

    return (
        lambda th: (th[0] < Y) - 0.5,
        {"theta": [float(np.median(Y))], "jacobian": slope},
        [1],
    )


def quantile_regression(u):
    X, Y = np.column_stack([ONE, x]), y * u
    return (lambda th: X * ((X @ th < Y) - 0.5)[:, None]), {"start": [0.0, 0.0]}, [1, 1]


def median_at_root(u):
    function, _, powers = scalar(u, lambda Y, m, u: (m < Y) - 0.5)
    return function, {"theta": [float(np.median(y * u))]}, powers


def mean_at_zero(u):
    Y = (y - y.mean()) * u
    return (lambda th: Y - th[0]), {"theta": [float(np.mean(Y))]}, [1]


def offset(u):
    Y = (1e6 + y) * u
    return (lambda th: Y - th[0]), {"start": [0.0]}, [1]


CASES = {
    "mean": lambda u: scalar(u, lambda Y, m, u: Y - m),
    "mean, root at zero": mean_at_zero,
    "mean, large offset": offset,
    "ratio": lambda u: ((lambda th: y * u - th[0] * x), {"start": [0.0]}, [1]),
    "inverse ratio": lambda u: ((lambda th: y - th[0] * x * u), {"start": [0.0]}, [-1]),
    "rate": lambda u: ((lambda th: 1 / th[0] - abs(y) * u), {"start": [1 / u]}, [-1]),
    "mean and variance": moments,
    "Huber": lambda u: scalar(u, lambda Y, m, u: np.clip(Y - m, -1.3 * u, 1.3 * u)),
    "smoothed median": smoothed_median,
    "least squares": lambda u: regression(u, lambda eta: y - eta),
    "logit": lambda u: regression(u, lambda eta: A - expit(eta)),
    "Poisson": lambda u: regression(u, lambda eta: counts - np.exp(eta)),
    "inverse probability weights": stacked,
    "plugged in": plugged_in,
    "GMM": gmm,
    "iterated GMM": lambda u: gmm(u, "iterated"),
    "GMM of counts": curved_gmm,
    "median with its density": with_jacobian,
}
SMOOTH = CASES | {
    f"{name}, opaque": hidden(CASES[name])
    for name in CASES
    if name not in ("median with its density", "Huber")
}
JUMPING = {
    "median": lambda u: scalar(u, lambda Y, m, u: (m < Y) - 0.5),
    "median, sign": lambda u: scalar(u, lambda Y, m, u: np.sign(Y - m)),
    "median, from nearby": lambda u: scalar(u, lambda Y, m, u: (m < Y) - 0.5, 3.1 * u),
    "median, at its root": median_at_root,
    "upper quartile": lambda u: scalar(u, lambda Y, m, u: (m < Y) - 0.25),
    "quantile regression": quantile_regression,
}
JUMPING |= {f"{name}, opaque": hidden(case) for name, case in JUMPING.items()}


def answer(case, u):
    """Value and standard error in units of u = 1, and the warnings."""
    function, given, powers = case(u)
    scale = float(u) ** np.array(powers)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        estimate = idm.infer(idm.from_equations(function, **given), idm.parameters)
    kinds = {warning.category for warning in told}
    return estimate.value / scale, estimate.standard_error / scale, kinds


@pytest.mark.parametrize("case", SMOOTH.values(), ids=SMOOTH)
def test_smooth_equations_scale(case):
    value, error, told = answer(case, 1.0)
    assert not told
    for u in UNITS:
        there, spread, warned = answer(case, u)
        np.testing.assert_allclose(there, value, rtol=0, atol=1e-5 * error.max())
        np.testing.assert_allclose(spread, error, rtol=1e-5)
        assert warned == told


@pytest.mark.parametrize("case", JUMPING.values(), ids=JUMPING)
def test_equations_that_jump_are_refused_in_all_units(case):
    for u in (1.0, *UNITS):
        function, given, _ = case(u)
        with pytest.raises(idm.UnsupportedModelError, match="equations jump"):
            idm.from_equations(function, **given)


@pytest.mark.parametrize("n", [20, 101, 1000, 5001, 40000])
@pytest.mark.parametrize("seed", range(4))
def test_a_median_is_refused_whatever_its_rows(n, seed):
    data = np.random.default_rng(seed).gumbel(size=n)
    for given in ({"start": [0.0]}, {"theta": [float(np.median(data))]}):
        with pytest.raises(idm.UnsupportedModelError, match="equations jump"):
            idm.from_equations(lambda th: (data > th[0]) - 0.5, **given)


@pytest.mark.parametrize("u", [1e-9, 1.0, 1e9])
def test_separated_classes_do_not_jump(u):
    X = np.column_stack([ONE, (x - 2) * u])
    with pytest.raises(idm.ImplicitDeltaError, match="separated classes"):
        idm.from_equations(lambda th: X * ((x > 2) - expit(X @ th))[:, None], start=[0.0, 0.0])


@pytest.mark.parametrize("u", [1e-9, 1.0, 1e9])
def test_an_unused_parameter_is_named_in_all_units(u):
    with pytest.raises(idm.NotAMaximumError, match=r"do not determine theta\[1\]"):
        idm.from_equations(
            lambda th: np.column_stack([y * u - th[0], (y * u - th[0]) * x]), start=[u, u]
        )


MIXED = [(1e-9,) * 3, (1e9,) * 3, (1e-9, 1, 1), (1e-6, 1e3, 1e9), (1e9, 1e-9, 1e-9)]
SCORES = {
    "linear": lambda eta: outcome[:60] - eta,
    "logit": lambda eta: A[:60] - expit(eta),
    "Poisson": lambda eta: counts[:60] - np.exp(eta),
}


@pytest.mark.parametrize("wrap", [lambda f: f, opaque], ids=["traced", "opaque"])
@pytest.mark.parametrize("instruments_more", [0, 2])
@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_each_parameter_has_its_own_unit(score, instruments_more, wrap):
    columns = np.column_stack([ONE, x - 2, endogenous])[:60]
    Z = np.column_stack([columns, np.random.default_rng(1).normal(size=(60, 2))])
    Z = Z[:, : 3 + instruments_more]

    def answered(u):
        D = columns / np.array(u)
        more = {"first_weighting": np.linalg.inv(Z.T @ Z)} if instruments_more else {}
        model = idm.from_equations(
            wrap(lambda th: Z * score(D @ th)[:, None]), start=np.zeros(3), **more
        )
        return np.array(model.theta) / u, idm.infer(model, idm.parameters).standard_error / u

    theta, error = answered((1.0, 1.0, 1.0))
    for u in MIXED:
        there, spread = answered(u)
        np.testing.assert_allclose(there, theta, rtol=0, atol=1e-5 * error.max())
        np.testing.assert_allclose(spread, error, rtol=1e-5)


@pytest.mark.parametrize("u", [(1.0, 1.0, 1.0), *MIXED])
def test_a_weighting_may_have_any_units(u):
    Z = instruments / np.array(u)
    model = idm.from_equations(
        lambda th: Z * (outcome - th[0] - th[1] * endogenous)[:, None],
        start=[0.0, 0.0],
        weighting=np.linalg.inv(Z.T @ Z),
    )
    ours = idm.infer(model, idm.parameters)
    P = instruments @ np.linalg.solve(
        instruments.T @ instruments, instruments.T @ np.column_stack([ONE, endogenous, outcome])
    )
    exact = np.linalg.lstsq(P[:, :2], P[:, 2], rcond=None)[0]
    np.testing.assert_allclose(ours.value, exact, rtol=0, atol=1e-5 * ours.standard_error.min())
