"""Averages by group, and totals: each group as if it were alone, in all three samples."""

import pytest

pytest.importorskip("pandas")

import numpy as np
import pandas as pd
from scipy.special import expit

import implicit_delta as idm
from implicit_delta.errors import EvaluationError, ImplicitDeltaError, ImplicitDeltaWarning

N, M = 300, 90
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = (RNG.random(N) < expit(X @ [0.2, 0.8, -0.5])).astype(float)
OTHER = np.column_stack([np.ones(M), RNG.normal(size=(M, 2))])
GROUP = np.array(["b", "c", "a"])[RNG.choice(3, M, p=[0.5, 0.4, 0.1])]
OWN = np.array(["b", "c", "a"])[RNG.choice(3, N, p=[0.5, 0.4, 0.1])]
CLUSTERS = np.repeat(np.arange(30), 3)


def loglik(b):
    return Y * (X @ b) - np.logaddexp(0, X @ b)


def model(**options):
    return idm.from_loglik(loglik, start=np.zeros(3), **options)


MODEL = model()


def h(b, rows=OTHER):
    return expit(rows @ b)


def wide(b, rows=OTHER):
    eta = rows @ b
    return np.stack([expit(eta), eta], axis=1)


# A group by itself

SAMPLES = ["independent", "unknown"]


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("clusters", [None, CLUSTERS], ids=["rows", "clusters"])
@pytest.mark.parametrize("group", ["a", "b", "c"])
def test_a_group_has_the_error_of_the_average_over_its_rows(sample, clusters, group):
    est = idm.infer(MODEL, idm.Average(h, sample=sample, clusters=clusters, by=GROUP))
    own = group == GROUP
    labels = None if clusters is None else clusters[own]
    alone = idm.infer(
        MODEL, idm.Average(lambda b: h(b, OTHER[own]), sample=sample, clusters=labels)
    )
    assert est.names == ("a", "b", "c")
    assert est[group].value == pytest.approx(alone.value, rel=1e-12)
    assert est[group].standard_error == pytest.approx(alone.standard_error, rel=1e-9)


def test_groups_are_independent_but_for_the_model():
    est = idm.infer(MODEL, idm.Average(h, by=GROUP))
    sampling = est.parts["evaluation"]
    np.testing.assert_allclose(sampling, np.diag(np.diag(sampling)), atol=1e-30)
    plain = idm.infer(MODEL, lambda b: [h(b)[g == GROUP].mean() for g in "abc"])
    np.testing.assert_allclose(est.parts["model"], plain.covariance, rtol=1e-7)


