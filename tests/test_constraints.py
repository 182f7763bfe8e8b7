"""Bounds and constraints: fits, tangent-space variances, laws, customers and refusals."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, nnls
from scipy.special import gammaln
from test_golden import function

import implicit_delta as idm
from implicit_delta.models.coordinates import active_constraints

CASES = json.loads((Path(__file__).parent / "golden" / "constraints.json").read_text())["cases"]
N = 120
RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 3))])
Y = X @ [1.0, 0.8, -0.7, 0.4] + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.3 + 0.4 * X[:, 1] - 0.3 * X[:, 2]))
GROUPS = np.arange(N) % 24
ANY = (None, None)


def normal(b):
    return -((Y - X @ b) ** 2) / 2


def poisson(b):
    return COUNTS * (X @ b) - np.exp(X @ b)


def poisson_score(b):
    return (COUNTS - np.exp(X @ b))[:, None] * X


def psi(b):
    return b[0] + b[1] * b[3]


def quietly(call, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **options)


def tangent_error(A, C, g):
    """Standard error by dense algebra: g' N (N'AN)^-1 N' g."""
    basis = np.linalg.svd(np.atleast_2d(C))[2][len(np.atleast_2d(C)) :].T
    inner = basis.T @ g
    return np.sqrt(inner @ np.linalg.solve(basis.T @ A @ basis, inner))


# Constraints that do not bind change nothing, bit for bit.

INACTIVE = {
    "pairs": {"bounds": [(-9, 9)] * 4},
    "Bounds": {"bounds": Bounds(-9, 9)},
    "one-sided": {"bounds": [(None, 9), ANY, (-9, None), ANY]},
    "infinite": {"bounds": [(-np.inf, np.inf)] * 4},
    "linear": {"constraints": LinearConstraint([1, 1, 1, 1], -50, 50)},
    "nonlinear": {"constraints": NonlinearConstraint(lambda b: b @ b, -np.inf, 99)},
    "dict": {"constraints": [{"type": "ineq", "fun": lambda b, top: top - b @ b, "args": (99,)}]},
}


@pytest.mark.parametrize("given", INACTIVE.values(), ids=INACTIVE)
@pytest.mark.parametrize("terms", [normal, poisson])
def test_an_inactive_constraint_changes_nothing(terms, given):
    free = idm.from_loglik(terms, start=np.zeros(4))
    bound = idm.from_loglik(terms, start=np.zeros(4), **given)
    assert np.array_equal(free.theta, bound.theta)
    for options in ({}, {"robust": True}, {"clusters": GROUPS, "robust": "CR1"}):
        ours, theirs = (idm.infer(m, idm.parameters, **options) for m in (free, bound))
        assert np.array_equal(ours.covariance, theirs.covariance)
    for method in (idm.Simulation(200, rng=0), idm.Bootstrap(10, rng=0), idm.FiniteDifference()):
        ours, theirs = (quietly(idm.infer, m, psi, method) for m in (free, bound))
        assert ours.standard_error == theirs.standard_error
    assert idm.profile(free, psi).interval == idm.profile(bound, psi).interval


def test_an_inactive_bound_of_residuals_changes_nothing():
    free, bound = (
        idm.from_residuals(lambda b: Y - X @ b, start=np.zeros(4), **given)
        for given in ({}, {"bounds": [(-9, 9)] * 4})
    )
    ours, theirs = (idm.infer(m, idm.parameters) for m in (free, bound))
    assert np.array_equal(ours.covariance, theirs.covariance)
    assert ours.df == theirs.df


# Active constraints equal the model that a user writes down who eliminates parameters.

