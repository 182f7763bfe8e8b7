"""Refusals print a line that works: it is run as printed, with the objects of the user."""

import ast
import re
import warnings

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


def lines(message):
    """Code between backticks that calls something of the package."""
    codes = re.findall(r"`([^`]+)`", message)
    calls = r"(bootstrap|infer|from_statsmodels)\(.*\)$"
    return [code for code in codes if re.search(calls, code) and "..." not in code]


def run(line, **objects):
    """Execute a line as printed, but for the number of replicates, and return its last value."""
    if line.endswith(")") and "bootstrap(" in line:
        line = line[:-1] + ", replicates=25, jackknife=False, rng=0)"
    tree = ast.parse(line)
    names = {name: getattr(idm, name) for name in idm.__all__} | objects
    last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "<advice>", "exec"), names)
    return eval(compile(last, "<advice>", "eval"), names)


def refusal(call):
    with pytest.raises(idm.UnsupportedModelError) as caught:
        quietly(call)
    return str(caught.value)


# scikit-learn


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
    (line,) = [line for line in lines(message) if "bootstrap(" in line]

    def psi(fitted):
        return np.ravel(fitted.predict(features[:3]))[0]

    if "classes" in name:
        psi = lambda fitted: fitted.predict_proba(features[:3])[:, 1].mean()
    found = quietly(lambda: run(line, estimator=estimator, X=features, y=y, psi=psi))
    assert found.value == pytest.approx(psi(estimator), rel=1e-6)
    assert found.standard_error > 0


@pytest.mark.parametrize("name", ["forest", "pipeline"])
def test_sklearn_with_weights(name):
    clone = pytest.importorskip("sklearn.base").clone

    estimator, y = estimators()[name]
    route = "randomforestregressor__sample_weight" if name == "pipeline" else "sample_weight"
    estimator.fit(X, y, **{route: WEIGHTS})
    message = refusal(lambda: idm.from_sklearn(estimator, X, y, WEIGHTS))
    (line,) = lines(message)

    def psi(fitted):
        return fitted.predict(X[:3]).mean()

    found = run(line, estimator=estimator, X=X, y=y, sample_weight=WEIGHTS, psi=psi)
    assert found.value == pytest.approx(psi(estimator))
    assert psi(clone(estimator).fit(X, y)) != pytest.approx(psi(estimator))  # the weights count


# statsmodels