def test_training_rows_by_the_sandwich_in_closed_form():
    b = MODEL.theta
    p = expit(X @ b)
    influence = np.linalg.solve((X.T * (p * (1 - p))) @ X, (X * (Y - p)[:, None]).T)
    total = np.empty((N, 3))
    for k, g in enumerate("abc"):
        own = g == OWN
        slope = (p * (1 - p) * own) @ X / own.sum()
        total[:, k] = slope @ influence + own * (p - p[own].mean()) / own.sum()
    est = idm.infer(MODEL, idm.Average(lambda b: h(b, X), sample="training", by=OWN))
    np.testing.assert_allclose(est.covariance, total.T @ total, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(est.value, [p[g == OWN].mean() for g in "abc"], rtol=1e-12)


def test_one_group_is_the_plain_average():
    for sample, rows in [("independent", OTHER), ("unknown", OTHER), ("training", X)]:
        plain = idm.infer(MODEL, idm.Average(lambda b, rows=rows: h(b, rows), sample=sample))
        by = idm.Average(lambda b, rows=rows: h(b, rows), sample=sample, by=np.ones(len(rows)))
        grouped = idm.infer(MODEL, by)
        assert grouped.names == ("1.0",)
        assert grouped.standard_error[0] == pytest.approx(plain.standard_error, rel=1e-10)


def test_columns_within_groups():
    est = idm.infer(MODEL, idm.Average(wide, by=GROUP))
    assert est.names == ("a: 0", "a: 1", "b: 0", "b: 1", "c: 0", "c: 1")
    for k in range(2):
        one = idm.infer(MODEL, idm.Average(lambda b, k=k: wide(b)[:, k], by=GROUP))
        np.testing.assert_allclose(est.value[k::2], one.value)
        np.testing.assert_allclose(est.covariance[k::2, k::2], one.covariance, rtol=1e-9)


def test_a_dict_of_columns_within_groups():
    est = idm.infer(
        MODEL, idm.Average(lambda b: {"p": wide(b)[:, 0], "eta": wide(b)[:, 1]}, by=GROUP)
    )
    assert est.names[:3] == ("a: p", "a: eta", "b: p")
    np.testing.assert_allclose(est.value, idm.infer(MODEL, idm.Average(wide, by=GROUP)).value)


def test_weights_are_repetitions():
    weights = 1.0 + RNG.integers(0, 3, N)
    often = np.repeat(np.arange(N), weights.astype(int))
    repeated = idm.from_loglik(lambda b: loglik(b)[often], start=np.zeros(3))
    for options in [{"by": OWN}, {"total": True}, {"by": OWN, "total": True}]:
        again = {**options, **({"by": OWN[often]} if "by" in options else {})}
        weighed = idm.infer(
            model(weights=weights), idm.Average(lambda b: h(b, X), sample="training", **options)
        )
        copied = idm.infer(
            repeated, idm.Average(lambda b: h(b, X[often]), sample="training", **again)
        )
        np.testing.assert_allclose(weighed.value, copied.value, rtol=1e-6)
        np.testing.assert_allclose(weighed.standard_error, copied.standard_error, rtol=1e-5)


# Totals


@pytest.mark.parametrize(
    ("sample", "rows"), [("independent", OTHER), ("unknown", OTHER), ("training", X)]
)
def test_a_total_is_as_many_means(sample, rows):
    mean = idm.infer(MODEL, idm.Average(lambda b: h(b, rows), sample=sample))
    total = idm.infer(MODEL, idm.Average(lambda b: h(b, rows), sample=sample, total=True))
    assert total.value == pytest.approx(len(rows) * mean.value, rel=1e-12)
    assert total.standard_error == pytest.approx(len(rows) * mean.standard_error, rel=1e-9)


def test_the_totals_of_groups_add_up():
    for sample, rows, by in [("independent", OTHER, GROUP), ("training", X, OWN)]:
        asked = {"sample": sample, "total": True}
        parts = idm.infer(MODEL, idm.Average(lambda b, r=rows: h(b, r), by=by, **asked))
        whole = idm.infer(MODEL, idm.Average(lambda b, r=rows: h(b, r), **asked))
        added = parts.contrast(np.ones(3))
        assert added.value == pytest.approx(whole.value, rel=1e-12)
        assert added.standard_error == pytest.approx(whole.standard_error, rel=1e-9)


# Simulation: the population of rows, with random group sizes


def simulated(total):
    """Spread of estimates over samples, and the mean of their squared standard errors."""
    rng, found, squares = np.random.default_rng(1), [], []
    fixed = MODEL.at(MODEL.theta)
    for _ in range(400):
        rows = np.column_stack([np.ones(M), rng.normal(size=(M, 2))])
        by = (rows[:, 1] + rng.normal(size=M) > 1.0).astype(int)
        psi = idm.Average(lambda b, rows=rows: h(b, rows), by=by, total=total)
        est = idm.infer(fixed, psi)
        found.append(est.value)
        squares.append(np.diag(est.parts["evaluation"]))
    return np.std(found, axis=0, ddof=1), np.sqrt(np.mean(squares, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("total", [False, True])
def test_the_sampling_error_is_the_spread_over_samples(total):
    spread, claimed = simulated(total)
    # the standard deviation of 400 draws is known to 1 / sqrt(800) = 3.5 %: four of these
    np.testing.assert_allclose(claimed / spread, 1.0, atol=0.14)


# Other doors and languages


def test_the_bootstrap_of_training_rows_agrees():
    psi = idm.Average(lambda b: h(b, X), sample="training", by=OWN)
    exact = idm.infer(MODEL, psi)
    drawn = idm.infer(MODEL, psi, idm.Bootstrap(replicates=400, rng=0))
    np.testing.assert_allclose(drawn.standard_error / exact.standard_error, 1.0, atol=0.2)
    total = idm.Average(lambda b: h(b, X), sample="training", total=True)
    drawn = idm.infer(MODEL, total, idm.Bootstrap(replicates=400, rng=0))
    assert drawn.standard_error == pytest.approx(idm.infer(MODEL, total).standard_error, rel=0.2)


@pytest.mark.parametrize("method", [idm.FiniteDifference(), idm.Simulation(draws=400, rng=0)])
def test_other_methods(method):
    psi = idm.Average(h, by=GROUP)
    exact, other = idm.infer(MODEL, psi), idm.infer(MODEL, psi, method)
    assert other.names == exact.names
    np.testing.assert_allclose(other.standard_error / exact.standard_error, 1.0, atol=0.02)


def test_labels_of_pandas_and_of_a_frame():
    frame = pd.DataFrame(OTHER, index=[f"row{i}" for i in range(M)])

    def rows(b):
        return pd.DataFrame({"p": expit(frame.to_numpy() @ b), "eta": OTHER @ b}, index=frame.index)

    by = pd.Series(GROUP, index=frame.index)
    sm = pytest.importorskip("statsmodels.api")
    logit = idm.from_statsmodels(sm.Logit(Y, X).fit(disp=0))
    est = idm.infer(logit, idm.Average(rows, by=by))
    assert est.names[:2] == ("a: p", "a: eta")
    np.testing.assert_allclose(est.value[::2], idm.infer(logit, idm.Average(h, by=GROUP)).value)
    with pytest.raises(EvaluationError, match="another order"):
        idm.infer(MODEL, idm.Average(rows, by=by[::-1]))


def test_torch_and_jax():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(MODEL.theta[None, 1:])
        net.bias[:] = torch.tensor(MODEL.theta[:1])
    data = (torch.tensor(X[:, 1:]), torch.tensor(Y))
    fitted = idm.from_torch(net, data, idm.Bernoulli())
    rows = torch.tensor(OTHER[:, 1:])
    psi = idm.Average(lambda net: torch.sigmoid(net(rows))[:, 0], by=GROUP)
    expected = idm.infer(MODEL, idm.Average(h, by=GROUP))
    found = idm.infer(fitted, psi)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6)
    assert found.names == expected.names


def test_the_bootstrap_of_anything_and_refit_name_the_groups():
    def fit(data):
        return np.linalg.lstsq(data[0], data[1], rcond=None)[0]

    est = idm.bootstrap(fit, (X, Y), idm.Average(lambda b: OTHER @ b, by=GROUP), rng=0)
    assert est.names == ("a", "b", "c")
    assert set(est.budget) == {"model", "evaluation", "total"}


# Refusals


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"by": "group"}, TypeError, "one label for each row"),
        ({"by": 3}, TypeError, "one label for each row"),
        ({"by": []}, ValueError, "shape"),
        ({"by": np.ones((M, 2))}, ValueError, r"zip\(a, b\)"),
        ({"by": GROUP[:-1]}, ImplicitDeltaError, "89 labels, but h returned 90"),
        ({"by": [None, *GROUP[1:]]}, ValueError, "missing for 1 rows, the first of them row 0"),
        ({"by": pd.array([1, None] * 45, dtype="Int64")}, ValueError, "missing for 45"),
        ({"by": np.where(np.arange(M) < 5, np.nan, 1.0)}, ValueError, "missing for 5"),
        ({"by": ["alone", *["b"] * (M - 1)]}, ImplicitDeltaError, r"alone has 1 row\(s\)"),
        (
            {"by": np.arange(M) // 6 == 0, "clusters": CLUSTERS},
            ImplicitDeltaError,
            r"True has 2 cluster\(s\)",
        ),
        ({"total": 1}, TypeError, "total must be True or False"),
        ({"total": GROUP}, TypeError, "total must be True or False"),
    ],
)
def test_refusals(options, error, text):
    with pytest.raises(error, match=text):
        idm.infer(MODEL, idm.Average(h, **options))


def test_a_group_without_weight_is_refused():
    weights = (OWN != "a").astype(float)
    with pytest.raises(ImplicitDeltaError, match="group a has no rows"):
        idm.infer(model(weights=weights), idm.Average(lambda b: h(b, X), sample="training", by=OWN))


def test_the_training_loss_by_group_is_recognized():
    psi = idm.Average(lambda b: -loglik(b), sample="training", by=OWN)
    with pytest.warns(ImplicitDeltaWarning, match="optimistic"):
        idm.infer(MODEL, psi)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ([10, 2, 10, 2] * 22 + [2, 10], ("2", "10")),
        ([True, False] * 45, ("False", "True")),
        ([("x", 2), ("x", 1)] * 45, ("('x', 1)", "('x', 2)")),
        ([1, "1"] * 45, ("1", "1 (2)")),
        (pd.Series(["v", "u"] * 45, dtype="category"), ("u", "v")),
    ],
)
def test_groups_are_sorted(by, names):
    assert idm.infer(MODEL, idm.Average(h, by=by)).names == names