EQUALITIES = {
    "fixed": ({"bounds": [ANY, ANY, ANY, (0.25, 0.25)]}, lambda c: np.array([*c, 0.25])),
    "sum": (
        {"constraints": LinearConstraint([0, 1, 1, 0], 0.3, 0.3)},
        lambda c: np.array([c[0], c[1], 0.3 - c[1], c[2]]),
    ),
    "two": (
        {"constraints": LinearConstraint([[0, 1, 1, 0], [1, 0, 0, -2]], [0.3, 0], [0.3, 0])},
        lambda c: np.array([2 * c[1], c[0], 0.3 - c[0], c[1]]),
    ),
    "redundant": (
        {"constraints": LinearConstraint([[0, 1, 1, 0], [0, 2, 2, 0]], [0.3, 0.6], [0.3, 0.6])},
        lambda c: np.array([c[0], c[1], 0.3 - c[1], c[2]]),
    ),
    "product": (
        {"constraints": {"type": "eq", "fun": lambda b: b[1] * b[3] - 0.2}},
        lambda c: np.array([c[0], c[1], c[2], 0.2 / c[1]]),
    ),
    "with its derivative": (
        {
            "constraints": NonlinearConstraint(
                lambda b: b[0] - np.exp(b[1]), 0, 0, jac=lambda b: [[1, -np.exp(b[1]), 0, 0]]
            )
        },
        lambda c: np.array([np.exp(c[0]), c[0], c[1], c[2]]),
    ),
}
KINDS = {
    "model": {},
    "robust": {"robust": True},
    "HC1": {"robust": "HC1"},
    "clustered": {"clusters": GROUPS, "robust": "CR1"},
    "differences": {"method": idm.FiniteDifference()},
}


def reparametrized(terms, embed, d, start):
    """Polished: a plain fit may end 1e-7 standard errors from its maximum."""
    return idm.polish(idm.from_loglik(lambda c: terms(embed(c)), start=np.full(d, start)))


@pytest.mark.parametrize("name", EQUALITIES)
@pytest.mark.parametrize("terms", [normal, poisson])
def test_an_equality_equals_the_reparametrized_model(terms, name):
    given, embed = EQUALITIES[name]
    d = 2 if name == "two" else 3
    bound = idm.from_loglik(terms, start=[0.5, 0.5, -0.2, 0.4], **given)
    other = reparametrized(terms, embed, d, 0.4)
    np.testing.assert_allclose(bound.theta, embed(other.theta), rtol=1e-8, atol=1e-10)
    for options in KINDS.values():
        ours = quietly(idm.infer, bound, psi, **options)
        theirs = quietly(idm.infer, other, lambda c: psi(embed(c)), **options)
        rel = 1e-6 if "method" in options else 1e-8  # refits end within a tolerance
        assert ours.standard_error == pytest.approx(theirs.standard_error, rel=rel)
        assert ours.df == pytest.approx(theirs.df, rel=1e-7)
    ours = quietly(idm.profile, bound, psi).interval
    theirs = quietly(idm.profile, other, lambda c: psi(embed(c))).interval
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.parametrize("score", [None, poisson_score])
@pytest.mark.parametrize("options", [{}, {"l2": 3.0}, {"penalty": lambda b: b @ b}])
def test_penalties_and_scores_go_along(score, options):
    bound = idm.from_loglik(
        poisson,
        start=np.zeros(4),
        score=score,
        constraints=LinearConstraint([0, 1, 1, 0], 0.3, 0.3),
        **options,
    )
    embed = EQUALITIES["sum"][1]
    strength = 3.0 / 2 * ("l2" in options) + ("penalty" in options)
    other = idm.from_loglik(
        lambda c: poisson(embed(c)),
        start=np.zeros(3),
        penalty=lambda c: strength * embed(c) @ embed(c),
    )
    np.testing.assert_allclose(bound.theta, embed(other.theta), atol=1e-8)
    ours, theirs = (
        quietly(idm.infer, bound, psi),
        quietly(idm.infer, other, lambda c: psi(embed(c))),
    )
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-7)
    if options:
        shrinkage = theirs.diagnostics.shrinkage
        assert ours.diagnostics.shrinkage == pytest.approx(shrinkage, rel=1e-5)


def test_the_hessian_is_that_of_the_lagrangian():
    model = idm.from_loglik(
        normal, start=np.ones(4), constraints=NonlinearConstraint(lambda b: b @ b, 1, 1)
    )
    (multiplier,) = active_constraints(model).multipliers
    A = X.T @ X + 2 * multiplier * np.eye(4)
    g = np.array([1.0, 2.0, 3.0, 4.0])
    exact = tangent_error(A, model.theta, g)
    assert idm.infer(model, lambda b: b @ g).standard_error == pytest.approx(exact, rel=1e-8)
    assert exact != pytest.approx(tangent_error(X.T @ X, model.theta, g), rel=1e-2)


