"""Cluster labels of every kind: the same groups give the same error, and no groups a refusal."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("statsmodels")

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf

import implicit_delta as idm

# Twelve clusters are few, and these tests are about labels.
pytestmark = pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")

N, G = 60, 12
RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(G), N // G)
X = np.column_stack([np.ones(N), RNG.normal(size=N) + RNG.normal(size=G)[GROUP]])
Y = X @ [1.0, 0.5] + RNG.normal(size=N) + RNG.normal(size=G)[GROUP]
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]


def model(**options):
    return idm.from_loglik(
        lambda b: -((Y - X @ b) ** 2) / 2,
        BETA,
        score=lambda b: (Y - X @ b)[:, None] * X,
        **options,
    )


def slope(b):
    return b[1]


def closed_form(codes, kept=slice(None)):
    """The clustered sandwich of least squares, in dense algebra."""
    rows, y = X[kept], Y[kept]
    beta = np.linalg.lstsq(rows, y, rcond=None)[0]
    scores = (y - rows @ beta)[:, None] * rows
    sums = np.array([scores[codes == g].sum(axis=0) for g in np.unique(codes)])
    bread = np.linalg.inv(rows.T @ rows)
    return np.sqrt((bread @ sums.T @ sums @ bread)[1, 1])


KINDS = {
    "integers": GROUP,
    "list": GROUP.tolist(),
    "tuple": tuple(GROUP.tolist()),
    "strings": [f"village {g}" for g in GROUP],
    "strings in an array": np.array([f"village {g}" for g in GROUP]),
    "floats": GROUP + 0.5,
    "a column": GROUP[:, None],
    "a frame of one column": pd.DataFrame({"village": GROUP}),
    "infinite": np.where(GROUP == 3, np.inf, GROUP),
    "large integers": 2**60 + GROUP,
    "large integers and a float": [0.5 if g == 0 else int(2**60 + g) for g in GROUP],
    "tuples": [("north" if g < 6 else "south", int(g)) for g in GROUP],
    "lists made tuples": [tuple(pair) for pair in np.column_stack([GROUP % 2, GROUP // 2])],
    "integers and strings": [int(g) if g % 2 else f"{g}" for g in GROUP],
    "the same digits": [int(g) // 2 if g % 2 else f"{g // 2}" for g in GROUP],
    "everything": [[g, f"{g}", (g, "a"), g + 0.5][g % 4] for g in GROUP.tolist()],
    "objects": np.array([int(g) if g % 2 else f"{g}" for g in GROUP], dtype=object),
    "dates": np.datetime64("2020-01-01") + GROUP,
    "bytes": [f"{g}".encode() for g in GROUP],
    "series": pd.Series(GROUP),
    "series of strings": pd.Series([f"village {g}" for g in GROUP]),
    "categories": pd.Series([f"village {g}" for g in GROUP], dtype="category"),
    "unused categories": pd.Categorical(GROUP, categories=range(50)),
    "nullable": pd.Series(GROUP, dtype="Int64"),
    "an index": pd.Index(GROUP),
    "timestamps": pd.Timestamp("2020-01-01") + pd.to_timedelta(GROUP, unit="D"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_any_kind(kind):
    found = idm.infer(model(), slope, clusters=KINDS[kind])
    assert found.standard_error == pytest.approx(closed_form(GROUP), rel=1e-9)


@pytest.mark.parametrize("robust", ["CR0", "CR1", "CR1S"])
def test_corrections_count_mixed_labels(robust):
    mixed = KINDS["the same digits"]
    found = idm.infer(model(), slope, clusters=mixed, robust=robust)
    expected = idm.infer(model(), slope, clusters=GROUP, robust=robust)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)


def test_all_alone_is_robust():
    alone = [f"{i}" if i % 2 else i for i in range(N)]
    found = idm.infer(model(), slope, clusters=alone)
    assert found.standard_error == pytest.approx(
        idm.infer(model(), slope, robust="HC0").standard_error, rel=1e-12
    )


def replaced(labels, at, by):
    found = list(labels)
    for i in at:
        found[i] = by
    return found


REFUSED = {
    "one cluster": (np.zeros(N), "only one cluster"),
    "two clusters": (GROUP % 2, "two clusters is not estimable"),
    "two by type": (["a" if g % 2 else 1 for g in GROUP], "two clusters is not estimable"),
    "too short": (GROUP[:-3], r"shape \(57,\), but there are 60.*missing values were dropped"),
    "too long": (np.r_[GROUP, 1], r"shape \(61,\), but there are 60.*missing values were dropped"),
    "two columns": (np.column_stack([GROUP, GROUP % 3]), r"shape \(60, 2\).*list\(zip\(a, b\)\)"),
    "a frame": (pd.DataFrame({"a": GROUP, "b": GROUP % 3}), r"shape \(60, 2\).*list\(zip\(a, b\)"),
    "two ways, one too short": ((GROUP, GROUP[:-3]), r"shape \(57,\), but there are 60"),
    "two ways, one of two groups": ((GROUP, GROUP % 2), "two clusters is not estimable"),
    "two ways, one missing": (
        (GROUP, replaced(GROUP, [4], None)),
        "missing for 1 observations.*row 4",
    ),
    "three ways": ((GROUP, GROUP % 3, GROUP % 4), r"tuple of 3 groupings.*clusters=\(firm, year\)"),
    "two ways in a list": ([GROUP, GROUP % 3], r"shape \(2,\), but there are 60"),
    "two names": (("village", "year"), r"there are 60.*`df\['village'\]`.*`df\['year'\]`"),
    "a name": ("village", r"there are 60.*`clusters=df\['village'\]`"),
    "a number": (7, r"shape \(\), but there are 60"),
    "NaN": (np.where(GROUP == 2, np.nan, GROUP), "missing for 5 observations.*row 10"),
    "None": (replaced(GROUP, [4], None), "missing for 1 observations.*row 4"),
    "NaN among strings": (
        replaced([f"{g}" for g in GROUP], [8, 9], float("nan")),
        "missing for 2.*row 8",
    ),
    "NaT": (replaced(KINDS["timestamps"], [3], pd.NaT), "missing for 1.*row 3"),
    "NaT in an array": (
        np.where(np.arange(N) == 3, np.datetime64("NaT"), KINDS["dates"]),
        "missing for 1.*row 3",
    ),
    "NA": (pd.Series(replaced(GROUP, [3], pd.NA), dtype="Int64"), "missing for 1.*row 3"),
    "NA among objects": (replaced(GROUP, [3], pd.NA), "missing for 1.*row 3"),
    "missing category": (
        pd.Series(replaced(GROUP, [3], None), dtype="category"),
        "missing for 1.*row 3",
    ),
    "NaN in a tuple": (
        replaced([(int(g), 1.0) for g in GROUP], [3], (3, float("nan"))),
        "missing for 1.*row 3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("method", [None, idm.Bootstrap(20, rng=0)], ids=["sandwich", "bootstrap"])
def test_labels_that_make_no_clusters(case, method):
    labels, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        idm.infer(model(), slope, method, clusters=labels)


def test_labels_that_cannot_be_told_apart():
    with pytest.raises(TypeError, match="numbers, strings or tuples"):
        idm.infer(model(), slope, clusters=[[int(g)] for g in GROUP])


def test_the_advice_for_two_columns_works():
    a, b = GROUP % 2, GROUP // 2
    found = idm.infer(model(), slope, clusters=list(zip(a, b, strict=True)))
    assert found.standard_error == pytest.approx(closed_form(GROUP), rel=1e-9)


def test_clusters_without_weight_do_not_count_as_clusters():
    weights = (GROUP < 2).astype(float)
    with pytest.raises(ValueError, match="two clusters is not estimable"):
        idm.infer(model(weights=weights), slope, clusters=GROUP, strict=False)


UNEVEN = {
    "nearly all": (np.where(np.arange(N) < 2, np.arange(N), 7), True),
    "three of four": (np.where(GROUP < 9, 0, GROUP), True),
    "half": (np.where(GROUP < 6, 0, GROUP), False),
    "three thirds": (GROUP // 4, False),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_one_cluster_that_holds_nearly_everything(case):
    labels, warned = UNEVEN[case]
    if warned:
        with pytest.warns(idm.ImplicitDeltaWarning, match="far too small"):
            found = idm.infer(model(), slope, clusters=labels)
    else:
        found = idm.infer(model(), slope, clusters=labels)
    assert found.standard_error == pytest.approx(closed_form(labels), rel=1e-9)


# Labels of a data frame, some rows of which the fit has dropped.

INDEX = pd.Index([f"id {i}" for i in RNG.permutation(N)])
FRAME = pd.DataFrame({"y": Y, "x": X[:, 1], "village": GROUP}, index=INDEX)
MISSING = FRAME.assign(x=np.where(np.isin(np.arange(N), [3, 17, 40]), np.nan, FRAME["x"]))
KEPT = MISSING["x"].notna().to_numpy()


def fitted(data, known=True):
    """A model of statsmodels that knows its rows, or does not."""
    results = smf.ols("y ~ x", data).fit()
    found = idm.from_statsmodels(results)
    labels = results.model.data.row_labels if known else None
    object.__setattr__(found, "facts", found.facts.with_host(labels=labels))
    return found


def by_hand(data):
    kept = data.dropna()
    results = sm.OLS(kept["y"], sm.add_constant(kept[["x"]])).fit(
        cov_type="cluster", cov_kwds={"groups": kept["village"], "use_correction": False}
    )
    return results.bse["x"]


ALIGNED = {
    "the same rows": (FRAME, FRAME["village"]),
    "more rows": (MISSING, MISSING["village"]),
    "more rows, sorted": (MISSING, MISSING["village"].sort_index()),
    "the rows that are left": (MISSING, MISSING["village"][KEPT]),
    "shuffled": (FRAME, FRAME["village"].sample(frac=1.0, random_state=1)),
    "shuffled categories": (MISSING, MISSING["village"].astype("category").sample(frac=1.0)),
    "shuffled strings": (MISSING, MISSING["village"].astype(str).sample(frac=1.0)),
    "missing where the fit has none": (
        MISSING,
        MISSING["village"].astype(float).where(KEPT),
    ),
    "array of the rows that are left": (MISSING, MISSING["village"].to_numpy()[KEPT]),
    "labels counted anew": (MISSING, MISSING["village"][KEPT].reset_index(drop=True)),
    "labels of another kind": (FRAME, pd.Series(GROUP, index=np.linspace(5.0, 6.0, N))),
    "list": (FRAME, GROUP.tolist()),
    "integer index": (FRAME.reset_index(), FRAME.reset_index()["village"]),
    "integer index, more rows": (MISSING.reset_index(), MISSING.reset_index()["village"]),
    "integer index, counted anew": (
        MISSING.reset_index(),
        MISSING[KEPT].reset_index()["village"],
    ),
    "two levels": (
        MISSING.set_index([MISSING.index, MISSING["village"].rename("level")]),
        MISSING.set_index([MISSING.index, MISSING["village"].rename("level")])["village"],
    ),
    "repeated labels, the same rows": (
        FRAME.set_index(FRAME["village"].to_numpy()),
        FRAME.set_index(FRAME["village"].to_numpy())["village"],
    ),
}


@pytest.mark.parametrize("case", ALIGNED)
def test_a_series_is_aligned_to_the_rows_of_the_model(case):
    data, labels = ALIGNED[case]
    found = idm.infer(fitted(data), lambda params: params["x"], clusters=labels)
    assert found.standard_error == pytest.approx(by_hand(data), rel=1e-6)


CONFLICTS = {
    "rows are lacking": (FRAME, FRAME["village"].drop(index=INDEX[5]), "lacks or repeats 1 of"),
    "one label is another": (
        FRAME,
        FRAME["village"].rename(index={INDEX[5]: "id 1000"}),
        "'.*id.*to_numpy",
    ),
    "repeated labels, more rows": (
        MISSING.set_index(MISSING["village"].to_numpy()),
        MISSING.set_index(MISSING["village"].to_numpy())["village"],
        "lacks or repeats",
    ),
    "array with more rows": (MISSING, MISSING["village"].to_numpy(), "missing values were dropped"),
    "missing where the fit has one": (
        MISSING,
        MISSING["village"].astype(float).where(np.arange(N) != 5),
        "missing for 1 observations",
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_series_that_does_not_fit_the_rows(case):
    data, labels, text = CONFLICTS[case]
    with pytest.raises(ValueError, match=text):
        idm.infer(fitted(data), lambda params: params["x"], clusters=labels)


def test_a_model_that_does_not_know_its_rows_takes_labels_in_order():
    found = idm.infer(fitted(FRAME, known=False), lambda params: params["x"], clusters=GROUP)
    assert found.standard_error == pytest.approx(by_hand(FRAME), rel=1e-6)
    with pytest.raises(ValueError, match="missing values were dropped"):
        idm.infer(
            fitted(MISSING, known=False), lambda params: params["x"], clusters=MISSING["village"]
        )
