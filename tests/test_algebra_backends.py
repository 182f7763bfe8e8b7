"""Joins of models from different libraries: rows by label, suest, paired comparisons."""

from contextlib import nullcontext

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

import implicit_delta as idm
from implicit_delta.estimate import Estimate

n = 200
RNG = np.random.default_rng(5)
DATA = pd.DataFrame(RNG.normal(size=(n, 3)), columns=["x", "z", "w"])
DATA["tr"] = (RNG.random(n) < 0.5).astype(float)
DATA["y"] = (RNG.random(n) < expit(0.3 + DATA.x + 0.5 * DATA.tr)).astype(float)
DATA["t"] = 1 + DATA.x - DATA.z + RNG.normal(size=n) * (1 + DATA.x**2)
DATA["g"] = np.repeat(np.arange(25), 8)
LABELED = DATA.set_index(pd.Index([f"row {i}" for i in range(n)]))


def logit(data, formula="y ~ x + tr", **options):
    fit = smf.logit(formula, data).fit(disp=0)
    return idm.infer(idm.from_statsmodels(fit), idm.parameters, influence=True, **options)


def ols(data, formula="t ~ x + z", **options):
    fit = smf.ols(formula, data).fit()
    return idm.infer(idm.from_statsmodels(fit), idm.parameters, influence=True, **options)


def stacked_sandwich(data, groups=None):
    """Newton-Raphson bread and stacked scores of a logit and a least-squares fit, by hand."""
    one, two = smf.logit("y ~ x + tr", data).fit(disp=0), smf.ols("t ~ x + z", data).fit()
    X, Z, p = one.model.exog, two.model.exog, np.asarray(one.predict())
    scores = np.hstack([X * (data.y.to_numpy() - p)[:, None], Z * two.resid.to_numpy()[:, None]])
    bread = np.zeros((6, 6))
    bread[:3, :3], bread[3:, 3:] = (X.T * (p * (1 - p))) @ X, Z.T @ Z
    if groups is not None:
        scores = pd.DataFrame(scores).groupby(np.asarray(groups)).sum().to_numpy()
    inverse = np.linalg.inv(bread)
    return inverse @ (scores.T @ scores) @ inverse


@pytest.mark.parametrize("clustered", [False, True])
def test_suest_of_a_logit_and_a_regression(clustered):
    """Stata's `suest` is the sandwich of the stacked equations, with G / (G - 1) for clusters."""
    options = {"clusters": DATA.g, "robust": "CR1"} if clustered else {"robust": True}
    both = idm.join(logit(DATA, **options), ols(DATA, **options))
    V = stacked_sandwich(DATA, DATA.g if clustered else None) * (25 / 24 if clustered else 1)
    np.testing.assert_allclose(both.covariance, V, rtol=1e-8, atol=1e-12)
    gap = both.contrast("x - `x (2)`")
    C = np.array([0, 1, 0, 0, -1, 0])
    assert gap.standard_error == pytest.approx(np.sqrt(C @ V @ C), rel=1e-8)


# Rows and their labels.


