"""Target of an interval under a penalty: shrinkage, its warning, and one Newton step without."""

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm

N = 400
RNG = np.random.default_rng(1)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
BETA = np.array([0.3, 1.0, -0.5])
Y = (RNG.random(N) < expit(X @ BETA)).astype(float)


def logit(l2=0.0, **options):
    return idm.from_loglik(
        lambda b: Y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(3),
        score=lambda b: (Y - expit(X @ b))[:, None] * X,
        l2=l2,
        **options,
    )


def ridge(l2, y=None):
    y = 2.0 * X[:, 1] + RNG.normal(size=N) if y is None else y
    return idm.from_residuals(
        lambda b: y - X @ b, start=np.zeros(3), jacobian=lambda b: -X, l2=l2, variance=1.0
    ), y


def test_without_a_penalty_there_is_nothing_to_say():
    estimate = idm.infer(logit(), idm.parameters)
    assert estimate.target == ""
    assert np.isnan(estimate.diagnostics.shrinkage)
    assert "Target" not in estimate.summary()


def test_shrinkage_of_a_ridge_regression_in_closed_form():
    model, y = ridge(20.0)
    with pytest.warns(idm.ShrinkageWarning, match=r"without it.*debias=True"):
        estimate = idm.infer(model, lambda b: b[1])
    free = np.linalg.solve(X.T @ X, X.T @ y)
    shrunk = np.linalg.solve(X.T @ X + 20 * np.eye(3), X.T @ y)
    moved = abs(free - shrunk)[1] / estimate.standard_error
    assert estimate.diagnostics.shrinkage == pytest.approx(moved, rel=1e-6)
    assert "penalized" in estimate.target
    assert "Target: psi at the maximum of the penalized" in estimate.summary()


def test_a_weak_penalty_is_stated_and_not_warned_about(recwarn):
    estimate = idm.infer(logit(0.1), lambda b: b[1])
    assert 0 < estimate.diagnostics.shrinkage < 0.25
    assert "penalized" in estimate.target
    assert not [w for w in recwarn if issubclass(w.category, idm.ShrinkageWarning)]


def test_debias_of_least_squares_is_the_unpenalized_fit():
    model, y = ridge(20.0)
    estimate = idm.infer(model, idm.parameters, debias=True)
    reference = idm.infer(ridge(0.0, y)[0], idm.parameters)
    np.testing.assert_allclose(estimate.value, reference.value, rtol=1e-8)
    np.testing.assert_allclose(estimate.covariance, reference.covariance, rtol=1e-8)
    assert "true parameters" in estimate.target


def test_debias_is_one_newton_step():
    model = logit(5.0)
    b, p = model.theta, expit(X @ model.theta)
    step = np.linalg.solve((X.T * (p * (1 - p))) @ X, X.T @ (Y - p))
    estimate = idm.infer(model, idm.parameters, debias=True)
    np.testing.assert_allclose(estimate.value, b + step, rtol=1e-6)
    p = expit(X @ (b + step))
    V = np.linalg.inv((X.T * (p * (1 - p))) @ X)
    np.testing.assert_allclose(estimate.covariance, V, rtol=1e-5)


@pytest.mark.parametrize("alpha", [10.0, 1000.0])
def test_debias_estimates_the_noise_anew(alpha):
    """The residuals of the shrunken fit hold its bias."""
    linear = pytest.importorskip("sklearn.linear_model")
    sm = pytest.importorskip("statsmodels.api")
    y = X @ [1.0, 5.0, -5.0] + np.random.default_rng(2).normal(size=N)
    fit = linear.Ridge(alpha=alpha, fit_intercept=False).fit(X, y)
    estimate = idm.infer(idm.from_sklearn(fit, X, y), idm.parameters, debias=True)
    reference = sm.OLS(y, X).fit()
    np.testing.assert_allclose(estimate.standard_error, reference.bse, rtol=1e-6)
    assert estimate.df == N - 3


def test_debias_of_several_outputs_keeps_the_variance_of_the_fit():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    y = X @ np.array([[1.0, 0.5], [2.0, -1.0], [0.0, 1.0]]) + RNG.normal(size=(N, 2))
    data = torch.tensor(X), torch.tensor(y)
    model = idm.polish(idm.from_torch(module, data, idm.Gaussian(), l2=5.0))
    model = model.model if hasattr(model, "model") else model
    freed = idm.infer(model, idm.parameters, debias=True)
    assert np.all(freed.standard_error > 0)


