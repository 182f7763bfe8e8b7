"""Refusals name what works: each test does what the message says."""

import warnings
from copy import copy

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm

RNG = np.random.default_rng(0)
N = 90
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
GROUPS = np.repeat(np.arange(30), 3)
LATENT = X @ [0.5, 1.0, -0.5] + 0.8 * RNG.normal(size=30)[GROUPS] + RNG.normal(size=N)
BINARY = (LATENT > 0.5) * 1.0
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 1]))
WEIGHTS = RNG.integers(1, 4, size=N).astype(float)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def bootstrapped(fit, data, psi, **options):
    """Follow the advice to bootstrap a fit, with few replicates."""
    options = {"replicates": 25, "jackknife": False, "rng": 0} | options
    return quietly(lambda: idm.bootstrap(fit, data, psi, **options))


def says_bootstrap(message):
    """Whether a refusal has the advice to write a function that fits, and says of what."""
    return "write `fit(data)`" in message and "`bootstrap(fit, data, psi)`" in message


def refusal(call):
    with pytest.raises(idm.UnsupportedModelError) as caught:
        quietly(call)
    return str(caught.value)


# scikit-learn

CLONE = "`bootstrap(lambda data: clone(estimator).fit(*data), (X, y), psi)`"


def estimators():
    pytest.importorskip("sklearn")
    from sklearn import ensemble, gaussian_process, linear_model, neighbors, svm, tree
    from sklearn.feature_selection import SelectKBest
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    old = {"penalty": "l1"} if linear_model.LogisticRegression().penalty == "l2" else {}
    lasso = {"l1_ratio": 1.0, "solver": "saga", "max_iter": 5000, "random_state": 0, **old}
    return {
        "forest": (ensemble.RandomForestRegressor(10, random_state=0), LATENT),
        "forest of classes": (ensemble.RandomForestClassifier(10, random_state=0), BINARY),
        "boosting": (ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0), LATENT),
        "histogram boosting": (ensemble.HistGradientBoostingRegressor(max_iter=5), LATENT),
        "ada": (ensemble.AdaBoostRegressor(n_estimators=5, random_state=0), LATENT),
        "tree": (tree.DecisionTreeRegressor(max_depth=2, random_state=0), LATENT),
        "neighbors": (neighbors.KNeighborsRegressor(5), LATENT),
        "lasso": (linear_model.Lasso(0.1), LATENT),
        "lasso of classes": (linear_model.LogisticRegression(C=1.0, **lasso), BINARY),
        "huber": (linear_model.HuberRegressor(), LATENT),
        "quantiles": (linear_model.QuantileRegressor(alpha=0.0), LATENT),
        "chosen ridge": (linear_model.RidgeCV(), LATENT),
        "chosen": (GridSearchCV(linear_model.Ridge(), {"alpha": [0.1, 10.0]}, cv=3), LATENT),
        "weighted classes": (linear_model.LogisticRegression(class_weight="balanced"), BINARY),
        "several targets": (linear_model.LinearRegression(), np.column_stack([LATENT, COUNTS])),
        "margin": (svm.SVR(), LATENT),
        "process": (gaussian_process.GaussianProcessRegressor(alpha=1.0), LATENT),
        "network that stops": (
            MLPRegressor(hidden_layer_sizes=(3,), early_stopping=True, max_iter=20, random_state=0),
            LATENT,
        ),
        "pipeline": (
            make_pipeline(StandardScaler(), ensemble.RandomForestRegressor(5, random_state=0)),
            LATENT,
        ),
        "selection": (make_pipeline(SelectKBest(k=2), linear_model.LinearRegression()), LATENT),
    }


ESTIMATORS = [
    "forest",
    "forest of classes",
    "boosting",
    "histogram boosting",
    "ada",
    "tree",
    "neighbors",
    "lasso",
    "lasso of classes",
    "huber",
    "quantiles",
    "chosen ridge",
    "chosen",
    "weighted classes",
    "several targets",
    "margin",
    "process",
    "network that stops",
    "pipeline",
    "selection",
]


def test_the_list_of_estimators_is_whole():
    assert list(estimators()) == ESTIMATORS