@pytest.mark.parametrize("jacobian", [None, lambda b: -X])
@pytest.mark.parametrize("curvature", ["hessian", "ggn"])
@pytest.mark.parametrize("l2", [0.0, 2.0])
def test_residuals_count_what_is_free(jacobian, curvature, l2):
    given, embed = EQUALITIES["fixed"]
    bound = idm.from_residuals(
        lambda b: Y - X @ b, start=np.zeros(4), jacobian=jacobian, l2=l2, **given
    )
    other = idm.from_residuals(lambda c: Y - X @ embed(c), start=np.zeros(3), l2=l2)
    assert bound.facts.df == pytest.approx(other.facts.df, rel=1e-9)
    for options in ({"method": idm.Infinitesimal(curvature=curvature)}, {"robust": "HC3"}):
        ours = quietly(idm.infer, bound, lambda b: b[:3], **options)
        theirs = quietly(idm.infer, other, lambda c: c, **options)
        np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-7, atol=1e-12)
    draws = idm.Bootstrap(20, rng=1, kind="parametric")
    ours = quietly(idm.infer, bound, lambda b: b[0], draws)
    theirs = quietly(idm.infer, other, lambda c: c[0], draws)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-6)


def test_gauss_newton_keeps_the_ridge_along_an_equality():
    given, _ = EQUALITIES["sum"]
    bound = idm.from_residuals(
        lambda b: Y - X @ b, start=np.zeros(4), l2=30.0, variance=1.0, **given
    )
    A, C = X.T @ X + 30 * np.eye(4), np.array([0.0, 1, 1, 0])
    g = np.array([1.0, -1.0, 2.0, 0.5])
    for curvature in ("hessian", "ggn"):
        found = quietly(idm.infer, bound, lambda b: b @ g, idm.Infinitesimal(curvature=curvature))
        assert found.standard_error == pytest.approx(tangent_error(A, C, g), rel=1e-8)


# Active inequalities.


def test_nonnegative_least_squares_is_that_of_scipy_and_of_dense_algebra():
    model = idm.from_residuals(lambda b: Y - X @ b, start=np.ones(4), bounds=[(0, None)] * 4)
    np.testing.assert_allclose(model.theta, nnls(X, Y)[0], atol=1e-12)
    assert model.theta[2] == 0.0
    est = idm.infer(model, idm.parameters)
    kept = X[:, [0, 1, 3]]
    s2 = np.sum((Y - X @ model.theta) ** 2) / (N - 3)
    exact = s2 * np.linalg.inv(kept.T @ kept)
    np.testing.assert_allclose(est.covariance[np.ix_([0, 1, 3], [0, 1, 3])], exact, rtol=1e-8)
    assert est.standard_error[2] == 0
    assert est.df == N - 3
    assert "theta[2] >= 0 (multiplier -" in est.diagnostics.notes["constraints"]
    assert "theta[2] >= 0" in est.summary()
    assert "theta[0] >= 0" in repr(model)


@pytest.mark.parametrize("seed", range(20))
def test_many_bounds_end_where_nonnegative_least_squares_does(seed):
    rng = np.random.default_rng(seed)
    d, n = 8, 40
    Z = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    y = rng.normal(size=n) + Z @ rng.normal(size=d)
    model = idm.from_loglik(
        lambda b: -((y - Z @ b) ** 2) / 2, start=np.ones(d), bounds=[(0, None)] * d
    )
    np.testing.assert_allclose(model.theta, nnls(Z, y)[0], atol=1e-7)
    assert np.all(model.theta >= 0)


def test_multipliers_are_the_rise_of_the_objective():
    def top(limit):
        model = idm.from_loglik(
            poisson, start=np.zeros(4), constraints=LinearConstraint([0, 1, 1, 0], -np.inf, limit)
        )
        return model.objective(model.theta), active_constraints(model).multipliers

    (above, _), (below, _), (_, multipliers) = top(-0.199), top(-0.201), top(-0.2)
    assert multipliers[0] == pytest.approx((above - below) / 0.002, rel=1e-4)


