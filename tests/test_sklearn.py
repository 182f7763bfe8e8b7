"""scikit-learn: the same numbers as statsmodels without a penalty, and as by hand with one."""

import re
import warnings

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import numpy as np
import pandas as pd
import scipy.sparse
import statsmodels.api as sm
from scipy.special import expit, logsumexp
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC

import implicit_delta as idm
from implicit_delta.testing import check_model

RNG = np.random.default_rng(8)
N = 250
X = RNG.normal(size=(N, 3))
DESIGN = np.column_stack([X, np.ones(N)])
ETA = DESIGN @ [0.5, -0.4, 0.2, 0.3]
REAL = ETA + RNG.normal(size=N)
BINARY = RNG.random(N) < expit(ETA)
COUNTS = RNG.poisson(np.exp(ETA))
POSITIVE = RNG.gamma(3.0, np.exp(ETA) / 3)
CLASSES = np.array(["a", "b", "c"])[
    np.argmax(np.column_stack([0 * ETA, ETA, -ETA]) + RNG.gumbel(size=(N, 3)), axis=1)
]
REPEATS = RNG.integers(1, 4, N).astype(float)
NEW = RNG.normal(size=(5, 3))
TIGHT = {"tol": 1e-10, "max_iter": 10_000}


def logistic(C=np.inf, **settings):
    return LogisticRegression(C=C, **{**TIGHT, "solver": "newton-cholesky", **settings})


family = sm.families
log = family.links.Log()
UNPENALIZED = {
    "LinearRegression": (LinearRegression(), REAL, lambda y: sm.OLS(y, DESIGN).fit()),
    "LogisticRegression": (logistic(), BINARY, lambda y: sm.Logit(y, DESIGN).fit(disp=0)),
    "PoissonRegressor": (
        PoissonRegressor(alpha=0, **TIGHT),
        COUNTS,
        lambda y: sm.Poisson(y, DESIGN).fit(disp=0),
    ),
    "GammaRegressor": (
        GammaRegressor(alpha=0, **TIGHT),
        POSITIVE,
        lambda y: sm.GLM(y, DESIGN, family=family.Gamma(log)).fit(method="newton", disp=0),
    ),
    "TweedieRegressor(1.5)": (
        TweedieRegressor(power=1.5, alpha=0, **TIGHT),
        POSITIVE,
        lambda y: sm.GLM(y, DESIGN, family=family.Tweedie(log, 1.5)).fit(method="newton", disp=0),
    ),
    "TweedieRegressor(3)": (
        TweedieRegressor(power=3, alpha=0, **TIGHT),
        POSITIVE,
        lambda y: sm.GLM(y, DESIGN, family=family.InverseGaussian(log)).fit(
            method="newton", disp=0
        ),
    ),
    "TweedieRegressor(0)": (
        TweedieRegressor(power=0, alpha=0, **TIGHT),
        REAL,
        lambda y: sm.GLM(y, DESIGN).fit(),
    ),
}


@pytest.mark.parametrize("name", UNPENALIZED)
def test_without_a_penalty_it_is_the_same_model_in_statsmodels(name):
    estimator, y, fit = UNPENALIZED[name]
    model = idm.polish(idm.from_sklearn(estimator.fit(X, y), X, y))
    theirs = fit(y * 1.0)
    for robust in (False, True):
        expected = idm.infer(idm.from_statsmodels(theirs), idm.parameters, robust=robust)
        actual = idm.infer(model, idm.parameters, robust=robust)
        np.testing.assert_allclose(actual.value, expected.value, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(actual.standard_error, expected.standard_error, rtol=1e-6)


def test_multinomial_without_a_penalty_has_the_predictions_of_statsmodels():
    clf = logistic().fit(X, CLASSES)
    actual = idm.infer(idm.from_sklearn(clf, X, CLASSES), lambda c: c.predict_proba(NEW).ravel())
    results = sm.MNLogit(np.searchsorted(clf.classes_, CLASSES), DESIGN).fit(disp=0)
    new = np.column_stack([NEW, np.ones(5)])
    expected = idm.infer(
        idm.from_statsmodels(results), lambda params: results.model.predict(params, new).ravel()
    )
    np.testing.assert_allclose(actual.value, expected.value, rtol=1e-6)
    np.testing.assert_allclose(actual.standard_error, expected.standard_error, rtol=1e-6)


def by_hand(loglik, ridge, theta):
    """A penalized likelihood as a user would write it: the judge of all penalties."""
    ridge = np.asarray(ridge)
    return idm.polish(idm.from_loglik(loglik, theta=theta, penalty=lambda b: ridge @ b**2 / 2))


def same(model, judge, psi, judge_psi):
    actual, expected = idm.infer(model, psi), idm.infer(judge, judge_psi)
    assert abs(actual.diagnostics.drift) < 1e-3
    np.testing.assert_allclose(actual.value, expected.value, rtol=1e-6)
    np.testing.assert_allclose(actual.covariance, expected.covariance, rtol=1e-5)


def test_ridge():
    reg = Ridge(alpha=7.0).fit(X, REAL)
    model = idm.from_sklearn(reg, X, REAL)
    penalty = 7.0 * np.array([1, 1, 1, 0])
    gram = DESIGN.T @ DESIGN
    freedom = N - np.trace(np.linalg.solve(gram + np.diag(penalty), gram))
    s2 = np.sum((REAL - reg.predict(X)) ** 2) / freedom
    expected = s2 * np.linalg.inv(gram + np.diag(penalty))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).covariance, expected, rtol=1e-10)
    new = np.column_stack([NEW, np.ones(5)])
    predictions = idm.infer(model, lambda reg: reg.predict(NEW))
    np.testing.assert_allclose(predictions.covariance, new @ expected @ new.T, rtol=1e-10)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky", "liblinear"])
