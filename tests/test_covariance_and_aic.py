"""`model.covariance` and `model.aic` are those of statsmodels, and refused where unknown."""

import numpy as np
import pytest

import implicit_delta as idm

sm = pytest.importorskip("statsmodels.api")

RNG = np.random.default_rng(3)
X = sm.add_constant(RNG.normal(size=(80, 2)))
Y = X @ [1.0, 0.5, -0.3] + RNG.normal(size=80)
COUNTS = RNG.poisson(np.exp(X @ [0.2, 0.4, -0.1]))


def poisson(b):
    from scipy.special import gammaln

    eta = X @ b
    return COUNTS * eta - np.exp(eta) - gammaln(COUNTS + 1.0)


def test_poisson_regression():
    results = sm.Poisson(COUNTS, X).fit(disp=0)
    model = idm.from_loglik(poisson, start=np.zeros(3))
    assert np.allclose(model.covariance, results.cov_params(), rtol=1e-6)
    assert np.isclose(model.aic, results.aic, rtol=1e-10)
    assert np.isclose(model.bic, results.bic, rtol=1e-10)
    assert np.allclose(idm.from_statsmodels(results).covariance, results.cov_params(), rtol=1e-8)


def test_least_squares():
    results = sm.OLS(Y, X).fit()
    model = idm.from_residuals(lambda b: Y - X @ b, start=np.zeros(3))
    assert np.allclose(model.covariance, results.cov_params(), rtol=1e-7)
    assert np.isclose(model.aic, results.aic + 2, rtol=1e-10)  # statsmodels leaves sigma out
    assert np.isclose(model.bic, results.bic + np.log(80), rtol=1e-10)


@pytest.mark.parametrize("cov_type", ["HC0", "HC3"])
def test_the_covariance_is_that_of_the_fit(cov_type):
    results = sm.OLS(Y, X).fit(cov_type=cov_type)
    assert np.allclose(idm.from_statsmodels(results).covariance, results.cov_params(), rtol=1e-8)


def test_one_parameter_and_fixed_ones():
    model = idm.from_loglik(lambda th: -((Y - th[0]) ** 2) / 2, start=[0.0])
    assert model.covariance.shape == (1, 1)
    assert np.isclose(model.covariance[0, 0], 1 / 80, rtol=1e-7)
    fixed = idm.from_loglik(poisson, start=np.zeros(3)).fix({2: 0.0})
    assert np.array_equal(fixed.covariance[2], np.zeros(3))
    smaller = sm.Poisson(COUNTS, X[:, :2]).fit(disp=0)
    assert np.allclose(fixed.covariance[:2, :2], smaller.cov_params(), rtol=1e-6)
    assert np.isclose(fixed.aic, smaller.aic, rtol=1e-10)


def test_estimates_and_equations():
    V = np.array([[0.25, -0.02], [-0.02, 0.0025]])
    given = idm.from_estimates({"a": -2.0, "b": 0.4}, V)
    assert np.array_equal(given.covariance, V)
    mean = idm.from_equations(lambda th: (Y - th[0])[:, None], start=[0.0])
    assert np.isclose(mean.covariance[0, 0], Y.var() / 80, rtol=1e-7)
    for model in (given, mean):
        with pytest.raises(idm.UnsupportedModelError):
            assert model.aic
        with pytest.raises(idm.UnsupportedModelError):
            assert model.bic


@pytest.mark.parametrize(
    "model",
    [
        lambda: idm.from_statsmodels(sm.OLS(Y, X).fit()),
        lambda: idm.from_loglik(poisson, start=np.zeros(3), l2=1.0),
    ],
    ids=["statsmodels", "penalized"],
)
def test_unknown_log_likelihoods(model):
    with pytest.raises(idm.UnsupportedModelError, match=r"results\.aic"):
        assert model().aic
    with pytest.raises(idm.UnsupportedModelError, match=r"^BIC .*results\.bic"):
        assert model().bic


@pytest.mark.parametrize("variance", [None, 1.0])
def test_criteria_of_a_covariance_of_the_observations(variance):
    """The density of the data is that of one normal vector."""
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(6)
    design = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    sigma = np.diag(np.linspace(1, 2, 40)) + 0.3
    y = design @ [1.0, 0.5, -0.3] + rng.multivariate_normal(np.zeros(40), sigma)
    model = idm.from_residuals(
        lambda th: y - design @ th, start=np.zeros(3), sigma=sigma, variance=variance
    )
    apart = y - design @ model.theta
    scale = variance or apart @ np.linalg.solve(sigma, apart) / 40
    loglik = multivariate_normal(design @ model.theta, scale * sigma).logpdf(y)
    count = 3 + (variance is None)
    assert np.isclose(model.aic, 2 * count - 2 * loglik, rtol=1e-10)
    assert np.isclose(model.bic, np.log(40) * count - 2 * loglik, rtol=1e-10)