def test_an_inequality_at_its_limit_equals_the_equality():
    limits = [NonlinearConstraint(lambda b: b @ b, low, 1.0) for low in (1.0, -np.inf)]
    equal, below = (idm.from_loglik(normal, start=np.ones(4), constraints=c) for c in limits)
    np.testing.assert_allclose(equal.theta, below.theta, atol=1e-9)
    ours, theirs = (quietly(idm.infer, m, psi).standard_error for m in (equal, below))
    assert ours == pytest.approx(theirs, rel=1e-8)


def test_a_given_maximum_is_the_one_that_is_found():
    given = {"bounds": [(0, None)] * 4}
    fitted = idm.from_loglik(normal, start=np.ones(4), **given)
    known = idm.from_loglik(normal, fitted.theta, **given)
    ours, theirs = (idm.infer(m, idm.parameters) for m in (fitted, known))
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-9)


def test_a_likelihood_that_ends_at_its_bound():
    y = np.array([0.0, 0, 0, 0, 1.2, 0.4])

    def terms(th):  # a share of exact zeros, defined from 0 to 1
        if np.any(th < 0) or th[0] > 1:
            return np.full(6, np.nan)
        return np.where(
            y == 0, np.log1p(-th[0]), np.log(np.maximum(th[0], 1e-300)) - y * th[1] + np.log(th[1])
        )

    model = idm.from_loglik(terms, start=[0.3, 1.0], bounds=[(0.5, 1), (0, None)])
    np.testing.assert_allclose(model.theta, [0.5, 1 / 0.8], rtol=1e-6)
    est = quietly(idm.infer, model, lambda th: th[1])
    assert est.standard_error == pytest.approx(1 / 0.8 / np.sqrt(2), rel=1e-6)


def test_polish_stays_within_the_constraints():
    given = {"bounds": [(0, None)] * 4}
    exact = idm.from_loglik(normal, start=np.ones(4), **given)
    rough = idm.from_loglik(normal, exact.theta + np.array([0.01, -0.01, 0, 0.01]), **given)
    np.testing.assert_allclose(idm.polish(rough).theta, exact.theta, atol=1e-9)
    moved = idm.polish(rough, lambda b: b[0]).moved
    assert moved == pytest.approx(-0.01 / idm.infer(exact, lambda b: b[0]).standard_error, rel=1e-6)


def test_draws_satisfy_the_constraints():
    given, _ = EQUALITIES["product"]
    model = idm.from_loglik(normal, start=np.ones(4), **given)
    draws = idm.Simulation(50, rng=0).sample(model)
    np.testing.assert_allclose(draws[:, 1] * draws[:, 3], 0.2, rtol=1e-9)


def test_a_brought_covariance_is_that_of_all_parameters():
    model = idm.from_loglik(normal, start=np.ones(4), **EQUALITIES["sum"][0])
    covariance = idm.infer(model, idm.parameters).covariance
    ours = idm.infer(model, psi, covariance=covariance)
    assert ours.standard_error == pytest.approx(idm.infer(model, psi).standard_error, rel=1e-8)


def test_compare_answers_along_constraints():
    model = idm.from_loglik(poisson, start=np.zeros(4), **EQUALITIES["sum"][0])
    table = quietly(idm.compare, model, psi)
    assert not table.failures
    by_method = {row.method: row.std_error for row in table.rows}
    exact = by_method["Infinitesimal"]
    assert by_method["FiniteDifference"] == pytest.approx(exact, rel=1e-3)


# Close to a limit: a warning with the distance.


def mean_at(distance, side=1.0):
    """A normal mean, this many standard errors above (or below) its lower bound."""
    z = np.random.default_rng(0).normal(size=25)
    z = z - z.mean() + 7 + side * distance / 5
    return idm.from_loglik(lambda th: -((z - th[0]) ** 2) / 2, start=[7.5], bounds=[(7, None)])


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.9])
def test_a_bound_close_by_is_warned_about(distance):
    model = mean_at(distance)
    with pytest.warns(
        idm.ImplicitDeltaWarning, match=rf"theta\[0\] >= 7, {distance:.2g} .*profile"
    ):
        est = idm.infer(model, lambda th: th[0])
    assert est.standard_error == pytest.approx(0.2)
    assert "theta[0] >= 7" in est.diagnostics.notes["near"]
    for method in (idm.Bootstrap(10), idm.Simulation(100)):
        with pytest.raises(
            idm.UnsupportedModelError, match=r"theta\[0\] >= 7.*`profile\(model, psi\)`"
        ):
            idm.infer(model, lambda th: th[0], method)