def test_binary_logistic_regression_with_a_penalty(solver):
    clf = logistic(C=0.3, solver=solver, intercept_scaling=2.0).fit(X, BINARY)
    model = idm.from_sklearn(clf, X, BINARY)
    intercept = 1 / (0.3 * 4) if solver == "liblinear" else 0.0
    ridge = [1 / 0.3] * 3 + [intercept]
    judge = by_hand(
        lambda b: -np.logaddexp(0, -(2 * BINARY - 1) * (DESIGN @ b)), ridge, model.theta
    )
    new = np.column_stack([NEW, np.ones(5)])
    same(model, judge, lambda c: c.predict_proba(NEW)[:, 1], lambda b: expit(new @ b))


def test_multinomial_logistic_regression_with_a_penalty():
    clf = logistic(C=0.3).fit(X, CLASSES)
    model = idm.from_sklearn(clf, X, CLASSES)
    codes = np.searchsorted(clf.classes_, CLASSES)

    def loglik(b):  # the last class is minus the sum of the others
        eta = DESIGN @ full(b).T
        return eta[np.arange(N), codes] - logsumexp(eta, axis=1)

    def full(b):
        free = b.reshape(2, 4)
        return np.vstack([free, -free.sum(axis=0)])

    def penalty(b):
        return np.sum(full(b)[:, :3] ** 2) / 2 / 0.3

    judge = idm.polish(idm.from_loglik(loglik, theta=model.theta, penalty=penalty))
    new = np.column_stack([NEW, np.ones(5)])

    def probabilities(b):
        eta = new @ full(b).T
        return np.exp(eta - logsumexp(eta, axis=1, keepdims=True)).ravel()

    same(model, judge, lambda c: c.predict_proba(NEW).ravel(), probabilities)
    same(model, judge, lambda c: c.coef_.ravel(), lambda b: full(b)[:, :3].ravel())
    assert model.names[:5] == ("a:x0", "a:x1", "a:x2", "a:intercept", "b:x0")


def test_poisson_and_gamma_regression_with_a_penalty():
    alpha, ridge = 0.2, 0.2 * N * np.array([1, 1, 1, 0])
    counts = PoissonRegressor(alpha=alpha, **TIGHT).fit(X, COUNTS)
    model = idm.from_sklearn(counts, X, COUNTS)
    judge = by_hand(lambda b: COUNTS * (DESIGN @ b) - np.exp(DESIGN @ b), ridge, model.theta)
    same(model, judge, lambda reg: reg.predict(X[:3]), lambda b: np.exp(DESIGN[:3] @ b))

    reg = GammaRegressor(alpha=alpha, **TIGHT).fit(X, POSITIVE)
    model = idm.from_sklearn(reg, X, POSITIVE)
    # Pearson's dispersion over n less tr (G + R)^-1 G, G = X'X for a gamma with log link.
    gram = DESIGN.T @ DESIGN
    freedom = N - np.trace(np.linalg.solve(gram + np.diag(ridge), gram))
    phi = np.sum((POSITIVE / reg.predict(X) - 1) ** 2) / freedom
    judge = by_hand(
        lambda b: (-POSITIVE * np.exp(-DESIGN @ b) - DESIGN @ b) / phi, ridge / phi, model.theta
    )
    same(model, judge, lambda reg: reg.predict(X[:3]), lambda b: np.exp(DESIGN[:3] @ b))


