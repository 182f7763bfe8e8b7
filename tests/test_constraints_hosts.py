"""Customers of constraints: `positive=True` of scikit-learn, `fit_constrained` of statsmodels."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import statsmodels.api as sm
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import implicit_delta as idm

N = 100
RNG = np.random.default_rng(5)
F = RNG.normal(size=(N, 3))
X = sm.add_constant(F)
Y = X @ [1.0, 0.6, -0.6, 0.8] + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(X @ [0.4, 0.3, 0.2, -0.2]))
BINARY = (COUNTS > 1).astype(float)
GROUPS = np.arange(N) % 20


def quietly(call, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **options)


def without_x1():
    """The same regression without the column that is held at zero."""
    return LinearRegression().fit(F[:, [0, 2]], Y)


@pytest.mark.parametrize("options", [{}, {"robust": "HC3"}, {"clusters": GROUPS, "robust": "CR2"}])
def test_positive_coefficients_are_those_of_the_columns_that_are_left(options):
    reg = LinearRegression(positive=True).fit(F, Y)
    assert reg.coef_[1] == 0
    model = idm.from_sklearn(reg, F, Y)
    other = idm.from_sklearn(without_x1(), F[:, [0, 2]], Y)
    ours = quietly(idm.infer, model, lambda reg: reg.predict(F[:3]), **options)
    theirs = quietly(idm.infer, other, lambda reg: reg.predict(F[:3, [0, 2]]), **options)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-9)
    np.testing.assert_allclose(ours.df, theirs.df, rtol=1e-9)
    assert "x1 >= 0 (multiplier -" in ours.diagnostics.notes["constraints"]


def test_positive_coefficients_that_do_not_bind_change_nothing():
    free = F[:, [0, 2]]
    plain, positive = (LinearRegression(positive=p).fit(free, Y) for p in (False, True))
    ours, theirs = (
        idm.infer(idm.from_sklearn(reg, free, Y), idm.parameters) for reg in (positive, plain)
    )
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-9)
    assert ours.df == theirs.df


def test_all_parameters_have_their_row():
    reg = LinearRegression(positive=True).fit(F, Y)
    est = idm.infer(idm.from_sklearn(reg, F, Y), idm.parameters)
    assert est.names == ("x0", "x1", "x2", "intercept")
    assert est.standard_error[1] == 0


def test_the_interval_of_a_coefficient_at_zero_starts_there():
    model = idm.from_sklearn(LinearRegression(positive=True).fit(F, Y), F, Y)
    low, high = idm.profile(model, lambda reg: reg.coef_[1]).interval
    assert low == 0 < high < 0.2


def test_pipelines_weights_and_ridges_are_bounded_too():
    weights = RNG.integers(1, 4, size=N)
    pipe = make_pipeline(StandardScaler(), LinearRegression(positive=True))
    pipe.fit(F, Y, linearregression__sample_weight=weights)
    ours = idm.infer(idm.from_sklearn(pipe, F, Y, weights), lambda pipe: pipe.predict(F[:2]))
    other = LinearRegression().fit(F[:, [0, 2]], Y, weights)
    theirs = idm.infer(
        idm.from_sklearn(other, F[:, [0, 2]], Y, weights), lambda reg: reg.predict(F[:2, [0, 2]])
    )
    np.testing.assert_allclose(ours.standard_error, theirs.standard_error, rtol=1e-9)
    ridge = Ridge(alpha=2.0, positive=True, tol=1e-12).fit(F, Y)
    ours = quietly(idm.infer, idm.from_sklearn(ridge, F, Y), lambda reg: reg.coef_[[0, 2]])
    other = Ridge(alpha=2.0).fit(F[:, [0, 2]], Y)
    theirs = quietly(idm.infer, idm.from_sklearn(other, F[:, [0, 2]], Y), lambda reg: reg.coef_)
    np.testing.assert_allclose(ours.standard_error, theirs.standard_error, rtol=1e-6)


MODELS = {
    "gaussian": lambda: sm.GLM(Y, X),
    "poisson": lambda: sm.GLM(COUNTS, X, family=sm.families.Poisson()),
    "gamma": lambda: sm.GLM(COUNTS + 1.0, X, family=sm.families.Gamma(sm.families.links.Log())),
    "Poisson": lambda: sm.Poisson(COUNTS, X),
    "Logit": lambda: sm.Logit(BINARY, X),
    "Probit": lambda: sm.Probit(BINARY, X),
}
COVARIANCES = {
    "nonrobust": {},
    "HC0": {"cov_type": "HC0"},
    "cluster": {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS}},
}


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize("name", MODELS)
def test_constrained_fits_have_the_errors_of_statsmodels(name, kind):
    quiet = {} if hasattr(MODELS[name](), "family") else {"disp": 0}
    for constraint in ("x1 = x2 + 0.1", "x1 = x2 + 0.1, x3 = 0"):
        results = quietly(MODELS[name]().fit_constrained, constraint, **quiet, **COVARIANCES[kind])
        est = quietly(idm.infer, idm.from_statsmodels(results), idm.parameters)
        np.testing.assert_allclose(est.value, results.params, rtol=1e-12)
        np.testing.assert_allclose(est.standard_error, results.bse, rtol=1e-5, atol=1e-12)
        assert "constraints" in est.diagnostics.notes


def test_a_constrained_fit_equals_another_design_matrix():
    results = sm.GLM(COUNTS, X, family=sm.families.Poisson()).fit_constrained("x1 = x2")
    other = sm.GLM(
        COUNTS, np.column_stack([X[:, 0], X[:, 1] + X[:, 2], X[:, 3]]), sm.families.Poisson()
    ).fit(tol=1e-12)
    for options in ({}, {"robust": "HC1"}, {"clusters": GROUPS, "robust": "CR1"}):
        ours = quietly(
            idm.infer, idm.from_statsmodels(results), lambda b: np.exp(b[0] + b[2]), **options
        )
        theirs = quietly(
            idm.infer, idm.from_statsmodels(other), lambda b: np.exp(b[0] + b[1]), **options
        )
        assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-6)
    ours = idm.profile(idm.from_statsmodels(results), lambda b: b[1]).interval
    theirs = idm.profile(idm.from_statsmodels(other), lambda b: b[1]).interval
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
