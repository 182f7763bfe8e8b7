"""Equal rows counted once: the fit to the counts is the fit to the rows."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import expit

import implicit_delta as idm

pytest.importorskip("duckdb")


def sales(n=20_000):
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "age": rng.integers(0, 5, n),
            "region": pd.Categorical(rng.choice(["north", "south", "west"], n)),
            "village": rng.integers(0, 12, n),
        }
    )
    tilt = rng.normal(0, 0.5, 12)[table["village"]]
    table["bought"] = rng.binomial(1, expit(-1 + 0.3 * table["age"] + tilt))
    table["calls"] = rng.poisson(np.exp(0.2 * table["age"] + tilt))
    return table


TABLE = sales()
FORMULAS = {
    "logit": ("bought ~ age + region", sm.families.Binomial()),
    "poisson": ("calls ~ age * region", sm.families.Poisson()),
}


def answer(table, family, robust):
    formula, law = FORMULAS[family]
    counts = {"freq_weights": table["count"]} if "count" in table else {}
    model = idm.from_statsmodels(smf.glm(formula, table, family=law, **counts).fit(tol=1e-12))
    clusters = table["village"] if robust == "clusters" else None
    return idm.infer(model, idm.parameters, robust=robust == "robust", clusters=clusters)


@pytest.mark.parametrize("robust", ["model", "robust", "clusters"])
@pytest.mark.parametrize("family", FORMULAS)
def test_counts_give_the_errors_of_all_rows(family, robust):
    few = idm.compress(TABLE, [*("bought", "calls", "age", "region"), "village"])
    assert few["count"].sum() == len(TABLE)
    assert len(few) < len(TABLE) / 5
    whole, counted = answer(TABLE, family, robust), answer(few, family, robust)
    np.testing.assert_allclose(counted.value, whole.value, rtol=1e-9)
    np.testing.assert_allclose(counted.covariance, whole.covariance, rtol=1e-7, atol=1e-12)


def test_own_likelihood_takes_counts_as_weights():
    few = idm.compress(TABLE, ["bought", "age"])

    def fitted(table, weights=None):
        def loglik(theta):
            tilt = theta[0] + theta[1] * table["age"].to_numpy()
            return table["bought"].to_numpy() * tilt - np.logaddexp(0, tilt)

        return idm.from_loglik(loglik, start=[0.0, 0.0], weights=weights)

    whole = idm.infer(fitted(TABLE), idm.parameters)
    counted = idm.infer(fitted(few, few["count"].to_numpy()), idm.parameters)
    np.testing.assert_allclose(counted.standard_error, whole.standard_error, rtol=1e-6)
    assert len(few) == 10


def test_files_frames_and_arrow_agree(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    table = TABLE.drop(columns="region")
    truth = idm.compress(table)
    table[:7000].to_parquet(tmp_path / "a.parquet")
    table[7000:].to_parquet(tmp_path / "b.parquet")
    table.to_csv(tmp_path / "all.csv", index=False)
    arrow = pyarrow.Table.from_pandas(table)
    sources = [
        tmp_path,
        str(tmp_path / "*.parquet"),
        [tmp_path / "a.parquet", tmp_path / "b.parquet"],
        tmp_path / "all.csv",
        arrow,
        arrow.to_reader(),
    ]
    for source in sources:
        pd.testing.assert_frame_equal(idm.compress(source), truth, check_dtype=False)
    few = idm.compress(polars.from_pandas(table))
    assert isinstance(few, polars.DataFrame)
    np.testing.assert_array_equal(few.to_numpy(), truth.to_numpy())


def test_types_and_missing_values_stay():
    table = pd.DataFrame(
        {
            "x": [1.5, np.nan, 1.5, np.nan],
            "X": np.float32([1, 2, 1, 2]),
            "label": pd.Categorical([3, 1, 3, 1], categories=[3, 1, 2], ordered=True),
            'a "b" c': pd.array([1, None, 1, None], dtype="Int64"),
            "when": pd.to_datetime(["2020-01-02", None, "2020-01-02", None]),
        }
    )
    few = idm.compress(table)
    assert list(few["count"]) == [2, 2]
    pd.testing.assert_frame_equal(
        few.drop(columns="count").sort_values("X", ignore_index=True), table[:2]
    )


def test_counts_are_added_up():
    few = idm.compress(TABLE, ["bought", "age", "village"])
    fewer = idm.compress(few, ["bought", "age"], weights="count")
    pd.testing.assert_frame_equal(fewer, idm.compress(TABLE, ["bought", "age"]))
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(few)
    once = idm.compress(arrow.to_reader(), ["bought", "age"], weights="count")
    pd.testing.assert_frame_equal(once, fewer, check_dtype=False)


def test_rows_that_are_all_distinct_warn():
    table = TABLE.assign(x=np.random.default_rng(1).normal(size=len(TABLE)))
    with pytest.warns(idm.ImplicitDeltaWarning, match="'x' alone has 20,000 values"):
        idm.compress(table)


SMALL = pd.DataFrame({"y": [0, 1], "count": [1, 2]})
REFUSED = {
    "an array": (lambda: idm.compress(np.ones((3, 2))), TypeError, "np.unique"),
    "a dict": (lambda: idm.compress({"a": [1]}), TypeError, "pandas.DataFrame"),
    "unknown column": (lambda: idm.compress(SMALL, ["z"]), ValueError, "no column 'z'; it has y"),
    "column is there": (lambda: idm.compress(SMALL), ValueError, "weights='count'"),
    "no columns": (lambda: idm.compress(SMALL, []), ValueError, "at least one column"),
    "no rows": (lambda: idm.compress(SMALL[:0], ["y"]), ValueError, "empty"),
    "no file": (lambda: idm.compress("none.parquet"), FileNotFoundError, "matches none"),
    "no paths": (lambda: idm.compress([]), ValueError, "empty list"),
    "elsewhere": (lambda: idm.compress("s3://b/t.parquet"), ValueError, "local files"),
    "other kind": (lambda: idm.compress(__file__), ValueError, "neither Parquet"),
    "twice": (lambda: idm.compress(SMALL[["y", "y"]]), ValueError, "'y' is there twice"),
    "numbers": (lambda: idm.compress(SMALL.set_axis([0, 1], axis=1)), TypeError, "columns=str"),
    "negative": (
        lambda: idm.compress(SMALL.assign(count=[1, -1]), weights="count"),
        ValueError,
        "1 of the counts 'count' are missing, infinite or negative",
    ),
    "both": (lambda: idm.compress(SMALL, ["count"], count="n", weights="count"), ValueError, "of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


def test_names_are_never_code():
    table = pd.DataFrame({'x"; drop table rows; --': [1, 1, 2]})
    assert list(idm.compress(table)["count"]) == [2, 1]


def written(folder, tables):
    for name, table in tables.items():
        if name.endswith("csv"):
            table.to_csv(folder / name, index=False)
        else:
            table.to_parquet(folder / name)
    return [folder / name for name in tables]


A = pd.DataFrame({"y": [1, 1, 0], "dose": [2, 2, 1]})


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_files_are_stacked_by_the_names_of_their_columns(tmp_path, end):
    files = written(tmp_path, {f"a.{end}": A, f"b.{end}": A[["dose", "y"]]})
    few = idm.compress(files)
    assert few.to_numpy().tolist() == [[0, 1, 2], [1, 2, 4]]
    halves = written(tmp_path, {f"c.{end}": A.assign(dose=[0.4, 1.5, 2.5])})
    assert sorted(idm.compress([files[0], *halves])["dose"]) == [0.4, 1, 1.5, 2, 2.5]


@pytest.mark.parametrize("end", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("other", "text"),
    [
        (A.rename(columns={"dose": "age"}), "has the columns y, age, and"),
        (A[["y"]], "has the columns y, and"),
        (A.assign(dose=["low", "high", "low"]), "'dose' is VARCHAR in"),
    ],
)
def test_files_of_other_tables_are_refused(tmp_path, end, other, text):
    files = written(tmp_path, {f"a.{end}": A, f"b.{end}": other})
    with pytest.raises(ValueError, match=text):
        idm.compress(files)


def test_a_path_that_exists_is_no_pattern(tmp_path):
    files = written(tmp_path, {"g[1].parquet": A, "g1.parquet": A[:1]})
    assert idm.compress(files[0])["count"].sum() == 3
    with pytest.raises(ValueError, match="is there twice"):
        idm.compress([files[0], files[0]])


VALUES = {
    "nanoseconds": pd.to_timedelta([1, 1, 2], unit="ns"),
    "zone": pd.to_datetime([1, 1, 2], utc=True, unit="ns"),
    "naive": pd.to_datetime([1, 1, 2], unit="ns"),
    "periods": pd.PeriodIndex(["2020-01", "2020-01", "2020-02"], freq="M"),
    "bytes": [b"a", b"a", b"b"],
    "mixed": ["1", "1", 2],
    "large": np.array([2**62, 2**62, 2**62 + 1]),
    "complex": [1j, 1j, 2j],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back_as_they_were(kind):
    table = pd.DataFrame({"x": VALUES[kind]})
    few = idm.compress(table)
    assert sorted(few["count"]) == [1, 2]
    again = few.loc[few.index.repeat(few["count"]), ["x"]].reset_index(drop=True)
    expected = table if again["x"].iloc[0] == table["x"].iloc[0] else table[::-1]
    pd.testing.assert_frame_equal(again, expected.reset_index(drop=True))


def test_polars_keeps_its_types():
    polars = pytest.importorskip("polars")
    size = polars.Enum(["small", "large"])
    table = polars.DataFrame({"x": ["large", "small", "large"]}, schema={"x": size})
    few = idm.compress(table.lazy())
    assert few.schema["x"] == size
    assert few.rows() == [("small", 1), ("large", 2)]


@pytest.mark.parametrize(
    ("weights", "error"),
    [([2**62, 2**62], ValueError), ([1, np.inf], ValueError), (["1", "2"], TypeError)],
)
def test_weights_that_do_not_count_are_refused(weights, error):
    with pytest.raises(error, match="'w'"):
        idm.compress(pd.DataFrame({"x": [1, 1], "w": weights}), weights="w")
