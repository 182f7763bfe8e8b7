"""Questions of scikit-learn: those of the same model in statsmodels, through any pipeline."""

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")
pytest.importorskip("pandas")

import pickle
import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

import implicit_delta as idm

N = 300
RNG = np.random.default_rng(0)
DATA = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "age": RNG.uniform(20, 60, N),
        "site": RNG.choice(["north", "south", "west"], N),
        "treated": RNG.integers(0, 2, N),
    },
    index=[f"row{i}" for i in range(N)],
)
ETA = 0.3 * DATA.x + 0.7 * DATA.treated + 0.5 * (DATA.site == "west") + np.sin(DATA.age / 8) - 0.5
FEATURES = list(DATA.columns)
DATA["binary"] = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
DATA["count"] = RNG.poisson(np.exp(ETA))
DATA["amount"] = RNG.gamma(3.0, np.exp(ETA) / 3)
DATA["linear"] = ETA + RNG.normal(size=N)
DATA["kind"] = RNG.choice(["p", "q", "r"], N, p=[0.3, 0.3, 0.4])
KNOTS = tuple(float(k) for k in np.linspace(DATA.age.min(), DATA.age.max(), 4)[1:3])
RIGHT = f"x + C(site) + treated + bs(age, knots={KNOTS}, degree=3)"
TIGHT = {"tol": 1e-13, "max_iter": 10_000}
NEWTON = {"method": "newton", "disp": 0, "tol": 1e-13}


def columns():
    return make_column_transformer(
        (OneHotEncoder(drop="first"), ["site"]),
        (StandardScaler(), ["x", "treated"]),
        (SplineTransformer(n_knots=4, include_bias=False), ["age"]),
    )


def glm(target, family):
    return smf.glm(f"{target} ~ {RIGHT}", DATA, family=family).fit(tol=1e-14)


LOG = sm.families.links.Log()
HOSTS = {
    "logit": (
        "binary",
        LogisticRegression(C=np.inf, solver="newton-cholesky", **TIGHT),
        lambda: smf.logit(f"binary ~ {RIGHT}", DATA).fit(**NEWTON),
    ),
    "poisson": (
        "count",
        PoissonRegressor(alpha=0, solver="newton-cholesky", **TIGHT),
        lambda: glm("count", sm.families.Poisson()),
    ),
    "gamma": (
        "amount",
        GammaRegressor(alpha=0, solver="newton-cholesky", **TIGHT),
        lambda: glm("amount", sm.families.Gamma(LOG)),
    ),
    "tweedie": (
        "amount",
        TweedieRegressor(alpha=0, power=1.5, solver="newton-cholesky", **TIGHT),
        lambda: glm("amount", sm.families.Tweedie(LOG, var_power=1.5)),
    ),
    "linear": (
        "linear",
        LinearRegression(),
        lambda: smf.ols(f"linear ~ {RIGHT}", DATA).fit(),
    ),
}
QUESTIONS = {
    "treated": lambda: idm.average_comparison("treated"),
    "treated by site": lambda: idm.average_comparison("treated", by="site"),
    "labels": lambda: idm.average_comparison("site", ("north", "west"), by=["treated"]),
    "sd": lambda: idm.average_comparison("x", "sd"),
    "iqr": lambda: idm.average_comparison("age", "iqr"),
    "step": lambda: idm.average_comparison("x", 0.5),
    "slope": lambda: idm.average_slope("age"),
    "slope by": lambda: idm.average_slope("x", by="site"),
    "mean": lambda: idm.average_prediction(by="site"),
    "rows": lambda: idm.predictions(DATA.iloc[5:9]),
    "data": lambda: idm.average_comparison("treated", data=DATA.iloc[:50]),
    "population": lambda: idm.average_comparison("treated", by="site", population=True),
}
MODELS = {}


def pair(kind):
    """The same model in both libraries."""
    if kind not in MODELS:
        target, last, fit = HOSTS[kind]
        pipe = make_pipeline(columns(), last).fit(DATA[FEATURES], DATA[target])
        ours = idm.from_sklearn(pipe, DATA[FEATURES], DATA[target])
        theirs = fit()
        expected = theirs.params.size == ours.d
        assert expected
        MODELS[kind] = (
            ours,
            idm.from_statsmodels(
                theirs, **({"observed": True} if kind in ("gamma", "tweedie") else {})
            ),
        )
    return MODELS[kind]