@pytest.mark.parametrize("name", ESTIMATORS)
def test_sklearn(name):
    estimator, y = estimators()[name]
    features = abs(X) if name == "selection" else X
    quietly(lambda: estimator.fit(features, y))
    message = refusal(lambda: idm.from_sklearn(estimator, features, y))
    assert "`Bootstrap`" not in message
    assert "refit" not in message
    assert CLONE in message

    def psi(fitted):
        return np.ravel(fitted.predict(features[:3]))[0]

    if "classes" in name:
        psi = lambda fitted: fitted.predict_proba(features[:3])[:, 1].mean()
    clone = pytest.importorskip("sklearn.base").clone
    found = bootstrapped(lambda data: clone(estimator).fit(*data), (features, y), psi)
    assert found.value == pytest.approx(psi(estimator), rel=1e-6)
    assert found.standard_error > 0


@pytest.mark.parametrize("name", ["forest", "pipeline"])
def test_sklearn_with_weights(name):
    clone = pytest.importorskip("sklearn.base").clone

    estimator, y = estimators()[name]
    route = "randomforestregressor__sample_weight" if name == "pipeline" else "sample_weight"
    estimator.fit(X, y, **{route: WEIGHTS})
    message = refusal(lambda: idm.from_sklearn(estimator, X, y, WEIGHTS))
    assert CLONE in message
    assert "Sample weights are a third array of the data" in message

    def psi(fitted):
        return fitted.predict(X[:3]).mean()

    again = lambda data: clone(estimator).fit(data[0], data[1], **{route: data[2]})
    found = bootstrapped(again, (X, y, WEIGHTS), psi)
    assert found.value == pytest.approx(psi(estimator))
    assert psi(clone(estimator).fit(X, y)) != pytest.approx(psi(estimator))  # the weights count


# statsmodels


def fits():
    """Functions that fit, and their data."""
    sm = pytest.importorskip("statsmodels.api")
    pd = pytest.importorskip("pandas")
    smf = pytest.importorskip("statsmodels.formula.api")
    from statsmodels.discrete.conditional_models import ConditionalMNLogit
    from statsmodels.gam.api import BSplines, GLMGam
    from statsmodels.sandbox.regression.gmm import IV2SLS
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    binomial, poisson = sm.families.Binomial(), sm.families.Poisson()
    frame = pd.DataFrame({"y": LATENT, "a": X[:, 1], "b": X[:, 2], "g": GROUPS})
    frame.index = [f"row {i}" for i in range(N)]
    time, event = np.ceil(5 * RNG.exponential(size=N)), RNG.uniform(size=N) < 0.8
    exchangeable, stationary = sm.cov_struct.Exchangeable, sm.cov_struct.Stationary
    classes, tukey = np.minimum(COUNTS, 2), sm.robust.norms.TukeyBiweight()
    real, grouped, walk = (LATENT, X), (LATENT, X, GROUPS), np.cumsum(LATENT) + RNG.normal(size=N)
    lasso = {"alpha": 0.1, "L1_wt": 1}
    return {
        "QuantReg": (lambda d: sm.QuantReg(*d).fit(q=0.3), real),
        "QuantReg by formula": (lambda d: smf.quantreg("y ~ a + b", d).fit(q=0.3), frame),
        "RLM": (lambda d: sm.RLM(*d, M=tukey).fit(), real),
        "RLM by formula": (lambda d: smf.rlm("y ~ a + b", d).fit(), frame),
        "GEE": (
            lambda d: sm.GEE(*d, family=binomial, cov_struct=exchangeable()).fit(),
            (BINARY, X, GROUPS),
        ),
        "GEE by formula": (lambda d: smf.gee("y ~ a + b", "g", d).fit(), frame),
        "GEE with lags": (
            lambda d: sm.GEE(*d, cov_struct=stationary(max_lag=2, grid=True)).fit(),
            grouped,
        ),
        "GEE of counts": (
            lambda d: sm.GEE(*d[:3], family=poisson, exposure=d[3], weights=d[3]).fit(),
            (COUNTS, X, GROUPS, WEIGHTS),
        ),
        "OrdinalGEE": (lambda d: sm.OrdinalGEE(*d).fit(), (classes, X[:, 1:], GROUPS)),
        "MixedLM": (lambda d: sm.MixedLM(*d).fit(), grouped),
        "MixedLM by formula": (lambda d: smf.mixedlm("y ~ a + b", d, groups="g").fit(), frame),
        "ConditionalMNLogit": (
            lambda d: ConditionalMNLogit(*d[:2], groups=d[2]).fit(disp=0),
            (classes, X[:, 1:], GROUPS),
        ),
        "IV2SLS": (lambda d: IV2SLS(*d).fit(), (LATENT, X, X**3)),
        "GLMGam": (
            lambda d: GLMGam(
                d[0],
                d[1][:, :1],
                smoother=BSplines(d[1][:, 1:], df=[5, 5], degree=[3, 3]),
                alpha=[1.0, 1.0],
            ).fit(),
            real,
        ),
        "lasso": (lambda d: sm.OLS(*d).fit_regularized(**lasso), real),
        "lasso of a GLM": (
            lambda d: sm.GLM(*d, poisson, offset=d[1][:, 2]).fit_regularized(**lasso),
            (COUNTS, X),
        ),
        "lasso of PHReg": (
            lambda d: sm.PHReg(d[0], d[1], status=d[2]).fit_regularized(alpha=0.1),
            (time, X[:, 1:], event),
        ),
        "lasso of Logit": (
            lambda d: sm.Logit(*d).fit_regularized(alpha=0.1, disp=0),
            (BINARY, X),
        ),
        "GLSAR": (lambda d: sm.GLSAR(*d, rho=1).fit(), real),
        "AutoReg": (lambda d: sm.tsa.AutoReg(d, lags=2).fit(), LATENT),
        "RecursiveLS": (lambda d: sm.RecursiveLS(*d).fit(), real),
        "ETS": (lambda d: ETSModel(d).fit(disp=0), walk),
    }