def fits():
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
    exchangeable = sm.cov_struct.Exchangeable
    return {
        "QuantReg": lambda: sm.QuantReg(LATENT, X).fit(q=0.3),
        "QuantReg by formula": lambda: smf.quantreg("y ~ a + b", frame).fit(q=0.3),
        "RLM": lambda: sm.RLM(LATENT, X, M=sm.robust.norms.TukeyBiweight()).fit(),
        "RLM by formula": lambda: smf.rlm("y ~ a + b", frame).fit(),
        "GEE": lambda: sm.GEE(BINARY, X, GROUPS, family=binomial, cov_struct=exchangeable()).fit(),
        "GEE by formula": lambda: smf.gee("y ~ a + b", "g", frame).fit(),
        "GEE with lags": lambda: sm.GEE(
            LATENT, X, GROUPS, cov_struct=sm.cov_struct.Stationary(max_lag=2, grid=True)
        ).fit(),
        "GEE of counts": lambda: sm.GEE(
            COUNTS, X, GROUPS, family=poisson, exposure=WEIGHTS, weights=WEIGHTS
        ).fit(),
        "OrdinalGEE": lambda: sm.OrdinalGEE(np.minimum(COUNTS, 2), X[:, 1:], GROUPS).fit(),
        "MixedLM": lambda: sm.MixedLM(LATENT, X, groups=GROUPS).fit(),
        "MixedLM by formula": lambda: smf.mixedlm("y ~ a + b", frame, groups="g").fit(),
        "ConditionalMNLogit": lambda: ConditionalMNLogit(
            np.minimum(COUNTS, 2), X[:, 1:], groups=GROUPS
        ).fit(disp=0),
        "IV2SLS": lambda: IV2SLS(LATENT, X, X**3).fit(),
        "GLMGam": lambda: GLMGam(
            LATENT,
            X[:, :1],
            smoother=BSplines(X[:, 1:], df=[5, 5], degree=[3, 3]),
            alpha=[1.0, 1.0],
        ).fit(),
        "lasso": lambda: sm.OLS(LATENT, X).fit_regularized(alpha=0.1, L1_wt=1),
        "lasso of a GLM": lambda: sm.GLM(COUNTS, X, poisson, offset=X[:, 2]).fit_regularized(
            alpha=0.1, L1_wt=1
        ),
        "lasso of PHReg": lambda: sm.PHReg(time, X[:, 1:], status=event).fit_regularized(alpha=0.1),
        "lasso of Logit": lambda: sm.Logit(BINARY, X).fit_regularized(alpha=0.1, disp=0),
        "GLSAR": lambda: sm.GLSAR(LATENT, X, rho=1).fit(),
        "AutoReg": lambda: sm.tsa.AutoReg(LATENT, lags=2).fit(),
        "RecursiveLS": lambda: sm.RecursiveLS(LATENT, X).fit(),
        "ETS": lambda: ETSModel(np.cumsum(LATENT) + RNG.normal(size=N)).fit(disp=0),
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
ANOTHER_ESTIMATE = {"GLSAR"}  # least squares with HAC errors, in place of generalized least squares


def test_the_list_of_fits_is_whole():
    assert list(fits()) == FITS


def told(results):
    """Return the refusal of a fit or, of estimates without rows, that of robust errors."""
    return refusal(lambda: idm.infer(idm.from_statsmodels(results), idm.parameters, robust=True))


@pytest.mark.parametrize("name", FITS)
def test_statsmodels(name):
    results = quietly(fits()[name])
    message = told(results)
    assert "`Bootstrap`" not in message
    assert "refit" not in message.replace("refitted", "")
    found = lines(message)
    assert found
    assert any("bootstrap(" in line for line in found) or name in FITS[-4:]
    estimates = "`infer(model, psi)`" in message
    model = quietly(lambda: idm.from_statsmodels(results)) if estimates else None

    def psi(params):
        if hasattr(results.params, "index") and "formula" in name:
            return params["a"] * 2
        return np.ravel(np.asarray(params))[1] * 2

    for line in found:
        answer = quietly(
            lambda line=line: run(line, results=results, psi=psi, alpha=0.1, model=model)
        )
        if line.endswith("fit(reml=False))"):  # a model, to be asked
            answer = quietly(lambda model=answer: idm.infer(model, psi))
            assert answer.value == pytest.approx(psi(results.params), abs=0.1)
        elif name not in ANOTHER_ESTIMATE:
            assert answer.value == pytest.approx(psi(results.params), rel=1e-3, abs=1e-6)
        assert answer.standard_error > 0


def test_clusters_of_the_advice_agree_with_the_robust_errors_of_gee():
    results = quietly(fits()["GEE"])
    line = lines(told(results))[-1]
    line = line[:-1] + ", replicates=300, jackknife=False, rng=0)"
    names = {name: getattr(idm, name) for name in idm.__all__}
    names |= {"results": results, "psi": lambda params: params}
    setup, call = line.split("; ")
    exec(setup, names)
    answer = quietly(lambda: eval(call, names))
    np.testing.assert_allclose(answer.standard_error, results.bse, rtol=0.2)


def test_effects_of_groups_need_copies_with_their_own_labels():
    """The variance between groups halves if copies are merged: the bias shows it."""
    results = quietly(fits()["MixedLM"])
    line = lines(told(results))[-1]
    answer = quietly(lambda: run(line, results=results, psi=lambda params: params[-1]))
    assert abs(answer.diagnostics.notes["bias"]) < 1


def test_what_cannot_be_made_again_is_told_without_a_line():
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
    (line,) = lines(refusal(lambda: idm.from_statsmodels(results)))
    answer = run(line, results=results, data=data, psi=lambda params: params)
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
        line = next(line for line in lines(message) if line.startswith("infer("))
        answer = run(line, results=results, psi=psi)
    row = np.array([0, 3, 1])
    assert answer.value == pytest.approx(row @ b)
    assert answer.standard_error == pytest.approx(np.sqrt(row @ V @ row), rel=1e-6)


def test_lifelines_with_several_parameters():
    pd = pytest.importorskip("pandas")
    members, b, V = estimates("variance_matrix_", "params_")
    index = pd.MultiIndex.from_tuples([("lambda_", "one"), ("lambda_", "x"), ("rho_", "one")])
    results = stand_in("lifelines.fitters.weibull_aft_fitter", **members)
    results.params_ = pd.Series(b, index=index)
    line = next(one for one in lines(refusal(lambda: idm.infer(results, "x"))) if "infer" in one)
    answer = run(line, results=results, psi=lambda params: params["lambda_", "x"])
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
    (line,) = lines(refusal(lambda: idm.from_statsmodels(results)))
    answer = run(line, results=results, psi=lambda fitted: fitted.rate)
    assert answer.value == results.rate == before
    assert answer.standard_error > 0


@pytest.mark.parametrize("module", ["linearmodels.panel.model", "pyfixest.estimation.FixestMulti_"])
def test_other_classes_of_these_libraries(module):
    message = refusal(lambda: idm.from_statsmodels(stand_in(module)))
    (line,) = lines(message)
    fit = lambda data: data.mean()
    answer = run(line, fit=fit, data=LATENT, psi=lambda fitted: fitted)
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
    (line,) = lines(message)
    psi = lambda fitted: fitted.predict(X[:2]).mean()
    answer = run(line, estimator=estimator, X=X, y=LATENT, psi=psi)
    assert answer.value == pytest.approx(psi(estimator))


def test_smoothing_without_a_likelihood_gets_no_line_that_fails():
    holtwinters = pytest.importorskip("statsmodels.tsa.holtwinters")
    results = holtwinters.SimpleExpSmoothing(LATENT, initialization_method="estimated").fit()
    message = refusal(lambda: idm.from_statsmodels(results))
    assert lines(message) == []
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