@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("asked", QUESTIONS)
def test_as_in_statsmodels(kind, asked):
    ours, theirs = pair(kind)
    one, other = (idm.infer(m, QUESTIONS[asked]()) for m in (ours, theirs))
    assert one.names == other.names
    np.testing.assert_allclose(one.value, other.value, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{"robust": True}, {"robust": "HC3"}, {"clusters": np.arange(N) % 60}]
)
@pytest.mark.parametrize("kind", ["logit", "linear"])
def test_robust_errors_as_in_statsmodels(kind, options):
    psi = idm.average_comparison("treated", by="site")
    one, other = (idm.infer(m, psi, **options) for m in pair(kind))
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-6)


@pytest.mark.parametrize("how", ["ratio", "lnratio", "oddsratio"])
def test_contrasts(how):
    one, other = (idm.infer(m, idm.average_comparison("treated", how=how)) for m in pair("logit"))
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)


# Classes


def test_classes_by_label():
    ours, _ = pair("logit")
    positive = idm.infer(ours, idm.average_comparison("treated"))
    named = idm.infer(ours, idm.average_comparison("treated", outcome=1))
    other = idm.infer(ours, idm.average_comparison("treated", outcome=0))
    assert named.value == positive.value == pytest.approx(-other.value)
    assert other.standard_error == pytest.approx(positive.standard_error)
    with pytest.raises(ValueError, match="outcomes of the model"):
        idm.infer(ours, idm.average_comparison("treated", outcome="no"))


@pytest.mark.parametrize("population", [False, True])
def test_several_classes_as_in_mnlogit(population):
    pipe = make_pipeline(columns(), LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # line searches that end at rounding
        pipe.fit(DATA[FEATURES], DATA.kind)
    ours = idm.polish(idm.from_sklearn(pipe, DATA[FEATURES], DATA.kind))
    codes = DATA.assign(kind=pd.Categorical(DATA.kind).codes)
    theirs = idm.from_statsmodels(smf.mnlogit(f"kind ~ {RIGHT}", codes).fit(**NEWTON))
    for k, label in enumerate("pqr"):
        one = idm.infer(
            ours, idm.average_comparison("treated", outcome=label, population=population)
        )
        other = idm.infer(
            theirs, idm.average_comparison("treated", outcome=k, population=population)
        )
        assert one.value == pytest.approx(other.value, rel=1e-6)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)
    whole = idm.infer(ours, idm.average_comparison("treated"))
    assert whole.names == ("p", "q", "r")
    assert sum(whole.value) == pytest.approx(0, abs=1e-12)


# Networks: the same as the function of the estimator that one would write

