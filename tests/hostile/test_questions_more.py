"""Questions whose tables hold weights, missing values or columns made by hand."""

import re
import warnings
from functools import partial
from types import SimpleNamespace

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
    assert own.standard_error > 0


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


def made():
    rng = np.random.default_rng(8)
    n = 300
    d = pd.DataFrame(
        {"x": rng.gamma(3.0, size=n), "t": rng.integers(0, 2, n), "z": rng.normal(size=n)}
    )
    d["year"] = rng.integers(2001, 2021, n)
    d["lot"] = rng.choice(list("abc"), n)
    d["rate"] = d.year.map(dict(zip(range(2001, 2021), rng.normal(size=20), strict=True)))
    d["y"] = (rng.random(n) < 1 / (1 + np.exp(1 - 0.4 * d.x - d.t + 0.3 * d.x * d.t))) * 1
    return d


MADE = made()
# another column: how it is made, the variable that is asked about, and others that it depends on
DERIVED = {
    "product": (lambda d: d.x * d.t, "t", "x"),
    "product, the other": (lambda d: d.x * d.t, "x", "t"),
    "square": (lambda d: d.x**2, "x", ""),
    "cube": (lambda d: d.x**3, "x", ""),
    "power": (lambda d: d.x**1.5, "x", ""),
    "logarithm": (lambda d: np.log(d.x), "x", ""),
    "log1p": (lambda d: np.log1p(d.x), "x", ""),
    "root": (lambda d: np.sqrt(d.x), "x", ""),
    "exponential": (lambda d: np.exp(d.x), "x", ""),
    "decay": (lambda d: np.exp(-d.x), "x", ""),
    "wave": (lambda d: np.sin(d.x), "x", ""),
    "sigmoid": (lambda d: np.tanh(3 * d.z), "z", ""),
    "reciprocal": (lambda d: 1 / d.x, "x", ""),
    "modulus": (lambda d: abs(d.z), "z", ""),
    "centered modulus": (lambda d: abs(d.x - d.x.mean()), "x", ""),
    "hinge": (lambda d: np.maximum(d.x - 2, 0), "x", ""),
    "cubic hinge": (lambda d: np.maximum(d.x - 2, 0) ** 3, "x", ""),
    "clipped": (lambda d: d.x.clip(1, 4), "x", ""),
    "units": (lambda d: 1.8 * d.x + 32, "x", ""),
    "standardized": (lambda d: (d.x - d.x.mean()) / d.x.std(), "x", ""),
    "ranks": (lambda d: d.x.rank(pct=True), "x", ""),
    "rounded": (lambda d: d.x.round(1), "x", ""),
    "bins": (lambda d: pd.qcut(d.x, 4, labels=False), "x", ""),
    "means of bins": (lambda d: d.x.groupby(d.x // 1).transform("mean"), "x", ""),
    "centered square": (lambda d: (d.x - d.x.mean()) ** 2, "x", ""),
    "centered product": (lambda d: (d.x - 2) * (d.z - 1), "x", "z"),
    "logarithm, product": (lambda d: np.log(d.x) * d.z, "x", "z"),
    "square, product": (lambda d: d.x**2 * d.t, "x", "t"),
    "hinge, product": (lambda d: np.maximum(d.x - 2, 0) * d.z, "x", "z"),
    "step, product": (lambda d: (d.x > 2) * d.z, "x", "z"),
    "three factors": (lambda d: d.x * d.z * d.t, "x", "z"),
    "three factors, the other": (lambda d: d.x * d.z * d.t, "t", "x"),
    "ratio": (lambda d: d.x / d.z, "x", "z"),
    "ratio, the other": (lambda d: d.z / d.x, "x", "z"),
    "ratio of squares": (lambda d: d.z / d.x**2, "x", "z"),
    "power, sum": (lambda d: d.x**1.5 + d.z, "x", "z"),
    "sum of three": (lambda d: d.x + d.z - 2 * d.t, "x", "z"),
    "threshold": (lambda d: (d.x > 2) * 1, "x", ""),
    "interval": (lambda d: ((d.x > 1) & (d.x < 3)) * 1, "x", ""),
    "truth values": (lambda d: d.x > 2, "x", ""),
    "level": (lambda d: (d.year == 2010) * 1, "year", ""),
    "single precision": (lambda d: (d.t * d.z).astype("float32").astype(float), "t", "z"),
    "square of a year": (lambda d: (d.year - 2000) ** 2.0, "year", ""),
    "sum": (lambda d: d.z + d.x + 0.0, "x", "z"),
}
LINEAR = {"sum", "sum of three", "units", "standardized"}


@pytest.mark.parametrize("kind", ["frame", "formula", "sklearn", "pipeline"])
@pytest.mark.parametrize("case", DERIVED)
def test_columns_made_by_hand(case, kind):
    make, variable, other = DERIVED[case]
    names = ["x", "t", "z", "year"]
    X = MADE[names].assign(extra=make(MADE))
    if case in LINEAR and kind in ("frame", "formula"):
        pytest.skip("statsmodels has no maximum there")
    model = fitted(X, kind)
    ask = slope if case != "level" and variable != "t" else comparison
    message = f"'extra' is a function of '{variable}' in"
    if other:
        message = f"(?=.*'extra').*'{other}'.* is a function of '{variable}' and the rest"
    with pytest.raises(idm.EvaluationError, match=message):
        idm.infer(model, ask(variable) if ask is slope else ask(variable, values=(0, 1)))


def fitted(X, kind):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    y = MADE.y
    if kind == "frame":
        centered = sm.add_constant(X.astype(float))
        return idm.from_statsmodels(sm.OLS(y, centered).fit())
    if kind == "formula":
        text = " + ".join(X.columns)
        return idm.from_statsmodels(smf.ols(f"y ~ {text}", X.assign(y=y)).fit())
    steps = [] if kind == "sklearn" else [StandardScaler()]
    X = X.astype(float).assign(year=X.year - 2010.0) if kind == "sklearn" else X
    logistic = LogisticRegression(C=1.0, tol=1e-10, max_iter=9999, solver="newton-cholesky")
    estimator = make_pipeline(*steps, logistic) if steps else logistic
    return idm.from_sklearn(estimator.fit(X, y), X, y)


# columns that are related, but made from nothing
RELATED = {
    "noise": lambda d: d.x + 0.01 * np.cos(np.arange(len(d))),
    "function of others": lambda d: d.z**2,
    "product of others": lambda d: d.t * d.z,
    "rate of a year": lambda d: d.rate,
    "few ones": lambda d: (np.arange(len(d)) < 3) * 1,
    "a copy of another": lambda d: 2 * d.z,
    "time": lambda d: np.arange(len(d)) * 1.0,
}


@pytest.mark.parametrize("case", RELATED)
@pytest.mark.parametrize("variable", ["x", "year"])
def test_columns_that_are_related_are_no_functions(case, variable):
    X = MADE[["x", "t", "z", "year"]].assign(extra=RELATED[case](MADE))
    X["year"] -= 2010
    est = idm.infer(fitted(X, "pipeline"), slope(variable))
    assert est.standard_error > 0


# columns of rows without order that have to do with x, but are no functions of it
ORDINARY = {
    "noise": lambda rng, x, z: rng.normal(size=x.size),
    "correlation 0.99": lambda rng, x, z: x + 0.25 * rng.normal(size=x.size),
    "correlation 0.9999": lambda rng, x, z: x + 0.025 * rng.normal(size=x.size),
    "error in percent": lambda rng, x, z: x * (1 + 0.05 * rng.normal(size=x.size)),
    "a curve with errors": lambda rng, x, z: np.log(x) + 0.1 * rng.normal(size=x.size),
    "a product with errors": lambda rng, x, z: x * z + 0.1 * rng.normal(size=x.size),
    "heavy tails": lambda rng, x, z: rng.lognormal(0, 3, x.size),
    "counts": lambda rng, x, z: rng.poisson(x),
    "zero or a number": lambda rng, x, z: (rng.random(x.size) < 0.2) * rng.normal(size=x.size),
    "few ones": lambda rng, x, z: (rng.random(x.size) < 0.06) * 1.0,
    "likelier along x": lambda rng, x, z: (rng.random(x.size) < 1 / (1 + np.exp(3 - x))) * 1.0,
    "near another": lambda rng, x, z: z + 0.01 * rng.normal(size=x.size),
    "nearer another": lambda rng, x, z: z + 0.001 * rng.normal(size=x.size),
    "a curve of another": lambda rng, x, z: np.maximum(z, 0),
    "ranks of another": lambda rng, x, z: np.argsort(np.argsort(z)),
    "a random walk": lambda rng, x, z: np.cumsum(rng.normal(size=x.size))[np.argsort(x)],
    "the same numbers": lambda rng, x, z: rng.permutation(x),
}


@pytest.mark.parametrize("n", [50, 200, 1000])
@pytest.mark.parametrize("case", ORDINARY)
def test_ordinary_columns_are_no_functions(case, n):
    rng = np.random.default_rng(n)
    x, z, t = rng.gamma(3.0, size=n), rng.normal(size=n), rng.integers(0, 2, n)
    X = np.column_stack([np.ones(n), x, z, t, ORDINARY[case](rng, x, z)])
    model = idm.from_statsmodels(sm.OLS(x + z + rng.normal(size=n), X).fit())
    assert idm.infer(model, slope(1)).standard_error > 0
    assert idm.infer(model, comparison(3)).standard_error > 0


def flipped(rng, n, share):
    a = rng.integers(0, 2, n) * 1.0
    return a, np.where(rng.random(n) < share, 1 - a, a)


def redrawn(rng, a, share):
    return a, np.where(rng.random(a.size) < share, rng.permutation(a), a)


def latent(cuts, other, correlation):
    def draw(rng, n):
        g, e = rng.normal(size=(2, n))
        h = correlation * g + np.sqrt(1 - correlation**2) * e
        return np.digitize(g, cuts) * 1.0, np.digitize(h, other) * 1.0

    return draw


# two columns that mostly agree, neither of which is a function of the other
LIKERT = [-1.2, -0.4, 0.4, 1.2]
AGREEING = {
    "two 0/1 columns, 3% differ": lambda rng, n: flipped(rng, n, 0.03),
    "two 0/1 columns, 10% differ": lambda rng, n: flipped(rng, n, 0.1),
    "assigned and taken": lambda rng, n: (
        a := rng.integers(0, 2, n) * 1.0,
        a * (rng.random(n) > 0.1),
    ),
    "0/1, correlation 0.8": latent([0], [0], 0.8),
    "rare 0/1, correlation 0.8": latent([0.5], [1.3], 0.8),
    "two Likert items, 0.8": latent(LIKERT, LIKERT, 0.8),
    "two Likert items, 0.95": latent(LIKERT, LIKERT, 0.95),
    "Likert and 0/1": latent(LIKERT, [0], 0.9),
    "three levels, 10% redrawn": lambda rng, n: redrawn(rng, rng.integers(1, 4, n) * 1.0, 0.1),
    "ten levels, 10% redrawn": lambda rng, n: redrawn(rng, rng.integers(0, 10, n) * 1.0, 0.1),
    "ages, 10% redrawn": lambda rng, n: redrawn(rng, rng.integers(18, 80, n) * 1.0, 0.1),
    "counts and counts": lambda rng, n: (a := rng.poisson(2, n) * 1.0, a + rng.poisson(0.1, n)),
    "a dose that some leave": lambda rng, n: (
        a := rng.choice([10.0, 20.0, 50.0], n),
        a * (rng.random(n) > 0.1),
    ),
}


@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("case", AGREEING)
def test_columns_that_mostly_agree_are_no_functions_in_any_order(case, n):
    rng = np.random.default_rng(n)
    a, b = AGREEING[case](rng, n)
    assert any(np.ptp(b[a == level]) > 0 for level in a)
    assert any(np.ptp(a[b == v]) > 0 for v in b)
    d = pd.DataFrame({"a": a, "b": b, "z": rng.normal(size=n), "t": rng.integers(0, 2, n)})
    d["lot"] = rng.choice(list("abc"), n)
    d["y"] = d.a + d.z + rng.normal(size=n)
    for order in range(4):
        rows = d.sample(frac=1, random_state=order)
        model = idm.from_statsmodels(smf.ols("y ~ a + b + z + t + lot", rows).fit())
        for variable in ("a", "b", "z"):
            assert (
                idm.infer(model, comparison(variable, values=(a.min(), a.min() + 1))).standard_error
                > 0
            )


def copula(seed):
    """A table of ordinary columns, with the correlations of a latent normal factor."""
    rng = np.random.default_rng([5, seed])
    n, p = int(40 * 25 ** rng.random()), int(rng.integers(2, 6))
    rho = rng.choice([0.0, 0.3, 0.6, 0.8])
    g = np.sqrt(rho) * rng.normal(size=(n, 1)) + np.sqrt(1 - rho) * rng.normal(size=(n, p))
    kinds = [
        lambda g: g,
        np.exp,
        lambda g: (50 + 15 * g).round(),
        lambda g: np.maximum(g, 0),
        lambda g: (g > 0) * 1.0,
        lambda g: (g > 1) * 1.0,
        lambda g: np.digitize(g, LIKERT) + 1.0,
        lambda g: np.floor(np.exp(0.5 + 0.7 * g)),
    ]
    kinds = [kinds[k] for k in rng.integers(0, len(kinds), p)]
    d = pd.DataFrame({f"c{j}": kind(g[:, j]) for j, kind in enumerate(kinds)})
    return d.loc[:, d.nunique() > 1].assign(y=rng.normal(size=n))


@pytest.mark.parametrize("block", range(5))
def test_ordinary_tables_are_answered(block):
    for seed in range(10 * block, 10 * block + 10):
        d = copula(seed)
        d = d.loc[:, ~d.T.duplicated()]
        names = [name for name in d if name != "y"]
        model = least_squares(d[names], d.y)
        for name in names:
            middle = d[name].median()
            est = idm.infer(model, comparison(name, values=(d[name].min(), middle + 1e-3)))
            assert est.standard_error > 0, (seed, name)


def least_squares(X, y):
    from sklearn.linear_model import LinearRegression

    return idm.from_sklearn(LinearRegression().fit(X, y), X, y)


# columns whose ties tell that they are functions
TIED = {
    "a product of 0/1 columns": lambda d: d.a * d.t,
    "a threshold of a Likert item": lambda d: (d.likert > 3) * 1,
    "a square of a Likert item": lambda d: d.likert**2,
    "a Likert item for some": lambda d: d.likert * d.t,
}


@pytest.mark.parametrize("case", TIED)
@pytest.mark.parametrize("order", range(3))
def test_functions_of_few_values_are_found_in_any_order(case, order):
    rng = np.random.default_rng(1)
    d = pd.DataFrame({"a": rng.integers(0, 2, 200), "t": rng.integers(0, 2, 200)})
    d["likert"], d["y"] = rng.integers(1, 6, 200), rng.normal(size=200)
    make = TIED[case]
    d = d.assign(extra=make(d)).sample(frac=1, random_state=order)
    model = idm.from_statsmodels(smf.ols("y ~ a + t + likert + extra", d).fit())
    variable = "a" if "0/1" in case else "likert"
    with pytest.raises(idm.EvaluationError, match=rf"'extra'.* is a function of '{variable}'"):
        idm.infer(model, comparison(variable, values=(1, 2) if variable == "likert" else (0, 1)))


@pytest.mark.parametrize("n", [50, 200, 1000])
@pytest.mark.parametrize("case", ["hinge", "power", "decay", "bins", "ranks", "wave", "clipped"])
def test_curves_are_found_in_few_rows_and_in_many(case, n):
    rng = np.random.default_rng(n)
    d = pd.DataFrame({"x": rng.gamma(3.0, size=n), "z": rng.normal(size=n)})
    X = sm.add_constant(d.assign(extra=DERIVED[case][0](d)))
    model = idm.from_statsmodels(sm.OLS(d.x + rng.normal(size=n), X).fit())
    with pytest.raises(idm.EvaluationError, match="'extra' is a function of 'x'"):
        idm.infer(model, slope("x"))
    assert idm.infer(model, slope("z")).standard_error > 0


def test_the_way_out_of_columns_made_by_hand():
    X = sm.add_constant(MADE[["x", "t"]].assign(xt=MADE.x * MADE.t))
    model = idm.from_statsmodels(sm.Logit(MADE.y, X).fit(disp=0))
    with pytest.raises(idm.EvaluationError, match="xt") as error:
        idm.infer(model, comparison("t"))
    low, high = X.assign(t=0, xt=0.0), X.assign(t=1, xt=X.x)
    names = {"infer": idm.infer, "average_prediction": prediction, "pd": pd, "len": len}
    names |= {"low": low, "high": high, "model": model}
    line = str(error.value).split("`e = ")[1].split("`")[0]
    e = eval(line, names)
    by_formula = idm.from_statsmodels(smf.logit("y ~ x * t", MADE).fit(disp=0))
    right = idm.infer(by_formula, comparison("t"))
    assert np.isclose((e[1] - e[0]).value, right.value, rtol=1e-6)
    assert np.isclose((e[1] - e[0]).standard_error, right.standard_error, rtol=1e-5)


def test_columns_that_a_model_leaves_out_do_not_matter():
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    X = MADE[["x", "t"]].assign(xt=MADE.x * MADE.t)
    some = make_column_transformer(("passthrough", ["x", "t"]))
    model = idm.from_sklearn(make_pipeline(some, LinearRegression()).fit(X, MADE.y), X, MADE.y)
    plain = idm.from_statsmodels(smf.ols("y ~ x + t", X.assign(y=MADE.y)).fit())
    for ask in (comparison("t"), slope("x")):
        assert np.isclose(idm.infer(model, ask).value, idm.infer(plain, ask).value, rtol=1e-6)


def test_columns_of_one_factor_are_told():
    dummies = pd.get_dummies(MADE.lot, prefix="lot", drop_first=True).astype(float)
    X = sm.add_constant(MADE[["x"]].join(dummies))
    model = idm.from_statsmodels(sm.Logit(MADE.y, X).fit(disp=0))
    with pytest.warns(idm.ImplicitDeltaWarning, match="'lot_c' are never 1"):
        idm.infer(model, comparison("lot_b"))
    assert idm.infer(model, slope("x")).standard_error > 0


@pytest.mark.parametrize("values", [(0, 1), 1, (1, 2)])
@pytest.mark.parametrize("name", ["const", 0])
def test_a_constant_is_not_compared(values, name):
    X = sm.add_constant(MADE[["x"]])
    X, name = (X.to_numpy(), name) if name == 0 else (X, name)
    model = idm.from_statsmodels(sm.Logit(MADE.y.to_numpy(), X).fit(disp=0))
    with pytest.raises(REFUSALS, match="'const' is the same in all training rows"):
        idm.infer(model, comparison(name, values))


def test_an_array_of_one_column():
    y = MADE.z.to_numpy()[:60]
    model = idm.from_statsmodels(sm.OLS(y, np.ones(60)).fit())
    est = idm.infer(model, lambda params: params[0])
    assert np.isclose(est.value, y.mean(), rtol=1e-10)
    assert np.isclose(idm.infer(model, prediction()).value, y.mean(), rtol=1e-10)


def test_many_predictions_need_no_eigenvalues_of_all(monkeypatch):
    results = smf.logit("y ~ x + t", pd.concat([MADE] * 3, ignore_index=True)).fit(disp=0)
    model = idm.from_statsmodels(results)
    sizes, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda a: (sizes.append(len(a)), eigh(a))[1])
    new = MADE[["x", "t"]].sample(700, replace=True, random_state=0).reset_index(drop=True)
    est = idm.infer(model, idm.predictions(new))
    assert max(sizes, default=0) < 100
    p = results.predict(new).to_numpy()
    J = (p * (1 - p))[:, None] * np.column_stack([np.ones(700), new])
    V = J @ results.cov_params().to_numpy() @ J.T
    np.testing.assert_allclose(est.covariance, V, rtol=1e-6, atol=1e-8 * V.max())


def cases_of_groups():
    return {
        "none": ([], "at least one"),
        "twice": (["g", "g"], "twice"),
        "twice, by position": (["g", "x", "g"], "twice"),
        "an empty tuple": ((), "at least one"),
        "no labels": (np.array([]), "0 labels"),
    }


@pytest.mark.parametrize("case", cases_of_groups())
def test_groups_of_nothing_and_groups_twice(case):
    by, message = cases_of_groups()[case]
    with pytest.raises(REFUSALS, match=message):
        idm.infer(by_glm()[1], prediction(by=by))


NAMED = {
    "a position": (lambda p: p[0], 0),
    "another": (lambda p: p[1] - p["x"], 1),
    "a name with a typo": (lambda p: p["X"], "X"),
}


@pytest.mark.parametrize("case", NAMED)
def test_positions_of_named_parameters(case):
    psi, key = NAMED[case]
    if isinstance(key, int) and int(pd.__version__.split(".")[0]) < 3:
        pytest.skip("pandas takes numbers for positions")
    model = idm.from_statsmodels(smf.ols("z ~ x + t", MADE).fit())
    with pytest.raises(REFUSALS, match=f"{key!r} is no parameter.*iloc"):
        idm.infer(model, psi)
    position = 0 if key == 0 else 1
    one = idm.infer(model, lambda p: p.iloc[position])
    assert one.standard_error > 0


def test_models_without_predictions_have_their_own_name():
    X = MADE[["x"]]
    model = idm.from_statsmodels(sm.PHReg(MADE.x + 1, MADE[["z"]], status=MADE.t).fit())
    with pytest.raises(idm.UnsupportedModelError, match=r"^PHReg has no predictions"):
        idm.infer(model, comparison("z"))
    loglik = idm.from_loglik(lambda m: -((X.x.to_numpy() - m[0]) ** 2) / 2, start=[0.0])
    with pytest.raises(idm.UnsupportedModelError, match=r"^The model of from_loglik"):
        idm.infer(loglik, prediction())


def test_weights_of_the_fit_that_were_forgotten():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(4)
    X = pd.DataFrame({"x": rng.normal(size=400), "t": np.arange(400) % 2 * 1.0})
    y = (rng.random(400) < 1 / (1 + np.exp(-0.3 * X.x - 0.5 * X.t))) * 1
    heavy = np.where(y == 1, 5.0, 1.0)
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=999).fit(X, y, sample_weight=heavy)
    model = idm.from_sklearn(fit, X, y)
    move = np.linalg.solve(model.information(model.theta, np.eye(3)), model.score(model.theta))
    still = np.cross(move, [1.0, 0.0, 0.0])  # a psi that finishing the training would not move

    def psi(estimator):
        return still @ np.append(estimator.coef_[0], estimator.intercept_)

    with pytest.warns() as caught:
        idm.infer(model, psi)
    told = [str(w.message) for w in caught if w.category is idm.DriftWarning]
    assert len(told) == 1
    assert "'intercept'" in told[0]
    assert "sample_weight" in told[0]
    loose = LogisticRegression(C=np.inf).fit(X, y)  # with the tolerance of the default
    assert idm.infer(idm.from_sklearn(loose, X, y), psi).standard_error > 0


