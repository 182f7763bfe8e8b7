"""Small comforts of an estimate: counting, formatting, tables of rows, other libraries' names."""

import copy
import pickle
from html.parser import HTMLParser

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.estimate import Diagnostics, Estimate, Influential, Rows
from implicit_delta.estimate.files import content_of
from implicit_delta.estimate.storage import write

EST = Estimate([1.0, 3.0], np.diag([0.04, 0.09]), ("a", "b"), "by hand")
ONE = Estimate(0.18, [[0.0357**2]], ("rate",), "by hand")


def rows(**fields):
    influence = np.array([[0.1, 3.0], [-0.7, 0.0], [0.4, 1.0], [0.2, 2.0]])
    V = np.diag([0.04, 9.0])
    return Estimate([1.0, 3.0], V, ("a", "euros"), "by hand", influence=influence, **fields)


def test_an_estimate_is_counted_and_walked_through():
    assert len(EST) == 2
    assert len(ONE) == 1
    assert [one.names for one in EST] == [("a",), ("b",)]
    assert [one.standard_error for one in EST] == pytest.approx([0.2, 0.3])
    assert [one.value for one in ONE] == [0.18]
    assert dict(zip(EST.names, EST, strict=True))["b"].value == 3.0
    assert bool(ONE)


def test_an_estimate_stays_one_object_in_an_array():
    assert np.asarray(ONE).shape == ()
    assert np.asarray(EST)[()] is EST
    assert np.array([EST, ONE], dtype=object).shape == (2,)
    with pytest.raises(TypeError, match=r"est\.value"):
        np.asarray(ONE, dtype=float)
    with pytest.raises(TypeError):
        np.sqrt(ONE)
    assert (np.array(2.0) * ONE).value == 0.36


FORMATS = [
    (ONE, ".2f", "0.18 [0.11, 0.25]"),
    (ONE, ".1%", "18.0% [11.0%, 25.0%]"),
    (ONE, "8.3f", "   0.180 [   0.110,    0.250]"),
    (ONE, "+.1e", "+1.8e-01 [+1.1e-01, +2.5e-01]"),
    (EST, ".1f", "a: 1.0 [0.6, 1.4]; b: 3.0 [2.4, 3.6]"),
    (1000 * EST, ",.0f", "1000 a: 1,000 [608, 1,392]; 1000 b: 3,000 [2,412, 3,588]"),
]


@pytest.mark.parametrize(("estimate", "spec", "text"), FORMATS)
def test_formats(estimate, spec, text):
    assert f"{estimate:{spec}}" == text


def test_an_empty_format_is_the_table_and_a_wrong_one_is_refused():
    assert f"{EST}" == str(EST)
    with pytest.raises(ValueError, match="format"):
        f"{EST:nonsense}"


def test_intervals_as_statsmodels_has_them():
    pd, sm = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"c": np.ones(40), "x": rng.normal(size=40)})
    fit = sm.OLS(x @ [1.0, 2.0] + rng.normal(size=40), x).fit()
    new = x.iloc[:3]
    # statsmodels divides by n - d, and so does the model that is made of its results
    est = idm.infer(idm.from_statsmodels(fit), lambda p: new.to_numpy() @ np.asarray(p))
    both = idm.infer(idm.from_statsmodels(fit), idm.parameters)
    np.testing.assert_allclose(both.conf_int(), fit.conf_int(), rtol=1e-6)
    np.testing.assert_allclose(both.conf_int(alpha=0.2), fit.conf_int(0.2), rtol=1e-6)
    theirs, own = fit.get_prediction(new).summary_frame(0.1), est.summary_frame(alpha=0.1)
    np.testing.assert_allclose(own, theirs[list(own.columns)], rtol=1e-6)
    assert list(own.index) == list(est.names)
    assert both["x"].conf_int().shape == (1, 2)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, np.nan, 5, 95])
def test_alphas_that_are_none(alpha):
    with pytest.raises(ValueError, match="alpha is between"):
        EST.conf_int(alpha)


def test_a_confidence_level_in_the_place_of_alpha_warns():
    with pytest.warns(ImplicitDeltaWarning, match=r"give `alpha=0.05`"):
        EST.conf_int(0.95)


# The rows that matter


def test_the_rows_that_matter_are_still_a_pair():
    top = rows().top_influence(2)
    numbers, influence = top
    assert isinstance(top, tuple)
    assert top.row is numbers
    assert top.influence is influence
    assert top._fields == ("row", "influence")
    assert top.label is None
    np.testing.assert_array_equal(numbers, [1, 2])


def test_one_evaluation_has_its_own_ranking():
    top = rows()["euros"].top_influence(10)
    np.testing.assert_array_equal(top.row, [0, 3, 2, 1])
    assert top.names == ("euros",)
    assert repr(top).splitlines()[:2] == ["row  euros", "0    3.000"]


LABELS = {
    "text": (["ann", "bob", "cy", "di"], ("bob", "cy")),
    "numbers": ([10, 20, 30, 40], ("20", "30")),
    "counted": ([0, 1, 2, 3], None),
    "halves": ([0.5, 1.5, 2.5, 3.5], ("1.5", "2.5")),
    "large": ([2**60, 2**60 + 1, 2**60 + 2, 2**60 + 3], (str(2**60 + 1), str(2**60 + 2))),
    "pairs": ([("a", 1), ("a", 2), ("b", 1), ("b", 2)], ("('a', 2)", "('b', 1)")),
}


