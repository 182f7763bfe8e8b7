"""statsmodels: its own standard errors, in its own language."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("statsmodels")

import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import expit
from scipy.stats import norm
from statsmodels.base.model import GenericLikelihoodModel
from statsmodels.miscmodels.ordinal_model import OrderedModel

import implicit_delta as idm
from implicit_delta.models.batches import ascend
from implicit_delta.testing import check_model

RNG = np.random.default_rng(5)
N = 300
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2)), RNG.integers(0, 2, N)])
ETA = X @ [0.2, 0.5, -0.4, 0.3]
BINARY = (RNG.random(N) < expit(ETA)).astype(float)
COUNTS = RNG.poisson(np.exp(ETA))
SPREAD_COUNTS = RNG.negative_binomial(2, 2 / (2 + np.exp(ETA)))
POSITIVE = RNG.gamma(3, np.exp(ETA) / 3)
REAL = ETA + RNG.normal(size=N)
CLASSES = np.argmax(np.column_stack([0 * ETA, ETA, -ETA]) + RNG.gumbel(size=(N, 3)), axis=1)
TRIALS = RNG.integers(1, 9, N)
SUCCESSES = RNG.binomial(TRIALS, expit(ETA))
OFFSET = RNG.normal(size=N) * 0.1
WEIGHTS = RNG.uniform(0.5, 2, N)
REPEATS = RNG.integers(1, 4, N).astype(float)
GROUPS = RNG.integers(0, 40, N)
SIGMA = 0.5 ** abs(np.subtract.outer(np.arange(N), np.arange(N)))

family = sm.families
link = family.links
IRLS = {"tol": 1e-14, "maxiter": 200}
NEWTON = {"method": "newton", "maxiter": 200, "disp": 0, "tol": 1e-12}


class NormalRegression(GenericLikelihoodModel):
    def loglikeobs(self, params):
        return norm.logpdf(self.endog, self.exog @ params[:-1], np.exp(params[-1]))


def glm(y, kind, **data):
    return sm.GLM(y, X, family=kind, offset=OFFSET, **data)


def generic():
    model = NormalRegression(REAL, X, extra_params_names=["log_sigma"])
    start = np.append(np.linalg.lstsq(X, REAL, rcond=None)[0], 0.0)
    return model.fit(start_params=start, method="bfgs", gtol=1e-9, disp=0)


# name: a function that fits, given the arguments of a robust covariance.
EXACT = {
    "OLS": lambda **cov: sm.OLS(REAL, X).fit(**cov),
    "WLS": lambda **cov: sm.WLS(REAL, X, weights=WEIGHTS).fit(**cov),
    "GLS": lambda **cov: sm.GLS(REAL, X, sigma=SIGMA).fit(**cov),
    "Logit": lambda **cov: sm.Logit(BINARY, X, offset=OFFSET).fit(disp=0, **cov),
    "Probit": lambda **cov: sm.Probit(BINARY, X).fit(disp=0, **cov),
    "Poisson": lambda **cov: sm.Poisson(COUNTS, X, exposure=WEIGHTS, offset=OFFSET).fit(
        disp=0, **cov
    ),
    "MNLogit": lambda **cov: sm.MNLogit(CLASSES, X).fit(disp=0, **cov),
    "NegativeBinomial": lambda **cov: sm.NegativeBinomial(SPREAD_COUNTS, X, offset=OFFSET).fit(
        method="newton", maxiter=100, disp=0, **cov
    ),
    "Gaussian": lambda **cov: glm(REAL, family.Gaussian()).fit(**IRLS, **cov),
    "Gaussian, log": lambda **cov: glm(POSITIVE, family.Gaussian(link.Log())).fit(**IRLS, **cov),
    "Binomial": lambda **cov: glm(BINARY, family.Binomial()).fit(**IRLS, **cov),
    "Binomial, probit": lambda **cov: glm(BINARY, family.Binomial(link.Probit())).fit(
        **IRLS, **cov
    ),
    "Binomial, cloglog, newton": lambda **cov: glm(BINARY, family.Binomial(link.CLogLog())).fit(
        **NEWTON, **cov
    ),
    "Binomial, cauchy, newton": lambda **cov: glm(BINARY, family.Binomial(link.Cauchy())).fit(
        **NEWTON, **cov
    ),
    "Binomial, trials": lambda **cov: glm(
        np.column_stack([SUCCESSES, TRIALS - SUCCESSES]), family.Binomial()
    ).fit(**IRLS, **cov),
    "Poisson family": lambda **cov: glm(COUNTS, family.Poisson()).fit(**IRLS, **cov),
    "quasi-Poisson": lambda **cov: glm(COUNTS, family.Poisson()).fit(scale="X2", **IRLS, **cov),
    "Gamma, log": lambda **cov: glm(POSITIVE, family.Gamma(link.Log())).fit(**IRLS, **cov),
    "Gamma, log, newton": lambda **cov: glm(POSITIVE, family.Gamma(link.Log())).fit(
        **NEWTON, **cov
    ),
    "InverseGaussian, log": lambda **cov: glm(POSITIVE, family.InverseGaussian(link.Log())).fit(
        **IRLS, **cov
    ),
    "NegativeBinomial family": lambda **cov: glm(
        SPREAD_COUNTS, family.NegativeBinomial(alpha=0.5)
    ).fit(**IRLS, **cov),
    "Tweedie": lambda **cov: glm(POSITIVE, family.Tweedie(var_power=1.5)).fit(**IRLS, **cov),
    "weighted Gamma": lambda **cov: glm(
        POSITIVE, family.Gamma(link.Log()), freq_weights=REPEATS, var_weights=WEIGHTS
    ).fit(**IRLS, **cov),
}

# Here statsmodels differentiates numerically itself, and is the less exact of the two.
ROUGH = {
    "OrderedModel, probit": (
        1e-5,
        lambda: OrderedModel(CLASSES, X[:, 1:], offset=OFFSET).fit(
            method="bfgs", gtol=1e-9, disp=0
        ),
    ),
    "OrderedModel, logit": (
        1e-5,
        lambda: OrderedModel(CLASSES, X[:, 1:], distr="logit").fit(
            method="bfgs", gtol=1e-9, disp=0
        ),
    ),
    "GenericLikelihoodModel": (1e-5, generic),
    "NB1": (
        1e-8,
        lambda: sm.NegativeBinomial(SPREAD_COUNTS, X, loglike_method="nb1").fit(
            maxiter=200, disp=0
        ),
    ),
    "GeneralizedPoisson": (
        1e-8,
        lambda: sm.GeneralizedPoisson(SPREAD_COUNTS, X).fit(maxiter=200, disp=0),
    ),
    "NegativeBinomialP": (
        1e-8,
        lambda: sm.NegativeBinomialP(SPREAD_COUNTS, X).fit(maxiter=200, disp=0),
    ),
    "PHReg": (
        1e-8,
        lambda: sm.PHReg(POSITIVE, X[:, 1:], status=BINARY, ties="efron").fit(),
    ),
}


def quietly(fit, **cov):
    with warnings.catch_warnings():  # statsmodels warns about weights and links; not our subject
        warnings.simplefilter("ignore")
        return fit(**cov)


def errors_of(results):
    return np.asarray(results.bse).ravel(order="F")


@pytest.mark.parametrize("name", EXACT)
def test_standard_errors(name):
    results = quietly(EXACT[name])
    estimate = idm.infer(idm.from_statsmodels(results), idm.parameters)
    np.testing.assert_allclose(estimate.standard_error, errors_of(results), rtol=1e-8)


@pytest.mark.parametrize("name", EXACT)
def test_robust_standard_errors(name):
    model = idm.from_statsmodels(quietly(EXACT[name]))
    estimate = idm.infer(model, idm.parameters, robust=True)
    expected = errors_of(quietly(EXACT[name], cov_type="HC0"))
    np.testing.assert_allclose(estimate.standard_error, expected, rtol=1e-8)


@pytest.mark.parametrize("name", EXACT)
def test_clustered_standard_errors(name):
    model = idm.from_statsmodels(quietly(EXACT[name]))
    estimate = idm.infer(model, idm.parameters, clusters=GROUPS)
    cov = {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS, "use_correction": False}}
    expected = errors_of(quietly(EXACT[name], **cov))
    np.testing.assert_allclose(estimate.standard_error, expected, rtol=1e-8)


@pytest.mark.parametrize("name", ROUGH)
def test_standard_errors_where_statsmodels_differentiates_numerically(name):
    rtol, fit = ROUGH[name]
    results = quietly(fit)
    estimate = idm.infer(idm.from_statsmodels(results), idm.parameters)
    np.testing.assert_allclose(estimate.standard_error, errors_of(results), rtol=rtol)


@pytest.mark.parametrize("name", [*EXACT, *ROUGH])
def test_contract(name):
    fit = EXACT[name] if name in EXACT else ROUGH[name][1]
    model = idm.from_statsmodels(quietly(fit))
    check_model(model, lambda params: np.exp(0.5 * np.ravel(params)), rtol=1e-6)


@pytest.mark.parametrize("distr", ["probit", "logit"])
def test_the_derivatives_of_an_ordered_model_equal_numerical_ones(distr):
    results = quietly(ROUGH[f"OrderedModel, {distr}"][1])
    numerical = idm.from_loglik(results.model.loglikeobs, theta=results.params)
    expected = idm.infer(numerical, idm.parameters).covariance
    actual = idm.infer(idm.from_statsmodels(results), idm.parameters).covariance
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_zero_inflated_counts_have_the_whole_hessian():
    # statsmodels 0.15 leaves a part out of the Hessian of ZeroInflatedPoisson: its own standard
    # errors are 3 to 20 % off here. Second differences of its log-likelihood are the judge.
    y = np.where(RNG.random(N) < 0.3, 0, COUNTS)
    results = quietly(
        lambda: sm.ZeroInflatedPoisson(y, X).fit(method="bfgs", maxiter=400, gtol=1e-9, disp=0)
    )
    model = idm.from_statsmodels(results)
    steps = 1e-3 * np.eye(model.d)
    loglike, theta = results.model.loglike, model.theta
    hessian = [
        [
            loglike(theta + a + b) - loglike(theta + a - b) - loglike(theta - a + b)
            + loglike(theta - a - b)
            for a in steps
        ]
        for b in steps
    ]  # fmt: skip
    expected = np.linalg.inv(-np.array(hessian) / 4e-6)
    actual = idm.infer(model, idm.parameters).standard_error
    # Truncation: the step squared; a thousandth of a unit against standard errors near a tenth.
    np.testing.assert_allclose(actual, np.sqrt(np.diag(expected)), rtol=1e-4)


@pytest.mark.parametrize("kind", ["Logit", "Probit", "Poisson"])
def test_average_marginal_effects_equal_get_margeff(kind):
    y = COUNTS if kind == "Poisson" else BINARY
    results = getattr(sm, kind)(y, X).fit(disp=0)
    high, low = X.copy(), X.copy()
    high[:, 3], low[:, 3] = 1, 0
    predict = results.model.predict

    def effects(params):
        linear = X @ params
        slope = np.exp(linear) if kind == "Poisson" else results.model.pdf(linear)
        dummy = (predict(params, high) - predict(params, low)).mean()
        return np.append(slope.mean() * params[1:3], dummy)

    estimate = idm.infer(idm.from_statsmodels(results), effects)
    expected = results.get_margeff(at="overall", dummy=True)
    np.testing.assert_allclose(estimate.value, expected.margeff, rtol=1e-8)
    np.testing.assert_allclose(estimate.standard_error, expected.margeff_se, rtol=1e-8)


def test_marginal_effects_of_several_classes_equal_get_margeff():
    results = sm.MNLogit(CLASSES, X).fit(disp=0)

    def effects(params):
        # d P_c / d x_k = P_c (b_kc - sum_e P_e b_ke), with b = 0 for the first class.
        P = results.model.predict(params, X)
        b = np.column_stack([np.zeros(4), params])
        return (P * (b[1] - (P @ b[1])[:, None])).mean(axis=0)

    estimate = idm.infer(idm.from_statsmodels(results), effects)
    expected = results.get_margeff(at="overall")
    np.testing.assert_allclose(estimate.value, expected.margeff[0], rtol=1e-8)
    np.testing.assert_allclose(estimate.standard_error, expected.margeff_se[0], rtol=1e-8)


FRAME = pd.DataFrame(X[:, 1:], columns=["age", "dose", "treated"]).assign(
    y=REAL, event=BINARY, kind=CLASSES
)


def test_formula_results_speak_pandas():
    results = smf.logit("event ~ age + dose * treated", FRAME).fit(disp=0)
    model = idm.from_statsmodels(results)
    assert model.names == ("Intercept", "age", "dose", "treated", "dose:treated")

    def effect(params):
        assert list(params.index) == list(model.names)
        return params["dose"] + params["dose:treated"]

    estimate = idm.infer(model, effect)
    row = np.array([0, 0, 1, 0, 1.0])
    assert estimate.value == pytest.approx(row @ results.params, rel=1e-12)
    expected = np.sqrt(row @ results.cov_params() @ row)
    assert estimate.standard_error == pytest.approx(expected, rel=1e-8)


SELECTIONS = {
    "label": lambda params: params["age"] ** 2,
    "labels": lambda params: params[["age", "dose"]].sum(),
    "loc": lambda params: params.loc["age"] * params.loc["age":"treated"].mean(),
    "iloc": lambda params: params.iloc[1] / params.iloc[2],
    "filter": lambda params: params.filter(like="age").sum(),
    "drop": lambda params: params.drop("Intercept").to_numpy() @ [1.0, 2.0, 3.0],
    "values": lambda params: np.exp(params.values).sum(),
    "arithmetic": lambda params: (params * 2 + 1).sum(),
    "a method without a rule": lambda params: params.abs().sum(),
    "a labelled result": lambda params: pd.Series(
        {"one": params["age"], "two": params["age"] * params["dose"]}
    ),
    "a data frame": lambda params: (FRAME[["age", "dose"]] @ params[["age", "dose"]]).mean(),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_pandas_selections_are_differentiated(name):
    results = smf.ols("y ~ age + dose + treated", FRAME).fit()
    check_model(idm.from_statsmodels(results), SELECTIONS[name], rtol=1e-7)


def test_names_of_parameters_and_evaluations():
    frame = FRAME[["age", "dose"]].assign(const=1.0)
    several = idm.from_statsmodels(sm.MNLogit(FRAME.kind, frame).fit(disp=0))
    assert several.names == ("1:age", "1:dose", "1:const", "2:age", "2:dose", "2:const")
    arrays = idm.from_statsmodels(sm.OLS(REAL, X).fit())
    assert arrays.names == ("const", "x1", "x2", "x3")
    assert idm.infer(arrays, idm.parameters).names == arrays.names


def test_multinomial_results_of_pandas_speak_data_frames():
    results = sm.MNLogit(FRAME.kind, FRAME[["age", "dose"]].assign(const=1.0)).fit(disp=0)
    estimate = idm.infer(idm.from_statsmodels(results), lambda params: params.loc["age", 1])
    assert estimate.value == pytest.approx(results.params.loc["age", 1], rel=1e-12)
    assert estimate.standard_error == pytest.approx(results.bse.loc["age", 1], rel=1e-8)


def test_frequency_weights_equal_repeated_rows():
    weighted = glm(COUNTS, family.Poisson(), freq_weights=REPEATS).fit(**IRLS)
    rows = np.repeat(np.arange(N), REPEATS.astype(int))
    repeated = sm.GLM(COUNTS[rows], X[rows], family=family.Poisson(), offset=OFFSET[rows]).fit(
        **IRLS
    )
    for robust in (False, True):
        ours, theirs = (
            idm.infer(idm.from_statsmodels(results), idm.parameters, robust=robust)
            for results in (weighted, repeated)
        )
        np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-7)


def test_which_information_a_generalized_linear_model_has():
    results = glm(POSITIVE, family.Gamma(link.Log())).fit(**IRLS)
    default = idm.infer(idm.from_statsmodels(results), idm.parameters)
    expected = idm.infer(idm.from_statsmodels(results, observed=False), idm.parameters)
    observed = idm.infer(idm.from_statsmodels(results, observed=True), idm.parameters)
    np.testing.assert_array_equal(default.covariance, expected.covariance)
    newton = errors_of(glm(POSITIVE, family.Gamma(link.Log())).fit(**NEWTON))
    np.testing.assert_allclose(observed.standard_error, newton, rtol=1e-8)
    assert "ggn" in default.method
    assert "ggn" not in observed.method


def test_refits_agree_with_the_linear_solve():
    model = idm.from_statsmodels(sm.Logit(BINARY, X).fit(disp=0))
    psi = lambda params: expit(X @ params).mean()
    solve = idm.infer(model, psi).standard_error
    # Central differences at a push of half a standard error: an error of second order.
    assert idm.infer(model, psi, idm.FiniteDifference()).standard_error == pytest.approx(
        solve, rel=1e-2
    )


def test_ridge_regression():
    alpha = np.array([0.0, 0.1, 0.2, 0.3])
    results = sm.OLS(REAL, X).fit_regularized(alpha=alpha, L1_wt=0)
    model = idm.from_statsmodels(results, alpha=alpha)
    gram, penalty = X.T @ X, np.diag(N * alpha)
    freedom = N - np.trace(np.linalg.solve(gram + penalty, gram))
    s2 = np.sum((REAL - X @ results.params) ** 2) / freedom
    estimate = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(estimate.covariance, s2 * np.linalg.inv(gram + penalty), rtol=1e-8)
    assert estimate.diagnostics.drift < 1e-8


def test_ridge_of_a_generalized_linear_model():
    results = sm.GLM(COUNTS, X, family=family.Poisson()).fit_regularized(alpha=0.1, L1_wt=0)
    model = idm.polish(idm.from_statsmodels(results, alpha=0.1))
    np.testing.assert_allclose(model.theta, results.params, atol=1e-4)  # their tolerance is rough
    mean = np.exp(X @ model.theta)
    expected = np.linalg.inv((X.T * mean) @ X + 0.1 * N * np.eye(4))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).covariance, expected, rtol=1e-8)


def test_a_wrong_penalty_shows_as_drift():
    results = sm.OLS(REAL, X).fit_regularized(alpha=0.5, L1_wt=0)
    with pytest.raises(idm.ConvergenceError, match="drift"):
        idm.infer(idm.from_statsmodels(results, alpha=0.05), idm.parameters)


def refused(pattern, results, **arguments):
    with pytest.raises(idm.UnsupportedModelError, match=pattern):
        idm.from_statsmodels(results, **arguments)


def test_penalized_results_are_not_taken_for_unpenalized_ones():
    refused("keeps no record", sm.OLS(REAL, X).fit_regularized(alpha=0.1, L1_wt=0))
    lasso = sm.OLS(REAL, X).fit_regularized(alpha=0.3, L1_wt=1)
    refused("L1", lasso, alpha=0.3)
    refused("L1", sm.Logit(BINARY, X).fit_regularized(alpha=1.0, disp=0))
    refit = quietly(lambda: sm.OLS(REAL, X).fit_regularized(alpha=0.3, L1_wt=1, refit=True))
    refused("L1", refit)
    with pytest.raises(ValueError, match="no penalty"):
        idm.from_statsmodels(sm.OLS(REAL, X).fit(), alpha=0.1)


def test_what_is_no_maximum_likelihood_is_refused_by_name():
    refused("GLSAR", sm.GLSAR(REAL, X, rho=1).fit())
    from statsmodels.base._penalties import L2

    penalized = lambda: sm.MixedLM(REAL, X, groups=GROUPS).fit(fe_pen=L2())
    refused("MixedLM.*penalty", quietly(penalized))


def test_results_without_data_are_refused():
    results = sm.OLS(REAL, X).fit()
    results.remove_data()
    refused("remove_data", results)


def test_missing_values_are_named():
    # statsmodels itself refuses them in X, and fits on with those in y.
    y = REAL.copy()
    y[3] = np.nan
    results = quietly(lambda: sm.OLS(y, X).fit())
    refused("not finite", results)


@pytest.mark.parametrize("thing", [sm.OLS(REAL, X), "results", None, np.ones(3)])
def test_what_is_no_result_of_a_fit(thing):
    with pytest.raises(TypeError, match="results of a fit"):
        idm.from_statsmodels(thing)


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf])
def test_impossible_penalties(alpha):
    results = sm.OLS(REAL, X).fit_regularized(alpha=0.1, L1_wt=0)
    with pytest.raises(ValueError, match="alpha must be"):
        idm.from_statsmodels(results, alpha=alpha)


def test_dependent_data_have_no_robust_errors():
    class Whole(GenericLikelihoodModel):
        """One likelihood of all rows, which has no terms."""

        def loglike(self, params):
            return -np.sum((self.endog - self.exog @ params) ** 2) / 2

        def loglikeobs(self, params):
            raise NotImplementedError

    results = Whole(REAL, X).fit(disp=0)
    with pytest.raises(idm.UnsupportedModelError, match="dependent"):
        idm.infer(idm.from_statsmodels(results), idm.parameters, robust=True)


def test_an_unfinished_fit_is_refused_and_can_be_polished():
    rough = quietly(lambda: sm.Logit(BINARY, X).fit(maxiter=1, disp=0, start_params=np.ones(4)))
    model = idm.from_statsmodels(rough)
    with pytest.raises(idm.ConvergenceError, match="polish"):
        idm.infer(model, idm.parameters)
    finished = sm.Logit(BINARY, X).fit(disp=0)
    np.testing.assert_allclose(idm.polish(model).theta, finished.params, rtol=1e-6)


def test_nothing_of_the_users_is_changed():
    results = smf.logit("event ~ age", FRAME).fit(disp=0)
    before = results.params.copy(), results.model.exog.copy()

    def careless(params):
        params["age"] = params["age"] * 2
        return params["age"]

    idm.infer(idm.from_statsmodels(results), careless)
    pd.testing.assert_series_equal(results.params, before[0])
    np.testing.assert_array_equal(results.model.exog, before[1])


def test_a_derivative_that_was_traced_wrongly_is_not_believed():
    def alias(params):
        """Write into an array of which a view is returned: tracing does not see through that."""
        moved = params * 1.0
        view = moved[:2]
        np.exp(moved, out=moved)
        return view

    model = idm.from_statsmodels(sm.OLS(REAL, X).fit())
    estimate = idm.infer(model, alias)
    expected = model.theta[:2], np.exp(model.theta[:2]) * idm.infer(
        model, idm.parameters
    ).standard_error[:2]  # fmt: skip
    np.testing.assert_allclose(estimate.value, np.exp(expected[0]), rtol=1e-12)
    np.testing.assert_allclose(estimate.standard_error, expected[1], rtol=1e-8)


def test_stochastic_steps_climb_to_the_maximum():
    model = idm.from_statsmodels(sm.Poisson(COUNTS, X).fit(disp=0))
    everything = [np.arange(N)] * 400  # the whole sample as a batch: nothing is random
    *_, last = ascend(model.at(model.theta + 0.1), None, everything, 0.3)
    np.testing.assert_allclose(last, model.theta, atol=1e-8)
    lam = 2.0
    *_, pushed = ascend(model, lambda theta, rows: lam * np.eye(4)[1], everything, 0.3)
    response = (pushed - model.theta)[1] / lam
    # To first order the response is the variance; what is left is of second order in the push.
    assert response == pytest.approx(errors_of(sm.Poisson(COUNTS, X).fit(disp=0))[1] ** 2, rel=0.02)
    with pytest.raises(TypeError, match="learning rate"):
        next(iter(ascend(model, None, everything, "adam")))


def test_a_fit_without_residuals_has_no_noise_variance():
    with pytest.raises(ValueError, match="fits these data exactly"):
        idm.from_statsmodels(sm.OLS(np.zeros(N), X).fit())