FITS = [
    "QuantReg",
    "QuantReg by formula",
    "RLM",
    "RLM by formula",
    "GEE",
    "GEE by formula",
    "GEE with lags",
    "GEE of counts",
    "OrdinalGEE",
    "MixedLM",
    "MixedLM by formula",
    "ConditionalMNLogit",
    "IV2SLS",
    "GLMGam",
    "lasso",
    "lasso of a GLM",
    "lasso of PHReg",
    "lasso of Logit",
    "GLSAR",
    "AutoReg",
    "RecursiveLS",
    "ETS",
]
SERIES = FITS[-4:]
GROUPED = [name for name in FITS if "GEE" in name or "Mixed" in name or "Conditional" in name]


def test_the_list_of_fits_is_whole():
    assert list(fits()) == FITS


def fitted(name):
    """Return a function that fits, its data, and the results."""
    fit, data = fits()[name]
    return fit, data, quietly(lambda: fit(data))


def told(results):
    """Return the refusal of a fit or, of estimates without rows, that of robust errors."""
    return refusal(lambda: idm.infer(idm.from_statsmodels(results), idm.parameters, robust=True))


def psi_of(results, name):
    def psi(params):
        if hasattr(results.params, "index") and "formula" in name:
            return params["a"] * 2
        return np.ravel(np.asarray(params))[1] * 2

    return psi


@pytest.mark.parametrize("name", [name for name in FITS if name not in SERIES])
def test_statsmodels(name):
    fit, data, results = fitted(name)
    message, psi = told(results), psi_of(results, name)
    assert "`Bootstrap`" not in message
    assert "refit" not in message.replace("refitted", "")
    assert says_bootstrap(message)
    assert "with psi a function of what fit returns" in message
    assert ("as `clusters=`" in message) == (name in GROUPED)
    options = {"clusters": GROUPS} if name in GROUPED else {}
    answer = bootstrapped(fit, data, lambda again: psi(again.params), **options)
    assert answer.value == pytest.approx(psi(results.params), rel=1e-3, abs=1e-6)
    assert answer.standard_error > 0
    if "`infer(model, psi)`" in message:
        answer = quietly(lambda: idm.infer(idm.from_statsmodels(results), psi))
        assert answer.value == pytest.approx(psi(results.params), rel=1e-3, abs=1e-6)
        assert answer.standard_error > 0


@pytest.mark.parametrize("name", ["MixedLM", "MixedLM by formula"])
def test_maximum_likelihood_in_place_of_reml(name):
    _, _, results = fitted(name)
    psi = psi_of(results, name)
    assert "fit the model with `reml=False`" in told(results)
    full = quietly(lambda: copy(results.model).fit(reml=False))
    answer = quietly(lambda: idm.infer(idm.from_statsmodels(full), psi, robust=True))
    assert answer.value == pytest.approx(psi(results.params), abs=0.1)
    assert answer.standard_error > 0


