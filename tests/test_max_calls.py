"""`max_calls=`: a search ends by an answer, or by an error that says how far it got."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.optimize import Maximum, Objective, Squares, climb

RNG = np.random.default_rng(2)
Y = RNG.normal(2.0, 3.0, 50)
T = np.linspace(0, 10, 60)
WAVE = 2 * np.sin(1.3 * T + 0.4) + 0.1 * RNG.normal(size=60)


class Counted:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, theta):
        self.calls += 1
        return self.function(theta)


def normal(th):
    return -0.5 * ((Y - th[0]) / np.exp(th[1])) ** 2 - th[1]


def wave(th):
    return WAVE - th[0] * np.sin(th[1] * T + th[2])


def moments(th):
    return np.column_stack([Y - th[0], (Y - th[0]) ** 2 - th[1]])


FITS = {
    "from_loglik": (idm.from_loglik, normal, [0.0, 0.0]),
    "from_residuals": (idm.from_residuals, wave, [1.0, 5.0, 0.0]),
    "from_equations": (idm.from_equations, moments, [0.0, 1.0]),
}
CHECKS = 4  # calls before the search begins, by which a function is looked at


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("most", [3, 8])
def test_the_error_carries_the_best_point(name, most):
    make, function, start = FITS[name]
    counted = Counted(function)
    with pytest.raises(idm.ConvergenceError, match=rf"the {most} calls of.*max_calls=") as caught:
        make(counted, start=start, max_calls=most)
    assert counted.calls <= most + CHECKS
    assert caught.value.theta.shape == (len(start),)
    model = make(function, start=caught.value.theta, max_calls=1000)  # as the message says
    np.testing.assert_allclose(abs(model.theta[0]), abs(make(function, start=start).theta[0]), 1e-6)


def test_the_best_point_has_the_names_of_the_start():
    function = lambda th: WAVE - th.height * np.sin(th.rate * T + th.phase)
    start = {"height": 1.0, "rate": 5.0, "phase": 0.0}
    with pytest.raises(idm.ConvergenceError) as caught:
        idm.from_residuals(function, start=start, max_calls=8)
    model = idm.from_residuals(function, start=caught.value.theta)  # as the message says
    assert model.names == ("height", "rate", "phase")
    assert caught.value.theta.rate == caught.value.theta[1]


@pytest.mark.parametrize("name", FITS)
def test_enough_calls_change_nothing(name):
    make, function, start = FITS[name]
    np.testing.assert_array_equal(
        make(function, start=start, max_calls=5000).theta, make(function, start=start).theta
    )


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("most", [0, -1, 2.5, True, "many"])
def test_bad_limits_are_refused(name, most):
    make, function, start = FITS[name]
    with pytest.raises(ValueError, match="max_calls"):
        make(function, start=start, max_calls=most)


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("start", [(1, 5, 0), (0, 0, 0), (1, 1, 0)])
def test_a_sinusoid_takes_3000_calls_at_most(start, opaque):
    counted = Counted(wave)
    function = (lambda th: counted(np.array([float(v) for v in th]))) if opaque else counted
    model = idm.from_residuals(function, start=start)
    assert counted.calls < 3000
    assert np.sum(wave(model.theta) ** 2) == pytest.approx(np.sum(wave(best()) ** 2), rel=1e-9)


def best():
    return np.array(idm.from_residuals(wave, start=[2, 1.3, 0.4]).theta)


def test_residuals_take_starts():
    model = idm.from_residuals(wave, start=[1.0, 5.0, 0.0], starts=8)
    assert model.facts.optima[0].objective >= model.facts.optima[-1].objective
    assert "optima: " in str(model)
    listed = idm.from_residuals(wave, starts=[[1.0, 5.0, 0.0], [2.0, 1.2, 0.3]])
    np.testing.assert_allclose(listed.theta, best(), rtol=1e-6)
    assert len(listed.facts.optima) == 2


def curve(a):
    x = np.arange(4.0)
    residuals = lambda b: a - b[0] * np.exp(-b[1] * x)

    def jacobian(b):
        slope = np.exp(-b[1] * x)
        return np.column_stack([-slope, b[0] * x * slope]), np.zeros(2)

    return Objective(residuals=Squares(residuals, jacobian))


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_a_climb_does_not_depend_on_units(unit):
    y = 3 * np.exp(-0.7 * np.arange(4.0)) + [0.1, -0.1, 0.05, 0.0]
    plain, scaled = curve(y), curve(y * unit)
    found, other = climb(plain, np.array([1.0, 0.1])), climb(scaled, np.array([unit, 0.1]))
    np.testing.assert_allclose(other.x, found.x * [unit, 1.0], rtol=1e-8)
    assert found.converged
    assert found.distance < 1e-6


HILLS = Objective(  # at +1 and -1, the first is higher
    lambda x: float(-((x[0] ** 2 - 1) ** 2) + 0.1 * x[0]),
    lambda x: -4 * x * (x**2 - 1) + 0.1,
    lambda x, v: (12 * x[0] ** 2 - 4) * v,
)


def test_a_climb_ends_at_the_maximum_that_its_start_leads_to():
    left, right = (climb(HILLS, np.array([start])) for start in (-2.0, 2.0))
    assert right.x[0] == pytest.approx(1.0123, abs=1e-3)
    assert left.x[0] == pytest.approx(-0.9872, abs=1e-3)
    assert left.converged
    assert right.converged


def test_a_climb_without_gradient():
    found = climb(Objective(HILLS.value), np.array([0.5]))
    assert found.x[0] == pytest.approx(1.0123, abs=1e-3)


def test_a_climb_says_how_far_it_got():
    y = 3 * np.exp(-0.7 * np.arange(4.0)) + [0.1, -0.1, 0.05, 0.0]
    found = climb(curve(y), np.array([1.0, 0.1]), max_calls=3)
    assert isinstance(found, Maximum)
    assert not found.converged
    assert "3 calls" in found.message
    assert found.x.shape == (2,)


UNBOUNDED = {
    "linear": lambda: idm.from_loglik(lambda th: th[0] * np.ones(3), start=[0.0]),
    "level": lambda: idm.from_loglik(lambda th: -np.exp(-th[0]) + 0 * Y, start=[0.0]),
    "no effect": lambda: idm.from_residuals(lambda th: Y - 0 * th[0], start=[1.0]),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_messages_to_those_who_fit_curves_name_no_networks(name):
    with pytest.raises(idm.ImplicitDeltaError) as caught:
        idm.infer(UNBOUNDED[name](), idm.parameters)
    assert "network" not in str(caught.value)


def test_a_model_has_a_table_in_notebooks():
    model = idm.from_residuals(wave, start={"height": 2.0, "rate": 1.3, "phase": 0.4})
    table = model._repr_html_()
    assert table.startswith("<table>")
    for text in ("from_residuals: 60 rows", "height", "rate", "residual standard deviation"):
        assert text in table
    assert idm.from_equations(moments, start=[0.0, 1.0])._repr_html_().startswith("<table>")
