"""Separate samples: what is shared by estimates that are called independent, and clusters."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from sklearn.linear_model import LinearRegression

import implicit_delta as idm

RNG = np.random.default_rng(41)
N, G = 320, 20
DATA = pd.DataFrame({"x": RNG.normal(size=N), "t": RNG.permutation(np.arange(N) % 2)})
DATA["village"] = RNG.permutation(np.arange(N) % G)
DATA["region"] = RNG.permutation(np.arange(N) % 12)
DATA["u"] = 2 * RNG.normal(size=G)[DATA.village] + RNG.normal(size=12)[DATA.region]
DATA["y"] = DATA.x + DATA.u + RNG.normal(size=N)
DATA["z"] = DATA.y + RNG.normal(size=N)
INDEXES = {
    "counted": DATA,
    "texts": DATA.set_index("r" + DATA.index.astype(str)),
    "numbers": DATA.set_index(np.arange(1000, 1000 + N)),
    "dates": DATA.set_index(pd.date_range("2020-01-01", periods=N)),
    "pairs": DATA.set_index(["village", DATA.index], drop=False),
}


def ask(data, formula="y ~ x", psi="x", **options):
    weights = options.pop("weights", None)
    fit = smf.ols(formula, data).fit()
    if weights is not None:
        fit = smf.wls(formula, data, weights=weights).fit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.SmallSampleWarning)
        return idm.infer(idm.from_statsmodels(fit), psi, **options)


def again(data, **options):
    """Fit the rows by another library."""
    fit = LinearRegression().fit(data[["x"]], data.y)
    return idm.infer(idm.from_sklearn(fit, data[["x"]], data.y), lambda m: m.coef_[0], **options)


PAIRS = {
    "another model": lambda d, **k: (ask(d, **k), ask(d, "y ~ x + t", **k)),
    "another response": lambda d, **k: (ask(d, **k), ask(d, "z ~ x", **k)),
    "some of them": lambda d, **k: (ask(d, **k), ask(d[d.t == 1], **k)),
    "some, another response": lambda d, **k: (ask(d[d.x > -1], **k), ask(d[d.x < 1], "z ~ x", **k)),
    "the first ones": lambda d, **k: (ask(d, **k), ask(d.iloc[:200], **k)),
    "another weight": lambda d, **k: (ask(d, **k), ask(d, weights=1 + d.x**2, **k)),
    "another library": lambda d, **k: (ask(d, **k), again(d, **k)),
    "drawn from them": lambda d, **k: (
        ask(d, **k),
        ask(d.sample(N, replace=True, random_state=0), **k),
    ),
    "the first and the last": lambda d, **k: (ask(d[:200], **k), ask(d[120:], **k)),
    "the same, another response": lambda d, **k: (ask(d[:200], **k), ask(d[120:], "z ~ x", **k)),
    "in another order": lambda d, **k: (ask(d, **k), ask(d.iloc[::-1], "y ~ x + t", **k)),
}
ERRORS = {"plain": {}, "robust": {"robust": True}, "influence": {"influence": True}}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("errors", ERRORS)
def test_the_same_rows_are_not_independent(index, pair, errors):
    a, b = PAIRS[pair](INDEXES[index], **ERRORS[errors])
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"independent=True, but .* Leave indep"):
        idm.join(a, b, independent=True)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("errors", ERRORS)
def test_rows_of_one_table_that_are_not_shared_are_independent(index, errors):
    d = INDEXES[index]
    young, old = (ask(d[d.t == t], **ERRORS[errors]) for t in (0, 1))
    gap = idm.join(young, old, independent=True).contrast([1, -1])
    expected = np.hypot(young.standard_error, old.standard_error)
    assert gap.standard_error == pytest.approx(expected, rel=1e-12)


def table(seed, n, missing):
    """A table of its own, with an index that counts, of which a fit leaves out some rows."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({"x": rng.normal(size=n), "t": rng.integers(0, 2, n)})
    found["y"], found["z"] = found.x + rng.standard_t(3, n), found.x + rng.normal(size=n)
    found.loc[rng.random(n) < missing, "x"] = np.nan
    return found


@pytest.mark.parametrize("missing", [0, 0.1])
@pytest.mark.parametrize("n", [150, 151])
@pytest.mark.parametrize("errors", ERRORS)
def test_two_tables_are_silently_independent(missing, n, errors):
    for seed in range(5):
        a = ask(table(seed, 150, missing), **ERRORS[errors])
        idm.join(a, ask(table(100 + seed, n, missing), **ERRORS[errors]), independent=True)
        if errors == "robust":
            b = ask(table(100 + seed, n, missing), "z ~ x", robust=True)
            idm.join(a, b, independent=True)


def own(y, *, slope):
    x = DATA.x.to_numpy()[: len(y)]
    return idm.from_residuals(lambda th: y - th[0] - slope * th[1] * x, start=[0.0, 0.0], l2=1e-9)