def of_least_squares(y, X):
    sm = pytest.importorskip("statsmodels.api")
    return idm.from_statsmodels(sm.OLS(y, X).fit())


def as_one_term(results):
    loglik = lambda b: np.atleast_1d(results.model.loglike(b))
    return idm.from_loglik(loglik, theta=np.asarray(results.params))


LAGS = np.column_stack([np.ones(N - 2), LATENT[1:-1], LATENT[:-2]])
OF_SERIES = {  # what the message says, the model that follows it, and options of `infer`
    "GLSAR": (
        "Fit OLS to the same columns, and take errors",
        lambda _: of_least_squares(LATENT, X),
        "robust=HAC(4)",
    ),
    "AutoReg": ("with its lags as columns", lambda _: of_least_squares(LATENT[2:], LAGS), ""),
    "RecursiveLS": ("Fit OLS to the same columns", lambda _: of_least_squares(LATENT, X), ""),
    "ETS": ("Give its log-likelihood as one term", as_one_term, ""),
}


@pytest.mark.parametrize("name", SERIES)
def test_series_of_statsmodels(name):
    _, _, results = fitted(name)
    message, psi = told(results), psi_of(results, name)
    remedy, follow, option = OF_SERIES[name]
    assert "`Bootstrap`" not in message
    assert "refit" not in message
    assert "ordered in time and cannot be drawn" in message
    assert remedy in message
    assert option in message
    options = {"robust": idm.HAC(4)} if option else {}
    answer = quietly(lambda: idm.infer(follow(results), psi, **options))
    if name != "GLSAR":  # least squares in place of generalized least squares
        assert answer.value == pytest.approx(psi(results.params), rel=1e-3, abs=1e-6)
    assert answer.standard_error > 0


def test_clusters_of_the_advice_agree_with_the_robust_errors_of_gee():
    fit, data, results = fitted("GEE")
    assert "as `clusters=`" in told(results)
    answer = bootstrapped(fit, data, lambda again: again.params, clusters=GROUPS, replicates=300)
    np.testing.assert_allclose(answer.standard_error, results.bse, rtol=0.2)


def test_effects_of_groups_need_copies_with_their_own_labels():
    """The variance between groups halves if copies are merged: the bias shows it."""
    fit, data, results = fitted("MixedLM")
    assert "Pass the groups as a column of the data and as `clusters=`" in told(results)
    answer = bootstrapped(fit, data, lambda again: again.params[-1], clusters=GROUPS)
    assert abs(answer.diagnostics.notes["bias"]) < 1


def test_a_variational_fit_is_fitted_again():
    sm = pytest.importorskip("statsmodels.api")
    model = sm.BinomialBayesMixedGLM(BINARY, X, np.eye(30)[GROUPS], np.zeros(30, dtype=int))
    message = refusal(lambda: idm.from_statsmodels(quietly(model.fit_vb)))
    assert "`bootstrap(fit, data, psi)`" in message


# lifelines


class Fitter:
    """A survival regression with the members of lifelines: an exponential rate by group."""

    def __init__(self, penalizer=0.0):
        self.penalizer = penalizer

    def fit(self, df, duration_col, event_col=None, weights_col=None):
        self.duration_col, self.event_col, self.weights_col = duration_col, event_col, weights_col
        rates = df.groupby("group")[event_col].sum() / df.groupby("group")[duration_col].sum()
        self.params_ = np.log(rates + self.penalizer)
        return self


Fitter.__module__ = "lifelines.fitters.exponential"


def test_lifelines():
    pd = pytest.importorskip("pandas")
    data = pd.DataFrame(
        {"T": RNG.exponential(size=N), "E": BINARY, "group": np.where(X[:, 1] > 0, "a", "b")}
    )
    results = Fitter(penalizer=0.1).fit(data, "T", event_col="E")
    before = results.params_.copy()
    assert says_bootstrap(refusal(lambda: idm.from_statsmodels(results)))
    again = lambda data: Fitter(penalizer=0.1).fit(data, "T", event_col="E")
    answer = bootstrapped(again, data, lambda fitted: fitted.params_)
    np.testing.assert_array_equal(answer.value, before)
    np.testing.assert_array_equal(results.params_, before)
    assert answer.names == ("a", "b")


# Other libraries, by stand-ins with the members that theirs have


def stand_in(module, **members):
    return type("Results", (), {"__module__": module, **members})()


