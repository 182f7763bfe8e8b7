"""Averages over an evaluation sample: three ways in which its own error counts."""

import pytest

pytest.importorskip("hypothesis")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize
from scipy.special import expit

import implicit_delta as idm
from implicit_delta.evaluation.average import add_errors

BETA = np.array([0.5, 1.0, -0.7])


def regression(rng, n=200):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return X, X @ BETA + rng.normal(size=n)


def least_squares(X, y, **options):
    return idm.from_residuals(
        lambda b: y - X @ b,
        np.linalg.lstsq(X, y, rcond=None)[0],
        jacobian=lambda b: -X,
        **options,
    )


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, y = regression(rng)
    other, demand = regression(rng, 500)
    return least_squares(X, y), X, y, other, demand


def unmet(X, demand):
    return lambda b: np.maximum(demand - X @ b, 0.0)


def test_independent_variances_add_and_the_budget_lists_them(problem):
    model, _, _, other, demand = problem
    h = unmet(other, demand)
    plain = idm.infer(model, lambda b: h(b).mean())
    average = idm.infer(model, idm.Average(h))
    sampling = h(model.theta).std(ddof=1) / np.sqrt(500)
    assert average.value == pytest.approx(plain.value, rel=1e-12)
    assert average.budget["model"] == pytest.approx(plain.standard_error, rel=1e-9)
    assert average.budget["evaluation"] == pytest.approx(sampling, rel=1e-12)
    assert average.budget["total"] == average.standard_error
    assert average.standard_error == pytest.approx(np.hypot(plain.standard_error, sampling))
    assert "evaluation" in average.summary()
    assert plain.parts == {}


def test_unknown_standard_errors_add(problem):
    model, _, _, other, demand = problem
    est = idm.infer(model, idm.Average(unmet(other, demand), sample="unknown"))
    assert est.standard_error == pytest.approx(est.budget["model"] + est.budget["evaluation"])


def test_training_is_the_sum_of_squared_influences(problem):
    model, X, y, _, _ = problem
    h = unmet(X, y)
    est = idm.infer(model, idm.Average(h, sample="training"))
    b = model.theta
    inside = (y > X @ b).astype(float)
    direction = np.linalg.solve(X.T @ X, -X.T @ inside / 200)
    by_hand = X @ direction * (y - X @ b) + (h(b) - h(b).mean()) / 200
    np.testing.assert_allclose(est.influence[:, 0], by_hand, rtol=1e-6, atol=1e-12)
    assert est.standard_error == pytest.approx(np.linalg.norm(by_hand), rel=1e-6)


@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
def test_columns_are_evaluations(problem, sample):
    model, X, y, _, _ = problem

    def costs(b):
        r = y - X @ b
        return np.column_stack([np.maximum(r, 0.0), np.maximum(-r, 0.0), np.exp(X @ b / 4)])

    joint = idm.infer(model, idm.Average(costs, sample))
    refits = idm.infer(model, idm.Average(costs, sample), idm.FiniteDifference())
    np.testing.assert_allclose(refits.standard_error, joint.standard_error, rtol=0.01)
    assert joint.names == ("costs[0]", "costs[1]", "costs[2]")
    for k in range(3):
        alone = idm.infer(model, idm.Average(lambda b, k=k: costs(b)[:, k], sample))
        assert joint.value[k] == pytest.approx(alone.value, rel=1e-12)
        for part, error in alone.budget.items():
            assert joint.budget[part][k] == pytest.approx(error, rel=1e-6)
    assert np.linalg.eigvalsh(joint.covariance)[0] >= -1e-12


def cobyqa(fun, x0):
    return optimize.minimize(fun, x0, method="COBYQA")


@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
@pytest.mark.parametrize(
    "method",
    [idm.FiniteDifference(), idm.Simulation(rng=0), idm.FiniteDifference(maximizer=cobyqa)],
)
def test_every_method_with_a_response_takes_averages(problem, sample, method):
    model, X, y, _, _ = problem
    h = idm.Average(lambda b: (y - X @ b > 1.0) + expit(X @ b), sample)
    smooth = idm.Average(lambda b: expit(X @ b), sample)
    assert idm.infer(model, smooth, method).standard_error == pytest.approx(
        idm.infer(model, smooth).standard_error, rel=0.01
    )
    if method.__class__ is idm.Simulation:
        assert set(idm.infer(model, h, method).budget) == {"model", "evaluation", "total"}


def test_smoothing_an_average_keeps_its_sampling_error(problem):
    model, _, _, other, _ = problem
    share = idm.Average(lambda b: other @ b > 0)
    direct = idm.infer(model, share, idm.Simulation(rng=0))
    smoothed = idm.infer(model, idm.Smoothed(share, rng=0))
    assert smoothed.budget["evaluation"] == pytest.approx(direct.budget["evaluation"], rel=1e-12)
    assert smoothed.standard_error == pytest.approx(direct.standard_error, rel=0.05)