def small_network(kind, y, **settings):
    settings = {"alpha": 1.0, "activation": "tanh", "hidden_layer_sizes": (3, 2), **settings}
    return kind(solver="lbfgs", max_iter=5000, tol=1e-12, random_state=1, **settings).fit(X, y)


def perceptron(b, mlp, data):
    """Outputs of the last layer, before its activation."""
    a, start = data, 0
    for i, (W, c) in enumerate(zip(mlp.coefs_, mlp.intercepts_, strict=True)):
        W_b, c_b = b[start : start + W.size].reshape(W.shape), b[start + W.size :][: c.size]
        a, start = a @ W_b + c_b, start + W.size + c.size
        a = a if i == len(mlp.coefs_) - 1 else np.tanh(a)
    return a


def weights_of(mlp):
    pairs = zip(mlp.coefs_, mlp.intercepts_, strict=True)
    return np.concatenate([np.repeat([1.0, 0.0], [W.size, c.size]) for W, c in pairs])


def test_perceptron_regression():
    mlp = small_network(MLPRegressor, REAL)
    model = idm.polish(idm.from_sklearn(mlp, X, REAL))
    s2 = np.mean((REAL - mlp.predict(X)) ** 2)
    judge = by_hand(
        lambda b: -((REAL - perceptron(b, mlp, X)[:, 0]) ** 2) / (2 * s2),
        weights_of(mlp) / s2,
        model.theta,
    )
    same(model, judge, lambda m: m.predict(NEW), lambda b: perceptron(b, mlp, NEW)[:, 0])


def test_perceptron_with_two_classes():
    mlp = small_network(MLPClassifier, BINARY)
    model = idm.polish(idm.from_sklearn(mlp, X, BINARY))
    sign = 2 * BINARY - 1
    judge = by_hand(
        lambda b: -np.logaddexp(0, -sign * perceptron(b, mlp, X)[:, 0]),
        weights_of(mlp),
        model.theta,
    )
    same(
        model,
        judge,
        lambda m: m.predict_proba(NEW)[:, 1],
        lambda b: expit(perceptron(b, mlp, NEW)[:, 0]),
    )


FITTED = {
    "LinearRegression": lambda: (LinearRegression().fit(X, REAL), REAL),
    "no intercept": lambda: (Ridge(alpha=2.0, fit_intercept=False).fit(X, REAL), REAL),
    "LogisticRegression": lambda: (logistic(C=2.0).fit(X, BINARY), BINARY),
    "liblinear": lambda: (logistic(C=2.0, solver="liblinear").fit(X, BINARY), BINARY),
    "multinomial": lambda: (logistic(C=2.0).fit(X, CLASSES), CLASSES),
    "multinomial, no penalty": lambda: (logistic().fit(X, CLASSES), CLASSES),
    "Poisson": lambda: (PoissonRegressor(alpha=0.1).fit(X, COUNTS), COUNTS),
    "Gamma": lambda: (GammaRegressor(alpha=0.1).fit(X, POSITIVE), POSITIVE),
    "Tweedie": lambda: (TweedieRegressor(power=1.7, alpha=0.1).fit(X, POSITIVE), POSITIVE),
    "Tweedie, identity": lambda: (TweedieRegressor(power=0).fit(X, REAL), REAL),
    "MLPRegressor": lambda: (small_network(MLPRegressor, REAL), REAL),
    "MLPRegressor, logistic": lambda: (
        small_network(MLPRegressor, REAL, activation="logistic"),
        REAL,
    ),
    "MLPRegressor, identity": lambda: (
        small_network(MLPRegressor, REAL, activation="identity"),
        REAL,
    ),
    "MLPClassifier": lambda: (small_network(MLPClassifier, BINARY), BINARY),
    "MLPClassifier, three": lambda: (small_network(MLPClassifier, CLASSES), CLASSES),
}


@pytest.mark.parametrize("name", FITTED)
def test_contract(name):
    estimator, y = FITTED[name]()
    model = idm.from_sklearn(estimator, X, y)
    predict = lambda e: (e.predict_proba(NEW) if hasattr(e, "classes_") else e.predict(NEW)).ravel()
    check_model(model, predict, rtol=1e-6)
    np.testing.assert_allclose(model.evaluate(predict, model.theta), predict(estimator), rtol=1e-10)


