"""Maximizers x problems, and what they say when there is nothing to find."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import optimize

from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.optimize import (
    Maximizer,
    Objective,
    as_maximizer,
    lbfgs,
    nelder_mead,
    newton_krylov,
)


def trust_region(tolerance=1e-6, max_evaluations=10_000):
    """COBYQA of SciPy, as a function."""
    options = {"initial_tr_radius": 0.5, "final_tr_radius": tolerance, "maxfev": max_evaluations}

    def cobyqa(fun, x0):
        return optimize.minimize(fun, x0, method="COBYQA", options=options)

    return as_maximizer(cobyqa)


cobyqa = trust_region()
CLIMBERS = [lbfgs, newton_krylov, nelder_mead, cobyqa]
GRADIENT_FREE = [nelder_mead, cobyqa]


@dataclass(frozen=True)
class Problem:
    """An objective, a start, its maximum, and the curvature there as a unit of distance."""

    name: str
    objective: Objective
    start: np.ndarray
    maximum: np.ndarray
    factor: Factor

    def distance(self, x):
        """How far x is from the maximum, in standard errors."""
        half = self.factor.half(np.eye(x.size))
        return np.linalg.norm(np.linalg.solve(half, x - self.maximum))


def quadratic(offset=0.0, scaled=True, condition=1e8, d=10):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (basis * np.geomspace(1, condition, d)) @ basis.T
    A = (A + A.T) / 2
    factor = factorize(A)
    top = factor.half(0.3 * rng.standard_normal(d))
    objective = Objective(
        value=lambda x: offset - 0.5 * (x - top) @ A @ (x - top),
        gradient=lambda x: -A @ (x - top),
        curvature=lambda x, v: A @ v,
        scale=factor if scaled else None,
    )
    return Problem(f"quadratic{offset:+g}", objective, np.zeros(d), top, factor)


def rosenbrock():
    def hessian(x):
        return np.array([[2 - 400 * (x[1] - 3 * x[0] ** 2), -400 * x[0]], [-400 * x[0], 200.0]])

    def gradient(x):
        bend = x[1] - x[0] ** 2
        return np.array([2 * (1 - x[0]) + 400 * x[0] * bend, -200 * bend])

    objective = Objective(
        value=lambda x: -((1 - x[0]) ** 2) - 100 * (x[1] - x[0] ** 2) ** 2,
        gradient=gradient,
        curvature=lambda x, v: hessian(x) @ v,
    )
    top = np.ones(2)
    return Problem("rosenbrock", objective, np.array([-1.2, 1.0]), top, factorize(hessian(top)))


def logistic(offset=0.0, scaled=True, distance=0.5):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 4))
    y = rng.random(300) < 1 / (1 + np.exp(-0.7 * X.sum(axis=1)))

    def mean(theta):
        return 0.5 * (1 + np.tanh(0.5 * X @ theta))

    def curvature(theta, v):
        p = mean(theta)
        return X.T @ ((p * (1 - p))[:, None] * (X @ v))

    def gradient(theta):
        return X.T @ (y - mean(theta))

    top = np.zeros(4)
    for _ in range(20):
        top = top + np.linalg.solve(curvature(top, np.eye(4)), gradient(top))
    factor = factorize(curvature(top, np.eye(4)))
    objective = Objective(
        value=lambda theta: offset + (y * (X @ theta) - np.logaddexp(0, X @ theta)).sum(),
        gradient=gradient,
        curvature=curvature,
        scale=factor if scaled else None,
    )
    start = top + factor.half(np.full(4, distance / 2))
    return Problem(f"logistic{offset:+g}", objective, start, top, factor)


PROBLEMS = [
    quadratic(),
    quadratic(scaled=False, condition=1e4),
    rosenbrock(),
    logistic(),
    logistic(scaled=False, distance=40.0),
]


# Without the scale that it is made for, COBYQA takes seconds of linear algebra on one of them.
TABLE = [
    pytest.param(maximizer, problem, id=f"{maximizer}-{problem.name}")
    for maximizer in CLIMBERS
    for problem in PROBLEMS
    if not (maximizer is cobyqa and problem is PROBLEMS[1])
]


@pytest.mark.parametrize(("maximizer", "problem"), TABLE)
def test_maximizers_find_the_maximum(maximizer, problem):
    found = maximizer.maximize(problem.objective, problem.start)
    assert found.converged, found.message
    # Gradient-free methods see the square of the distance only, to 1e-16 of the values.
    assert problem.distance(found.x) < (1e-6 if maximizer.needs_gradient else 2e-5)
    height = problem.objective.value(problem.maximum)
    assert found.value == pytest.approx(height, rel=1e-12, abs=1e-9)
    assert found.evaluations >= 1
    assert np.isnan(found.gradient_norm) != maximizer.needs_gradient


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
@pytest.mark.parametrize("offset", [-1e4, -1e7])
def test_rounding_of_large_values_costs_little(maximizer, offset):
    problem = logistic(offset)
    found = maximizer.maximize(problem.objective, problem.start)
    assert found.converged, found.message
    # A rise is rounded to about 1e-16 * |offset|, so values resolve its square root, times a few.
    resolution = np.sqrt(1e-15 * abs(offset))
    assert problem.distance(found.x) < (1e-6 if maximizer.needs_gradient else 10 * resolution)


def test_lbfgs_gets_past_the_rounding_of_values():
    problem = logistic(-1e12)  # a rise is rounded to 1e-4, a line search stalls at 1e-2
    rough = lbfgs.maximize(problem.objective, problem.start)
    near = problem.maximum + problem.factor.half(np.full(4, 2e-5))
    close = lbfgs.maximize(problem.objective, near)
    assert rough.converged == (rough.gradient_norm <= 1e-4)
    assert close.converged
    assert problem.distance(close.x) < 1e-6


@pytest.mark.parametrize("maximizer", GRADIENT_FREE, ids=repr)
def test_kinks_do_no_harm_without_gradients(maximizer):
    kink = Objective(lambda x: -np.abs(x - 0.3).sum() - 0.5 * x @ x)
    found = maximizer.maximize(kink, np.zeros(3))
    assert found.converged
    assert np.allclose(found.x, 0.3, rtol=0, atol=1e-4)


@pytest.mark.parametrize("maximizer", [lbfgs, newton_krylov], ids=repr)
def test_a_kink_is_not_a_maximum_with_gradients(maximizer):
    kink = Objective(
        lambda x: -np.abs(x - 0.3).sum() - 0.5 * x @ x,
        lambda x: -np.sign(x - 0.3) - x,
        lambda x, v: v,
    )
    assert not maximizer.maximize(kink, np.zeros(3)).converged


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
@pytest.mark.parametrize("forbidden", [np.nan, -np.inf])
def test_forbidden_regions_are_walked_around(maximizer, forbidden):
    edge = Objective(
        lambda x: float(np.sum(np.log(x) - x)) if (x > 0).all() else forbidden,
        lambda x: 1 / x - 1 if (x > 0).all() else np.full(2, np.nan),
        lambda x, v: v / x[:, None] ** 2,
    )
    found = maximizer.maximize(edge, np.array([0.05, 3.0]))
    assert found.converged, found.message
    assert np.allclose(found.x, 1.0, rtol=0, atol=1e-5)


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
@pytest.mark.parametrize("scaled", [False, True])
def test_unbounded_objectives_are_recognized(maximizer, scaled):
    scale = factorize(np.eye(2)) if scaled else None
    line = Objective(lambda x: x.sum(), lambda x: np.ones(2), lambda x, v: 0 * v, scale)
    power = Objective(
        lambda x: np.sum(x**4), lambda x: 4 * x**3, lambda x, v: -12 * x[:, None] ** 2 * v, scale
    )
    for objective in (line, power):
        found = maximizer.maximize(objective, np.array([0.1, 0.2]))
        assert not found.converged
        assert "unbounded" in found.message
        assert np.isfinite(found.x).all()


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
def test_an_infinite_value_is_unbounded(maximizer):
    pole = Objective(
        lambda x: float(x @ x) if x @ x < 4 else np.inf, lambda x: 2 * x, lambda x, v: -2 * v
    )
    found = maximizer.maximize(pole, np.array([1.0, 0.5]))
    assert not found.converged
    assert "unbounded" in found.message


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
def test_a_start_that_is_not_finite_is_reported(maximizer):
    nowhere = Objective(lambda x: np.nan, lambda x: x, lambda x, v: v)
    found = maximizer.maximize(nowhere, np.zeros(2))
    assert not found.converged
    assert "start" in found.message


@pytest.mark.parametrize("maximizer", CLIMBERS, ids=repr)
def test_saddles_are_left(maximizer):
    saddle = Objective(
        lambda x: 0.5 * x[0] ** 2 - 0.25 * x[0] ** 4 - 0.5 * x[1] ** 2,
        lambda x: np.array([x[0] - x[0] ** 3, -x[1]]),
        lambda x, v: np.array([3 * x[0] ** 2 - 1, 1.0])[:, None] * v,
    )
    found = maximizer.maximize(saddle, np.array([1e-6, 1.0]))
    assert found.converged
    assert np.allclose(np.abs(found.x), [1.0, 0.0], rtol=0, atol=1e-5)


def test_tight_tolerances_are_met_or_put_down_to_rounding():
    for problem in (quadratic(), logistic()):
        found = newton_krylov(tolerance=1e-30).maximize(problem.objective, problem.start)
        assert found.converged
        assert found.gradient_norm < 1e-8


def test_too_few_steps_do_not_converge():
    problem = rosenbrock()
    for maximizer in (lbfgs(max_iterations=3), newton_krylov(max_iterations=3)):
        assert not maximizer.maximize(problem.objective, problem.start).converged
    for maximizer in (nelder_mead(max_evaluations=30), trust_region(max_evaluations=20)):
        found = maximizer.maximize(problem.objective, problem.start)
        assert not found.converged
        assert found.evaluations <= 40


def test_a_scale_makes_units_irrelevant():
    """The number of steps does not depend on the units of the variables."""
    problem = logistic()
    units = np.geomspace(1e-6, 1e6, 4)
    objective = problem.objective
    stretched = Objective(
        value=lambda x: objective.value(x / units),
        gradient=lambda x: objective.gradient(x / units) / units,
        scale=Factor(problem.factor.scale * units, problem.factor.triangle),
    )
    plain = lbfgs.maximize(objective, problem.start)
    far = lbfgs.maximize(stretched, problem.start * units)
    assert far.iterations == plain.iterations
    assert np.allclose(far.x / units, plain.x, rtol=1e-7, atol=0)


def test_too_many_variables_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"20 variables, and there are 21.*lbfgs"):
        nelder_mead.maximize(Objective(lambda x: -x @ x), np.zeros(21))


def test_missing_derivatives_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"lbfgs needs a gradient.*nelder_mead"):
        lbfgs.maximize(Objective(lambda x: -x @ x), np.zeros(2))
    with pytest.raises(ValueError, match=r"needs a curvature.*lbfgs"):
        newton_krylov.maximize(Objective(lambda x: -x @ x, lambda x: -2 * x), np.zeros(2))


def test_a_global_search_finds_the_higher_of_two_hills():
    hills = Objective(
        lambda x: float(np.exp(-8 * (x[0] + 0.8) ** 2) + 2 * np.exp(-8 * (x[0] - 1.0) ** 2))
    )
    search = as_maximizer(lambda fun, x0: optimize.differential_evolution(fun, [(-3, 3)], seed=0))
    found = search.maximize(hills, np.array([-0.8]))
    assert found.converged
    assert found.x[0] == pytest.approx(1.0, abs=1e-2)


def test_the_point_of_the_result_counts_where_other_processes_have_evaluated():
    elsewhere = as_maximizer(lambda fun, x0: optimize.OptimizeResult(x=[0.5, 0.5], success=True))
    found = elsewhere.maximize(Objective(lambda x: -np.sum((x - 0.5) ** 2)), np.zeros(2))
    np.testing.assert_array_equal(found.x, [0.5, 0.5])
    assert found.value == 0


def test_a_function_that_returns_no_result_is_refused():
    plain = as_maximizer(lambda fun, x0: x0)
    with pytest.raises(TypeError, match=r"returned ndarray.*OptimizeResult"):
        plain.maximize(Objective(lambda x: -x @ x), np.zeros(2))


def test_configurations_print_as_they_are_written():
    assert repr(lbfgs) == "lbfgs"
    assert repr(nelder_mead(tolerance=1e-3)) == "nelder_mead(tolerance=0.001)"
    assert repr(cobyqa) == "cobyqa"
    assert all(isinstance(maximizer, Maximizer) for maximizer in CLIMBERS)
