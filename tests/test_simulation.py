"""Simulation: psi at draws from the normal distribution of the parameters."""

import numpy as np
import pytest
from cases import linear, logistic, normal, poisson, quadratic, weibull
from opaque import Diagonal, steps
from scipy.stats import norm

import implicit_delta as idm
from implicit_delta.linalg.krylov import inverse_root
from implicit_delta.testing import check_method

CASES = [normal(), linear(), logistic(), poisson(), quadratic(), weibull()]
names = [case.name for case in CASES]


def model_of(case, **options):
    return idm.from_loglik(case.loglik, case.theta, score=case.score, **options)


# Against the exact delta method


def test_the_contract():
    check_method(idm.Simulation(rng=0), rtol=0.01)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_smooth_evaluations_agree_up_to_the_stated_error(case):
    """With every row counted 10^4 times the bend of psi, which is no error, is out of the way."""
    rows = case.loglik(case.theta).size
    est = idm.infer(model_of(case, weights=np.full(rows, 1e4)), case.psi, idm.Simulation(rng=1))
    allowed = 3 * est.diagnostics.notes["monte_carlo_error"] + 1e-5
    np.testing.assert_allclose(
        np.atleast_1d(est.standard_error), case.standard_error / 100, rtol=allowed
    )
    assert est.diagnostics.notes["nonlinear_share"] < 1e-4


def test_what_is_linear_has_no_monte_carlo_error():
    case = linear()
    est = idm.infer(model_of(case), case.psi, idm.Simulation(draws=20, rng=0))
    np.testing.assert_allclose(est.covariance, case.covariance, rtol=1e-9, atol=1e-12)
    assert est.diagnostics.notes["monte_carlo_error"] < 1e-9


def test_fewer_pairs_than_parameters():
    """Of P pairs the relative error of a standard error is 1 / sqrt(2 P)."""
    case = quadratic()
    est = idm.infer(model_of(case), case.psi, idm.Simulation(draws=80, rng=0))
    error = est.diagnostics.notes["monte_carlo_error"]
    assert error == pytest.approx(1 / np.sqrt(80), rel=0.5)
    assert est.standard_error == pytest.approx(case.standard_error[0], rel=3 / np.sqrt(80))
    with pytest.raises(idm.UnsupportedModelError, match="direction"):
        idm.infer(model_of(logistic()), logistic().psi, idm.Simulation(draws=4), robust=True)


@pytest.mark.slow
def test_the_stated_error_is_the_spread_over_seeds():
    model, share, _ = steps(count=60)
    results = [idm.infer(model, share, idm.Simulation(draws=100, rng=seed)) for seed in range(100)]
    spread = np.std([est.standard_error for est in results]) / results[0].standard_error
    stated = np.mean([est.diagnostics.notes["monte_carlo_error"] for est in results])
    assert stated == pytest.approx(spread, rel=0.35)  # the spread itself is known to 7 %


def test_step_functions():
    model, share, exact = steps()
    est = idm.infer(model, share, idm.Simulation(rng=0))
    allowed = 3 * est.diagnostics.notes["monte_carlo_error"]
    assert est.standard_error == pytest.approx(exact, rel=allowed)
    assert allowed < 0.02


@pytest.mark.filterwarnings("ignore:The robust standard error, 0, is next to nothing")
def test_robust_errors_of_a_step_function():
    model, share, _ = steps()
    smooth = idm.infer(model, lambda b: b[0] / 2, robust=True)
    est = idm.infer(model, share, idm.Simulation(draws=2000, rng=0), robust=True)
    assert est.standard_error == pytest.approx(smooth.standard_error, rel=0.02)
    assert est.diagnostics.drift < 1e-9


def test_percentiles_follow_a_psi_that_bends():
    case = weibull()
    model = model_of(case)
    est = idm.infer(model, lambda th: np.exp(2 * th[1]), idm.Simulation(draws=20_000, rng=0))
    error = idm.infer(model, lambda th: th[1]).standard_error
    exact = np.exp(2 * (case.theta[1] + norm.ppf([0.025, 0.975]) * error))
    # error of a quantile: sqrt(0.025 * 0.975 / draws) / density, here 2.4 % of a standard error
    np.testing.assert_allclose(
        est.confidence_interval(kind="percentile"), exact, atol=4 * 0.024 * est.standard_error
    )


def test_a_psi_without_any_slope_warns():
    model = idm.from_loglik(lambda th: -(th[:1] ** 2) / 2, theta=[0.0])
    with pytest.warns(idm.NonlinearityWarning, match="0% of the variance"):
        est = idm.infer(model, lambda th: th[0] ** 2, idm.Simulation(draws=4000, rng=0))
    assert est.standard_error == pytest.approx(np.sqrt(2), rel=0.1)  # chi-squared


# Draws


def test_draws_have_the_right_moments_and_come_in_pairs():
    case = poisson()
    model = model_of(case)
    simulation = idm.Simulation(draws=40, rng=3)
    sample = simulation.sample(model)
    information = model.information(model.theta, np.eye(model.d))
    np.testing.assert_allclose(sample[::2] + sample[1::2], np.tile(2 * model.theta, (20, 1)))
    centered = sample - model.theta
    np.testing.assert_allclose(centered.T @ centered / 40 @ information, np.eye(4), atol=1e-6)
    est = idm.infer(model, case.psi, simulation)
    np.testing.assert_allclose(est.draws, [case.psi(theta) for theta in sample], rtol=1e-12)