@pytest.mark.parametrize("name", FITTED)
def test_predictions_are_differentiated_exactly(name):
    """Tracing follows scikit-learn's own code: no fallback on differences, for any estimator."""
    estimator, y = FITTED[name]()
    model = idm.from_sklearn(estimator, X, y)
    calls = []

    def predict(e):
        calls.append(1)
        return (e.predict_proba(NEW) if hasattr(e, "classes_") else e.predict(NEW)).ravel()

    model.jacobian(predict, model.theta)
    assert len(calls) < 6  # a few to check one traced run; differences take six per parameter


def test_sample_weights_count_repetitions():
    rows = np.repeat(np.arange(N), REPEATS.astype(int))
    for make in (
        LinearRegression,
        lambda: logistic(C=0.5),
        lambda: PoissonRegressor(alpha=0.1, **TIGHT),
    ):
        y = {"LinearRegression": REAL, "LogisticRegression": BINARY}.get(
            type(make()).__name__, COUNTS
        )
        weighted = idm.from_sklearn(make().fit(X, y, REPEATS), X, y, REPEATS)
        repeated = idm.from_sklearn(make().fit(X[rows], y[rows]), X[rows], y[rows])
        for robust in (False, True):
            actual = idm.infer(weighted, idm.parameters, robust=robust).covariance
            expected = idm.infer(repeated, idm.parameters, robust=robust).covariance
            np.testing.assert_allclose(actual, expected, rtol=1e-5)


FRAME = pd.DataFrame(X, columns=["age", "dose", "width"]).assign(site=np.arange(N) % 3)


def test_a_pipeline_predicts_with_its_transformers_fixed():
    pipe = make_pipeline(
        ColumnTransformer(
            [
                (
                    "numbers",
                    make_pipeline(StandardScaler(), PolynomialFeatures(2)),
                    ["age", "dose"],
                ),
                ("site", OneHotEncoder(drop="first"), ["site"]),
            ]
        ),
        LinearRegression(fit_intercept=False),
    ).fit(FRAME, REAL)
    Z = pipe[:-1].transform(FRAME)
    estimate = idm.infer(idm.from_sklearn(pipe, FRAME, REAL), lambda p: p.predict(FRAME[:4]))
    s2 = np.sum((REAL - pipe.predict(FRAME)) ** 2) / (N - Z.shape[1])
    expected = s2 * Z[:4] @ np.linalg.inv(Z.T @ Z) @ Z[:4].T
    np.testing.assert_allclose(estimate.value, pipe.predict(FRAME[:4]), rtol=1e-10)
    np.testing.assert_allclose(estimate.covariance, expected, rtol=1e-8)


def test_names_come_from_the_columns():
    frame = FRAME[["age", "dose"]]
    model = idm.from_sklearn(LinearRegression().fit(frame, REAL), frame, REAL)
    assert model.names == ("age", "dose", "intercept")


def test_names_go_through_pipelines():
    frame = FRAME[["age", "dose"]]
    steps = PolynomialFeatures(2, include_bias=False), StandardScaler()
    pipe = make_pipeline(*steps, LinearRegression()).fit(frame, REAL)
    made = ("age", "dose", "age^2", "age dose", "dose^2")
    names = (*(f"standardscaler({name})" for name in made), "intercept")
    assert idm.from_sklearn(pipe, frame, REAL).names == names
    inner = make_pipeline(PolynomialFeatures(1, include_bias=False), LinearRegression())
    outer = make_pipeline(StandardScaler(), inner).fit(frame, REAL)
    scaled = ("standardscaler(age)", "standardscaler(dose)", "intercept")
    assert idm.from_sklearn(outer, frame, REAL).names == scaled
    unnamed = make_pipeline(FunctionTransformer(np.square), LinearRegression())
    X = frame.to_numpy()
    assert idm.from_sklearn(unnamed.fit(X, REAL), X, REAL).names == ("x0", "x1", "intercept")


def test_sparse_features_are_the_same_as_dense_ones():
    sparse = scipy.sparse.csr_array(np.where(abs(X) > 0.5, X, 0))
    reg = Ridge(alpha=1.0, solver="sparse_cg", tol=1e-12).fit(sparse, REAL)
    actual = idm.infer(idm.from_sklearn(reg, sparse, REAL), idm.parameters)
    expected = idm.infer(idm.from_sklearn(reg, sparse.toarray(), REAL), idm.parameters)
    np.testing.assert_array_equal(actual.covariance, expected.covariance)