@pytest.mark.parametrize("path", [None, "", " ", 3])
def test_pages_need_a_name(path):
    est = idm.infer(by_glm()[1], prediction())
    with pytest.raises(TypeError, match=r"page\.html"):
        est.report(path)


def copied(results):
    import copy

    return copy.deepcopy(results)


FROZEN = {
    "a copy predicts": lambda r: (lambda c: lambda p: c.predict(MADE).mean() * p["t"])(copied(r)),
    "fitted values": lambda r: lambda p: p.predict(MADE).mean() - r.fittedvalues.mean(),
    "a parameter of the fit": lambda r: lambda p: p["t"] / r.params["x"],
    "as a default": lambda r: lambda p, fit=r: p["t"] * fit.params["x"],
    "residuals": lambda r: lambda p: p["t"] + np.std(r.resid),
    "inside of another": lambda r: lambda p: sum(p["t"] * r.params[k] for k in ("x", "t")),
    "a method of a copy": lambda r: (lambda f: lambda p: f(MADE).mean() + p["t"])(
        copied(r).predict
    ),
}


@pytest.mark.parametrize("case", FROZEN)
def test_numbers_of_the_fit_inside_psi(case):
    results = smf.ols("z ~ x + t", MADE).fit()
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"numbers of the fit.*params"):
        idm.infer(idm.from_statsmodels(results), FROZEN[case](results))