def penalized_backends():
    torch = pytest.importorskip("torch")
    linear = pytest.importorskip("sklearn.linear_model")
    sm = pytest.importorskip("statsmodels.api")
    fit = linear.LogisticRegression(C=1 / 8.0, fit_intercept=False, tol=1e-10).fit(X, Y)
    module = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
    module.weight.data[:] = torch.tensor(fit.coef_)
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    yield idm.from_sklearn(fit, X, Y)
    yield idm.from_torch(module, data, idm.Bernoulli(), l2=8.0)
    half = lambda m: 4.0 * sum((w**2).sum() for w in m.parameters())
    yield idm.from_torch(module, data, idm.Bernoulli(), penalty=half)
    yield logit(penalty=lambda b: 4.0 * b @ b)
    alpha = 8.0 / N
    family = sm.families.Binomial()
    glm = sm.GLM(Y, X, family=family).fit_regularized(alpha=alpha, L1_wt=0)
    yield idm.from_statsmodels(glm, alpha=alpha)


def test_all_backends_agree():
    model = logit(8.0)
    wanted = idm.infer(model, idm.parameters)
    freed = idm.infer(model, idm.parameters, debias=True)
    for other in penalized_backends():
        estimate = idm.infer(other, idm.parameters, strict=False)
        assert estimate.diagnostics.shrinkage == pytest.approx(
            wanted.diagnostics.shrinkage, rel=1e-3
        )
        estimate = idm.infer(other, idm.parameters, debias=True)
        np.testing.assert_allclose(estimate.value, freed.value, rtol=1e-4)
        np.testing.assert_allclose(estimate.covariance, freed.covariance, rtol=1e-4)


def test_the_default_penalty_of_poisson_regression_is_named():
    linear = pytest.importorskip("sklearn.linear_model")
    counts = np.random.default_rng(0).poisson(np.exp(X[:, 1:] @ [0.5, 0.2]))
    fit = linear.PoissonRegressor(tol=1e-8).fit(X[:, 1:], counts)
    with pytest.warns(idm.ShrinkageWarning, match=r"alpha=1.*alpha=0"):
        idm.infer(idm.from_sklearn(fit, X[:, 1:], counts), lambda m: m.coef_)


def test_where_the_likelihood_alone_is_singular_nothing_is_claimed():
    doubled = np.column_stack([X, X[:, 1]])
    model = idm.from_loglik(
        lambda b: Y * (doubled @ b) - np.logaddexp(0, doubled @ b), start=np.zeros(4), l2=1.0
    )
    estimate = idm.infer(model, lambda b: b[1])
    assert np.isnan(estimate.diagnostics.shrinkage)
    assert "cannot be known" in estimate.target
    with pytest.raises(idm.UnsupportedModelError, match="determines the parameters"):
        idm.infer(model, lambda b: b[1], debias=True)


def test_debias_without_a_penalty_is_a_mistake():
    with pytest.raises(ValueError, match="this model has none"):
        idm.infer(logit(), lambda b: b[1], debias=True)


def test_one_step_that_is_not_enough_is_refused_in_its_own_words():
    """Separated classes: without the penalty there is no maximum."""
    x = np.linspace(-1, 1, 40)
    y = (x > 0).astype(float)
    model = idm.from_loglik(lambda b: y * b * x - np.logaddexp(0, b * x), start=[0.0], l2=0.01)
    with pytest.raises(idm.ConvergenceError, match="One Newton step without the penalty"):
        idm.infer(model, lambda b: b[0], debias=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:One Newton step")
def test_coverage_of_a_ridge_logit_with_and_without_debias():
    """The penalized interval covers the truth in 5 %; three binomial errors are granted."""
    rng, rounds, hits = np.random.default_rng(7), 300, np.zeros(2)
    for _ in range(rounds):
        y = (rng.random(N) < expit(X @ BETA)).astype(float)
        model = idm.from_loglik(
            lambda b, y=y: y * (X @ b) - np.logaddexp(0, X @ b),
            start=BETA,
            score=lambda b, y=y: (y - expit(X @ b))[:, None] * X,
            l2=20.0,
        )
        for k, debias in enumerate((False, True)):
            low, high = idm.infer(
                model, lambda b: b[1], debias=debias, strict=False
            ).confidence_interval()
            hits[k] += low <= 1 <= high
    assert hits[0] / rounds < 0.5
    assert abs(hits[1] / rounds - 0.95) < 3 * np.sqrt(0.95 * 0.05 / rounds)