def test_weights_repeat_training_rows():
    rng = np.random.default_rng(1)
    X, y = regression(rng, 60)
    weights = rng.integers(1, 4, size=60)
    again = np.repeat(np.arange(60), weights)
    weighted = idm.from_residuals(lambda b: y - X @ b, start=BETA, weights=weights)
    repeated = idm.from_residuals(lambda b: y[again] - X[again] @ b, start=BETA)
    one = idm.infer(weighted, idm.Average(unmet(X, y), "training"))
    other = idm.infer(repeated, idm.Average(unmet(X[again], y[again]), "training"))
    assert one.value == pytest.approx(other.value, rel=1e-8)
    assert one.budget == pytest.approx(other.budget, rel=1e-6)


def test_clusters_take_the_average_along(problem):
    model, X, y, _, _ = problem
    h, labels = idm.Average(unmet(X, y), "training"), np.arange(200) // 4
    est = idm.infer(model, h, clusters=labels)
    sums = np.add.reduceat(est.influence[:, 0], np.arange(0, 200, 4))
    assert est.standard_error == pytest.approx(np.linalg.norm(sums), rel=1e-12)


rows = arrays(float, (12, 3), elements=st.floats(-5, 5))


@pytest.mark.slow
@given(rows, rows)
def test_the_bound_of_unknown_samples_is_a_covariance_with_added_errors(a, b):
    first, second = a.T @ a, b.T @ b
    bound = add_errors(first, second)
    errors = np.sqrt(np.diag(first)) + np.sqrt(np.diag(second))
    np.testing.assert_allclose(np.sqrt(np.diag(bound)), errors, atol=1e-9)
    assert np.linalg.eigvalsh(bound)[0] >= -1e-9 * max(errors.max() ** 2, 1.0)
    # whatever the dependence: the sum of the two vectors of errors is one possibility
    assert np.all(np.diag((a + b).T @ (a + b)) <= np.diag(bound) + 1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@given(st.integers(0, 10_000))
def test_training_is_never_wider_than_unknown(seed):
    rng = np.random.default_rng(seed)
    X, y = regression(rng, 40)
    scale = rng.normal(size=2)
    h = lambda b: scale[0] * np.maximum(y - X @ b, 0.0) + scale[1] * X @ b
    model = least_squares(X, y)
    errors = {
        sample: idm.infer(model, idm.Average(h, sample), robust=True, strict=False).standard_error
        for sample in ("training", "unknown")
    }
    assert errors["training"] <= errors["unknown"] * (1 + 1e-12)


@pytest.mark.slow
def test_training_is_the_standard_deviation_over_data_sets():
    """Of 2000 data sets: the error of a standard deviation is 1 / sqrt(4000), 1.6 %."""
    rng = np.random.default_rng(2)
    values, errors, unknown = [], [], []
    for _ in range(2000):
        X, y = regression(rng)
        b = np.linalg.lstsq(X, y, rcond=None)[0]
        values.append(np.maximum(y - X @ b, 0.0).mean())
        if len(errors) < 100:
            model, h = least_squares(X, y), unmet(X, y)
            errors.append(idm.infer(model, idm.Average(h, "training")).standard_error)
            unknown.append(idm.infer(model, idm.Average(h, "unknown")).standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.04)
    assert np.all(np.array(errors) < unknown)


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
def test_coverage_of_the_population_mean(sample):
    """95 % intervals of 400 data sets: the binomial error is 1.1 %, three of them are allowed."""
    rng = np.random.default_rng(3)
    truth = 1 / np.sqrt(2 * np.pi)  # E max(noise, 0)
    covered = []
    for _ in range(400):
        X, y = regression(rng, 150)
        rows, demand = (X, y) if sample == "training" else regression(rng, 150)
        est = idm.infer(least_squares(X, y), idm.Average(unmet(rows, demand), sample))
        low, high = est.confidence_interval()
        covered.append(low < truth < high)
    if sample == "unknown":
        assert np.mean(covered) > 0.95 - 0.033
    else:
        assert abs(np.mean(covered) - 0.95) < 0.033


@pytest.mark.parametrize(
    ("h", "sample", "text"),
    [
        (lambda b: np.ones(199) * b[0], "training", "199 rows, but there are 200"),
        (lambda b: np.ones(1) * b[0], "independent", "one row"),
        (lambda b: b[0], "independent", "one number per evaluation row"),
        (lambda b: np.ones((5, 2, 2)) * b[0], "unknown", r"shape \(5, 2, 2\)"),
        (lambda b: np.where(np.arange(9) == 4, np.nan, b[0]), "independent", "row 4"),
        (lambda b: np.array(["a", "b"]), "independent", "one number per evaluation row"),
    ],
)
def test_bad_unit_values(problem, h, sample, text):
    with pytest.raises(idm.EvaluationError, match=text):
        idm.infer(problem[0], idm.Average(h, sample))


def test_bad_configuration(problem):
    with pytest.raises(ValueError, match="'independent', 'training', 'unknown'"):
        idm.Average(lambda b: b, sample="test")
    with pytest.raises(TypeError, match="function of the model"):
        idm.Average(np.ones(3))
    for inside in (idm.Smoothed(BETA.dot), idm.Average(BETA.dot)):
        with pytest.raises(TypeError, match="go around the Average"):
            idm.Average(inside)
    with pytest.raises(TypeError, match="From outside to inside"):
        idm.infer(problem[0], idm.Smoothed(idm.Smoothed(BETA.dot)))
