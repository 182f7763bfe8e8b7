"""Robust and clustered variances, and the influence of each training row."""

import json

import numpy as np
import pytest
from scipy.special import expit
from test_golden import GOLDEN, function

import implicit_delta as idm
from implicit_delta.models.redraws import reweight

# Some of these have few clusters; that they warn is tested with the leverages.
few_clusters = pytest.mark.filterwarnings("ignore:There are only:implicit_delta.SmallSampleWarning")

CASES = json.loads((GOLDEN / "robust.json").read_text())["cases"]
EVALUATIONS = [
    pytest.param(case, evaluation, id=f"{name}-{title}")
    for name, case in CASES.items()
    for title, evaluation in case["evaluations"].items()
]
METHODS = [idm.Infinitesimal(), idm.FiniteDifference(lam=(0.02, 0.04))]


def model_of(case):
    return idm.from_loglik(function(case["loglik"], case["data"]), case["theta"])


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")  # of ratios
@pytest.mark.parametrize(("case", "evaluation"), EVALUATIONS)
def test_standard_errors_as_in_rs_sandwich(case, evaluation):
    model, psi = model_of(case), function(evaluation["formula"], case["data"])
    expected = evaluation["standard_error"]
    robust = idm.infer(model, psi, robust=True)
    clustered = idm.infer(model, psi, clusters=case["data"]["clusters"])
    assert robust.standard_error == pytest.approx(expected["hc0"], rel=1e-6)
    assert clustered.standard_error == pytest.approx(expected["cluster"], rel=1e-6)
    np.testing.assert_allclose(robust.confidence_interval(), evaluation["wald_95"]["hc0"], 1e-6)
    np.testing.assert_allclose(
        robust.influence[:, 0],
        evaluation["influence"],
        atol=1e-7 * np.max(np.abs(evaluation["influence"])),
    )


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")  # of ratios
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_every_method_that_responds_is_robust(method):
    case = CASES["poisson_epil"]
    evaluation = case["evaluations"]["rate_ratio_at_mean_base"]
    psi = function(evaluation["formula"], case["data"])
    estimate = idm.infer(model_of(case), psi, method, clusters=case["data"]["clusters"])
    assert estimate.standard_error == pytest.approx(
        evaluation["standard_error"]["cluster"], rel=1e-4
    )


def poisson(y, X, **options):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.exp(X @ b),
        start=np.zeros(X.shape[1]),
        score=lambda b: (y - np.exp(X @ b))[:, None] * X,
        **options,
    )


def overdispersed(n, seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return rng.poisson(np.exp(X @ [0.5, 0.3, -0.2]) * rng.gamma(1.0, 1.0, size=n)), X


def rate_ratio(b):
    return np.exp(b[1])


@few_clusters
def test_small_sample_factors():
    y, X = overdispersed(60, seed=1)
    model, ids = poisson(y, X), np.arange(60) // 4
    plain = idm.infer(model, rate_ratio, robust="HC0").covariance
    grouped = idm.infer(model, rate_ratio, clusters=ids).covariance
    for robust, clusters, expected in [
        (True, None, plain),
        ("HC1", None, plain * 60 / 57),
        (True, ids, grouped),
        ("CR0", ids, grouped),
        ("CR1", ids, grouped * 15 / 14),
        ("CR1S", ids, grouped * 15 / 14 * 59 / 57),
    ]:
        estimate = idm.infer(model, rate_ratio, robust=robust, clusters=clusters)
        np.testing.assert_allclose(estimate.covariance, expected, rtol=1e-12)


@few_clusters
@pytest.mark.parametrize("robust", [True, "HC1", "CR0", "CR1S"])
def test_weights_equal_repetition(robust):
    y, X = overdispersed(40, seed=2)
    counts = np.random.default_rng(2).integers(0, 4, size=40)
    ids = np.arange(40) // 4 if robust in ("CR0", "CR1S") else None
    weighted = poisson(y, X, weights=counts)
    repeated = poisson(np.repeat(y, counts), np.repeat(X, counts, axis=0))
    one = idm.infer(weighted, rate_ratio, robust=robust, clusters=ids)
    copies = None if ids is None else np.repeat(ids, counts)
    many = idm.infer(repeated, rate_ratio, robust=robust, clusters=copies)
    np.testing.assert_allclose(one.standard_error, many.standard_error, rtol=1e-7)
    np.testing.assert_allclose(
        np.repeat(one.influence, counts, axis=0), many.influence, rtol=1e-6, atol=1e-9
    )


@few_clusters
def test_clusters_without_weight_do_not_count():
    y, X = overdispersed(40, seed=3)
    ids = np.arange(40) // 4
    absent = idm.infer(
        poisson(y, X, weights=(ids < 8).astype(float)), rate_ratio, robust="CR1", clusters=ids
    )
    kept = ids < 8
    without = idm.infer(poisson(y[kept], X[kept]), rate_ratio, robust="CR1", clusters=ids[kept])
    assert absent.standard_error == pytest.approx(without.standard_error, rel=1e-7)


def test_clusters_of_one_row_each_are_no_clusters_and_labels_may_be_anything():
    y, X = overdispersed(40, seed=4)
    model = poisson(y, X)
    plain = idm.infer(model, rate_ratio, robust=True).standard_error
    labels = [f"village {i}" for i in np.random.default_rng(0).permutation(40)]
    assert idm.infer(model, rate_ratio, clusters=labels).standard_error == pytest.approx(plain)


BAD_CLUSTERS = [
    (np.arange(39), r"shape \(39,\), but there are 40"),
    (np.zeros(40), "only one cluster"),
    ([None] * 3 + list(range(37)), "missing for 3 observations"),
    (np.where(np.arange(40) == 5, np.nan, np.arange(40)), "row 5"),
]


@pytest.mark.parametrize(("clusters", "message"), BAD_CLUSTERS)
@pytest.mark.parametrize("method", [None, idm.Bootstrap(rng=0)], ids=["sandwich", "bootstrap"])
def test_clusters_that_are_none(clusters, message, method):
    y, X = overdispersed(40, seed=5)
    with pytest.raises(ValueError, match=message):
        idm.infer(poisson(y, X), rate_ratio, method, clusters=clusters)


@pytest.mark.parametrize(
    ("robust", "clusters", "message"),
    [
        ("HC4", None, "robust is True, False or one of"),
        ("HC1", np.arange(40), "CR0, CR1, CR1S and CR2 for clusters"),
        ("CR1", None, "clusters were not given"),
    ],
)
def test_corrections_that_do_not_fit(robust, clusters, message):
    y, X = overdispersed(40, seed=5)
    with pytest.raises(ValueError, match=message):
        idm.infer(poisson(y, X), rate_ratio, robust=robust, clusters=clusters)


def test_dependent_data_have_no_rows():
    model = idm.from_loglik(lambda th: np.array([-0.5 * th @ th]), theta=[0.0, 0.0])
    with pytest.raises(idm.UnsupportedModelError, match="only one"):
        idm.infer(model, lambda th: th[0], influence=True)


def left_out(model, psi):
    """Psi after real refits, each without one row."""
    values = []
    for row in range(model.n):
        weights = model.weights.values.copy()
        weights[row] -= 1
        refitted = idm.polish(reweight(model, weights))
        values.append(float(refitted.evaluate(psi, refitted.theta)))
    return np.array(values)


@pytest.mark.slow
def test_influence_predicts_leaving_out_rows_of_a_logistic_regression():
    rng = np.random.default_rng(6)
    X = np.column_stack([np.ones(150), rng.normal(size=(150, 2))])
    y = rng.random(150) < expit(X @ [0.2, 1.0, -0.5])
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(3),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )
    psi = lambda b: expit(b[0] + b[1])
    estimate = idm.infer(model, psi, influence=True)
    change = left_out(model, psi) - estimate.value
    assert np.corrcoef(change, -estimate.influence[:, 0])[0, 1] > 0.99
    # each share of influence is wrong by its leverage, of order d / n on average
    np.testing.assert_allclose(
        np.linalg.norm(change), np.linalg.norm(estimate.influence), rtol=3 * 3 / 150
    )


