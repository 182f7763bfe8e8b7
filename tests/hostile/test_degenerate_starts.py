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
PAIRS = [(name, start) for name in STARTS for start in STARTS[name]]


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


def test_parameters_without_effect_are_named():
    """Nothing moves at the start, and elsewhere no point is a minimum: the places are steps."""
    y = 1 + T
    with pytest.raises(idm.ConvergenceError, match=r"height, place have no effect.*`start=`"):
        idm.from_residuals(
            lambda p: y - p.height * np.floor(p.place) * T, start={"height": 0.0, "place": 0.5}
        )


@pytest.mark.parametrize("seed", range(5))
def test_redundant_parameters_are_left_to_psi(seed):
    """Of a sum of two the sum is known: rank is missing everywhere, not at one point."""
    y = 1 + 2 * T + np.random.default_rng(seed).normal(size=50)
    model = idm.from_residuals(lambda p: y - p[0] - (p[1] + p[2]) * T, start=[0.0, 0.0, 0.0])
    alone = idm.from_residuals(lambda p: y - p[0] - p[1] * T, start=[0.0, 0.0])
    found = idm.infer(model, lambda p: p[1] + p[2]).standard_error
    np.testing.assert_allclose(found, idm.infer(alone, lambda p: p[1]).standard_error, rtol=1e-6)


def test_a_likelihood_names_parameters_without_effect():
    curve, y, _ = problem("sine")
    names = ["height", "rate", "phase"]
    with pytest.raises(idm.ConvergenceError, match=r"height, rate, phase have no effect"):
        idm.from_loglik(lambda p: -50 * (y - curve(p)) ** 2, start=np.zeros(3), names=names)
