"""`bootstrap(fit, data, psi)`: any fit, any data, whole clusters, every interval, its refusals."""

import time
import warnings
from collections import namedtuple

import joblib
import numpy as np
import pytest
import scipy.sparse

import implicit_delta as idm

RNG = np.random.default_rng(0)
N = 60
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
Y = X @ [1.0, 0.5] + RNG.normal(size=N) * (1 + abs(X[:, 1]))
GROUPS = np.repeat(np.arange(20), 3)
KINDS = ["normal", "percentile", "basic", "bca"]


def itself(fitted):
    return fitted


def slope(data):
    return np.linalg.lstsq(data[0], data[1], rcond=None)[0]


def few(fit, data, psi=itself, **options):
    return idm.bootstrap(fit, data, psi, **{"replicates": 30, "rng": 0, **options})


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        return call()


# The rows of the data, whatever they are in


def pandas_frame(y):
    return pytest.importorskip("pandas").DataFrame({"y": y, "g": [f"g{i // 3}" for i in range(N)]})


def polars_frame(y):
    return pytest.importorskip("polars").DataFrame({"y": y})


def tensor(y):
    return pytest.importorskip("torch").tensor(y)


Pair = namedtuple("Pair", ["first", "second"])
DATA = {
    "array": (lambda y: y, np.mean),
    "pandas": (pandas_frame, lambda d: d["y"].mean()),
    "polars": (polars_frame, lambda d: d["y"].mean()),
    "series": (lambda y: pandas_frame(y)["y"], lambda d: d.mean()),
    "torch": (tensor, lambda d: d.mean()),
    "list of numbers": (lambda y: y.tolist(), np.mean),
    "list of records": (lambda y: [{"y": v} for v in y], lambda d: np.mean([r["y"] for r in d])),
    "sparse": (lambda y: scipy.sparse.coo_array(y[:, None]), lambda d: d.toarray().mean()),
    "tuple": (lambda y: (X, y), lambda d: d[1].mean()),
    "tuple with None": (lambda y: (y, None), lambda d: d[0].mean()),
    "list of arrays": (lambda y: [X, y], lambda d: d[1].mean()),
    "dict": (lambda y: {"X": X, "y": y}, lambda d: d["y"].mean()),
    "nested": (lambda y: {"X": X, "more": (y, y)}, lambda d: d["more"][1].mean()),
    "named tuple": (lambda y: Pair(X, y), lambda d: d.second.mean()),
    "rows of words": (
        lambda y: np.array([f"{v:.17g}" for v in y], dtype=object),
        lambda d: np.mean(d.astype(float)),
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_whatever_holds_the_rows_the_same_ones_are_drawn(name):
    build, mean = DATA[name]
    data = build(Y)
    before = joblib.hash(build(Y))
    found = few(mean, data)
    expected = few(np.mean, Y)
    np.testing.assert_allclose(found.draws, expected.draws, rtol=1e-12)
    np.testing.assert_allclose(found.acceleration, expected.acceleration, rtol=1e-9)
    assert name == "torch" or joblib.hash(data) == before  # tensors have no hash of their content


def test_a_replicate_is_a_multinomial_draw():
    found = few(np.mean, Y)
    streams = np.random.SeedSequence(0).spawn(31)[1:]
    counts = [np.random.default_rng(s).multinomial(N, np.full(N, 1 / N)) for s in streams]
    np.testing.assert_allclose(found.draws[:, 0], np.array(counts) @ Y / N, rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, np.std(found.draws, ddof=1))
    assert found.value == pytest.approx(Y.mean())
    assert found.diagnostics.notes["replicates"] == 30
    assert found.diagnostics.notes["failed"] == 0
    assert "rng=0" in found.method


def test_it_agrees_with_the_sandwich():
    model = idm.from_residuals(lambda b: Y - X @ b, start=[0.0, 0.0])
    robust = idm.infer(model, idm.parameters, robust="HC3").standard_error
    found = few(slope, (X, Y), replicates=2000, jackknife=False)
    np.testing.assert_allclose(found.standard_error, robust, rtol=0.1)


@pytest.mark.parametrize("kind", ["resample", "bayesian"])
def test_it_agrees_with_the_bootstrap_of_a_likelihood(kind):
    def weighted(data, sample_weight=None):
        w = np.ones(N) if sample_weight is None else sample_weight
        return np.linalg.solve((data[0].T * w) @ data[0], (data[0].T * w) @ data[1])

    fit = slope if kind == "resample" else weighted
    model = idm.from_residuals(lambda b: Y - X @ b, start=[0.0, 0.0])
    other = idm.infer(model, idm.parameters, idm.Bootstrap(1000, kind, rng=1))
    found = few(fit, (X, Y), replicates=1000, kind=kind)
    np.testing.assert_allclose(found.standard_error, other.standard_error, rtol=0.12)


# Intervals


@pytest.mark.parametrize("kind", KINDS)
def test_all_intervals_of_a_mean(kind):
    y = np.random.default_rng(3).exponential(size=40)
    found = few(np.mean, y, replicates=4000)
    low, high = found.confidence_interval(kind=kind)
    se = y.std() / np.sqrt(40)
    skew = np.mean((y - y.mean()) ** 3) / y.std() ** 3 / np.sqrt(40)
    shift = {"normal": 0, "percentile": skew / 6, "basic": -skew / 6, "bca": skew / 3}[kind]
    z = 1.96
    curve = shift * (z**2 - 1 if kind != "bca" else z**2 + 0.5)
    np.testing.assert_allclose((low - y.mean()) / se, -z + curve, atol=0.15)
    np.testing.assert_allclose((high - y.mean()) / se, z + curve, atol=0.15)


def test_the_acceleration_is_the_skewness_of_the_mean_over_six():
    y = np.random.default_rng(3).exponential(size=45)
    away = y - y.mean()
    exact = np.sum(away**3) / 6 / np.sum(away**2) ** 1.5
    assert few(np.mean, y).acceleration[0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("n", [500, 5000])
def test_groups_that_are_left_out_find_nearly_the_same(n):
    y = np.random.default_rng(3).exponential(size=n)
    away = y - y.mean()
    exact = np.sum(away**3) / 6 / np.sum(away**2) ** 1.5
    found = few(np.mean, y)
    assert found.diagnostics.notes["jackknife"] == 50
    assert abs(found.acceleration[0] - exact) < 3 * 0.41 / 50


@pytest.mark.parametrize(
    ("options", "fit"),
    [
        ({"jackknife": False}, np.mean),
        ({"kind": "bayesian"}, lambda y, sample_weight=None: np.average(y, weights=sample_weight)),
    ],
    ids=["not asked for", "smooth weights"],
)
def test_without_acceleration_bca_says_why(options, fit):
    found = few(fit, Y, **options)
    with pytest.raises(ValueError, match="bca"):
        found.confidence_interval(kind="bca")
    assert found.confidence_interval(kind="percentile").low < found.value


# Names and shapes of psi

SHAPES = {
    "number": (lambda b: b[1], ("psi",)),
    "array": (lambda b: b, ("psi[0]", "psi[1]")),
    "dict": (lambda b: {"level": b[0], "slope": b[1]}, ("level", "slope")),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_psi(name):
    psi, names = SHAPES[name]
    found = few(slope, (X, Y), psi)
    assert found.names == names
    assert isinstance(found.value, float) == (name == "number")
    assert few(slope, (X, Y), psi, names=[f"n{k}" for k in range(len(names))]).names[0] == "n0"


def test_names_of_a_series_are_matched_not_counted():
    pd = pytest.importorskip("pandas")

    def shuffled(data):
        order = ["a", "b"] if data["y"].iloc[0] == Y[0] else ["b", "a"]
        return pd.Series({"a": data["y"].mean(), "b": 100 + data["y"].mean()})[order]

    found = few(shuffled, pandas_frame(Y))
    assert found.names == ("a", "b")
    assert np.all(found.draws[:, 1] > 50)
    np.testing.assert_allclose(found.draws[:, 1] - found.draws[:, 0], 100, rtol=1e-12)


def test_a_category_that_is_missing_from_a_resample_is_a_failure():
    rare = np.array(["rare"] + ["a", "b"] * 30)

    def shares(labels):
        return {label: np.mean(labels == label) for label in np.unique(labels)}

    with pytest.raises(idm.ConvergenceError, match=r"other names .*rare"):
        few(shares, rare)


def test_psi_may_take_the_rows_of_the_replicate():
    found = few(lambda y: 0.0, Y, lambda fitted, data: data.mean())
    np.testing.assert_array_equal(found.draws, few(np.mean, Y).draws)


def test_an_average_of_other_rows_adds_its_error():
    other = RNG.normal(size=(40, 2))
    found = few(slope, (X, Y), idm.Average(lambda b: other @ b))
    plain = few(slope, (X, Y), lambda b: np.mean(other @ b))
    assert set(found.parts) == {"model", "evaluation"}
    assert found.budget["model"] == pytest.approx(plain.standard_error)
    assert found.standard_error > plain.standard_error


# Clusters


def test_clusters_are_drawn_whole():
    means = Y.reshape(20, 3).mean(axis=1)
    found = few(np.mean, Y, clusters=GROUPS)
    np.testing.assert_allclose(found.draws, few(np.mean, means).draws, rtol=1e-12)
    assert "20 clusters" in found.method


@pytest.mark.parametrize("labels", ["number", "text", "category", "large", "polars", "tuple"])
def test_a_cluster_that_is_drawn_twice_is_two_clusters(labels):
    """Means of groups with a weight of one each: merged copies would count once."""
    pd, frame = pytest.importorskip("pandas"), None
    group = {"large": GROUPS + 10**15, "text": np.array([f"g{g}" for g in GROUPS])}.get(
        labels, GROUPS
    )
    sizes = np.random.default_rng(5).integers(1, 6, size=20)  # of unequal size
    group, y = np.repeat(np.unique(group), sizes), np.random.default_rng(6).normal(size=sizes.sum())
    frame = pd.DataFrame({"g": group, "y": y})
    if labels == "category":
        frame["g"] = frame["g"].astype("category")

    def mean_of_means(data):
        if isinstance(data, tuple):
            data = pd.DataFrame({"g": data[0], "y": data[1]})
        elif hasattr(data, "to_dict") and not hasattr(data, "iloc"):
            data = pd.DataFrame(data.to_dict(as_series=False))
        assert str(data["g"].dtype) == "category" or labels != "category"
        return data.groupby("g", observed=True)["y"].mean().mean()

    data = {"tuple": (group, y)}.get(labels, frame)
    if labels == "polars":
        data = pytest.importorskip("polars").DataFrame({"g": group, "y": y})
    given = group if labels == "tuple" else "g"
    found = few(mean_of_means, data, clusters=given)
    means = np.array([y[group == g].mean() for g in np.unique(group)])
    np.testing.assert_allclose(found.draws, few(np.mean, means).draws, rtol=1e-10)


def test_columns_whose_names_are_numbers_are_labeled_too():
    pd = pytest.importorskip("pandas")
    sizes = np.random.default_rng(5).integers(1, 6, size=20)
    y = np.random.default_rng(6).normal(size=sizes.sum())
    frame = pd.DataFrame({0: y, 1: np.repeat(np.arange(20), sizes)})
    found = few(lambda d: d.groupby(1)[0].mean().mean(), frame, clusters=frame[1])
    means = np.array([part.mean() for part in np.split(y, np.cumsum(sizes)[:-1])])
    np.testing.assert_allclose(found.draws, few(np.mean, means).draws, rtol=1e-10)


def test_a_number_that_is_also_a_regressor_stays_that_number():
    year = np.repeat(np.arange(2000, 2020), 3)
    data = {"year": year, "y": 0.1 * year + Y}

    def trend(data):
        return np.polyfit(data["year"] - 2010.0, data["y"], 1)[0]

    held = few(trend, {"year": year.astype(float), "y": data["y"]}, clusters=year.astype(str))
    np.testing.assert_allclose(few(trend, data, clusters="year").draws, held.draws, rtol=1e-6)


# Reproducible, in parallel


@pytest.mark.parametrize("n_jobs", [2, "threads"])
def test_the_result_does_not_depend_on_the_number_of_jobs(n_jobs):
    def random(data):
        return data.mean() + np.random.normal(scale=1e-3)  # noqa: NPY002 - as random_state=None does

    state = np.random.get_state()[1].copy()  # noqa: NPY002
    alone = quietly(lambda: few(random, Y))
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    np.testing.assert_array_equal(quietly(lambda: few(random, Y)).draws, alone.draws)
    if n_jobs == "threads":
        with joblib.parallel_config("threading"):
            np.testing.assert_array_equal(few(np.mean, Y, n_jobs=2).draws, few(np.mean, Y).draws)
    else:
        both = quietly(lambda: few(random, Y, n_jobs=2))
        np.testing.assert_array_equal(both.draws, alone.draws)


@pytest.mark.slow
def test_on_dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        np.testing.assert_array_equal(few(np.mean, Y, n_jobs=2).draws, few(np.mean, Y).draws)


def test_a_model_that_is_fitted_in_place_ends_where_it_was():
    linear_model = pytest.importorskip("sklearn.linear_model")
    reg = linear_model.LinearRegression().fit(X, Y)
    before = reg.coef_.copy()
    found = few(lambda data: reg.fit(*data), (X, Y), lambda reg: reg.coef_[1])
    np.testing.assert_allclose(found.draws, few(slope, (X, Y), lambda b: b[1]).draws, rtol=1e-9)
    np.testing.assert_allclose(reg.coef_, before)
    with joblib.parallel_config("threading"), pytest.raises(TypeError, match="same LinearReg"):
        few(lambda data: reg.fit(*data), (X, Y), lambda reg: reg.coef_[1], n_jobs=2)


# A fit that is not what it should be


def counting(y, calls=[]):  # noqa: B006 - a state, as a warm start has
    calls.append(1)
    return y.mean() + 0.01 * len(calls)


@pytest.mark.parametrize(
    "fit",
    [lambda y: y.mean() + 0.1 * np.random.default_rng().normal(), counting],
    ids=["random", "goes on"],
)
def test_a_fit_that_does_not_repeat_itself_is_warned_about(fit):
    with pytest.warns(idm.NotDeterministicWarning, match="Two fits to the same data"):
        found = few(fit, Y)
    assert found.diagnostics.notes["noise"] > 0
    with pytest.raises(ValueError, match="bca"):
        found.confidence_interval(kind="bca")


def changes(frame):
    frame["z"] = 1.0
    return frame["y"].mean()


def sorts(y):
    y.sort()
    return y.mean()


def pops(data):
    return data.pop("y").mean()


def fills(data):
    data[1][data[1] < 0] = 0.0
    return data[1].mean()


CHANGES = {
    "a column": (changes, lambda: pandas_frame(Y)),
    "the order": (sorts, lambda: Y),
    "the dict": (pops, lambda: {"y": Y, "x": X}),
    "values in a tuple": (fills, lambda: (X, Y)),
    "an inner list": (lambda d: (d.append(0.0), np.mean(d))[1], lambda: Y.tolist()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_fit_that_changes_its_data_is_refused(name):
    fit, build = CHANGES[name]
    data = build()
    before = joblib.hash(data)
    with pytest.raises(TypeError, match="changes its data"):
        few(fit, data)
    assert joblib.hash(data) == before


def test_failures_are_counted_and_told():
    def fit(y):
        if y[-1] == Y[-3]:  # both of the last two rows are missing: one in eight or so
            raise ZeroDivisionError("no solution here")
        return y.mean()

    with pytest.warns(idm.ImplicitDeltaWarning, match="ZeroDivisionError: no solution"):
        found = few(fit, Y, replicates=300, rng=4)
    failed = found.diagnostics.notes["failed"]
    assert 0 < failed <= 30
    assert len(found.draws) == 300 - failed


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_many_failures_are_refused_with_the_reason(n_jobs):
    calls = []

    def fit(y):
        calls.append(1)
        if len(calls) > 1 or not np.array_equal(y, Y):
            raise RuntimeError("no solution here")
        return y.mean()

    with pytest.raises(idm.ConvergenceError, match="RuntimeError: no solution here"):
        few(fit, Y, replicates=1000, n_jobs=n_jobs)
    assert len(calls) < 150  # the rest was not tried, or tried elsewhere


BAD = {
    "no function": (lambda: few(None, Y), TypeError, "clone"),
    "returns nothing": (lambda: few(lambda y: None, Y), TypeError, "returned None"),
    "ignores the data": (lambda: few(lambda y: Y.mean(), Y), idm.EvaluationError, "its argument"),
    "a psi that ignores the fit": (
        lambda: few(np.mean, Y, lambda f: 1.0),
        idm.EvaluationError,
        "its argument",
    ),
    "an error at the data": (lambda: few(lambda y: 1 / 0, Y), ZeroDivisionError, "division"),
    "psi is NaN": (lambda: few(np.mean, Y, lambda f: np.nan), idm.EvaluationError, "NaN"),
    "psi is a matrix": (lambda: few(np.mean, Y, lambda f: np.eye(2)), idm.EvaluationError, "shape"),
    "different rows": (lambda: few(slope, (X[:-1], Y)), ValueError, "different numbers of rows"),
    "a setting": (lambda: few(slope, (X, Y, 0.1)), TypeError, "belongs into `fit`"),
    "a text": (lambda: few(len, "data.csv"), TypeError, "no rows"),
    "nothing": (lambda: few(len, {}), ValueError, "empty"),
    "lists of lists": (lambda: few(len, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), TypeError, "rows or"),
    "one row": (lambda: few(np.mean, Y[:1]), idm.UnsupportedModelError, "draws observations"),
    "one replicate": (lambda: few(np.mean, Y, replicates=1), ValueError, "replicates"),
    "parametric": (lambda: few(np.mean, Y, kind="parametric"), ValueError, "Bootstrap"),
    "no weights": (lambda: few(slope, (X, Y), kind="bayesian"), TypeError, "sample_weight"),
    "weights and rows": (
        lambda: few(lambda y, sample_weight=None: y, Y, lambda f, d: 1, kind="bayesian"),
        TypeError,
        "resample",
    ),
    "an unknown column": (lambda: few(np.mean, {"y": Y}, clusters="g"), ValueError, "no column"),
    "two ways": (lambda: few(np.mean, Y, clusters=(GROUPS, GROUPS)), ValueError, "wider grouping"),
    "labels of other rows": (lambda: few(np.mean, Y, clusters=GROUPS[:-1]), ValueError, "shape"),
    "two clusters": (
        lambda: few(np.mean, Y, clusters=np.arange(N) % 2),
        ValueError,
        "two clusters",
    ),
    "missing labels": (lambda: few(np.mean, Y, clusters=[None] * N), ValueError, "missing"),
    "smoothed": (lambda: few(np.mean, Y, idm.Smoothed(itself)), idm.EvaluationError, "itself"),
    "training rows": (
        lambda: few(slope, (X, Y), idm.Average(lambda b: X @ b, sample="training")),
        idm.EvaluationError,
        "fitted, data",
    ),
    "a seed that is none": (lambda: few(np.mean, Y, rng="0"), ValueError, "rng"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_once(name):
    call, kind, text = BAD[name]
    started = time.perf_counter()
    with pytest.raises(kind, match=text):
        call()
    assert time.perf_counter() - started < 5


def test_few_rows_are_warned_about():
    with pytest.warns(idm.ImplicitDeltaWarning, match="underestimates"):
        few(np.mean, Y[:4])


def test_few_replicates_are_warned_about():
    with pytest.warns(idm.NotDeterministicWarning, match="more replicates"):
        few(np.mean, Y, replicates=3)


def test_the_estimate_is_like_any_other(tmp_path):
    found = few(slope, (X, Y), lambda b: {"level": b[0], "slope": b[1]})
    found.save(tmp_path / "e.npz")
    again = idm.Estimate.load(tmp_path / "e.npz")
    np.testing.assert_array_equal(again.draws, found.draws)
    assert again.confidence_interval(kind="basic").low[0] < found.value[0]
    assert found.contrast([1, -1]).draws.shape == (30, 1)
    assert "bootstrap" in found.summary()


def test_a_maximum_is_warned_about():
    rows = np.random.default_rng(0).normal(size=100)
    with pytest.warns(idm.ImplicitDeltaWarning, match="equal the estimate"):
        idm.bootstrap(np.max, rows, lambda top: top, rng=0)
