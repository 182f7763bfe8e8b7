"""Questions whose tables hold weights, missing values or columns made by hand."""

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
sklearn = pytest.importorskip("sklearn")

REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
POISSON = sm.families.Poisson()
comparison, prediction, slope = (
    idm.average_comparison,
    idm.average_prediction,
    idm.average_slope,
)


def counted():
    """Rows that occur several times, unrolled and with their numbers."""
    rng = np.random.default_rng(3)
    full = pd.DataFrame({"x": rng.poisson(0.7, 300) * 1.0, "g": rng.choice(list("aab"), 300)})
    full["y"] = rng.poisson(np.exp(0.2 + 0.3 * full.x))
    full = full.sort_values(["x", "y", "g"], ignore_index=True)
    return full, full.groupby(["x", "g", "y"]).size().rename("w").reset_index()


FULL, FEW = counted()


def by_glm(formula="y ~ x + g"):
    glm = smf.glm(formula, FEW, family=POISSON, freq_weights=FEW.w)
    unrolled = smf.glm(formula, FULL, family=POISSON)
    return idm.from_statsmodels(glm.fit()), idm.from_statsmodels(unrolled.fit())


def by_sklearn():
    from sklearn.linear_model import PoissonRegressor

    few = PoissonRegressor(alpha=1e-3, tol=1e-10).fit(FEW[["x"]], FEW.y, sample_weight=FEW.w)
    full = PoissonRegressor(alpha=1e-3, tol=1e-10).fit(FULL[["x"]], FULL.y)
    return (
        idm.from_sklearn(few, FEW[["x"]], FEW.y, sample_weight=FEW.w, weight_kind="frequency"),
        idm.from_sklearn(full, FULL[["x"]], FULL.y),
    )


WEIGHTED = {"glm": by_glm, "sklearn": by_sklearn}


@pytest.mark.parametrize("values", ["sd", "2sd", "iqr", "minmax"])
@pytest.mark.parametrize("host", WEIGHTED)
@pytest.mark.parametrize("rows", ["training", "given"])
def test_spreads_count_copies_of_rows(values, host, rows):
    few, full = WEIGHTED[host]()
    data = None if rows == "training" else FULL[["x", "g"] if host == "glm" else ["x"]]
    one = idm.infer(few, comparison("x", values, data=data))
    other = idm.infer(full, comparison("x", values, data=data))
    assert np.isclose(one.value, other.value, rtol=1e-5)
    assert np.isclose(one.standard_error, other.standard_error, rtol=1e-4)


def test_typical_rows_count_copies():
    few, full = by_glm()
    one, other = idm.datagrid(few, y=0), idm.datagrid(full, y=0)
    pd.testing.assert_frame_equal(one[["x", "g"]], other[["x", "g"]])
    often = FEW.assign(w=np.where(FEW.g == "b", 9, 1))
    results = smf.glm("y ~ x + g", often, family=POISSON, freq_weights=often.w).fit()
    assert idm.datagrid(idm.from_statsmodels(results)).g[0] == "b"


def test_weights_of_precision_are_no_copies():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "w": rng.uniform(0.1, 9, 60)})
    frame["y"] = frame.x + rng.normal(size=60)
    model = idm.from_statsmodels(smf.wls("y ~ x", frame, weights=frame.w).fit())
    est = idm.infer(model, comparison("x", "sd"))
    assert np.isclose(est.value, model.theta[1] * frame.x.std(), rtol=1e-8)
    assert np.isclose(idm.datagrid(model).x[0], frame.x.mean(), rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_weights_of_sampling_have_no_unit(scale):
    from sklearn.linear_model import PoissonRegressor

    X, w = FEW[["x"]], scale * FEW.w
    fit = PoissonRegressor(alpha=0.0, tol=1e-10).fit(X, FEW.y, sample_weight=w)
    model = idm.from_sklearn(fit, X, FEW.y, sample_weight=w, weight_kind="sampling")
    mean = np.average(X.x, weights=FEW.w)
    sd = np.sqrt(np.average((X.x - mean) ** 2, weights=FEW.w) * len(X) / (len(X) - 1))
    pair = (mean - sd / 2, mean + sd / 2)
    one, other = (idm.infer(model, comparison("x", v), robust=True) for v in ("sd", pair))
    assert np.isclose(one.value, other.value, rtol=1e-10)
    assert np.isclose(idm.datagrid(model).x[0], mean, rtol=1e-12)


@pytest.mark.parametrize("question", [prediction(), comparison("x", "sd"), prediction(by="g")])
def test_results_by_themselves_count_copies(question):
    few = smf.glm("y ~ x", FEW, family=POISSON, freq_weights=FEW.w).fit()
    full = smf.glm("y ~ x", FULL, family=POISSON).fit()
    assert np.allclose(question(few), question(full), rtol=1e-8)
    with pytest.raises(idm.EvaluationError, match="repeat"):
        question(few, FEW)
    assert np.allclose(question(full, FULL), question(full), rtol=1e-12)


def with_gaps():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.normal(size=300), "t": rng.integers(0, 2, 300) * 1.0})
    y = (rng.random(300) < 1 / (1 + np.exp(-X.x - X.t))) * 1
    X.loc[rng.choice(300, 43, replace=False), "x"] = np.nan
    return X, y


GAPS, WON = with_gaps()


def imputed(X=GAPS):
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    steps = SimpleImputer(add_indicator=True), LogisticRegression(C=10.0, tol=1e-10, max_iter=999)
    return idm.from_sklearn(make_pipeline(*steps).fit(X, WON), X, WON)


@pytest.mark.parametrize("kind", ["float64", "Float64"])
@pytest.mark.parametrize(
    "question", [slope("x"), comparison("x", 1), slope("x", by="t")], ids=["slope", "step", "by"]
)
def test_no_step_from_a_missing_value(question, kind):
    model = imputed(GAPS.astype({"x": kind}))
    with pytest.raises(REFUSALS, match=r"'x' is missing in 43 of 300 rows.*notna"):
        idm.infer(model, question)
    X = GAPS
    own = idm.infer(model, slope("x", data=X[X["x"].notna()]))
    assert own.value > 0 and own.standard_error > 0


@pytest.mark.parametrize("values", ["sd", "2sd", "iqr", "minmax"])
def test_spreads_of_the_values_that_are_known(values):
    x = GAPS.x.dropna()
    ends = {
        "sd": (x.mean() - x.std() / 2, x.mean() + x.std() / 2),
        "2sd": (x.mean() - x.std(), x.mean() + x.std()),
        "iqr": (x.quantile(0.25), x.quantile(0.75)),
        "minmax": (x.min(), x.max()),
    }
    one, other = (idm.infer(imputed(), comparison("x", v)) for v in (values, ends[values]))
    assert np.isclose(one.value, other.value, rtol=1e-10)
    assert np.isclose(one.standard_error, other.standard_error, rtol=1e-8)


@pytest.mark.parametrize("values", ["sd", "iqr", "minmax"])
def test_a_bootstrap_of_a_forest_with_gaps(values):
    from sklearn.ensemble import RandomForestClassifier

    def fit(data):
        X, y = data
        return RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, y)

    est = idm.bootstrap(
        fit, (GAPS, WON), comparison("x", values), replicates=40, rng=0, jackknife=False
    )
    assert est.standard_error > 0