def network(rng, n, hidden):
    """A tanh network on a line, by least squares with a ridge, with its Jacobian."""
    x = np.sort(rng.uniform(-2, 2, size=n))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=n)

    def parts(theta, at):
        a, b, c = theta[: 3 * hidden].reshape(3, hidden)
        t = np.tanh(np.multiply.outer(at, a) + b)
        return t, c, theta[-1]

    def predict(theta, at=x):
        t, c, offset = parts(theta, at)
        return t @ c + offset

    def jacobian(theta):
        t, c, _ = parts(theta, x)
        slope = c * (1 - t**2)
        return -np.column_stack([slope * x[:, None], slope, t, np.ones(n)])

    start = rng.normal(size=3 * hidden + 1)
    return predict, idm.from_residuals(
        lambda theta: y - predict(theta), start=start, jacobian=jacobian, l2=1.0
    )


@pytest.mark.slow
def test_influence_predicts_leaving_out_rows_of_a_network():
    predict, model = network(np.random.default_rng(7), n=60, hidden=4)
    psi = lambda theta: predict(theta, np.array([0.5]))[0]
    estimate = idm.infer(model, psi, influence=True)
    change = left_out(model, psi) - estimate.value
    assert np.corrcoef(change, -estimate.influence[:, 0])[0, 1] > 0.9


def test_strongest_rows_are_named():
    y, X = overdispersed(50, seed=8)
    estimate = idm.infer(poisson(y, X), lambda b: np.exp(b), influence=True)
    top = estimate.top_influence(5)
    scaled = np.max(np.abs(estimate.influence) / estimate.standard_error, axis=1)
    assert top.row.tolist() == np.argsort(-scaled)[:5].tolist()
    np.testing.assert_array_equal(top.influence, estimate.influence[top.row])
    assert estimate.top_influence(1000).row.size == 50


def test_influence_must_have_been_asked_for():
    y, X = overdispersed(50, seed=8)
    estimate = idm.infer(poisson(y, X), rate_ratio)
    assert estimate.influence is None
    with pytest.raises(ValueError, match="influence=True"):
        estimate.top_influence()
    with pytest.raises(ValueError, match="influence=True"):
        estimate.plot(kind="influence")


def test_influence_is_drawn():
    pytest.importorskip("matplotlib")
    y, X = overdispersed(50, seed=9)
    estimate = idm.infer(poisson(y, X), lambda b: np.exp(b[1:]), influence=True)
    ax = estimate.plot(kind="influence")
    labelled = {int(text.get_text()) for text in ax.texts}
    assert labelled == set(estimate.top_influence(10).row.tolist())
    assert len(ax.lines) == 3  # one per evaluation, and zero