def test_seeds_jobs_and_generators():
    model, share, _ = steps()
    first = idm.infer(model, share, idm.Simulation(rng=5))
    assert first.method == "Simulation(rng=5)"
    again = idm.infer(model, share, idm.Simulation(rng=5, n_jobs=2))
    np.testing.assert_array_equal(first.draws, again.draws)
    fresh = idm.infer(model, share, idm.Simulation())
    assert fresh.standard_error != first.standard_error
    repeated = idm.infer(model, share, eval(fresh.method, vars(idm)))  # the method names its seed
    assert repeated.standard_error == fresh.standard_error
    generator = np.random.default_rng(0)
    one, two = (idm.infer(model, share, idm.Simulation(rng=generator)) for _ in range(2))
    assert one.standard_error != two.standard_error


# Many parameters


@pytest.mark.slow
def test_matrix_free_draws():
    """Of P pairs the relative error of a variance is sqrt(2 / P), of a standard error half that."""
    d = 10_000
    model = Diagonal.of(np.geomspace(0.1, 10.0, d))
    sample = idm.Simulation(draws=200, rng=0).sample(model)
    ratios = np.mean((sample - model.theta) ** 2, axis=0) * model.rows.curvatures
    assert np.mean(ratios) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 100 / d))
    assert np.mean(ratios[:100]) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 100 / 100))
    est = idm.infer(model, np.sum, idm.Simulation(draws=200, rng=0))
    exact = np.sqrt(np.sum(1 / model.rows.curvatures))
    error = est.diagnostics.notes["monte_carlo_error"]
    assert error == pytest.approx(1 / np.sqrt(200), rel=0.5)
    assert est.standard_error == pytest.approx(exact, rel=3 * error)


def test_matrix_free_draws_need_a_maximum():
    curvatures = np.linspace(-1.0, 2.0, 3000)
    with pytest.raises(idm.NotAMaximumError, match="not at a strict maximum"):
        idm.infer(Diagonal.of(curvatures), np.sum, idm.Simulation())


def test_gradient_free_refits_of_many_parameters_are_refused():
    model = Diagonal.of(np.ones(10_000))
    with pytest.raises(idm.UnsupportedModelError, match=r"Simulation\(\).*Smoothed\(psi\)"):
        idm.infer(model, np.sum, idm.FiniteDifference(maximizer=idm.nelder_mead))


@pytest.mark.parametrize("condition", [1e1, 1e3])
def test_inverse_root(condition):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(120, 120)))[0]
    values = np.geomspace(1.0, condition, 120)
    z = rng.normal(size=(120, 4))
    exact = vectors / np.sqrt(values) @ vectors.T @ z
    for rtol in (1e-2, 1e-6):
        found = inverse_root(lambda v: (vectors * values) @ (vectors.T @ v), z, rtol=rtol)
        error = np.linalg.norm(found - exact, axis=0) / np.linalg.norm(exact, axis=0)
        assert np.all(error < 3 * rtol)  # the error is extrapolated, not bounded


def test_inverse_root_gives_up_in_words():
    values = np.geomspace(1e-8, 1.0, 400)[:, None]
    with pytest.raises(idm.ConvergenceError, match="after 50 products"):
        inverse_root(lambda v: values * v, np.ones((400, 1)), max_iterations=50)


# Bad input


@pytest.mark.parametrize("draws", [3, 7, 0, -2, 10.5, "many"])
def test_draws_come_in_pairs(draws):
    with pytest.raises(ValueError, match="even number"):
        idm.Simulation(draws=draws)


def test_bad_configuration():
    with pytest.raises(ValueError, match="curvature"):
        idm.Simulation(curvature="fisher")
    model, share, _ = steps()
    for rng in (-1, 0.5, "seed"):
        with pytest.raises(ValueError, match="rng must be a seed"):
            idm.infer(model, share, idm.Simulation(rng=rng))


@pytest.mark.parametrize("how", ["nan", "raise", "shape"])
def test_a_failing_draw_is_named(how):
    model, share, _ = steps()
    sample = idm.Simulation(draws=100, rng=7).sample(model)
    edge = np.sort(sample[:, 0])[-3]

    def fragile(b):
        if b[0] < edge:
            return share(b)
        if how == "raise":
            raise RuntimeError("the queue never empties")
        return np.nan if how == "nan" else np.zeros(2)

    first = np.flatnonzero(sample[:, 0] >= edge)[0]
    text = {"nan": "NaN", "raise": "RuntimeError: the queue never empties", "shape": "same shape"}
    with pytest.raises(
        idm.EvaluationError, match=rf"draw {first} of Simulation\(draws=100, rng=7\)"
    ) as caught:
        idm.infer(model, fragile, idm.Simulation(draws=100, rng=7))
    assert text[how] in str(caught.value)


def test_a_psi_that_never_moves():
    model, _, _ = steps()
    with pytest.raises(idm.EvaluationError, match="same at every draw"):
        idm.infer(model, lambda b: 1.0, idm.Simulation())
