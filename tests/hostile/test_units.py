"""Least squares in any unit: a parameter of 1e-9 or at 1e6 has the error of the same fit nearby."""

import numpy as np
import pytest

import implicit_delta as idm

CONC = np.repeat([0.02, 0.06, 0.11, 0.22, 0.56, 1.10], 2)
RATE = np.array([76, 47, 97, 107, 123, 139, 159, 152, 191, 201, 207, 200.0])
X = np.linspace(-3, 3, 61)
NOISE = 3 * np.random.default_rng(0).normal(size=X.size)
SHAPES = {
    "normal": lambda z: np.exp(-(z**2) / 2),
    "lorentz": lambda z: 1 / (1 + z**2),
    "edge": lambda z: 1 / (1 + np.exp(-np.clip(z, -500, 500))),
}
CURVATURES = ["hessian", "ggn"]
GIVEN = ["start", "theta"]


def enzyme(unit, given):
    """Michaelis-Menten kinetics with concentrations in a unit of our choice."""
    conc = CONC * unit
    residuals = lambda th: RATE - th.Vm * conc / (th.K + conc)
    point = {"start": {"Vm": 200.0, "K": 0.05 * unit}, "theta": None}[given]
    if point is None:
        near = enzyme(1.0, "start").theta
        point = {"Vm": near.Vm, "K": near.K * unit}
    return idm.from_residuals(residuals, **{given: point})


def place(shape, center, given):
    """A peak or an edge, far from zero for its width."""
    curve = SHAPES[shape]
    y = 100 * curve(X - 0.02) + NOISE
    residuals = lambda th: y - th.A * curve((X + (center - th.mu)) / th.w)
    point = {"A": 95.0, "mu": center + 0.1, "w": 1.1}
    if given == "theta":
        near = place(shape, 0.0, "start").theta
        point = {"A": near.A, "mu": center + near.mu, "w": near.w}
    return idm.from_residuals(residuals, **{given: point})


def errors(model, curvature):
    return idm.infer(model, idm.parameters, idm.Infinitesimal(curvature=curvature)).standard_error


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e9])
def test_units_of_a_concentration_do_not_matter(unit, given, curvature):
    model = enzyme(unit, given)
    scale = np.array([1.0, unit])
    near = enzyme(1.0, "start")
    np.testing.assert_allclose(model.theta / scale, near.theta, rtol=1e-6)
    np.testing.assert_allclose(errors(model, curvature) / scale, errors(near, curvature), rtol=1e-5)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("center", [-300.0, 5000.0, 1e6])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_place_of_zero_does_not_matter(shape, center, given, curvature):
    # at 1e6 a place has ten digits behind the point, and its error of 1e-2 is known to eight
    model, near = place(shape, center, given), place(shape, 0.0, "start")
    np.testing.assert_allclose(errors(model, curvature), errors(near, curvature), rtol=1e-5)


def test_a_parameter_that_does_nothing_is_refused_as_before():
    model = idm.from_residuals(lambda th: RATE - th[0] - 0 * th[1], theta=[RATE.mean(), 1.0])
    with pytest.raises(idm.ImplicitDeltaError):
        errors(model, "ggn")


def test_no_further_calls_where_steps_were_right():
    calls = []

    def residuals(th):
        calls.append(1)
        return RATE - th[0] * CONC / (th[1] + CONC)

    model = idm.from_residuals(residuals, theta=enzyme(1.0, "start").theta)
    before = len(calls)
    model.rows.outputs.slopes(np.array(model.theta))
    assert len(calls) - before <= 2 * 2 * 6  # two parameters, two sides, at most six steps