def test_an_opaque_psi_is_differentiated_numerically():
    clf = logistic(C=1.0).fit(X, BINARY)
    model = idm.from_sklearn(clf, X, BINARY)
    opaque = lambda c: float(np.mean([float(p) for p in c.predict_proba(NEW)[:, 1]]))
    plain = lambda c: c.predict_proba(NEW)[:, 1].mean()
    assert idm.infer(model, opaque).standard_error == pytest.approx(
        idm.infer(model, plain).standard_error, rel=1e-8
    )


def test_predicted_labels_have_no_derivative():
    model = idm.from_sklearn(logistic(C=1.0).fit(X, BINARY), X, BINARY)
    with pytest.raises(idm.EvaluationError, match="piecewise constant"):
        idm.infer(model, lambda c: c.predict(NEW).mean())


def test_an_early_end_shows_as_drift_and_polish_removes_it():
    model = idm.from_sklearn(LogisticRegression(tol=1e-2).fit(X, BINARY), X, BINARY)
    with pytest.warns(idm.DriftWarning, match="polish"):
        idm.infer(model, lambda c: c.coef_[0])
    assert idm.infer(idm.polish(model), lambda c: c.coef_[0]).diagnostics.drift < 1e-6


def test_the_estimator_is_not_changed():
    pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, BINARY)
    before = pipe[-1].coef_.copy()
    kinds = []

    def careless(p):
        kinds.append(type(p))
        p[-1].coef_ = p[-1].coef_ * 2
        return p.decision_function(NEW)[0]

    idm.infer(idm.from_sklearn(pipe, X, BINARY), careless)
    np.testing.assert_array_equal(pipe[-1].coef_, before)
    assert set(kinds) == {type(pipe)}


def refused(pattern, estimator, y=REAL):
    with pytest.raises(idm.UnsupportedModelError, match=pattern):
        idm.from_sklearn(estimator, X, y)


def test_unsupported_estimators_are_refused_by_name():
    refused("Lasso.*L1.*Bootstrap the whole fit", Lasso().fit(X, REAL))
    refused("ElasticNet.*L1", ElasticNet().fit(X, REAL))
    refused("SVC.*hinge", SVC().fit(X, BINARY), BINARY)
    refused("RandomForestClassifier.*trees", RandomForestClassifier(3).fit(X, BINARY), BINARY)
    refused("RidgeCV.*alpha_", RidgeCV().fit(X, REAL))
    refused("GridSearchCV.*best_estimator_", GridSearchCV(Ridge(), {"alpha": [1]}).fit(X, REAL))
    refused("StandardScaler", StandardScaler().fit(X))


def test_unsupported_settings_are_refused():
    # Before scikit-learn 1.8 a penalty has a name of its own.
    old = {"penalty": "elasticnet"} if LogisticRegression().penalty == "l2" else {}
    lasso = logistic(C=0.1, l1_ratio=1.0, solver="saga", **old).fit(X, BINARY)
    refused("L1", lasso, BINARY)
    refused("class_weight", logistic(C=1.0, class_weight="balanced").fit(X, BINARY), BINARY)
    both = np.column_stack([REAL, COUNTS])
    refused("several targets", LinearRegression().fit(X, both), both)
    stopped = small_network(MLPRegressor, REAL).set_params(early_stopping=True)
    refused("early_stopping", stopped)
    wide = np.hstack([X, RNG.normal(size=(N, N))])
    with pytest.raises(idm.UnsupportedModelError, match="no degree of freedom"):
        idm.from_sklearn(LinearRegression().fit(wide, REAL), wide, REAL)


