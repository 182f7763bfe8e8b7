"""The bootstrap: against closed forms and the sandwich, whole clusters, and its failures."""

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend
from scipy.special import expit

import implicit_delta as idm

KINDS = ["resample", "bayesian"]


def exponential(y, **options):
    """Rate of an exponential distribution; its maximum 1 / mean has a closed form."""
    return idm.from_loglik(
        lambda th: th[0] - y * np.exp(th[0]),
        start=[0.0],
        score=lambda th: (1 - y * np.exp(th[0]))[:, None],
        **options,
    )


def mean(th):
    return np.exp(-th[0])


def sample(n, seed):
    return np.random.default_rng(seed).gamma(0.5, 2.0, size=n)  # twice the exponential's variance


def test_replicates_are_weighted_means():
    y = sample(50, seed=0)
    estimate = idm.infer(exponential(y), mean, idm.Bootstrap(20, rng=3))
    streams = np.random.SeedSequence(3).spawn(20)
    counts = [np.random.default_rng(s).multinomial(50, np.full(50, 1 / 50)) for s in streams]
    np.testing.assert_allclose(estimate.draws[:, 0], np.array(counts) @ y / 50, rtol=1e-7)
    np.testing.assert_allclose(estimate.standard_error, np.std(estimate.draws, ddof=1))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_standard_error_is_that_of_resampling(kind, weighted):
    y, rng = sample(30, seed=1), np.random.default_rng(1)
    counts = rng.integers(0, 4, size=30) if weighted else np.ones(30, dtype=int)
    estimate = idm.infer(exponential(y, weights=counts), mean, idm.Bootstrap(600, kind, rng=0))
    copies = np.repeat(y, counts)  # a weight counts repetitions
    exact = np.std(copies) / np.sqrt(copies.size + (kind == "bayesian"))  # of a Dirichlet mean
    noise = estimate.diagnostics.notes["monte_carlo_error"]
    assert abs(estimate.standard_error / exact - 1) < 4 * noise
    assert 0.5 < noise * np.sqrt(2 * 599) < 2  # 1 if the replicates were normal


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_agrees_with_the_sandwich_where_the_model_is_wrong(kind):
    y = sample(400, seed=2)
    model = exponential(y)
    boot = idm.infer(model, mean, idm.Bootstrap(600, kind, rng=0))
    robust = idm.infer(model, mean, robust=True).standard_error
    noise = boot.diagnostics.notes["monte_carlo_error"]
    assert abs(boot.standard_error / robust - 1) < 4 * noise
    plain = idm.infer(model, mean).standard_error
    assert robust / plain > 1 + 8 * noise  # the difference is no accident