class Ratio:
    """A psi that keeps results as an attribute."""

    def __init__(self, results):
        self.results = results

    def __call__(self, params):
        return params["t"] / self.results.scale


def over_scale(params, fit):
    return params["t"] / fit.scale


CARRIED = {
    "a helper": lambda r: (lambda sd: lambda p: p["t"] / sd())(lambda: r.scale),
    "an attribute": lambda r: (lambda box: lambda p: p["t"] / box.fit.scale)(
        SimpleNamespace(fit=r)
    ),
    "an object": Ratio,
    "its method": lambda r: Ratio(r).__call__,
    "a keyword of a partial": lambda r: partial(over_scale, fit=r),
    "below the wrapper": lambda r: lambda p: p["t"] / r._results.scale,
    "a bound method": lambda r: (lambda f: lambda p: p["t"] / f().iloc[0, 0])(r.cov_params),
    "in a list": lambda r: [lambda p: p["t"], lambda p: p["t"] / r.scale],
    "in a question": lambda r: idm.Average(lambda p: p.predict(MADE) / r.scale),
    "a robust copy": lambda r: (lambda c: lambda p: p["t"] / c.bse["t"])(
        r.model.fit(cov_type="HC0")
    ),
}


@pytest.mark.parametrize("case", CARRIED)
def test_numbers_of_a_fit_that_is_handed_on(case):
    results = smf.ols("z ~ x + t", MADE).fit()
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"numbers of the fit"):
        idm.infer(idm.from_statsmodels(results), CARRIED[case](results))