@pytest.mark.parametrize("distance", [2.1, 10.0])
def test_a_bound_farther_away_is_not(distance):
    est = idm.infer(mean_at(distance), lambda th: th[0])
    assert "near" not in est.diagnostics.notes


@pytest.mark.parametrize(("beyond", "warned"), [(0.7, True), (3.0, False)])
def test_a_bound_that_holds_is_warned_about_if_it_hardly_does(beyond, warned):
    model = idm.from_loglik(
        normal, start=np.zeros(4), bounds=[ANY, ANY, (bound_beyond(beyond), None), ANY]
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        idm.infer(model, lambda b: b[0])
    assert any(f"by {beyond} standard errors" in str(w.message) for w in seen) == warned


def bound_beyond(distance):
    free = np.linalg.lstsq(X, Y, rcond=None)[0]
    return free[2] + distance * np.sqrt(np.linalg.inv(X.T @ X)[2, 2])


def test_psi_that_a_bound_fixes_is_sent_to_profile():
    model = idm.from_loglik(normal, start=np.ones(4), bounds=[(0, None)] * 4)
    with pytest.raises(idm.EvaluationError, match=r"theta\[2\] >= 0.*`profile\(model, psi\)`"):
        idm.infer(model, lambda b: b[2])
    assert idm.profile(model, lambda b: b[2]).interval.low == 0
    with pytest.raises(idm.UnsupportedModelError, match=r"all parameters.*profile"):
        idm.infer(mean_at(3.0, side=-1.0), lambda th: th[0])


# Against R.


def residual_model(case, bounds):
    return idm.from_residuals(
        function(case["residuals"], case["data"]), start=case["start"], bounds=bounds
    )


def test_nonnegative_coefficients_are_those_of_r():
    case = CASES["nonnegative"] | {"start": [50.0, 1, 1, 1, 1, 1]}
    model = residual_model(case, [ANY] + [(0, None)] * 5)
    np.testing.assert_allclose(model.theta, case["theta"], rtol=1e-7, atol=1e-8)
    est = quietly(idm.infer, model, idm.parameters)
    np.testing.assert_allclose(est.standard_error, case["standard_error"], rtol=1e-6)
    assert est.df == case["df"]
    active = active_constraints(model)
    np.testing.assert_allclose(-active.multipliers, np.take(case["multipliers"], [2, 3]), rtol=1e-5)


def test_bounded_nls_is_that_of_r():
    case = CASES["michaelis"] | {"start": [200.0, 0.04]}
    model = residual_model(case, [ANY, (None, 0.05)])
    np.testing.assert_allclose(model.theta, case["theta"], rtol=1e-8)
    est = quietly(idm.infer, model, idm.parameters)
    np.testing.assert_allclose(est.standard_error, case["standard_error"], rtol=1e-6)
    assert est.df == case["df"]
    free = idm.infer(
        residual_model(case, [ANY, (None, 0.2)]),
        idm.parameters,
        idm.Infinitesimal(curvature="ggn"),
    )
    np.testing.assert_allclose(free.value, case["free_theta"], rtol=1e-6)
    np.testing.assert_allclose(free.standard_error, case["free_standard_error"], rtol=1e-5)


def test_a_profile_within_bounds_is_that_of_r():
    case = CASES["michaelis"] | {"start": [200.0, 0.04]}
    found = idm.profile(residual_model(case, [ANY, (None, 0.05)]), lambda th: th[0])
    np.testing.assert_allclose(found.interval, case["profile"], rtol=1e-6)


def test_a_linear_equality_is_that_of_r():
    case = CASES["equality"]
    model = idm.from_loglik(
        function(case["loglik"], case["data"]),
        start=np.zeros(4),
        constraints=LinearConstraint([0, 0, 2, -1], 0, 0),
    )
    np.testing.assert_allclose(model.theta, case["theta"], rtol=1e-8)
    est = quietly(idm.infer, model, idm.parameters)
    np.testing.assert_allclose(est.standard_error, case["standard_error"], rtol=1e-6)


# Bad input.

FUNCTIONS = {idm.from_loglik: normal, idm.from_residuals: lambda b: Y - X @ b}

BAD = {
    "length": ({"bounds": [(0, 1)] * 3}, ValueError, "3 pairs, but there are 4"),
    "Bounds length": ({"bounds": Bounds([0, 0], [1, 1])}, ValueError, "4 parameters"),
    "crossed": ({"bounds": [ANY, (1, 0), ANY, ANY]}, ValueError, r"theta\[1\] are 1 and 0"),
    "nan": ({"bounds": [(np.nan, 1)] + [ANY] * 3}, ValueError, "nan"),
    "no pairs": ({"bounds": 3.0}, TypeError, "sequence of pairs"),
    "flat": ({"bounds": [0, 1, 0, 1]}, TypeError, "sequence of pairs"),
    "columns": ({"constraints": LinearConstraint([1, 1], 0, 1)}, ValueError, "4 columns"),
    "limits": (
        {"constraints": NonlinearConstraint(lambda b: b[:2], [0, 0, 0], 1)},
        ValueError,
        "2 rows, but limits",
    ),
    "contradiction": (
        {"bounds": [(0, 1)] * 4, "constraints": LinearConstraint(np.ones(4), 5, np.inf)},
        ValueError,
        "contradict",
    ),
    "two equalities": (
        {"constraints": LinearConstraint(np.ones((2, 4)), [0, 1], [0, 1])},
        ValueError,
        "contradict",
    ),
    "impossible": (
        {"constraints": NonlinearConstraint(lambda b: b @ b, -2, -1)},
        idm.ConvergenceError,
        "satisfy the constraints.*start=",
    ),
    "undefined": (
        {"constraints": {"type": "ineq", "fun": lambda b: np.log(b[0] - 5)}},
        ValueError,
        "NaN or infinite",
    ),
    "type": ({"constraints": {"type": "le", "fun": np.sum}}, TypeError, "must be a `scipy"),
    "no function": ({"constraints": {"type": "eq"}}, TypeError, "must be a `scipy"),
    "string": ({"constraints": ["a + b = 1"]}, TypeError, "must be a `scipy"),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("make", [idm.from_loglik, idm.from_residuals])
@pytest.mark.parametrize("name", BAD)
def test_bad_constraints_are_refused_with_a_reason(make, name):
    given, error, message = BAD[name]
    with pytest.raises(error, match=message):
        make(FUNCTIONS[make], start=np.zeros(4), **given)


@pytest.mark.parametrize("make", [idm.from_loglik, idm.from_residuals])
def test_a_theta_that_is_not_feasible_or_no_maximum_is_refused(make):
    function_of = FUNCTIONS[make]
    fitted = make(function_of, start=np.ones(4), bounds=[(0, None)] * 4)
    with pytest.raises(ValueError, match=r"theta\[2\] >= 0: it is -0.1"):
        make(function_of, fitted.theta - [0, 0, 0.1, 0], bounds=[(0, None)] * 4)
    wrong = [(0, None), (0, None), (None, 0), (0, None)]  # it would leave this bound
    held = make(function_of, start=np.ones(4), bounds=[ANY, ANY, (0, 0), ANY])
    with pytest.raises(idm.ConvergenceError, match="not a maximum under its constraints"):
        make(function_of, held.theta, bounds=wrong)
    with pytest.raises(idm.ConvergenceError, match="not a maximum under its constraints"):
        make(function_of, held.theta + np.array([0.5, 0, 0, 0]), bounds=[(0, None)] * 4)


def test_names_are_those_of_the_user():
    model = idm.from_loglik(
        normal, start=np.ones(4), bounds=[(0, None)] * 4, names=["a", "b", "c", "d"]
    )
    est = idm.infer(model, idm.parameters)
    assert est.names == ("a", "b", "c", "d")
    assert "c >= 0" in est.diagnostics.notes["constraints"]


def test_dependent_data_are_bounded_too():
    model = idm.from_loglik(
        lambda th: np.array([np.sum(COUNTS * th[0] - np.exp(th[0]) - gammaln(COUNTS + 1))]),
        start=[0.0],
        bounds=[(-3, 3)],
    )
    exact = 1 / np.sqrt(COUNTS.sum())
    assert idm.infer(model, lambda th: th[0]).standard_error == pytest.approx(exact, rel=1e-7)
