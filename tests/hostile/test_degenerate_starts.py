"""Starts where a parameter has no effect, or from where a fit ends far from the least squares."""

import numpy as np
import pytest
from scipy.optimize import least_squares

import implicit_delta as idm

T = np.linspace(0.1, 10, 50)
CURVES = {
    "decay": (lambda p: p[0] * np.exp(-p[1] * T), [3, 0.4]),
    "offset": (lambda p: p[0] * np.exp(-p[1] * T) + p[2], [3, 0.4, 1]),
    "logistic": (lambda p: p[0] / (1 + np.exp(-p[1] * (T - p[2]))), [5, 1.2, 5]),
    "saturation": (lambda p: p[0] * T / (p[1] + T), [5, 2]),
    "peak": (lambda p: p[0] * np.exp(-(((T - p[1]) / p[2]) ** 2) / 2), [4, 6, 0.8]),
    "sine": (lambda p: p[0] * np.sin(p[1] * T + p[2]), [2, 1.3, 0.4]),
    "two decays": (
        lambda p: p[0] * np.exp(-p[1] * T) + p[2] * np.exp(-p[3] * T),
        [5, 2.0, 2, 0.2],
    ),
    "power": (lambda p: p[0] * T ** p[1], [2, 0.7]),
    "Hill": (lambda p: p[0] * T ** p[2] / (abs(p[1]) ** p[2] + T ** p[2]), [4, 3, 2.5]),
    "Gompertz": (lambda p: p[0] * np.exp(-p[1] * np.exp(-p[2] * T)), [5, 4, 0.6]),
    "Lorentz": (lambda p: p[0] / (1 + ((T - p[1]) / p[2]) ** 2), [4, 6, 0.8]),
}
STARTS = {
    "decay": [(0, 0), (1, 0), (0, 1), (1, 20), (1, 100)],
    "offset": [(0, 0, 0), (1, 50, 0)],
    "logistic": [(1, 1, 0), (0, 0, 0), (1, 0, 0), (1, -1, 0), (1, 1, 30)],
    "saturation": [(0, 0), (1, 1e6), (1, -20)],
    "peak": [(1, 0, 1), (0, 0, 1), (1, 1, 0.1), (1, 1, 1), (1, 20, 1)],
    "sine": [(1, 1, 0), (1, 0, 0), (0, 0, 0), (1, 5, 0), (1, 0.1, 0)],
    "two decays": [(0, 0, 0, 0), (1, 0, 1, 0)],
    "power": [(0, 0), (1, -20)],
    "Hill": [(1, 1, 0), (1, 0, 1), (1, 100, 1)],
    "Gompertz": [(0, 0, 0), (1, 0, 0), (1, 1, -1)],
    "Lorentz": [(1, 0, 1), (0, 0, 1), (1, 20, 1)],
}
SLOW = [("sine", (1, 5, 0)), ("sine", (1, 0.1, 0)), ("sine", (1, 1, 0)), ("peak", (1, 20, 1))]
SLOW += [("Gompertz", (0, 0, 0)), ("Gompertz", (1, 0, 0)), ("decay", (0, 0))]
PAIRS = [
    pytest.param(name, start, marks=[pytest.mark.slow] * ((name, start) in SLOW))
    for name in STARTS
    for start in STARTS[name]
]


