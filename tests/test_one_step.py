"""The one-step bootstrap: against full refits and closed forms, its check, and its refusals."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

import implicit_delta as idm


def logit(n=400, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    y = (rng.random(n) < expit(X @ np.linspace(0.5, -0.5, d))).astype(float)
    return X, y


def hosted(X, y):
    return idm.from_statsmodels(sm.Logit(y, X).fit(disp=0))


def scored(X, y):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(X.shape[1]),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )


def plain(X, y):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b), start=np.zeros(X.shape[1])
    )


def penalized(X, y):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b), start=np.zeros(X.shape[1]), l2=3.0
    )


def psi(b):
    return expit(b[0] + b[1])


MAKERS = [hosted, scored, plain, penalized]
ONE_STEP, FULL = idm.Bootstrap(60, "one-step", rng=1), idm.Bootstrap(60, rng=1)


@pytest.mark.parametrize("make", MAKERS)
def test_one_step_is_close_to_refits_of_the_same_draws(make):
    model = make(*logit())
    one, full = idm.infer(model, psi, ONE_STEP), idm.infer(model, psi, FULL)
    error = one.diagnostics.notes["one_step_error"]
    gaps = np.sqrt(np.mean((one.draws - full.draws)[:5] ** 2)) / one.standard_error
    assert error == pytest.approx(float(gaps), rel=1e-4)
    assert 0 < error < 0.1
    assert abs(one.standard_error / full.standard_error - 1) < 3 * error
    assert one.diagnostics.passes < full.diagnostics.passes
    assert "one-step" in one.method


@pytest.mark.parametrize("make", [hosted, scored])
def test_clusters_are_drawn_whole(make):
    X, y = logit()
    ids = np.arange(len(y)) // 8
    one = idm.infer(make(X, y), psi, ONE_STEP, clusters=ids)
    full = idm.infer(make(X, y), psi, FULL, clusters=ids)
    np.testing.assert_allclose(one.draws, full.draws, atol=0.3 * full.standard_error)
    assert abs(one.standard_error / full.standard_error - 1) < 0.1


def test_a_parabola_takes_one_step():
    X, _ = logit()
    y = X @ np.arange(4.0) + np.random.default_rng(1).normal(size=len(X))
    model = idm.from_residuals(lambda b: y - X @ b, start=np.zeros(4), variance=1.0)
    one, full = (idm.infer(model, lambda b: b, m) for m in (ONE_STEP, FULL))
    np.testing.assert_allclose(one.draws, full.draws, rtol=1e-6, atol=1e-8)
    assert one.diagnostics.notes["one_step_error"] < 1e-5


def test_jobs_and_seeds_change_nothing():
    model = scored(*logit())
    one = idm.infer(model, psi, ONE_STEP)
    again = idm.infer(model, psi, eval(one.method, {**vars(idm)}))
    np.testing.assert_array_equal(one.draws, again.draws)


def test_an_average_over_training_rows_and_compare():
    X, y = logit()
    model = scored(X, y)
    average = idm.Average(lambda b: expit(X @ b), sample="training")
    one, full = idm.infer(model, average, ONE_STEP), idm.infer(model, average, FULL)
    assert one.standard_error == pytest.approx(full.standard_error, rel=0.05)
    idm.compare(model, psi, [ONE_STEP, FULL])


def few(positive):
    X, _ = logit(60, 2, seed=3)
    y = np.zeros(60)
    y[:positive] = 1.0
    return X, y


@pytest.mark.filterwarnings("ignore:The bootstrap has a standard error")
def test_a_step_that_does_not_lead_to_the_refit_is_told():
    with pytest.raises(idm.ConvergenceError, match="resample"):
        idm.infer(scored(*few(3)), lambda b: b[0], ONE_STEP)
    with pytest.warns(idm.NonlinearityWarning, match=r"After one step psi is 0\.\d+ standard"):
        idm.infer(scored(*few(14)), lambda b: b[0], ONE_STEP)


def test_what_has_no_step_is_refused():
    model = scored(*logit())
    with pytest.raises(idm.UnsupportedModelError, match="without a maximizer"):
        idm.infer(model, psi, idm.Bootstrap(20, "one-step", maximizer=idm.lbfgs))
    with pytest.raises(ValueError, match="`fit` shows none"):
        idm.bootstrap(np.median, np.arange(9.0), lambda f: f, kind="one-step")
    with pytest.raises(ValueError, match="one-step"):
        idm.Bootstrap(kind="onestep")