NETWORKS = {
    "classifier": (MLPClassifier, "binary"),
    "classes": (MLPClassifier, "kind"),
    "regressor": (MLPRegressor, "linear"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "activation"), [("classifier", "relu"), ("classes", "tanh"), ("regressor", "tanh")]
)
def test_networks(kind, activation):
    build, target = NETWORKS[kind]
    mlp = build(
        hidden_layer_sizes=(3,),
        activation=activation,
        alpha=1.0,
        solver="lbfgs",
        max_iter=20_000,
        tol=1e-12,
    )
    pipe = make_pipeline(columns(), mlp.set_params(random_state=0, max_fun=10**6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe.fit(DATA[FEATURES], DATA[target])
    model = idm.from_sklearn(pipe, DATA[FEATURES], DATA[target])
    high, low = (DATA[FEATURES].assign(treated=v) for v in (1, 0))

    def effect(est):
        if kind == "regressor":
            return (est.predict(high) - est.predict(low)).mean()
        return (est.predict_proba(high) - est.predict_proba(low)).mean(0)[-1]

    outcome = {"classes": "r"}.get(kind)
    method = idm.Infinitesimal(curvature="ggn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        one = idm.infer(
            model, idm.average_comparison("treated", outcome=outcome), method, strict=False
        )
        other = idm.infer(model, effect, method, strict=False)
        rows = idm.infer(
            model, idm.predictions(DATA.head(3), outcome=outcome), method, strict=False
        )
        tangent = idm.infer(
            model,
            idm.average_comparison("treated", outcome=outcome),
            idm.Simulation(draws=50, tangent=True, rng=0),
            strict=False,
        )
        by_hand = idm.infer(
            model, effect, idm.Simulation(draws=50, tangent=True, rng=0), strict=False
        )
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-4)
    assert rows.names == ("row0", "row1", "row2")
    assert tangent.standard_error == pytest.approx(by_hand.standard_error, rel=1e-6)


# Pipelines and tables of all kinds


def logistic():
    return LogisticRegression(C=np.inf, solver="newton-cholesky", **TIGHT)


def test_nested_pipelines():
    inner = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    pipe = make_pipeline(
        ColumnTransformer(
            [("num", inner, ["x", "age"]), ("cat", OneHotEncoder(drop="first"), [2])],
            remainder="passthrough",
        ),
        make_pipeline(StandardScaler(), logistic()),
    ).fit(DATA[FEATURES], DATA.binary)
    ours = idm.from_sklearn(pipe, DATA[FEATURES], DATA.binary)
    formula = "binary ~ x + age + I(x**2) + x:age + I(age**2) + C(site) + treated"
    theirs = idm.from_statsmodels(smf.logit(formula, DATA).fit(**NEWTON))
    for psi in (
        idm.average_slope("age"),
        idm.average_comparison("site", ("south", "west")),
        idm.average_comparison("treated"),
    ):
        one, other = (idm.infer(m, psi) for m in (ours, theirs))
        assert one.value == pytest.approx(other.value, rel=1e-6)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)


@pytest.mark.parametrize("kind", ["frame", "array", "sparse", "polars"])
def test_tables(kind):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X, y = DATA[["x", "age", "treated"]], DATA.binary
    fitted = logistic().fit(X.to_numpy(), y.to_numpy())
    expected = idm.infer(
        idm.from_statsmodels(smf.logit("binary ~ x + age + treated", DATA).fit(**NEWTON)),
        idm.average_comparison("treated"),
    )
    given = {
        "frame": lambda: X,
        "array": lambda: X.to_numpy(),
        "sparse": lambda: scipy_sparse.csr_array(X.to_numpy()),
        "polars": lambda: pytest.importorskip("polars").from_pandas(X),
    }[kind]()
    est = fitted if kind in ("array", "sparse") else logistic().fit(X, y)
    model = idm.from_sklearn(est, given, y)
    variable = 2 if kind in ("array", "sparse") else "treated"
    for v in (variable, 2):
        found = idm.infer(model, idm.average_comparison(v))
        assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-6)


def test_codes_of_an_encoder_are_labels():
    frame = DATA[["x"]].assign(code=pd.Categorical(DATA.site).codes.astype(int))
    pipe = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(drop="first", handle_unknown="ignore"), ["code"]),
            remainder="passthrough",
        ),
        logistic(),
    ).fit(frame, DATA.binary)
    model = idm.from_sklearn(pipe, frame, DATA.binary)
    theirs = idm.from_statsmodels(smf.logit("binary ~ x + C(site)", DATA).fit(**NEWTON))
    one = idm.infer(model, idm.average_comparison("code", (0, 2)))
    other = idm.infer(theirs, idm.average_comparison("site", ("north", "west")))
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)
    with pytest.raises(ValueError, match="is not a label"):
        idm.infer(model, idm.average_comparison("code", (0, 7)))
    with pytest.raises(ValueError, match="has no slope"):
        idm.infer(model, idm.average_slope("code"))


def binned():
    pipe = make_pipeline(
        make_column_transformer(
            (
                KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
                ["age"],
            ),
            ("drop", ["site"]),
            remainder="passthrough",
        ),
        Ridge(1e-6),
    ).fit(DATA[FEATURES], DATA.linear)
    return idm.from_sklearn(pipe, DATA[FEATURES], DATA.linear)


def stepped():
    pipe = make_pipeline(
        make_column_transformer((FunctionTransformer(np.sign), ["x"]), remainder="drop"),
        LinearRegression(),
    ).fit(DATA[FEATURES], DATA.linear)
    return idm.from_sklearn(pipe, DATA[FEATURES], DATA.linear)