def problem(name, seed=0):
    curve, true = CURVES[name]
    noise = 0.1 * np.random.default_rng(seed).normal(size=T.size)
    y = curve(np.array(true, dtype=float)) + noise
    best = least_squares(lambda p: y - curve(p), true, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return curve, y, 2 * best.cost


def by_float(curve):
    return lambda p: curve(np.array([float(v) for v in p]))


@pytest.mark.parametrize(("name", "start"), PAIRS)
def test_least_squares(name, start):
    """The least squares, whatever the start: their prediction and its error follow."""
    curve, y, least = problem(name)
    with np.errstate(all="ignore"):
        model = idm.from_residuals(lambda p: y - curve(p), start=np.array(start, dtype=float))
    assert np.sum((y - curve(np.array(model.theta))) ** 2) < least * (1 + 1e-9)
    known = idm.from_residuals(lambda p: y - curve(p), theta=np.array(model.theta))
    psi = lambda p: curve(p)[25]
    found, other = idm.infer(model, psi), idm.infer(known, psi)
    np.testing.assert_allclose(found.standard_error, other.standard_error, rtol=1e-6)


@pytest.mark.parametrize("how", ["weights", "bounds", "opaque", "units"])
@pytest.mark.parametrize(
    ("name", "start"),
    [("decay", (0, 0)), ("logistic", (1, 1, 0)), ("sine", (1, 5, 0)), ("saturation", (1, -20))],
)
def test_in_another_form(name, start, how):
    curve, y, least = problem(name, 1)
    unit = np.array([1e6, 1e-3, 1e3])[: len(start)] if how == "units" else 1.0
    seen = by_float(curve) if how == "opaque" else curve
    given = {"weights": {"weights": np.full(T.size, 2)}, "bounds": {"bounds": [(-99, 99)] * 3}}
    own = given.get(how, {})
    if "bounds" in own:
        own = {"bounds": own["bounds"][: len(start)]}
    with np.errstate(all="ignore"):
        model = idm.from_residuals(
            lambda p: y - seen(p / unit), start=np.array(start) * unit, **own
        )
    assert np.sum((y - curve(np.array(model.theta) / unit)) ** 2) < least * (1 + 1e-9)


NO_MINIMUM = {  # of data that bend upward
    "exponential": lambda p: p.height * (1 - np.exp(-(p.rate**2) * T)),
    "saturation": lambda p: p.height * p.rate**2 * T / (1 + p.rate**2 * T),
    "negative": lambda p: -(p.height**2) * p.rate**2 * T,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_MINIMUM)
@pytest.mark.parametrize("seed", range(2))
def test_parameters_without_effect_are_named(name, seed):
    """Nothing moves at the start, and the sum of squares falls without end or to a degenerate."""
    y = T + 0.1 * T**2 + 0.1 * np.random.default_rng(seed).normal(size=50)
    with pytest.raises(idm.ConvergenceError, match=r"height, rate have no effect.*`start=`"):
        idm.from_residuals(lambda p: y - NO_MINIMUM[name](p), start={"height": 0.0, "rate": 0.0})


def test_a_parameter_of_steps_is_left_to_psi():
    """Nothing moves at the start; elsewhere the product is determined, and its steps are seen."""
    y = 1 + T
    model = idm.from_residuals(
        lambda p: y - p.height * np.floor(p.place) * T, start={"height": 0.0, "place": 0.5}
    )
    fitted = model.theta[0] * np.floor(model.theta[1])
    np.testing.assert_allclose(fitted, T @ y / (T @ T), rtol=1e-9)
    between = {"height": -fitted, "place": -0.5}  # the fit may end right beside a step
    model = idm.from_residuals(lambda p: y - p.height * np.floor(p.place) * T, theta=between)
    with pytest.warns(idm.NonlinearityWarning, match="psi jumps"):
        idm.infer(model, lambda p: p.height * np.floor(p.place))


X, NOISE, OTHER = np.linspace(0, 4, 40), *0.3 * np.random.default_rng(5).normal(size=(2, 40))
GROUPS = np.arange(40) % 3
DUMMIES = np.eye(3)[GROUPS]
LINE, DECAY = 1 + 0.5 * X + NOISE, 3 * np.exp(-0.8 * X) + 0.2 * NOISE
HYPERBOLA, WAVE = 3 * X / (1 + X) + 0.1 * NOISE, 2 * np.sin(1.5 * X + 0.4) + NOISE
REDUNDANT = {  # the curve, a start, data, options; one combination of parameters means nothing
    "duplicated column": (lambda p: p[0] + p[1] * X + p[2] * X, [0, 0, 0], LINE, {}),
    "two of them": (lambda p: p[0] + p[1] + (p[2] + p[3]) * X, [0, 0, 0, 0], LINE, {}),
    "far from zero": (
        lambda p: p[0] + p[1] * X + p[2] * X**2 + p[3] * (1e3 + X),
        [1, 0.1, 0, 0],
        LINE,
        {},
    ),
    "farther": (lambda p: p[0] + p[1] * X + p[2] * (1e5 + X), [1, 0.1, 0], LINE, {}),
    "dummies": (lambda p: p[0] + DUMMIES @ p[1:], [0, 0, 0, 0], LINE, {}),
    "dummies and slope": (
        lambda p: p[0] + DUMMIES @ p[1:4] + p[4] * X,
        [1, 1, 1, 1, 1],
        LINE,
        {},
    ),
    "sum": (
        lambda p: p[0] + p[1] * X + p[2] * OTHER + p[3] * (X + OTHER),
        [0, 0, 0, 0],
        LINE,
        {},
    ),
    "centered": (
        lambda p: p[0] + p[1] * X + p[2] * (X - 2) + p[3] * X**2 + p[4] * (X - 2) ** 2,
        [0, 0, 0, 0, 0],
        LINE,
        {},
    ),
    "product": (lambda p: p[0] * p[1] * X + p[2], [1, 1, 1], LINE, {}),
    "unequal product": (lambda p: p[0] * p[1] * X + p[2], [10, 0.1, 1], LINE, {}),
    "ratio": (lambda p: p[0] / p[1] * X + p[2], [1, 1, 1], LINE, {}),
    "amplitudes": (lambda p: p[0] * p[1] * np.exp(-p[2] * X), [1, 1, 1], DECAY, {}),
    "logarithm": (lambda p: p[0] * np.exp(p[1] - p[2] * X), [1, 0, 1], DECAY, {}),
    "rates": (lambda p: p[0] * np.exp(-(p[1] + p[2]) * X), [1, 0.5, 0.5], DECAY, {}),
    "product of rates": (lambda p: p[0] * np.exp(-p[1] * p[2] * X), [1, 0.5, 0.5], DECAY, {}),
    "time zero": (lambda p: p[0] * np.exp(-p[1] * (X - p[2])), [1, 0.5, 0.5], DECAY, {}),
    "hyperbola": (lambda p: p[0] * X / (p[1] + p[2] * X), [1, 1, 1], HYPERBOLA, {}),
    "phases": (
        lambda p: p[0] * np.sin(1.5 * X + p[1] + p[2]) + p[3],
        [1, 0.1, 0.2, 1],
        WAVE,
        {},
    ),
    "softmax": (lambda p: 5 * DUMMIES @ (np.exp(p) / np.sum(np.exp(p))), [0, 0, 0], LINE, {}),
    "unused": (lambda p: p[0] + p[1] * X + 0 * p[2], [0, 0, 0], LINE, {}),
    "unused in a decay": (lambda p: p[0] * np.exp(-p[1] * X) + 0 * p[2], [1, 1, 1], DECAY, {}),
    "outside": (lambda p: p[0] + p[1] * X + p[2] * np.maximum(X - 9, 0), [1, 1, 1], LINE, {}),
    "weights": (lambda p: p[0] + (p[1] + p[2]) * X, [0, 0, 0], LINE, {"weights": 1.0 + GROUPS}),
    "no weight": (
        lambda p: p[0] + p[1] * X + p[2] * (GROUPS == 1),
        [0, 0, 0],
        LINE,
        {"weights": 1.0 * (GROUPS != 1)},
    ),
    "variance": (lambda p: p[0] + (p[1] + p[2]) * X, [0, 0, 0], LINE, {"variance": 0.09}),
    "bounds": (
        lambda p: p[0] * p[1] * np.exp(-p[2] * X),
        [1, 1, 1],
        DECAY,
        {"bounds": [(0, 50)] * 3},
    ),
    "at a bound": (
        lambda p: p[0] + (p[1] + p[2]) * X + p[3] * OTHER,
        [0.5, 0.1, 0.1, 0.1],
        LINE - OTHER,
        {"bounds": [(-50, 50)] * 3 + [(0, 50)]},
    ),
}
UNITS = {
    "one": [1.0],
    "large": [1e6],
    "small": [1e-6],
    "mixed": [1e6, 1e-6, 1e3, 1.0, 1e-3],
}


def expected_error(curve, theta, y, gradient_of, weights=1.0, variance=None, bounds=()):
    """Standard error by the pseudoinverse of the columns, by central differences."""
    free = [j for j in range(theta.size) if not bounds or theta[j] > bounds[j][0] + 1e-9]
    columns = []
    for j in free:
        step = np.zeros(theta.size)
        step[j] = 1e-5 * (abs(theta[j]) + 1e-3)
        columns.append((curve(theta + step) - curve(theta - step)) / (2 * step[j]))
    rows, weights = np.stack(columns, axis=1), np.broadcast_to(weights, y.shape)
    weighted = np.sqrt(weights)[:, None] * rows
    lengths = np.linalg.norm(weighted, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    inverse = np.linalg.pinv(weighted / lengths, rcond=1e-6)
    df = np.sum(weights) - np.linalg.matrix_rank(weighted / lengths, tol=1e-6)
    noise = variance or weights @ (y - curve(theta)) ** 2 / df
    return np.sqrt(noise) * np.linalg.norm(inverse.T @ (gradient_of(rows) / lengths))


@pytest.mark.parametrize("how", UNITS)
@pytest.mark.parametrize("name", REDUNDANT)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_redundant_parameters_are_left_to_psi(name, how):
    """Rank is missing everywhere, not at one point: what is determined has its error."""
    curve, start, y, options = REDUNDANT[name]
    unit, known = np.resize(UNITS[how], len(start)), dict(options)
    if "bounds" in options:
        known["bounds"] = [
            (a * u, b * u) for (a, b), u in zip(options["bounds"], unit, strict=True)
        ]
    model = idm.from_residuals(lambda p: y - curve(p / unit), start=start * unit, **known)
    found = idm.infer(model, lambda p: curve(p / unit)[0] + curve(p / unit)[3])
    theta = np.array(model.theta) / unit
    expected = expected_error(curve, theta, y, lambda rows: rows[0] + rows[3], **options)
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-4)


def test_a_likelihood_names_parameters_without_effect():
    curve, y, _ = problem("sine")
    names = ["height", "rate", "phase"]
    with pytest.raises(idm.ConvergenceError, match=r"height, rate, phase have no effect"):
        idm.from_loglik(lambda p: -50 * (y - curve(p)) ** 2, start=np.zeros(3), names=names)