def test_bad_input():
    fitted = LinearRegression().fit(X, REAL)
    with pytest.raises(ValueError, match="not fitted"):
        idm.from_sklearn(LinearRegression(), X, REAL)
    with pytest.raises(ValueError, match="not fitted"):
        idm.from_sklearn(make_pipeline(StandardScaler(), LinearRegression()), X, REAL)
    with pytest.raises(ValueError, match="fitted to 3 features"):
        idm.from_sklearn(fitted, X[:, :2], REAL)
    with pytest.raises(ValueError, match="fitted to 3 features"):
        idm.from_sklearn(fitted, X[:, 0], REAL)
    holes = X.copy()
    holes[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4, column 1"):
        idm.from_sklearn(fitted, holes, REAL)
    with pytest.raises(ValueError, match="y has shape"):
        idm.from_sklearn(fitted, X, REAL[:-1])
    with pytest.raises(ValueError, match="missing or infinite"):
        idm.from_sklearn(fitted, X, np.where(np.arange(N) == 3, np.nan, REAL))
    with pytest.raises(ValueError, match="weights has shape"):
        idm.from_sklearn(fitted, X, REAL, np.ones(3))
    clf = logistic(C=1.0).fit(X, CLASSES)
    with pytest.raises(ValueError, match="not seen in its fit: z"):
        idm.from_sklearn(clf, X, np.where(np.arange(N) == 3, "z", CLASSES))
    named = LinearRegression().fit(FRAME[["age", "dose"]], REAL)
    with pytest.raises(ValueError, match="columns"):
        idm.from_sklearn(named, FRAME[["dose", "age"]], REAL)


def test_other_data_than_those_of_the_fit_show_as_drift():
    model = idm.from_sklearn(LinearRegression().fit(X, REAL), X, REAL + 1.0)
    with pytest.raises(idm.ConvergenceError, match="not at its maximum"):
        idm.infer(model, lambda reg: reg.predict(NEW))


PENALTY_NOTES = {
    "PoissonRegressor() has alpha=1 by default; fit it with alpha=0.": (PoissonRegressor(), COUNTS),
    "GammaRegressor() has alpha=1 by default; fit it with alpha=0.": (GammaRegressor(), POSITIVE),
    "TweedieRegressor() has alpha=1 by default; fit it with alpha=0.": (TweedieRegressor(), REAL),
    "LogisticRegression() has C=1 by default; fit it with C=np.inf.": (
        LogisticRegression(),
        BINARY,
    ),
    "Ridge() has alpha=1 by default; use LinearRegression().": (Ridge(), REAL),
    "PoissonRegressor was fitted with alpha=0.3; without a penalty fit it with alpha=0.": (
        PoissonRegressor(alpha=0.3),
        COUNTS,
    ),
    "MLPRegressor() has alpha=0.0001 by default; fit it with alpha=0.": (
        MLPRegressor(hidden_layer_sizes=(2,), solver="lbfgs", random_state=0, max_iter=2000),
        REAL,
    ),
}


@pytest.mark.parametrize("note", PENALTY_NOTES)
def test_a_setting_that_penalizes_is_named(note):
    estimator, y = PENALTY_NOTES[note]
    pipe = make_pipeline(StandardScaler(), estimator).fit(X, y)
    assert idm.from_sklearn(pipe, X, y).penalty.ridges[0].name == note


def test_without_a_penalty_there_is_no_note():
    for estimator, y, _ in UNPENALIZED.values():
        assert idm.from_sklearn(estimator.fit(X, y), X, y).penalty.ridges[0].name == ""


DRIFTING = {
    "a forgotten sample_weight": lambda: idm.from_sklearn(
        LinearRegression().fit(X, REAL, REPEATS**4), X, REAL
    ),
    "other rows": lambda: idm.from_sklearn(LinearRegression().fit(X, REAL), X[:100], REAL[:100]),
    "columns in another order": lambda: idm.from_sklearn(
        LinearRegression().fit(X, REAL), X[:, ::-1], REAL
    ),
}


@pytest.mark.parametrize("cause", DRIFTING)
def test_drift_names_its_causes(cause):
    causes = r"(?s)sample_weight.*penalty.*other rows.*columns in another order"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idm.infer(DRIFTING[cause](), lambda reg: reg.coef_, strict=False)
    drift = [str(item.message) for item in caught if item.category is idm.DriftWarning]
    assert len(drift) == 1
    assert re.search(causes, drift[0])


def test_residual_degrees_of_freedom():
    linear = idm.from_sklearn(LinearRegression().fit(X, REAL), X, REAL)
    assert linear.facts.df == pytest.approx(N - 4)
    weighted = LinearRegression().fit(X, REAL, REPEATS)
    for kind, count in (("frequency", REPEATS.sum()), ("precision", N)):
        assert idm.from_sklearn(weighted, X, REAL, REPEATS, kind).facts.df == pytest.approx(
            count - 4
        )
    ridge = idm.from_sklearn(Ridge(alpha=7.0).fit(X, REAL), X, REAL)
    penalized = DESIGN.T @ DESIGN + np.diag([7.0, 7, 7, 0])
    used = np.trace(np.linalg.solve(penalized, DESIGN.T @ DESIGN))
    assert ridge.facts.df == pytest.approx(N - used)
    assert idm.from_sklearn(logistic().fit(X, BINARY), X, BINARY).facts.df == np.inf