def test_rows_without_labels_are_judged_by_their_influences():
    y = DATA.y.to_numpy()
    level = [idm.infer(own(y, slope=s), lambda th: th[0], robust=True) for s in (1.0, 0.9)]
    with pytest.warns(idm.ImplicitDeltaWarning, match="rank correlation of 1"):
        idm.join(*level, independent=True)
    for seed in range(20):  # each has a rank correlation with probability 0.001
        other = own(np.random.default_rng(seed).permutation(y), slope=1.0)
        idm.join(level[0], idm.infer(other, lambda th: th[0], robust=True), independent=True)


def by_loglik(y, *columns):
    X = np.column_stack([np.ones(len(y)), *columns])
    start = np.zeros(X.shape[1] + 1)
    return idm.from_loglik(
        lambda b: -0.5 * ((y - X @ b[:-1]) * np.exp(-b[-1])) ** 2 - b[-1], start=start
    )


def by_residuals(y, *columns):
    X = np.column_stack([np.ones(len(y)), *columns])
    return idm.from_residuals(lambda b: y - X @ b, start=np.zeros(X.shape[1]))


@pytest.mark.parametrize("second", [by_residuals, by_loglik])
@pytest.mark.parametrize("first", [by_residuals, by_loglik])
@pytest.mark.parametrize("errors", ["robust", "influence"])
@pytest.mark.parametrize("k", [0, 1])
def test_own_functions_of_the_same_data_are_known_by_their_influences(first, second, errors, k):
    """Without an index or influences the data are only in closures: then nothing is known."""
    x, t, y = (DATA[name].to_numpy() for name in "xty")
    a = idm.infer(first(y, x), lambda b: b[k], **ERRORS[errors])
    b = idm.infer(second(y, x, t), lambda b: b[k], **ERRORS[errors])
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"320 rows with a rank correlation of"):
        idm.join(a, b, independent=True)
    order = np.random.default_rng(k).permutation(N)
    other = idm.infer(second(y[order], x[order], t[order]), lambda b: b[k], **ERRORS[errors])
    idm.join(a, other, independent=True)


def test_two_answers_of_one_model_are_not_independent():
    model = own(DATA.y.to_numpy(), slope=1.0)
    a, b = (idm.infer(model, lambda th, k=k: th[k]) for k in (0, 1))
    with pytest.warns(idm.ImplicitDeltaWarning, match="same fitted model"):
        idm.join(a, b, independent=True)
    with pytest.raises(ValueError, match=r"in one call") as refusal:
        a - b
    assert "independent=True" not in str(refusal.value)
    both = idm.infer(model, [lambda th: th[0], lambda th: th[1]])
    np.testing.assert_allclose(both.standard_error, [a.standard_error, b.standard_error])


def test_averages_over_the_same_evaluation_rows_are_not_independent():
    test = DATA.iloc[:100]
    halves = DATA.iloc[100:210], DATA.iloc[210:]
    fits = [smf.ols("y ~ x", half).fit() for half in halves]

    def loss(params):
        return (test.y - params["Intercept"] - params["x"] * test.x).to_numpy() ** 2

    a, b = (idm.infer(idm.from_statsmodels(fit), idm.Average(loss), influence=True) for fit in fits)
    with pytest.warns(idm.ImplicitDeltaWarning, match="averages over 100 rows"):
        idm.join(a, b, independent=True)


# Clusters.

