"""Methods x cases: everything is held to the closed forms of `cases.py`."""

import inspect

import numpy as np
import pytest
from cases import CASES, logistic, weibull
from scipy import optimize

import implicit_delta as idm
from implicit_delta.testing import check_method, check_model

CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def model_of(case, analytic=True):
    return idm.from_loglik(case.loglik, case.theta, score=case.score if analytic else None)


def errors(case, method, analytic=True):
    estimate = idm.infer(model_of(case, analytic), case.psi, method)
    return np.atleast_1d(estimate.standard_error)


@CASE
def test_without_derivatives(case):
    np.testing.assert_allclose(errors(case, None, False), case.standard_error, rtol=1e-6)


@CASE
def test_with_analytic_score(case):
    np.testing.assert_allclose(errors(case, None), case.standard_error, rtol=1e-9)


@CASE
def test_every_entry_of_the_covariance(case):
    covariance = idm.infer(model_of(case, analytic=False), case.psi).covariance
    size = np.outer(case.standard_error, case.standard_error)
    np.testing.assert_allclose(covariance / size, case.covariance / size, atol=1e-6)


@pytest.mark.slow
@CASE
def test_conjugate_gradient_stops_on_the_standard_error(case):
    rough = errors(case, idm.Infinitesimal(solver=idm.conjugate_gradient(rtol=1e-2)))
    tight = idm.conjugate_gradient(rtol=1e-9, max_iterations=5000)
    exact = errors(case, idm.Infinitesimal(solver=tight))
    np.testing.assert_allclose(rough, case.standard_error, rtol=1e-2)
    np.testing.assert_allclose(exact, case.standard_error, rtol=1e-8)


@CASE
def test_finite_difference_at_its_default_push(case):
    found = errors(case, idm.FiniteDifference(), analytic=False)
    np.testing.assert_allclose(found, case.standard_error, rtol=1e-2)


def cobyqa(fun, x0):
    return optimize.minimize(fun, x0, method="COBYQA")


@pytest.mark.parametrize("maximize", [idm.lbfgs, idm.newton_krylov, idm.nelder_mead, cobyqa])
@pytest.mark.parametrize("case", [logistic(), weibull()], ids=lambda case: case.name)
def test_maximizers_agree(case, maximize):
    found = errors(case, idm.FiniteDifference(maximizer=maximize, push=0.25))
    np.testing.assert_allclose(found, case.standard_error, rtol=1e-2)


def slope_in_lam(case, central):
    """Fit the exponent of the error in lambda over pushes that rounding does not touch."""
    exact = case.covariance[0, 0]
    pushes = np.array([0.05, 0.1, 0.2]) / np.sqrt(exact)
    errors = [
        idm.infer(
            model_of(case), case.psi, idm.FiniteDifference(lam=lam, central=central)
        ).covariance[0, 0]
        - exact
        for lam in pushes
    ]
    return np.polyfit(np.log(pushes), np.log(np.abs(errors)), 1)[0]


@pytest.mark.parametrize("case", [logistic(), weibull()], ids=lambda case: case.name)
def test_the_error_of_central_differences_falls_with_slope_two(case):
    assert slope_in_lam(case, central=True) == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize("case", [logistic(), weibull()], ids=lambda case: case.name)
def test_the_error_of_forward_differences_falls_with_slope_one(case):
    assert slope_in_lam(case, central=False) == pytest.approx(1.0, abs=0.15)


def test_several_lambdas_are_extrapolated_or_averaged():
    case = weibull()
    lams = np.array([0.1, 0.2]) / case.standard_error[0]

    def error(**options):
        estimate = idm.infer(model_of(case), case.psi, idm.FiniteDifference(**options))
        return abs(estimate.standard_error / case.standard_error[0] - 1), estimate

    single, _ = error(lam=lams[0])
    extrapolated, estimate = error(lam=lams)
    averaged, _ = error(lam=lams, combine="mean")
    assert extrapolated < single / 5 < averaged
    assert estimate.diagnostics.notes["spread_over_lam"] > 0


@pytest.mark.slow
def test_refits_in_parallel_give_the_same_numbers():
    case = next(case for case in CASES if "Poisson" in case.name)
    one = idm.infer(model_of(case), case.psi, idm.FiniteDifference(n_jobs=1))
    two = idm.infer(model_of(case), case.psi, idm.FiniteDifference(n_jobs=2))
    np.testing.assert_array_equal(one.covariance, two.covariance)
    assert two.diagnostics.passes == one.diagnostics.passes


def test_refits_do_not_start_a_difference_at_an_unfinished_theta():
    """Drift enters neither end: the variance is that of the maximum."""
    case = logistic()
    nudge = 0.05 * np.sqrt(np.diag(idm.infer(model_of(case), idm.parameters).covariance))
    model = idm.from_loglik(case.loglik, case.theta + nudge, score=case.score)
    estimate = idm.infer(model, case.psi, idm.FiniteDifference())
    assert estimate.standard_error == pytest.approx(case.standard_error[0], rel=0.02)


@CASE
@pytest.mark.parametrize("method", [idm.Infinitesimal(), idm.FiniteDifference()], ids=repr)
def test_parameters_have_the_inverse_information_as_covariance(case, method):
    model = model_of(case)
    if model.d > 10 and isinstance(method, idm.FiniteDifference):
        method = idm.FiniteDifference(lam=1.0)
    estimate = idm.infer(model, idm.parameters, method, strict=False)
    size = np.sqrt(np.diag(estimate.covariance))
    product = estimate.covariance @ model.information(model.theta, np.eye(model.d))
    assert np.max(abs((product - np.eye(model.d)) / size[:, None] * size)) < 0.05


