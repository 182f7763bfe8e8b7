"""Constraints that are written wrong: derivatives, gradients of zero, functions, all fixed."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint, approx_fprime
from scipy.stats import chi2

import implicit_delta as idm

RNG = np.random.default_rng(5)
X = np.column_stack([np.ones(80), RNG.normal(size=(80, 2))])
Y = X @ [1.2, 0.8, 0.4] + RNG.normal(size=80)
MAKERS = {
    "loglik": (idm.from_loglik, lambda b: -((Y - X @ b) ** 2) / 2),
    "residuals": (idm.from_residuals, lambda b: Y - X @ b),
}
both = pytest.mark.parametrize("maker", MAKERS)


def make(maker, start=(1.0, 1.0, 0.5), **given):
    function, terms = MAKERS[maker]
    return function(terms, start=list(start), **given)


def product(b):
    return b[0] * b[1] - 1


def eq(fun, jac=None, **more):
    return {"type": "eq", "fun": fun, **({} if jac is None else {"jac": jac}), **more}


# A derivative that is not that of its function.

WRONG = {
    "factor": eq(product, lambda b: [b[1], 1.3 * b[0], 0]),
    "sign": eq(product, lambda b: [-b[1], b[0], 0]),
    "order": eq(lambda b: b[0] + 2 * b[1] - 3, lambda b: [2, 1, 0]),
    "missing": eq(product, lambda b: [b[1], b[0] - b[0], 0]),
    "scipy": NonlinearConstraint(product, 0, 0, jac=lambda b: [b[1], 1.3 * b[0], 0]),
    "inequality": {"type": "ineq", "fun": lambda b: 0.5 - b[1], "jac": lambda b: [0, -1, 0.2]},
    "small row": NonlinearConstraint(
        lambda b: np.array([1e4 * (b[0] - 1), b[1] * b[2] - 0.3]),
        0,
        0,
        jac=lambda b: np.array([[1e4, 0, 0], [0, b[2], 1.1 * b[1]]]),
    ),
    "rows": eq(lambda b: b[:2] - 1, lambda b: [1, 0, 0]),
}


@both
@pytest.mark.parametrize("start", [(1.0, 1.0, 0.5), (0.0, 0.0, 0.0)], ids=["ones", "zeros"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_derivative_of_a_constraint_is_named(name, start, maker):
    with pytest.raises(ValueError, match=r"The `jac` of constraints\[0\].*[Ll]eave `jac` out"):
        make(maker, start, constraints=WRONG[name])


def test_the_wrong_one_of_several_is_named():
    with pytest.raises(ValueError, match=r"constraints\[1\] is not .* theta\[1\] is 1.3, .* 1\."):
        make("loglik", constraints=[eq(lambda b: b[2] - 0.3), WRONG["factor"]])


def test_a_wrong_derivative_is_found_at_a_given_maximum():
    theta = make("loglik", constraints=eq(product)).theta
    with pytest.raises(ValueError, match="not the derivative"):
        idm.from_loglik(MAKERS["loglik"][1], theta, constraints=WRONG["factor"])


RIGHT = {
    "exact": eq(product, lambda b: [b[1], b[0], 0]),
    "forward differences": eq(product, lambda b: approx_fprime(b, product)),
    "scipy": NonlinearConstraint(product, 0, 0, jac=lambda b: np.array([[b[1], b[0], 0]])),
    "string": NonlinearConstraint(product, 0, 0, jac="3-point"),
    "arguments": eq(lambda b, c: product(b) + 1 - c, lambda b, c: [b[1], b[0], 0], args=(1.0,)),
}


@both
@pytest.mark.parametrize("start", [(1.0, 1.0, 0.5), (0.0, 0.0, 0.0)], ids=["ones", "zeros"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_derivative_changes_nothing(name, start, maker):
    ours = idm.infer(make(maker, start, constraints=RIGHT[name]), idm.parameters)
    theirs = idm.infer(make(maker, start, constraints=eq(product)), idm.parameters)
    np.testing.assert_allclose(ours.standard_error, theirs.standard_error, rtol=1e-5)


FLAT = {
    "square": NonlinearConstraint(lambda b: b[1] ** 2, 0, 0),
    "constant": eq(lambda b: 0.0),
}


@both
@pytest.mark.parametrize("name", FLAT)
def test_a_constraint_without_a_slope_is_named(name, maker):
    with pytest.raises(idm.UnsupportedModelError, match=r"constraints\[0\] has derivative zero"):
        make(maker, (0.0, 0.0, 0.0), constraints=FLAT[name])


@both
@pytest.mark.parametrize("given", [lambda b: b[1], 3.0], ids=["function", "number"])
def test_what_is_no_constraint_is_refused(given, maker):
    with pytest.raises(TypeError, match="must be a `scipy"):
        make(maker, constraints=given)


@pytest.mark.parametrize("ask", [idm.infer, idm.profile])
def test_a_psi_that_an_equality_fixes(ask):
    model = make("loglik", constraints=LinearConstraint([1, 1, 0], 1.4, 1.4))
    with pytest.raises(idm.EvaluationError, match="the equality fixes it"):
        ask(model, lambda b: b[0] + b[1])


def test_residuals_with_all_parameters_at_bounds_are_built():
    y = np.array([0.1, 0.2, 0.3, 0.1])
    model = idm.from_residuals(lambda b: y - b[0], start=[1.0], bounds=[(0.5, 3)])
    assert model.theta == 0.5


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e9])
def test_contradictions_are_seen_in_any_unit(unit):
    y = np.random.default_rng(0).normal(3.0, size=30)
    loglik = lambda th: -((y - th[0] / unit) ** 2) / 2
    at_most = lambda most: LinearConstraint([[1.0]], -np.inf, most * unit)
    ask = lambda most: idm.from_loglik(
        loglik, start=[2.5 * unit], bounds=[(2 * unit, None)], constraints=at_most(most)
    )
    with pytest.raises(ValueError, match="contradict"):
        ask(1.0)
    np.testing.assert_allclose(ask(2.25).theta, 2.25 * unit, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_a_null_hypothesis_is_at_its_bound_in_any_unit_or_in_none(unit):
    y = np.random.default_rng(0).normal(0.4, size=30)
    loglik = lambda th: -((y - th[0] / unit) ** 2) / 2
    model = idm.from_loglik(loglik, start={"mu": unit}, bounds={"mu": (0, None)})
    at, inside = (idm.likelihood_ratio({"mu": m * unit}, model) for m in (0.0, 0.1))
    assert "mixture" in "".join(at.notes)
    assert not inside.notes
    assert at.p_value == pytest.approx(chi2.sf(at.statistic, 1) / 2)
    assert inside.p_value == pytest.approx(chi2.sf(inside.statistic, 1))


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e3])
def test_rounding_beyond_a_bound_is_no_violation_and_more_is(unit):
    x, y = np.random.default_rng(0).normal([0.0, -0.4], size=(30, 2)).T
    y = y - y.mean() - 2.0  # held by the bound, which leaves the slope
    slope = (x @ y) / (x @ x)
    loglik = lambda th: -((y - th[0] / unit - th[1] * x) ** 2) / 2
    given = lambda mu: idm.from_loglik(
        loglik, theta=[mu * unit, slope], bounds=[(0, None), (None, None)]
    )
    error = idm.infer(given(-1e-12), lambda th: th[1]).standard_error
    assert error == pytest.approx(1 / np.sqrt(x @ x))
    with pytest.raises(ValueError, match="does not satisfy"):
        given(-1e-3)