LABELS = {
    "numbers": lambda d: d.village,
    "arrays": lambda d: d.village.to_numpy(),
    "lists": lambda d: d.village.tolist(),
    "texts": lambda d: "v" + d.village.astype(str),
    "categories": lambda d: ("v" + d.village.astype(str)).astype("category"),
    "dates": lambda d: pd.Timestamp("2020-01-01") + pd.to_timedelta(d.village, "D"),
    "tuples": lambda d: [(v, "a") for v in d.village],
    "mixed": lambda d: [v if v else "none" for v in d.village],
    "two ways": lambda d: (d.village, d.region),
    "two ways of texts": lambda d: ("v" + d.village.astype(str), "r" + d.region.astype(str)),
}
SPLITS = {
    "shuffled": lambda d: (d[d.t == 0], d[d.t == 1]),
    "first and last": lambda d: (d.iloc[: N // 2], d.iloc[N // 2 :]),
    "unequal": lambda d: (d.iloc[:90], d.iloc[90:]),
    "two tables": lambda d: (d.iloc[:90].reset_index(drop=True), d.iloc[90:]),
    "another order": lambda d: (d.iloc[:90], d.iloc[:89:-1]),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("split", SPLITS)
def test_other_rows_of_the_same_clusters(labels, split):
    """Two levels and their difference are those of one regression on a dummy, clustered."""
    parts = SPLITS[split](DATA)
    whole = pd.concat([part.assign(second=k) for k, part in enumerate(parts)], ignore_index=True)
    right = ask(whole, "y ~ second", "second", clusters=LABELS[labels](whole))
    a, b = (ask(part, "y ~ 1", "Intercept", clusters=LABELS[labels](part)) for part in parts)
    gap = b - a
    assert gap.value == pytest.approx(right.value, rel=1e-9)
    assert gap.standard_error == pytest.approx(right.standard_error, rel=1e-8)
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"clusters in common"):
        wrong = idm.join(a, b, independent=True).contrast([-1, 1])
    assert wrong.standard_error > 1.5 * right.standard_error


def test_rows_that_are_partly_the_same_and_their_clusters():
    """The mean of all rows less that of some is a contrast of two means."""
    d = INDEXES["texts"]
    few = d[d.t == 1]
    a = ask(d, "y ~ 1", "Intercept", clusters=d.village)
    b = ask(few, "y ~ 1", "Intercept", clusters=few.village)
    f, g = (pd.Series(e.influence[:, 0], r.index) for e, r in ((a, d), (b, few)))
    sums = f.groupby(d.village).sum() - g.groupby(few.village).sum()
    assert (a - b).standard_error == pytest.approx(np.sqrt(np.sum(sums**2)), rel=1e-8)


def test_weights_of_a_survey_and_its_units():
    """Sampling weights, clustered by primary sampling units, of two domains."""
    rng = np.random.default_rng(3)
    d = DATA.assign(w=rng.uniform(1, 5, N))

    def mean(part):
        weights = part.w.to_numpy()
        y = part.y.to_numpy()
        model = idm.from_residuals(
            lambda th: y - th[0], start=[0.0], weights=weights, weight_kind="sampling"
        )
        return idm.infer(model, lambda th: th[0], clusters=part.village)

    a, b = mean(d[d.t == 0].iloc[:-3]), mean(d[d.t == 1])
    sums = np.zeros(G)
    for sign, part in ((1, d[d.t == 0].iloc[:-3]), (-1, d[d.t == 1])):
        share = part.w / part.w.sum()
        np.add.at(sums, part.village, sign * share * (part.y - share @ part.y))
    expected = np.sqrt(G / (G - 1) * np.sum(sums**2))  # CR1, which surveys have
    assert (a - b).standard_error == pytest.approx(expected, rel=1e-6)


REFUSED = {
    "other clusters": (lambda d: d.village, lambda d: -1 - d.village, "share no cluster either"),
    "one has none": (lambda d: d.village, None, "give `clusters=` to both"),
    "neither has any": (None, None, "give `clusters=` to both"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_no_row_and_no_cluster_in_common(case):
    d = INDEXES["texts"]
    *labels, text = REFUSED[case]
    halves = d[d.t == 0], d[d.t == 1]
    a, b = (
        ask(half, robust=True) if label is None else ask(half, clusters=label(half))
        for half, label in zip(halves, labels, strict=True)
    )
    with pytest.raises(ValueError, match=text):
        a - b
    idm.join(a, b, independent=True)


def test_the_same_rows_in_other_clusters_are_refused():
    d = INDEXES["texts"]
    few = d[d.t == 1]
    with pytest.raises(ValueError, match="other clusters for the same rows"):
        ask(d, clusters=d.village) - ask(few, clusters=few.region)


def test_halves_of_a_series_are_not_called_separate():
    d = INDEXES["dates"]
    a, b = (ask(half, robust=idm.HAC(3)) for half in (d.iloc[::2], d.iloc[1::2]))
    with pytest.raises(ValueError, match="near in time"):
        a - b


@pytest.mark.parametrize("file", [False, True])
def test_files_and_copies_know_their_rows_and_clusters(file, tmp_path):
    d = INDEXES["texts"]
    halves = d[d.t == 0], d[d.t == 1]
    a, b = (ask(half, clusters="v" + half.village.astype(str)) for half in halves)
    right = (a - b).standard_error
    if file:
        a.save(tmp_path / "a.npz")
        a = idm.Estimate.load(tmp_path / "a.npz")
    assert (a["x"] - b).standard_error == pytest.approx(right, rel=1e-12)
    with pytest.warns(idm.ImplicitDeltaWarning, match="clusters in common"):
        idm.join(a, 2 * b, independent=True)


OWN = {
    "residuals": lambda y, X: idm.from_residuals(lambda b: y - X @ b, start=np.zeros(X.shape[1])),
    "log-likelihood": lambda y, X: idm.from_loglik(
        lambda b: -((y - X @ b) ** 2) / 2, start=np.zeros(X.shape[1])
    ),
}


@pytest.mark.parametrize("kind", OWN)
def test_own_functions_of_the_same_rows_are_recognized_without_influences(kind):
    X, y = np.column_stack([np.ones(N), DATA.x]), DATA.y.to_numpy()
    line, mean = OWN[kind](y, X), OWN[kind](y, X[:, :1])
    a, b = (idm.infer(model, lambda b: b[0]) for model in (line, mean))
    assert a.influence is None
    with pytest.warns(idm.ImplicitDeltaWarning, match="rank correlation of 0"):
        idm.join(a, b, independent=True)
    assert pickle.loads(pickle.dumps(a)).rows.terms is None


@pytest.mark.parametrize("kind", OWN)
def test_own_functions_of_other_rows_are_not(kind):
    """By chance one in a thousand pairs is; none of these is, with this seed."""
    rng = np.random.default_rng(5)
    X = np.ones((N, 1))
    a, b = (idm.infer(OWN[kind](rng.normal(size=N), X), lambda b: b[0]) for _ in range(2))
    idm.join(a, b, independent=True)