def test_damping_is_a_ridge():
    case = logistic()
    damped = idm.infer(model_of(case), case.psi, idm.Infinitesimal(damping=3.0))
    A = model_of(case).information(case.theta, np.eye(4)) + 3.0 * np.eye(4)
    g = model_of(case).jacobian(case.psi, case.theta)[0]
    assert damped.standard_error**2 == pytest.approx(g @ np.linalg.solve(A, g), rel=1e-8)


def test_diagnostics_are_on_every_estimate():
    case = logistic()
    for method in (idm.Infinitesimal(), idm.FiniteDifference()):
        diagnostics = idm.infer(model_of(case), case.psi, method).diagnostics
        assert 0 <= diagnostics.drift < 1e-6
        assert 0 < diagnostics.nonlinearity < 0.2
        assert diagnostics.asymmetry == 0.0
        assert 0 <= diagnostics.residual < 1e-5
        assert diagnostics.passes > 0
        assert diagnostics.seconds > 0
    assert idm.infer(model_of(case), case.psi).diagnostics.smallest_curvature > 0


@CASE
@pytest.mark.parametrize("analytic", [True, False], ids=["analytic", "numerical"])
def test_models_keep_the_contract(case, analytic):
    check_model(model_of(case, analytic), case.psi)


@pytest.mark.parametrize(
    "method",
    [
        idm.Infinitesimal(),
        idm.Infinitesimal(solver=idm.conjugate_gradient(rtol=1e-4)),
        idm.FiniteDifference(),
        idm.FiniteDifference(central=False, push=0.02),
    ],
    ids=repr,
)
def test_methods_keep_the_contract(method):
    check_method(method)


def test_a_method_that_draws_rows_keeps_the_contract():
    """Of 1500 replicates a standard error is uncertain by 2%, of 12 clusters by a bias of 4%."""
    check_method(idm.Bootstrap(1500, kind="one-step", rng=0), rtol=0.1)


@pytest.mark.parametrize(
    ("covariance", "error", "text"),
    [
        ([[-0.02]], idm.ConvergenceError, "own found a variance of -0.02 for 'psi'"),
        ([[np.nan]], idm.ConvergenceError, "variance of nan"),
        ([0.02], ValueError, r"1 values of psi: it must be an array of floats of shape \(1, 1\)"),
        ([[1j]], ValueError, "array of floats"),
    ],
)
def test_what_is_no_covariance_is_refused_from_any_method(covariance, error, text):
    class Own(idm.Method):
        def respond(self, model, evaluation):
            return idm.Response(covariance=np.array(covariance), method="own")

    y = np.random.default_rng(0).normal(size=50)
    model = idm.from_loglik(lambda t: -0.5 * (y - t[0]) ** 2, start=[0.0])
    for strict in (True, False):
        with pytest.raises(error, match=text):
            idm.infer(model, lambda t: t[0], Own(), strict=strict)


RETURNED = [
    np.array([[0.02]]),
    np.float64(0.02),
    0.02,
    None,
    (np.array([[0.02]]), "own"),
    {"covariance": np.array([[0.02]]), "method": "own"},
    [[0.02]],
    idm.Response,
    np.linalg,
    "own",
]


@pytest.mark.parametrize("returned", RETURNED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"robust": True}, {"robust": "HC1"}, {"clusters": np.arange(50) // 5}],
    ids=str,
)
def test_what_is_no_response_is_refused_from_any_method(returned, options):
    class Own(idm.Method):
        def respond(self, model, evaluation):
            return returned

    y = np.random.default_rng(0).normal(size=50)
    model = idm.from_loglik(lambda t: -0.5 * (y - t[0]) ** 2, start=[0.0])
    text = rf"Own\.respond returned .*{type(returned).__name__}.*`Response\(covariance="
    for psi in (lambda t: t[0], [lambda t: t[0], lambda t: 2 * t[0]]):
        with pytest.raises(TypeError, match=text):
            idm.infer(model, psi, Own(), **options)


def test_what_is_no_method_by_clusters_is_refused():
    class Own(idm.Method):
        def respond(self, model, evaluation):
            return idm.Infinitesimal().respond(model, evaluation)

        def by_clusters(self, clusters):
            self.clusters = clusters

    y = np.random.default_rng(0).normal(size=50)
    model = idm.from_loglik(lambda t: -0.5 * (y - t[0]) ** 2, start=[0.0])
    with pytest.raises(TypeError, match=r"Own\.by_clusters returned NoneType"):
        idm.infer(model, lambda t: t[0], Own(), clusters=np.arange(50) // 5)


# Arguments by place.
PLACES = {
    "Simulation": (idm.Simulation, ["draws", "rng", "curvature", "n_jobs"]),
    "Bootstrap": (
        idm.Bootstrap,
        ["replicates", "kind", "rng", "n_jobs", "maximizer", "curvature", "clusters"],
    ),
    "FiniteDifference": (
        idm.FiniteDifference,
        ["lam", "central", "maximizer", "push", "combine", "curvature", "n_jobs"],
    ),
    "Infinitesimal": (idm.Infinitesimal, ["solver", "curvature", "damping"]),
    "Average": (idm.Average, ["h", "sample"]),
    "Estimate": (idm.Estimate, ["value", "covariance"]),
}


@pytest.mark.parametrize("name", PLACES)
def test_arguments_keep_their_places(name):
    kind, places = PLACES[name]
    parameters = inspect.signature(kind).parameters.values()
    free = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert free[: len(places)] == places


def test_a_seed_by_place_is_a_seed():
    assert idm.Simulation(200, 0) == idm.Simulation(200, rng=0)
    with pytest.raises(TypeError, match="tangent=True"):
        idm.Simulation(200, True)