def test_percentile_intervals_follow_the_replicates():
    y = sample(60, seed=3)
    estimate = idm.infer(exponential(y), mean, idm.Bootstrap(500, rng=0))
    low, high = estimate.confidence_interval(0.9, kind="percentile")
    np.testing.assert_allclose([low, high], np.quantile(estimate.draws, [0.05, 0.95]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_clusters_are_drawn_whole(kind):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 60, size=300)
    y = sample(60, seed=5)[ids] * rng.gamma(5.0, 0.2, size=300)
    model = exponential(y)
    boot = idm.infer(model, mean, idm.Bootstrap(600, kind, rng=0), clusters=ids)
    sandwich = idm.infer(model, mean, clusters=ids).standard_error
    # apart from Monte-Carlo error the two differ by a share of the order of one over 60 clusters
    noise = boot.diagnostics.notes["monte_carlo_error"]
    assert abs(boot.standard_error / sandwich - 1) < 4 * noise + 2 / 60
    rows = idm.infer(model, mean, robust=True).standard_error
    assert boot.standard_error > 1.5 * rows
    assert "60 clusters" in boot.method


def two_evaluations(th):
    return np.array([mean(th), th[0]])


def test_the_number_of_jobs_changes_nothing():
    model = exponential(sample(30, seed=6))
    one = idm.infer(model.at(model.theta), two_evaluations, idm.Bootstrap(12, rng=1))
    copy = model.at(model.theta)  # with nothing remembered from the first time
    two = idm.infer(copy, two_evaluations, idm.Bootstrap(12, rng=1, n_jobs=2))
    np.testing.assert_array_equal(one.draws, two.draws)
    assert one.draws.shape == (12, 2)
    assert one.diagnostics.passes == two.diagnostics.passes


@pytest.mark.filterwarnings("ignore")  # what a cluster says while it comes and goes
def test_a_dask_cluster_changes_nothing():
    distributed = pytest.importorskip("distributed")
    model = exponential(sample(30, seed=6))
    alone = idm.infer(model, mean, idm.Bootstrap(12, rng=1))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        shared = idm.infer(model, mean, idm.Bootstrap(12, rng=1, n_jobs=2))
    np.testing.assert_array_equal(alone.draws, shared.draws)


class AllAtOnce(ThreadingBackend):
    """Ray's backend gives no results before all are there."""

    supports_return_generator = False


def test_a_backend_without_generators_changes_nothing():
    joblib.register_parallel_backend("all at once", AllAtOnce)
    model = exponential(sample(30, seed=6))
    alone = idm.infer(model, mean, idm.Bootstrap(12, rng=1))
    with joblib.parallel_config("all at once"):
        shared = idm.infer(model, mean, idm.Bootstrap(12, rng=1, n_jobs=2))
    np.testing.assert_array_equal(alone.draws, shared.draws)


@pytest.mark.filterwarnings("ignore:The bootstrap has a standard error")
def test_seeds_name_the_draws():
    model = exponential(sample(30, seed=7))
    fresh = idm.infer(model, mean, idm.Bootstrap(5))
    again = idm.infer(model, mean, eval(fresh.method, {**vars(idm)}))
    np.testing.assert_array_equal(fresh.draws, again.draws)
    other = idm.infer(model, mean, idm.Bootstrap(5))
    assert not np.array_equal(fresh.draws, other.draws)


def few_successes(n, positive, seed=0):
    """A logistic regression whose resamples are sometimes separated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = np.zeros(n)
    y[rng.permutation(n)[:positive]] = 1.0
    X = np.column_stack([np.ones(n), x])
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=[0.0, 0.0],
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )


def test_replicates_without_a_fit_are_counted():
    model = few_successes(40, positive=4)
    with pytest.warns(idm.ImplicitDeltaWarning, match="of 200 bootstrap replicates have no fit"):
        estimate = idm.infer(model, lambda b: expit(b[0]), idm.Bootstrap(200, rng=0))
    notes = estimate.diagnostics.notes
    # resamples without any success alone: (1 - 4 / 40) ** 40 = 1.5 %
    assert 0 < notes["failed"] <= 20
    assert notes["replicates"] == 200
    assert len(estimate.draws) == 200 - notes["failed"]
    smooth = idm.infer(model, lambda b: expit(b[0]), idm.Bootstrap(200, "bayesian", rng=0))
    assert smooth.diagnostics.notes["failed"] == 0


def test_too_many_replicates_without_a_fit_are_refused():
    with pytest.raises(idm.ConvergenceError, match='kind="bayesian"'):
        idm.infer(few_successes(20, positive=1), lambda b: expit(b[0]), idm.Bootstrap(50, rng=0))


def test_drift_is_seen():
    model = exponential(sample(50, seed=8))
    far = model.at(model.theta + 0.5)
    with pytest.raises(idm.ConvergenceError, match="polish"):
        idm.infer(far, mean, idm.Bootstrap(50, rng=0))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"replicates": 1}, ValueError, "above 1"),
        ({"replicates": 2.5}, ValueError, "integer"),
        ({"kind": "wild"}, ValueError, "bayesian"),
        ({"clusters": np.arange(3)}, TypeError, "clusters=labels"),
    ],
)
def test_what_is_no_bootstrap(options, error, message):
    with pytest.raises(error, match=message):
        idm.Bootstrap(**options)


def test_influences_need_another_method():
    with pytest.raises(idm.UnsupportedModelError, match="Bootstrap does not find"):
        idm.infer(exponential(sample(20, seed=9)), mean, idm.Bootstrap(5, rng=0), influence=True)


@pytest.mark.filterwarnings("error::implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize(("replicates", "seed"), [(5, 4), (5, 85), (20, 374), (20, 1567)])
def test_chance_alone_is_no_disagreement(replicates, seed):
    """These seeds make the spread of few replicates 1.5 to 2 times as wide as it is."""
    y = np.random.default_rng(0).normal(size=50)
    model = idm.from_loglik(
        lambda th: -((y - th[0]) ** 2) / (2 * np.var(y)),
        start=[0.0],
        score=lambda th: (y - th[0])[:, None] / np.var(y),
    )
    estimate = idm.infer(model, lambda th: th[0], idm.Bootstrap(replicates, rng=seed))
    assert estimate.standard_error > 1.5 * np.std(y) / np.sqrt(50)