def estimates(covariance, params):
    """Least squares with a covariance that is not the inverse information."""
    pd = pytest.importorskip("pandas")
    b, *_ = np.linalg.lstsq(X, LATENT, rcond=None)
    bread = np.linalg.inv(X.T @ X)
    V = bread @ (X.T * (LATENT - X @ b) ** 2) @ X @ bread
    names = ["Intercept", "x", "C(g)[T.b]"]
    found = pd.Series(b, index=names)
    return {covariance: V, params: found if params != "coef" else lambda self: found}, b, V


FOREIGN = {
    "linearmodels": [
        "linearmodels.iv.results", "linearmodels.panel.results", "linearmodels.system.results",
        "linearmodels.asset_pricing.results",
    ],
    "pyfixest": ["pyfixest.estimation.models.feols_", "pyfixest.estimation.fepois_"],
    "lifelines": ["lifelines.fitters.coxph_fitter", "lifelines.fitters.weibull_fitter"],
}  # fmt: skip
MEMBERS = {
    "linearmodels": ("cov", "params"),
    "pyfixest": ("_vcov", "coef"),
    "lifelines": ("variance_matrix_", "params_"),
}
ENTRIES = {
    "from_statsmodels": idm.from_statsmodels,
    "from_sklearn": lambda results: idm.from_sklearn(results, X, LATENT),
    "infer": lambda results: idm.infer(results, lambda theta: theta),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("module", [name for names in FOREIGN.values() for name in names])
def test_fits_of_other_libraries(module, entry):
    library = module.partition(".")[0]
    members, b, V = estimates(*MEMBERS[library])
    # What made the reasons false: a model without `endog`, or one named as in statsmodels.
    model = type("IV2SLS", (), {"__module__": module})()
    results = stand_in(module, model=model, **members)
    psi = lambda params: 3 * params["x"] + params["C(g)[T.b]"]
    if entry == "from_statsmodels":
        answer = idm.infer(idm.from_statsmodels(results), psi)
    else:
        message = refusal(lambda: ENTRIES[entry](results))
        assert message.startswith(f"{entry} does not read Results of {library}.")
        assert "remove_data" not in message
        assert "`infer(from_estimates(results), psi)`" in message
        answer = idm.infer(idm.from_estimates(results), psi)
    row = np.array([0, 3, 1])
    assert answer.value == pytest.approx(row @ b)
    assert answer.standard_error == pytest.approx(np.sqrt(row @ V @ row), rel=1e-6)


def test_lifelines_with_several_parameters():
    pd = pytest.importorskip("pandas")
    members, b, V = estimates("variance_matrix_", "params_")
    index = pd.MultiIndex.from_tuples([("lambda_", "one"), ("lambda_", "x"), ("rho_", "one")])
    results = stand_in("lifelines.fitters.weibull_aft_fitter", **members)
    results.params_ = pd.Series(b, index=index)
    message = refusal(lambda: idm.infer(results, "x"))
    assert "`infer(from_estimates(results), psi)`" in message
    answer = idm.infer(idm.from_estimates(results), lambda params: params["lambda_", "x"])
    assert answer.standard_error == pytest.approx(np.sqrt(V[1, 1]), rel=1e-6)


class Curve:
    """A survival curve with the members of lifelines."""

    def fit(self, durations, event_observed=None, weights=None):
        self.durations, self.event_observed, self.weights = durations, event_observed, weights
        self.rate = weights @ event_observed / (weights @ durations)
        return self


Curve.__module__ = "lifelines.fitters.kaplan_meier_fitter"


def test_curves_of_lifelines():
    results = Curve().fit(RNG.exponential(size=N), BINARY, WEIGHTS)
    before = results.rate
    assert says_bootstrap(refusal(lambda: idm.from_statsmodels(results)))
    data = (results.durations, BINARY, WEIGHTS)
    answer = bootstrapped(lambda d: Curve().fit(*d), data, lambda fitted: fitted.rate)
    assert answer.value == results.rate == before
    assert answer.standard_error > 0


@pytest.mark.parametrize("module", ["linearmodels.panel.model", "pyfixest.estimation.FixestMulti_"])
def test_other_classes_of_these_libraries(module):
    message = refusal(lambda: idm.from_statsmodels(stand_in(module)))
    assert says_bootstrap(message)
    answer = bootstrapped(lambda data: data.mean(), LATENT, lambda fitted: fitted)
    assert answer.value == pytest.approx(LATENT.mean())


def test_each_entry_names_the_one_that_reads_a_fit():
    sm = pytest.importorskip("statsmodels.api")
    linear = pytest.importorskip("sklearn.linear_model").LinearRegression().fit(X, LATENT)
    results = sm.OLS(LATENT, X).fit()
    assert "`from_sklearn(estimator, X, y)`" in refusal(lambda: idm.from_statsmodels(linear))
    told = refusal(lambda: idm.from_sklearn(results, X, LATENT))
    assert "`from_statsmodels(results)`" in told
    for given in (stand_in("somewhere.else"), sm.OLS(LATENT, X)):
        with pytest.raises(TypeError, match="needs the results of a fit") as caught:
            idm.from_statsmodels(given)
        assert ("model.fit()" in str(caught.value)) == hasattr(given, "endog")


def test_an_estimator_of_another_library_is_named_and_fitted_again():
    base = pytest.importorskip("sklearn.base")

    class Scaled(base.RegressorMixin, base.BaseEstimator):
        def fit(self, X, y):
            self.coef_ = np.linalg.lstsq(X, y, rcond=None)[0]
            return self

        def predict(self, X):
            return X @ self.coef_

    Scaled.__module__ = "glum._glm"
    estimator = Scaled().fit(X, LATENT)
    message = refusal(lambda: idm.from_sklearn(estimator, X, LATENT))
    assert "Scaled is of glum" in message
    assert CLONE in message
    psi = lambda fitted: fitted.predict(X[:2]).mean()
    again = lambda data: base.clone(estimator).fit(*data)
    answer = bootstrapped(again, (X, LATENT), psi)
    assert answer.value == pytest.approx(psi(estimator))


def test_smoothing_without_a_likelihood_gets_no_advice_that_fails():
    holtwinters = pytest.importorskip("statsmodels.tsa.holtwinters")
    results = holtwinters.SimpleExpSmoothing(LATENT, initialization_method="estimated").fit()
    message = refusal(lambda: idm.from_statsmodels(results))
    assert "bootstrap" not in message
    assert "infer(" not in message
    assert "state-space" in message


@pytest.mark.parametrize("seed", range(3))
def test_advice_for_a_psi_that_jumps_can_be_followed(seed):
    rng = np.random.default_rng(seed)
    X, rows = (np.column_stack([np.ones(300), rng.normal(size=(300, 3))]) for _ in range(2))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [-0.5, 1.0, 0.5, -0.5]))) * 1.0
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(4),
        score=lambda b: (y - 1 / (1 + np.exp(-X @ b)))[:, None] * X,
    )
    share = lambda b: np.mean(rows @ b > 0)
    with pytest.raises(idm.EvaluationError, match="piecewise constant") as refused:
        idm.infer(model, share)
    remedies = {
        "Simulation()": lambda: idm.infer(model, share, idm.Simulation(rng=0)),
        "Smoothed(psi)": lambda: idm.infer(model, idm.Smoothed(share, rng=0)),
        "FiniteDifference(maximizer=nelder_mead)": lambda: idm.infer(
            model, share, idm.FiniteDifference(maximizer=idm.nelder_mead)
        ),
    }
    told = [follow for advice, follow in remedies.items() if advice in str(refused.value)]
    assert len(told) >= 2
    for follow in told:
        follow()  # warnings are errors


@pytest.mark.parametrize("score", [False, True])
@pytest.mark.parametrize("d", [2, 3])
def test_separated_classes_are_named_and_a_penalty_helps(d, score):
    y = (X[:, 1] > 0) * 1.0
    rows = X[:, :d]
    loglik = lambda b: y * (rows @ b) - np.logaddexp(0, rows @ b)
    slope = (lambda b: (y - expit(rows @ b))[:, None] * rows) if score else None
    told = (idm.ImplicitDeltaError, idm.ImplicitDeltaWarning)
    with pytest.raises(told, match=r"separated classes(.|\n)*`l2="):
        idm.infer(idm.from_loglik(loglik, start=np.zeros(d), score=slope), lambda b: b[1])
    model = idm.from_loglik(loglik, start=np.zeros(d), score=slope, l2=1.0)
    assert quietly(lambda: idm.infer(model, lambda b: b[1])).standard_error > 0