@pytest.mark.parametrize("name", LABELS)
def test_rows_are_labeled_through_statsmodels_and_files(name, tmp_path):
    pd, sm = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.api")
    labels, expected = LABELS[name]
    index = pd.MultiIndex.from_tuples(labels) if name == "pairs" else pd.Index(labels)
    X = pd.DataFrame({"c": np.ones(4)}, index=index)
    fit = sm.OLS(pd.Series([1.0, 9.0, -4.0, 1.0], index=index), X).fit()
    est = idm.infer(idm.from_statsmodels(fit), lambda p: p.iloc[0], influence=True)
    est.save(tmp_path / "est.npz")
    copies = [est, Estimate.load(tmp_path / "est.npz"), pickle.loads(pickle.dumps(est)), est * 2]
    for one in copies:
        top = one.top_influence(2)
        np.testing.assert_array_equal(top.row, [1, 2])
        assert top.label == expected
        assert ("label" in repr(top)) == (expected is not None)
        assert list(top.to_frame().columns)[-1] == one.names[0]


def test_rows_are_labeled_through_sklearn():
    pd, linear = pytest.importorskip("pandas"), pytest.importorskip("sklearn.linear_model")
    X = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0, 9.0]}, index=list("vwxyz"))
    y = np.array([0.1, 0.8, 2.3, 2.9, 20.0])
    model = idm.from_sklearn(linear.LinearRegression().fit(X, y), X, y)
    top = idm.infer(model, lambda m: m.coef_, influence=True).top_influence(1)
    assert top.label == ("vwxyz"[top.row[0]],)


def test_dates_are_labels():
    pd, sm = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.api")
    index = pd.date_range("2020-01-01", periods=4)
    fit = sm.OLS(pd.Series([1.0, 9.0, -4.0, 1.0], index=index), np.ones(4)).fit()
    est = idm.infer(idm.from_statsmodels(fit), lambda p: p.iloc[0], influence=True)
    assert est.top_influence(1).label == ("2020-01-02 00:00:00",)


def test_tables_of_rows(tmp_path):
    pytest.importorskip("polars")
    est = rows(rows=Rows(4, texts=("ann", "<b>", "c" * 90, "d\ne")))
    top = est.top_influence(4)
    assert max(map(len, repr(top).splitlines())) < 100
    assert len(repr(top).splitlines()) == 6
    assert "&lt;b&gt;" in top._repr_html_()
    assert list(top.to_frame("polars")["label"]) == ["<b>", "c" * 90, "ann", "d\ne"]
    assert top.to_dict()["euros"] == [0.0, 1.0, 3.0, 2.0]
    for same in (pickle.loads(pickle.dumps(top)), copy.deepcopy(top)):
        assert same.label == top.label
        assert same.names == top.names
    assert "..." in repr(Influential(np.arange(2), np.ones((2, 9))))
    assert repr(est.top_influence(0)).startswith("row")


def test_evaluations_called_row_overwrite_nothing():
    influence = np.array([[1.0, 2.0], [3.0, 4.0]])
    top = Influential(np.array([7, 8]), influence, ("x", "y"), ("row", "label"))
    assert list(top.to_dict().values()) == [[7, 8], ["x", "y"], [1.0, 3.0], [2.0, 4.0]]


def test_files_without_labels_load_and_wrong_labels_are_damage(tmp_path):
    texts, arrays = content_of(rows(rows=Rows(4, texts=("ann", "bob", "cy", "di"))))
    del texts["rows"]["texts"]  # as releases before this one have written it
    write(tmp_path / "old.npz", texts, arrays)
    old = Estimate.load(tmp_path / "old.npz")
    assert old.top_influence(1).label is None
    for wrong in (["ann"], [1, 2, 3, 4], 4, {"a": 1}, [["a"]] * 4):
        texts["rows"]["texts"] = wrong
        write(tmp_path / "bad.npz", texts, arrays)
        with pytest.raises(ValueError, match="damaged"):
            Estimate.load(tmp_path / "bad.npz")


def test_texts_are_checked():
    for texts in (("a",), ("a", 1)):
        with pytest.raises(ValueError, match="texts for 2 rows"):
            Rows(2, texts=texts)


# Notebooks


class _Balance(HTMLParser):
    """Tags that were opened and not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(text):
    parser = _Balance()
    parser.feed(text)
    assert not parser.open
    return parser.seen


EVIL = "<script>alert(1)</script>"


def test_html_folds_and_is_escaped():
    V = np.array([[0.02]])
    est = Estimate(
        1.0,
        2 * V,
        (EVIL,),
        EVIL,
        Diagnostics(drift=0.01, notes={EVIL: EVIL}),
        parts={"model": V, "evaluation": V},
        target=EVIL,
    )
    text = est._repr_html_()
    assert "<script" not in text
    assert text.count("&lt;script") == 6
    found = tags(text)
    assert found.count("details") == found.count("summary") == 2
    assert found.count("table") == 3
    assert "<details open" not in text
    assert "Standard error by source" in est.budget._repr_html_()
    assert "drift" in est.diagnostics._repr_html_()
    tags(est.budget._repr_html_())
    tags(est.diagnostics._repr_html_())


def test_what_is_not_known_is_not_shown():
    assert tags(EST._repr_html_()).count("details") == 0
    assert Diagnostics()._repr_html_() == ""


def test_a_budget_is_a_dict():
    budget = EST.budget
    assert isinstance(budget, dict)
    assert list(budget) == ["model", "total"]
    for same in (pickle.loads(pickle.dumps(budget)), copy.copy(budget)):
        assert same.names == ("a", "b")
        assert list(same) == list(budget)