@pytest.mark.parametrize(
    ("model", "psi", "text"),
    [
        (binned, lambda: idm.average_slope("age"), "jumps|changes no feature"),
        (binned, lambda: idm.average_comparison("age", (30, 30.01)), "changes no feature"),
        (binned, lambda: idm.average_comparison("site", ("north", "west")), "changes no feature"),
        (stepped, lambda: idm.average_slope("x"), "jumps|changes no feature"),
        (stepped, lambda: idm.average_comparison("treated"), "changes no feature"),
        (lambda: pair("logit")[0], lambda: idm.average_comparison("treatd"), "Is it 'treated'"),
        (lambda: pair("logit")[0], lambda: idm.average_slope("site"), "has no slope"),
        (
            lambda: pair("linear")[0],
            lambda: idm.average_comparison("treated", outcome=1),
            "one number",
        ),
        (
            lambda: pair("logit")[0],
            lambda: idm.average_comparison("site", ("north", "east")),
            "not a label",
        ),
        (
            lambda: pair("logit")[0],
            lambda: idm.predictions(DATA[FEATURES].head().assign(x=np.nan)),
            "missing or infinite|contains NaN",
        ),
        (
            lambda: pair("logit")[0],
            lambda: idm.predictions(DATA[["x"]].head()),
            "missing|are not in",
        ),
    ],
)
def test_refusals(model, psi, text):
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match=text):
        idm.infer(model(), psi())


def test_a_table_that_was_changed_since_is_refused():
    frame = DATA[FEATURES].copy()
    pipe = make_pipeline(columns(), logistic()).fit(frame, DATA.binary)
    model = idm.from_sklearn(pipe, frame, DATA.binary)
    frame["x"] += 1.0
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match="other values"):
        idm.infer(model, idm.average_comparison("treated"))


@pytest.mark.parametrize(
    "mixed", [lambda X: X - X.mean(axis=0), lambda X: X.rank() / len(X)], ids=["mean", "rank"]
)
def test_features_that_depend_on_other_rows_are_refused(mixed):
    frame = DATA[["x", "age"]]
    pipe = make_pipeline(FunctionTransformer(mixed), LinearRegression()).fit(frame, DATA.linear)
    model = idm.from_sklearn(pipe, frame, DATA.linear)
    for psi in (idm.average_comparison("x", (-1, 1)), idm.predictions(frame.head())):
        with pytest.raises((ValueError, idm.ImplicitDeltaError), match="depend on the other rows"):
            idm.infer(model, psi)


@pytest.mark.parametrize("kind", ["logit", "linear"])
def test_a_pickled_model_answers_the_same(kind):
    model, psi = pair(kind)[0], idm.average_comparison("treated", by="site")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        idm.infer(again, psi).covariance, idm.infer(model, psi).covariance
    )


def test_positive_coefficients_at_zero():
    X = DATA[["x", "treated"]].assign(minus=-ETA)
    reg = LinearRegression(positive=True).fit(X, DATA.linear)
    model = idm.from_sklearn(reg, X, DATA.linear)
    kept = LinearRegression().fit(X[["x", "treated"]], DATA.linear)
    expected = idm.infer(
        idm.from_sklearn(kept, X[["x", "treated"]], DATA.linear), idm.average_comparison("treated")
    )
    found = idm.infer(model, idm.average_comparison("treated"), strict=False)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-9)


@pytest.mark.parametrize("method", [None, idm.FiniteDifference()])
def test_labels_of_a_classifier_are_told_of_probabilities(method):
    X, y = np.arange(40.0)[:, None] / 10, (np.arange(40) % 3 > 0) * 1
    model = idm.from_sklearn(LogisticRegression(C=np.inf, tol=1e-10).fit(X, y), X, y)
    with pytest.raises(idm.EvaluationError, match="predict_proba") as told:
        idm.infer(model, lambda e: e.predict(X).mean(), method)
    assert "params" not in str(told.value)
    assert idm.infer(model, lambda e: e.predict_proba(X)[:, 1].mean()).standard_error > 0