def test_rows_in_another_order_are_found_by_their_labels():
    order = np.random.default_rng(0).permutation(n)
    for data in (DATA, LABELED):
        straight = idm.join(logit(data, robust=True), ols(data, robust=True))
        shuffled = idm.join(logit(data, robust=True), ols(data.iloc[order], robust=True))
        np.testing.assert_allclose(shuffled.covariance, straight.covariance, rtol=1e-9)
        np.testing.assert_allclose(shuffled.influence, straight.influence, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("data", [DATA, LABELED], ids=["numbers", "labels"])
def test_missing_values_leave_the_rows_that_are_shared(data):
    holes = data.copy()
    holes.iloc[::7, holes.columns.get_loc("z")] = np.nan
    a, b = logit(holes, robust=True), ols(holes, robust=True)
    assert len(a.influence) > len(b.influence)
    shared = np.arange(n) % 7 != 0
    both = idm.join(a, b)
    np.testing.assert_allclose(
        both.covariance[:3, 3:], a.influence[shared].T @ b.influence, rtol=1e-10
    )
    np.testing.assert_array_equal(both.covariance[:3, :3], a.covariance)
    assert both.influence is None
    assert (a["x"] - b["x"]).standard_error > 0


def test_labels_survive_files(tmp_path):
    order = np.random.default_rng(0).permutation(n)
    a, b = logit(LABELED, robust=True), ols(LABELED.iloc[order], robust=True)
    a.save(tmp_path / "a")
    b.save(tmp_path / "b")
    loaded = [Estimate.load(tmp_path / name) for name in "ab"]
    np.testing.assert_array_equal(idm.join(*loaded).covariance, idm.join(a, b).covariance)


REFUSED = {
    "no label in common": (
        LABELED,
        LABELED.set_index(LABELED.index + "!"),
        "no label of a row",
        "",
    ),
    "repeated labels": (
        LABELED,
        LABELED.iloc[[0, 0, *range(2, n)]],
        "repeats labels",
        "rows with the same labels",
    ),
    "the first and the last": (DATA.iloc[:100], DATA.iloc[100:], "no label of a row", ""),
    "the last and the first": (DATA.iloc[120:], DATA.iloc[:120], "no label of a row", ""),
    "an index and none kept": (DATA, LABELED, "without `reset_index`", ""),
    "drawn with replacement": (
        DATA,
        DATA.sample(n, replace=True, random_state=0),
        "repeats labels",
        "",
    ),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_do_not_match(case):
    one, other, text, shared = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        idm.join(logit(one, robust=True), ols(other, robust=True))
    one, other = logit(one), ols(other)
    with pytest.warns(idm.ImplicitDeltaWarning, match=shared) if shared else nullcontext():
        alone = idm.join(one, other, independent=True)
    np.testing.assert_array_equal(alone.covariance[:3, 3:], 0.0)


def test_the_order_decides_without_labels_on_one_side():
    plain = idm.from_residuals(lambda b: DATA.t.to_numpy() - b[0] * DATA.x.to_numpy(), start=[0.0])
    b = idm.infer(plain, lambda b: b[0], robust=True)
    for data in (DATA, LABELED, DATA.set_index(np.arange(1000, 1000 + n))):
        a = logit(data, robust=True)
        cross = idm.join(a, b).covariance[:3, 3:]
        np.testing.assert_allclose(cross, a.influence.T @ b.influence, rtol=1e-12)
    with pytest.raises(ValueError, match="150 and 200 rows"):
        idm.join(logit(LABELED.iloc[:150]), b)


PARTS = {
    "overlapping": lambda d: (d[:150], d[50:]),
    "overlapping, the last first": lambda d: (d[50:], d[:150]),
    "other numbers of rows": lambda d: (d[:150], d[20:180]),
    "but one at either end": lambda d: (d[:-1], d[1:]),
    "all and the first": lambda d: (d, d.head(100)),
    "the first and all": lambda d: (d.head(100), d),
    "all and the last": lambda d: (d, d.tail(100)),
    "the first and every other": lambda d: (d.head(100), d.iloc[::2]),
    "the first and a sample": lambda d: (d.head(100), d.sample(100, random_state=0)),
    "the first and a mask": lambda d: (d.head(int((d.x > 0).sum())), d[d.x > 0]),
    "missing at the head": lambda d: (d[:160], d.assign(z=d.z.where(np.arange(n) >= 40))),
    "missing at the tail": lambda d: (d, d.assign(z=d.z.where(np.arange(n) < 140))),
    "two masks": lambda d: (d[d.x > -0.5], d[d.x < 0.5]),
}


def by_sklearn(data, **options):
    X = data[["x", "z"]]
    model = idm.from_sklearn(LinearRegression().fit(X, data.t), X, data.t)
    return idm.infer(model, lambda m: [m.intercept_, *m.coef_], **options)


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", PARTS)
@pytest.mark.parametrize("index", ["counted", "texts", "sorted by a column"])
def test_parts_of_one_table_are_matched_by_its_index(case, index):
    """The variance of a difference is the sum over labels of its squared influences."""
    frame = {"counted": DATA, "texts": LABELED, "sorted by a column": DATA.sort_values("w")}[index]
    one, two = PARTS[case](frame)
    for first in (logit, lambda d, **k: ols(d, "t ~ x + w", **k), by_sklearn):
        a, b = first(one, robust=True), ols(two, robust=True)
        f, h = (pd.DataFrame(e.influence, d.index) for e, d in ((a, one), (b, two.dropna())))
        truth = (f.sub(h, fill_value=0.0) ** 2).sum().to_numpy() ** 0.5
        np.testing.assert_allclose((a - b).standard_error, truth, rtol=1e-9)


TABLES = {
    "of equal size": lambda d: (d[:100], d[100:].reset_index(drop=True)),
    "of other sizes": lambda d: (d[:80], d[80:].reset_index(drop=True)),
    "rows left out": lambda d: (d[:100], d[100:].reset_index(drop=True)[d.x[:100].values > 0]),
    "one table in another order": lambda d: (d, d[::-1].reset_index(drop=True)),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", TABLES)
def test_tables_that_count_alike_and_have_other_values(case):
    one, two = TABLES[case](DATA)
    a, b = ols(one, robust=True), ols(two, robust=True)
    shared = len(one.index.intersection(two.index))
    with pytest.warns(idm.ImplicitDeltaWarning, match=f"{shared} rows, .* 't' has other values"):
        a - b


ADVISED = {
    "repeated labels": (
        DATA.set_index(DATA.index // 2),
        lambda df: (df, df.iloc[:120]),
        120,
    ),
}


@pytest.mark.parametrize("case", ADVISED)
def test_the_advice_on_an_index_works(case):
    frame, split, shared = ADVISED[case]
    df = frame.copy()
    one, two = split(df)
    with pytest.raises(ValueError, match=r"`df\.index = ") as refusal:
        idm.join(logit(one, robust=True), ols(two, robust=True))
    line = str(refusal.value).split("`")[1]
    exec(line, {"df": df})
    one, two = split(df)
    a, b = logit(one, robust=True), ols(two, robust=True)
    cross = idm.join(a, b).covariance[:3, 3:]
    np.testing.assert_allclose(cross, a.influence[:shared].T @ b.influence, rtol=1e-10)


@pytest.mark.parametrize("labeled", [False, True])
def test_rows_that_only_their_order_pairs_are_noted(labeled):
    """Two samples of equal size look like one with an index that counts."""
    halves = DATA.iloc[:100], DATA.iloc[100:].reset_index(drop=True)
    if labeled:
        halves = [half.set_index("r" + half.index.astype(str)) for half in halves]
    a, b = (
        ols(half.rename(columns={"t": f"t{k}"}), f"t{k} ~ x + z", robust=True)["x"]
        for k, half in enumerate(halves)
    )
    assert ("rows" in (a - b).diagnostics.notes) != labeled
    assert ("by their order" in (a - b).summary()) != labeled
    warned = pytest.warns(idm.ImplicitDeltaWarning, match="rows with the same labels")
    with warned if labeled else nullcontext():  # whose meaning nobody knows but the user
        apart = idm.join(a, b, independent=True)
    assert "rows" not in apart.diagnostics.notes
    assert "rows" not in idm.join(a, b)[0].diagnostics.notes


def test_a_response_with_other_values_is_another_sample():
    first, second = DATA.iloc[:100], DATA.iloc[100:].reset_index(drop=True)
    a, b = ols(first, robust=True)["x"], ols(second, robust=True)["x"]
    with pytest.warns(idm.ImplicitDeltaWarning, match="'t' has other values"):
        a - b
    apart = idm.join(a, b, independent=True).contrast([1, -1])
    assert apart.standard_error == pytest.approx(np.hypot(a.standard_error, b.standard_error))
    for formula in ("t ~ x", "w ~ x", "np.exp(t / 9) ~ x"):
        a - ols(first, formula, robust=True)["x"]
    order = np.random.default_rng(0).permutation(100)
    assert "rows" not in (a - ols(first.iloc[order], "t ~ x", robust=True)["x"]).diagnostics.notes


def test_clusters_with_rows_left_out():
    """Sums over clusters take no pairs of rows."""
    holes = LABELED.copy()
    holes.loc["row 3", "z"] = np.nan
    a, b = logit(holes, clusters=LABELED.g), ols(holes, clusters=LABELED.g)
    padded = np.insert(b.influence, 3, 0.0, axis=0)
    sums = [pd.DataFrame(f).groupby(DATA.g).sum().to_numpy() for f in (a.influence, padded)]
    np.testing.assert_allclose(idm.join(a, b).covariance[:3, 3:], sums[0].T @ sums[1], rtol=1e-9)
    lagged = [ask(holes, robust=idm.HAC(2)) for ask in (logit, ols)]
    with pytest.raises(ValueError, match="only partly the same"):
        idm.join(*lagged)


def test_the_covariance_of_the_fit_is_respected():
    groups = {"cov_type": "cluster", "cov_kwds": {"groups": DATA.g}}
    fits = [
        smf.logit("y ~ x + tr", DATA).fit(disp=0, **groups),
        smf.ols("t ~ x + z", DATA).fit(**groups),
    ]
    a, b = (idm.infer(idm.from_statsmodels(f), idm.parameters, influence=True) for f in fits)
    both = idm.join(a, b)
    np.testing.assert_allclose(np.sqrt(np.diag(both.covariance)), [*fits[0].bse, *fits[1].bse])
    size = np.sqrt(np.diag(both.covariance))
    truth = stacked_sandwich(DATA, DATA.g)
    scale = np.sqrt(np.diag(truth))
    np.testing.assert_allclose(
        (both.covariance / np.outer(size, size)), truth / np.outer(scale, scale), atol=1e-6
    )
    with pytest.raises(ValueError, match="clusters=labels"):
        idm.join(a, ols(DATA, robust=True))
    hac = smf.ols("t ~ x + z", DATA).fit(cov_type="HAC", cov_kwds={"maxlags": 2})
    serial = idm.infer(idm.from_statsmodels(hac), idm.parameters, influence=True)
    with pytest.raises(ValueError, match="not a sum over rows"):
        idm.join(serial, a)


def test_statsmodels_and_scikit_learn():
    """The same fit in two libraries: what they agree on cancels."""
    X = DATA[["x", "tr"]]
    reg = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, DATA.y)
    b = idm.infer(
        idm.from_sklearn(reg, X, DATA.y), lambda r: r.coef_[0], robust=True, names=["x", "tr"]
    )
    a = logit(DATA, robust=True)[["x", "tr"]]
    both = idm.join(a, b)
    np.testing.assert_allclose(both.covariance[:2, 2:], a.covariance, rtol=1e-4)
    assert np.all((a - b).standard_error < 1e-4 * a.standard_error)


KINDS = {
    "robust and none": ({"robust": "HC0"}, {}, True),
    "none and robust": ({}, {"robust": "HC1"}, True),
    "none": ({}, {}, False),
    "robust": ({"robust": "HC0"}, {"robust": "HC0"}, False),
    "HC0 and HC1": ({"robust": "HC0"}, {"robust": "HC1"}, False),
}


@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("formula", ["t ~ x", "t ~ x + z"])
def test_two_kinds_of_variance_make_no_difference_by_themselves(case, formula):
    """The gap between two scales is no error of a difference of two fits."""
    one, two, warns = KINDS[case]
    a, b = ols(DATA, **one), ols(DATA, formula, **two)
    if not warns:
        a["x"] - b["x"]
        return
    with pytest.warns(idm.ImplicitDeltaWarning, match="same `robust=`"):
        a["x"] - b["x"]
    with pytest.warns(idm.ImplicitDeltaWarning, match="two kinds of variance"):
        idm.join(a, b)
    a, b = (ols(DATA, f, robust=True)["x"] for f in ("t ~ x + z", formula))
    assert (a - b).standard_error < 0.5 * a.standard_error


def test_labels_of_numbers_have_to_be_in_order():
    est, known = logit(DATA), smf.logit("y ~ x + tr", DATA).fit(disp=0).params
    np.testing.assert_allclose((est - known).value, 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="another order"):
        est - known[::-1]


# A network against a logit.


@pytest.mark.slow
def test_a_network_against_a_logit():
    """Paired comparison of two backends, against resampling with the same rows in both.

    100 resamples show a standard deviation up to 1 / sqrt(2 * 99) = 7 %; three of these and a few
    per cent for what is not linear in the weights of the rows make 25 %.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(400, 2)), rng.normal(size=(150, 2))
    y = (rng.random(400) < expit(2 * X[:, 0] + X[:, 1] ** 2 - 1)).astype(float)
    torch.manual_seed(0)
    layers = torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    data = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    net = idm.from_torch(torch.nn.Sequential(*layers).double(), data, idm.Bernoulli(), l2=1.0)
    net = idm.polish(net)
    Z, V = (np.column_stack([np.ones(len(x)), x]) for x in (X, new))
    line = idm.from_loglik(lambda b: y * (Z @ b) - np.logaddexp(0, Z @ b), start=np.zeros(3))

    def by_net(m):
        return torch.sigmoid(m(torch.as_tensor(new)))[:, 0]

    def by_line(b):
        return expit(V @ b)

    questions = [(net, lambda m: by_net(m).mean()), (line, lambda b: by_line(b).mean())]
    a, b = (idm.infer(model, psi, robust=True) for model, psi in questions)
    resampled = [idm.infer(*question, idm.Bootstrap(100, rng=0)).draws for question in questions]
    gap, spread = a - b, np.std(resampled[0] - resampled[1], ddof=1)
    assert gap.standard_error == pytest.approx(spread, rel=0.25)
    assert np.hypot(a.standard_error, b.standard_error) > 2 * spread  # as if they were independent

    units = [(net, idm.Average(by_net)), (line, idm.Average(by_line))]
    one, two = (idm.infer(*question, robust=True, influence=True) for question in units)
    population = one - two
    rows = net.evaluate(by_net, net.theta) - by_line(line.theta)
    errors = population.budget
    assert errors["model"] == pytest.approx(gap.standard_error, rel=1e-9)
    assert errors["evaluation"] == pytest.approx(rows.std(ddof=1) / np.sqrt(150), rel=1e-9)
    assert errors["total"] == pytest.approx(np.hypot(errors["model"], errors["evaluation"]))