def two_fits(kind):
    """Results of one model at two parameters: attributes that differ depend on these."""
    count, label = (MADE.x * 10).astype(int) % 4, MADE.index % 3
    made = MADE.assign(count=count, label=label)
    models = {
        "OLS": lambda: smf.ols("z ~ x + t", made),
        "GLM": lambda: smf.glm("count ~ x + t", made, family=sm.families.Poisson()),
        "Logit": lambda: smf.logit("t ~ x + z", made),
        "Poisson": lambda: smf.poisson("count ~ x + t", made),
        "MNLogit": lambda: smf.mnlogit("label ~ x + t", made),
    }
    model = models[kind]()
    if kind == "OLS":
        fit = model.fit()
        scaled = type(fit._results)(
            model, 1.1 * fit.params, model.normalized_cov_params, scale=1.1 * fit.scale
        )
        return fit, type(fit)(scaled)
    first = {"GLM": {"maxiter": 1}}.get(kind, {"maxiter": 1, "method": "bfgs", "disp": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        return model.fit(**({} if kind == "GLM" else {"disp": 0})), model.fit(**first)


def same_numbers(one, other):
    try:
        return np.array_equal(np.asarray(one, float), np.asarray(other, float), equal_nan=True)
    except (TypeError, ValueError):  # no numbers: families, settings, models
        return True


RECORDS = {"cov_kwds", "fit_history", "mle_retvals", "converged"}  # of the search, and texts
ELSEWHERE = {"scale", "normalized_cov_params"}  # depend on parameters in other models


@pytest.mark.parametrize("kind", ["OLS", "GLM", "Logit", "Poisson", "MNLogit"])
def test_every_attribute_that_depends_on_parameters_is_found(kind):
    fit, other = two_fits(kind)
    model = idm.from_statsmodels(fit)
    tried = 0
    for name in sorted(set(dir(fit._results)) | set(dir(fit))):
        if name.startswith("_") or name in RECORDS | ELSEWHERE:
            continue
        try:
            values = getattr(fit, name), getattr(other, name)
        except (TypeError, NotImplementedError, AttributeError):
            continue
        psi = eval(f"lambda params: fit.{name}", {"fit": fit})
        depends = callable(values[0]) or not same_numbers(*values)
        assert bool(model.space.language.psi_warning(psi)) == depends, name
        tried += 1
    assert tried > 30


MOVING = {
    "total variance": lambda r: lambda p: np.var(p.predict(MADE).to_numpy()) / r.mse_total,
    "a length": lambda r: lambda p: p.sum() / len(r.params),
    "length of another": lambda r: lambda p: p.predict(MADE).sum() / len(r.resid),
    "rows": lambda r: lambda p: p.predict(MADE).loc[r.resid.index].mean(),
    "its model in a helper": lambda r: (lambda f: lambda p: f(p))(
        lambda p: r.model.predict(p, r.model.exog).mean()
    ),
    "kept and not read": lambda r: lambda p, fit=r: p["x"],
    "below the wrapper": lambda r: lambda p: r._results.model.predict(p, r.model.exog).mean(),
    "a count": lambda r: lambda p: p["x"] * r.nobs,
    "its design": lambda r: lambda p: (r.model.exog @ p.to_numpy()).mean(),
    "its model": lambda r: lambda p: r.model.predict(p, r.model.exog).mean(),
    "names": lambda r: lambda p: p[r.params.index[1]],
    "a size": lambda r: lambda p: p.sum() / r.params.size,
    "a frame": lambda r: (lambda d: lambda p: p.predict(d).mean())(MADE),
    "its degrees of freedom": lambda r: lambda p: p["x"] * r.df_resid,
    "another fit": lambda r: (lambda other: lambda p: p["x"] - other.params["x"])(
        smf.ols("z ~ x", MADE).fit()
    ),
    "a number": lambda r: (lambda c: lambda p: p["x"] - c)(float(r.params["x"])),
}


@pytest.mark.parametrize("case", MOVING)
def test_what_does_not_belong_to_the_parameters(case):
    results = smf.ols("z ~ x + t", MADE).fit()
    assert idm.infer(idm.from_statsmodels(results), MOVING[case](results)).standard_error > 0


def kinked():
    rng = np.random.default_rng(3)
    n = 300
    d = pd.DataFrame({"x": rng.integers(-2, 5, n) * 1.0, "g": rng.choice(list("ab"), n)})
    d["z"] = np.where(rng.random(n) < 0.3, 0.0, rng.normal(size=n))
    d["y"] = 0.5 * d.x + np.maximum(d.x - 1, 0) - 0.4 * abs(d.z) + rng.normal(size=n)
    d["won"] = (rng.random(n) < 1 / (1 + np.exp(-d.y))) * 1
    return d


KINKED = kinked()
# a formula with kinks at values that occur, and the variable
KINKS = {
    "hinge": ("y ~ x + np.maximum(x - 1, 0)", "x"),
    "hinge the other way": ("y ~ x + np.minimum(x, 1)", "x"),
    "modulus": ("y ~ x + np.abs(x)", "x"),
    "modulus alone": ("y ~ np.abs(z)", "z"),
    "a third of the rows": ("y ~ z + np.maximum(z, 0)", "z"),
    "clipped": ("y ~ np.clip(x, -1, 2)", "x"),
    "spline of degree 1": ("y ~ bs(x, knots=[0, 1], degree=1)", "x"),
    "times a factor": ("y ~ g * np.maximum(x - 1, 0)", "x"),
    "logit": ("won ~ x + np.maximum(x - 1, 0)", "x"),
}
SMOOTH = {
    "square": ("y ~ x + I(x**2)", "x"),
    "square of both signs": ("y ~ I((x - 1)**2)", "x"),
    "spline of degree 2": ("y ~ bs(x, knots=[0, 1], degree=2)", "x"),
    "spline of degree 3": ("y ~ bs(x, knots=[0, 1], degree=3)", "x"),
    "squared hinge": ("y ~ I(np.maximum(x - 1, 0)**2)", "x"),
    "hinge between values": ("y ~ x + np.maximum(x - 1.5, 0)", "x"),
    "step between values": ("y ~ x + I(1.0 * (x > 1.5))", "x"),
    "wave": ("y ~ np.sin(20 * z)", "z"),
    "steep curve": ("won ~ x + np.tanh(5 * z)", "z"),
    "line": ("won ~ x + z", "x"),
}


def of_formula(text, rows=KINKED):
    fit = smf.logit(text, rows).fit(disp=0) if "won" in text else smf.ols(text, rows).fit()
    return fit, idm.from_statsmodels(fit)


def shifted(fit, variable, rows):
    """Slopes of the mean prediction to both sides."""
    step = 1e-6 * np.array([-1, 1])
    moved = [fit.predict(rows.assign(**{variable: rows[variable] + s})).mean() for s in step]
    return (np.array(moved) - fit.predict(rows).mean()) / step


@pytest.mark.parametrize("case", KINKS)
@pytest.mark.parametrize("data", ["training", "given", "by", "list"])
def test_slopes_at_kinks_name_both_sides(case, data):
    text, variable = KINKS[case]
    fit, model = of_formula(text)
    inside = KINKED[KINKED.x.between(-1, 3)]  # a spline ends at -2 and 4
    ask = slope(variable, data=None if data == "training" else inside)
    ask = slope(variable, data=inside, by="g") if data == "by" else ask
    with pytest.warns(idm.ImplicitDeltaWarning, match="kinks at values of") as found:
        est = idm.infer(model, [ask] if data == "list" else ask)
    told = re.search(r"is (\S+) to the left and (\S+) to the right", str(found[0].message))
    left, right = map(float, told.groups())
    values = np.atleast_1d(est.value)
    assert min(abs(values - (left + right) / 2)) <= 2e-3 * max(abs(left), abs(right))
    if data in ("given", "list"):
        exact = shifted(fit, variable, inside)
        assert np.allclose([left, right], exact, rtol=2e-3, atol=2e-4 * max(abs(exact)))


@pytest.mark.parametrize("case", SMOOTH)
@pytest.mark.parametrize("by", [None, "g"])
def test_slopes_without_kinks_are_silent(case, by):
    text, variable = SMOOTH[case]
    est = idm.infer(of_formula(text)[1], slope(variable, by=by))
    assert np.all(est.standard_error > 0)


@pytest.mark.parametrize(
    "text", ["y ~ x + I(1.0 * (x > 1))", "y ~ np.sqrt(x + 2)", "y ~ I(x // 1)"]
)
def test_slopes_of_steps_and_of_roots_at_zero(text):
    with pytest.raises(idm.EvaluationError, match="jumps, is vertical"):
        idm.infer(of_formula(text)[1], slope("x"))


@pytest.mark.parametrize("by", [None, "g"])
@pytest.mark.parametrize(
    "text", ["y ~ C(x > 1)", "y ~ z + I(1.0 * (x > 0.987))", "y ~ z * C(x > 0.987)"]
)
def test_slopes_of_what_only_jumps(text, by):
    """They are zero up to rounding, and were answered or not as the processor rounds."""
    frame = KINKED.assign(x=KINKED.x + 0.001, z=np.cos(np.arange(len(KINKED))))
    model = idm.from_statsmodels(smf.ols(text, frame).fit())
    with pytest.raises(idm.EvaluationError, match="exactly zero whatever the parameters are"):
        idm.infer(model, slope("x", by=by))


def test_slopes_of_a_network_with_rows_at_its_kinks():
    torch = pytest.importorskip("torch")
    x = torch.tensor(KINKED[["x"]].to_numpy())
    net = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight[:], net[0].bias[:] = torch.tensor([[1.0], [-1.0]]), torch.tensor([-1.0, 2.5])
    for p in net[0].parameters():
        p.requires_grad_(False)
    y = torch.tensor(KINKED.y.to_numpy())
    data, options = (x, y), {"columns": ["x"], "l2": 1e-3}
    model = idm.polish(idm.from_torch(net.double(), data, idm.Gaussian(1.0), **options))
    with pytest.warns(idm.ImplicitDeltaWarning, match="kinks at values of 'x'"):
        idm.infer(model, slope("x"))


# a variable, and whether most of a change from 0 to 1 is outside of its range
OUTSIDE = {
    "years": (lambda rng: rng.integers(2001, 2021, 80), True),
    "ages": (lambda rng: rng.uniform(18, 80, 80), True),
    "ages as integers": (lambda rng: rng.integers(18, 80, 80), True),
    "from 1 to 5": (lambda rng: rng.integers(1, 6, 80), True),
    "a narrow share": (lambda rng: rng.uniform(0.3, 0.5, 80), True),
    "below zero": (lambda rng: -rng.gamma(3, size=80) - 1, True),
    "small units": (lambda rng: rng.normal(size=80) * 1e-3, True),
    "0/1": (lambda rng: rng.integers(0, 2, 80), False),
    "normal": (lambda rng: rng.normal(size=80), False),
    "share": (lambda rng: rng.random(80), False),
    "counts": (lambda rng: rng.poisson(2, 80), False),
    "centered ages": (lambda rng: rng.integers(-30, 30, 80), False),
}


@pytest.mark.parametrize("kind", ["formula", "array", "sklearn", "list"])
@pytest.mark.parametrize("case", OUTSIDE)
def test_the_default_comparison_is_one_inside_of_the_data(case, kind):
    from sklearn.linear_model import LinearRegression

    make, outside = OUTSIDE[case]
    rng = np.random.default_rng(0)
    d = pd.DataFrame({"x": make(rng), "z": rng.normal(size=80)}).assign(y=rng.normal(size=80))
    name = 0 if kind == "array" else "x"
    if kind == "array":
        X = d[["x", "z"]].assign(one=1.0).to_numpy()
        model = idm.from_statsmodels(sm.OLS(d.y.to_numpy(), X).fit())
    elif kind == "sklearn":
        X = d[["x", "z"]].astype(float)
        model = idm.from_sklearn(LinearRegression().fit(X, d.y), X, d.y)
    else:
        model = idm.from_statsmodels(smf.ols("y ~ x + z", d).fit())
    asked = [comparison(name)] if kind == "list" else comparison(name)
    if not outside:
        est = idm.infer(model, asked)
    else:
        with pytest.warns(idm.ImplicitDeltaWarning, match="compares 1 with 0, but") as found:
            est = idm.infer(model, asked)
        assert len(found) == 1
    chosen = idm.infer(model, comparison(name, values=(0, 1)))
    assert np.isclose(est.value, chosen.value, rtol=1e-12)
    assert np.isclose(idm.infer(model, comparison(name, values=1)).value, chosen.value, rtol=1e-6)
