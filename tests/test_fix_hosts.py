"""Fixed parameters of models of statsmodels and scikit-learn: the constrained fits of these."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression, Ridge

import implicit_delta as idm

RNG = np.random.default_rng(7)
N = 120
F = RNG.normal(size=(N, 3))
X = sm.add_constant(F)
Y = X @ [1.0, 0.5, -0.3, 0.2] + RNG.normal(size=N)
BINARY = (Y > 1).astype(float)
COUNTS = RNG.poisson(np.exp(0.3 * Y))
W = RNG.integers(1, 4, size=N).astype(float)
LOG = sm.families.links.Log()
REST = [0, 1, 3]  # columns beside x2, which is fixed

CONSTRAINED = {
    "Logit": lambda: sm.Logit(BINARY, X),
    "Poisson": lambda: sm.Poisson(COUNTS, X),
    "gaussian": lambda: sm.GLM(Y, X),
    "gamma": lambda: sm.GLM(COUNTS + 1.0, X, family=sm.families.Gamma(LOG)),
    "negative binomial": lambda: sm.GLM(COUNTS, X, family=sm.families.NegativeBinomial()),
    "weighted": lambda: sm.GLM(Y, X, freq_weights=W),
}


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.filterwarnings("ignore:Maximum Likelihood optimization failed")
@pytest.mark.filterwarnings("ignore:Negative binomial dispersion parameter")
def test_fix_is_the_constrained_fit_of_statsmodels(name):
    """With its dispersion: the scale is estimated from what the other parameters leave."""
    quiet = {} if hasattr(CONSTRAINED[name](), "family") else {"disp": 0}
    model = idm.from_statsmodels(CONSTRAINED[name]().fit(**quiet))
    fixed = model.fix(x2=0.1)
    theirs = CONSTRAINED[name]().fit_constrained("x2 = 0.1", **quiet)
    ours = idm.infer(fixed, idm.parameters)
    np.testing.assert_allclose(ours.value, theirs.params, rtol=1e-5)
    np.testing.assert_allclose(ours.standard_error, theirs.bse, rtol=1e-5, atol=1e-12)
    assert fixed.theta[2] == 0.1
    assert ours.standard_error[2] == 0


@pytest.mark.parametrize("options", [{}, {"robust": "HC1"}, {"robust": "HC3"}])
def test_least_squares_leave_a_column_out(options):
    fixed = idm.from_statsmodels(sm.OLS(Y, X).fit()).fix({2: 0.1})
    other = idm.from_statsmodels(sm.OLS(Y - 0.1 * X[:, 2], X[:, REST]).fit())
    ours, theirs = (idm.infer(m, idm.parameters, **options) for m in (fixed, other))
    np.testing.assert_allclose(ours.value[REST], theirs.value, rtol=1e-9)
    np.testing.assert_allclose(ours.standard_error[REST], theirs.standard_error, rtol=1e-9)
    free = np.broadcast_to(ours.df, 4)[REST]
    np.testing.assert_allclose(free, np.broadcast_to(theirs.df, 3), rtol=1e-9)
    assert fixed.facts.df == N - 3
    noise = [m.rows.outputs.likelihood.variance for m in (fixed, other)]
    assert noise[0] == pytest.approx(noise[1], rel=1e-12)
    assert f"{noise[0]}" in str(fixed)


@pytest.mark.parametrize("kind", ["frequency", "precision", "sampling"])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_a_ridge_keeps_its_penalty(kind):
    """It is one of squared errors: with the noise variance, its strength changes here."""
    fixed = idm.from_sklearn(Ridge(alpha=3.0).fit(F, Y, W), F, Y, W, kind).fix(x1=0.2)
    design, y = F[:, [0, 2]], Y - 0.2 * F[:, 1]
    other = idm.from_sklearn(Ridge(alpha=3.0).fit(design, y, W), design, y, W, kind)
    ours, theirs = (idm.infer(m, idm.parameters) for m in (fixed, other))
    left = [0, 2, 3]
    np.testing.assert_allclose(ours.value[left], theirs.value, rtol=1e-9)
    np.testing.assert_allclose(ours.standard_error[left], theirs.standard_error, rtol=1e-9)
    assert ours.df == pytest.approx(theirs.df)


def test_softmax_with_a_coefficient_of_zero():
    """The score of all other parameters is zero, and their errors are those of the rest."""
    classes = np.digitize(Y, [0.5, 1.5])
    model = idm.from_sklearn(LogisticRegression(tol=1e-10).fit(F, classes), F, classes)
    fixed = model.fix({"0:x1": 0.0})
    place = model.names.index("0:x1")
    free = np.delete(np.arange(model.d), place)
    A = fixed.information(fixed.theta, np.eye(model.d))[np.ix_(free, free)]
    errors = np.sqrt(np.diag(np.linalg.inv(A)))
    assert np.max(abs(fixed.score(fixed.theta)[free]) * errors) < 1e-6
    found = idm.infer(fixed, idm.parameters, strict=False)
    np.testing.assert_allclose(found.standard_error[free], errors, rtol=1e-6)
    with pytest.raises(idm.EvaluationError, match="0:x1 == 0"):
        idm.infer(fixed, lambda clf: clf.coef_[0, 1])


def test_the_covariance_of_a_robust_fit_is_not_that_of_a_fixed_one():
    results = sm.OLS(Y, X).fit(cov_type="HC3")
    model = idm.from_statsmodels(results)
    fixed = model.fix({2: 0.1})
    assert model.facts.host.covariance is not None
    assert fixed.facts.host.covariance is None
    assert fixed.release().facts.host.covariance is None
    plain = idm.from_statsmodels(sm.OLS(Y, X).fit()).fix({2: 0.1})
    errors = [idm.infer(m, idm.parameters).standard_error for m in (fixed, plain)]
    np.testing.assert_allclose(*errors, rtol=1e-9)


@pytest.mark.parametrize("name", ["Logit", "gamma"])
def test_release_is_the_fit_before(name):
    quiet = {} if hasattr(CONSTRAINED[name](), "family") else {"disp": 0}
    model = idm.from_statsmodels(CONSTRAINED[name]().fit(**quiet))
    again = model.fix(x2=0.1).release()
    one, two = (idm.infer(m, idm.parameters) for m in (model, again))
    np.testing.assert_allclose(two.value, one.value, rtol=1e-5)
    np.testing.assert_allclose(two.standard_error, one.standard_error, rtol=1e-5)
