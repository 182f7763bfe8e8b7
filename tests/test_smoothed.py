"""Smoothed: a slope for evaluations that have none."""

import numpy as np
import pytest
from cases import linear, logistic, normal, poisson, quadratic, weibull
from opaque import Diagonal, steps
from scipy import optimize

import implicit_delta as idm

CASES = [normal(), linear(), logistic(), poisson(), quadratic(), weibull()]


def model_of(case, **options):
    return idm.from_loglik(case.loglik, case.theta, score=case.score, **options)


@pytest.mark.parametrize("method", [idm.Infinitesimal(), idm.FiniteDifference()], ids=repr)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_smooth_evaluations_agree_up_to_the_stated_error(case, method):
    """With every row counted 10^4 times the bend of psi and L is out of the way."""
    model = model_of(case, weights=np.full(case.loglik(case.theta).size, 1e4))
    est = idm.infer(model, idm.Smoothed(case.psi, rng=1), method)
    allowed = 3 * est.diagnostics.notes["smoothing_error"] + 1e-4
    np.testing.assert_allclose(
        np.atleast_1d(est.standard_error), case.standard_error / 100, rtol=allowed
    )
    np.testing.assert_allclose(est.value, case.psi(case.theta), rtol=1e-12)  # not smoothed


@pytest.mark.filterwarnings("ignore:Even if the model is right")  # 60 rows
def test_what_is_linear_is_exact():
    case = linear()
    est = idm.infer(model_of(case), idm.Smoothed(case.psi, draws=20, rng=0))
    np.testing.assert_allclose(est.covariance, case.covariance, rtol=1e-9, atol=1e-12)
    exact = idm.infer(model_of(case), case.psi, robust=True)
    est = idm.infer(model_of(case), idm.Smoothed(case.psi, draws=20, rng=0), robust=True)
    np.testing.assert_allclose(est.covariance, exact.covariance, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("method", [idm.Infinitesimal(), idm.FiniteDifference()], ids=repr)
def test_steps_have_a_standard_error(method):
    model, share, exact = steps()
    with pytest.raises(idm.EvaluationError, match=r"Smoothed\(psi\)"):
        idm.infer(model, share)
    est = idm.infer(model, idm.Smoothed(share, rng=0), method)
    allowed = 3 * est.diagnostics.notes["smoothing_error"]
    assert est.standard_error == pytest.approx(exact, rel=allowed)
    assert allowed < 0.02
    assert est.diagnostics.notes["smoothing_change"] < 0.05


def cobyqa(fun, x0):
    return optimize.minimize(fun, x0, method="COBYQA", options={"initial_tr_radius": 0.5})


@pytest.mark.slow
@pytest.mark.parametrize("maximize", [idm.nelder_mead(tolerance=1e-2), cobyqa])
def test_refits_without_gradients(maximize):
    """Refits choose among the steps what suits them: a few percent more than the exact error."""
    model, share, exact = steps()
    est = idm.infer(model, share, idm.FiniteDifference(maximizer=maximize))
    assert 0.97 < est.standard_error / exact < 1.16
    both = lambda b: np.array([share(b), share(-b)])
    joint = idm.infer(model, both, idm.FiniteDifference(maximizer=maximize))
    np.testing.assert_allclose(joint.standard_error, exact, rtol=0.16)
    assert joint.covariance[0, 1] == pytest.approx(-(exact**2), rel=0.2)


def test_steps_beside_something_smooth():
    """Half of the derivative is missing, and nothing else would tell."""
    model, share, exact = steps()
    both = lambda b: np.array([b[0], share(b)])
    with pytest.raises(idm.EvaluationError, match=r"psi\[1\] moves, but its derivative"):
        idm.infer(model, both)
    with pytest.raises(idm.EvaluationError, match=r"as its derivative implies.*Smoothed"):
        idm.infer(model, lambda b: share(b) + 0.01 * b[0])
    est = idm.infer(model, idm.Smoothed(both, rng=0))
    np.testing.assert_allclose(est.standard_error, [2 * exact, exact], rtol=0.02)
    assert est.covariance[0, 1] == pytest.approx(2 * exact**2, rel=0.03)


@pytest.mark.slow
def test_a_median_has_many_kinks():
    """The derivative of a median is that of the one row in the middle: not its course."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    center = np.array([1.0, 0.5, 0.0])  # the slope of the median of a normal is its mean
    X, rows = rng.normal(size=(500, 3)), center + rng.normal(size=(20_001, 3))
    y = X.sum(axis=1) + rng.normal(size=500)
    net = torch.nn.Linear(3, 1, bias=False).double()
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    net.load_state_dict({"weight": torch.tensor(beta[None])})
    data = torch.tensor(X), torch.tensor(y)[:, None]
    model = idm.from_torch(net, data, idm.Gaussian(variance=1.0))
    median = lambda net: net(torch.tensor(rows)).median()
    with pytest.raises((idm.ConvergenceError, idm.NonlinearityWarning), match="many kinks"):
        idm.infer(model, median)
    exact = np.sqrt(center @ np.linalg.solve(X.T @ X, center))
    smoothed = idm.infer(model, idm.Smoothed(median, rng=0))
    assert smoothed.standard_error == pytest.approx(exact, rel=0.05)


def test_the_bend_is_kept():
    """Of psi = theta^2 at theta = 2 with error 1, the surrogate is psi itself."""
    model = idm.from_loglik(lambda th: -((th[:1] - 2.0) ** 2) / 2, theta=[2.0])
    est = idm.infer(model, idm.Smoothed(lambda th: th[0] ** 2, rng=0))
    direct = idm.infer(model, lambda th: th[0] ** 2)
    assert est.value == 4.0
    assert est.standard_error == pytest.approx(4.0, rel=1e-6)
    assert est.diagnostics.nonlinearity == pytest.approx(direct.diagnostics.nonlinearity, rel=1e-6)


@pytest.mark.parametrize("method", [idm.Infinitesimal(), idm.FiniteDifference()], ids=repr)
def test_many_parameters(method):
    """Fewer pairs than parameters: the length of the slope has the error 1 / sqrt(2 P)."""
    model = Diagonal.of(np.geomspace(0.5, 5.0, 3000))
    psi = lambda th: np.array([th[:1000].sum(), th[500:].sum()])
    gradient = np.array([np.arange(3000) < 1000, np.arange(3000) >= 500]).astype(float)
    exact = np.sqrt((gradient**2 / model.rows.curvatures).sum(axis=1))
    est = idm.infer(model, idm.Smoothed(psi, draws=400, rng=0), method)
    assert est.diagnostics.notes["smoothing_error"] == pytest.approx(1 / np.sqrt(400), rel=0.5)
    np.testing.assert_allclose(est.standard_error, exact, rtol=3 / np.sqrt(400))


def test_one_wide_step_depends_on_the_width():
    model, _, _ = steps()
    with pytest.warns(idm.NonlinearityWarning, match="when the width 1 is halved"):
        est = idm.infer(model, idm.Smoothed(lambda b: float(b[0] > 0), rng=0), strict=False)
    assert est.diagnostics.notes["smoothing_change"] > 0.5
    narrow = idm.Smoothed(lambda b: float(b[0] > 0), width=0.25, rng=0)
    with pytest.warns(idm.NonlinearityWarning):
        assert idm.infer(model, narrow, strict=False).standard_error > 2 * est.standard_error


def test_seeds_and_jobs():
    model, share, _ = steps()
    one = idm.infer(model, idm.Smoothed(share, rng=2))
    two = idm.infer(model, idm.Smoothed(share, rng=2, n_jobs=2))
    assert one.standard_error == two.standard_error
    fresh = idm.infer(model, idm.Smoothed(share))
    seed = int(fresh.diagnostics.notes["smoothing_seed"])
    again = idm.infer(model, idm.Smoothed(share, rng=seed))
    assert fresh.standard_error == again.standard_error


def test_bad_input():
    model, share, _ = steps()
    for width in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="width"):
            idm.Smoothed(share, width=width)
    with pytest.raises(ValueError, match="even number"):
        idm.Smoothed(share, draws=101)
    with pytest.raises(ValueError, match="curvature"):
        idm.Smoothed(share, curvature="fisher")
    with pytest.raises(idm.EvaluationError, match="did not change at any draw"):
        idm.infer(model, idm.Smoothed(lambda b: 1.0))
    with pytest.raises(idm.EvaluationError, match=r"draw \d+ of Smoothed\(draws=1000, rng=4\)"):
        idm.infer(model, idm.Smoothed(lambda b: np.sqrt(-b[0]) if b[0] > 0.1 else b[0], rng=4))


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
def test_rough_noise_without_slope():
    model, _, _ = steps()
    hashed = idm.Smoothed(lambda b: np.sin(1e9 * b[0]), rng=1)  # a seed that shows no slope
    with pytest.raises(idm.EvaluationError, match="no slope can be told"):
        idm.infer(model, hashed, strict=False)
