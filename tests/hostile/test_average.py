"""Averages that are asked wrongly: combinations of bounds, rows out of order, h that is no h."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("statsmodels")

import pickle

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.linalg import eigh

import implicit_delta as idm
from implicit_delta.estimate import Estimate
from implicit_delta.estimate.quantiles import t_quantile

N = 120
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = X @ [1.0, 0.5, -0.3] + RNG.normal(size=N)
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
OTHER = np.column_stack([np.ones(50), RNG.normal(size=(50, 2))])


def model(**options):
    return idm.from_loglik(
        lambda b: -((Y - X @ b) ** 2) / 2,
        BETA,
        score=lambda b: (Y - X @ b)[:, None] * X,
        **options,
    )


def units(b):
    """Four evaluations of the other rows, in very different proportions of the two errors."""
    eta = OTHER @ b
    return np.column_stack([eta, np.exp(eta / 2), 3 * eta + OTHER[:, 1], OTHER[:, 2] ** 2 + b[1]])


UNKNOWN = idm.infer(model(), idm.Average(units, sample="unknown"))
PARTS = {part: np.array(V) for part, V in UNKNOWN.parts.items()}
CONTRASTS = [
    [1, -1, 0, 0],
    [0, 1, -1, 0],
    [3, 0, -1, 0],
    [1, 1, 1, 1],
    [-1, 2, 0.5, -3],
    [[1, 0, 0, 0], [1, -1, 0, 0], [0, 0, 2, -1]],
]


def quadratic(C, V):
    rows = np.atleast_2d(C)
    return np.sqrt(np.maximum(np.diag(rows @ V @ rows.T), 0.0))


# Combinations of an unknown sample: the standard errors of each combination add.


@pytest.mark.parametrize("C", CONTRASTS, ids=str)
@pytest.mark.parametrize("again", ["as it is", "saved", "pickled"])
def test_the_errors_of_a_combination_add(C, again, tmp_path):
    est = UNKNOWN
    if again == "saved":
        est.save(tmp_path / "est")
        est = Estimate.load(tmp_path / "est")
    elif again == "pickled":
        est = pickle.loads(pickle.dumps(est))
    combined = est.contrast(C)
    by_part = [quadratic(C, PARTS[part]) for part in ("model", "evaluation")]
    np.testing.assert_allclose(combined.standard_error, np.squeeze(sum(by_part)), rtol=1e-7)
    for part, expected in zip(("model", "evaluation"), by_part, strict=True):
        np.testing.assert_allclose(combined.budget[part], np.squeeze(expected), atol=1e-7)
    np.testing.assert_array_equal(combined.budget["total"], combined.standard_error)


def test_contrasts_of_contrasts_are_contrasts():
    A, B = RNG.normal(size=(3, 4)), RNG.normal(size=3)
    twice, once = UNKNOWN.contrast(A).contrast(B), UNKNOWN.contrast(B @ A)
    assert twice.standard_error == pytest.approx(once.standard_error, rel=1e-9)


def test_one_evaluation_made_of_the_same_difference_has_the_same_error():
    """Asked for as an h of its own, the difference has the error that its contrast has."""
    own = idm.infer(model(), idm.Average(lambda b: units(b)[:, 0] - units(b)[:, 1], "unknown"))
    assert UNKNOWN.contrast([1, -1, 0, 0]).standard_error == pytest.approx(
        own.standard_error, rel=1e-6
    )


def dependent(seed):
    """The covariance of the sum of two sources with the given parts that move together."""
    rng = np.random.default_rng(seed)
    roots = [np.linalg.cholesky(PARTS[part] + 1e-15 * np.eye(4)) for part in PARTS]
    rotation, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    sharing = rotation @ np.diag(np.sign(rng.normal(size=4)))
    joint = roots[0] + roots[1] @ sharing  # the two sources move together, one for one
    return joint @ joint.T


@pytest.mark.parametrize("seed", range(20))
def test_no_dependence_exceeds_the_bound(seed):
    V = dependent(seed)
    for C in np.random.default_rng(seed).normal(size=(20, 4)):
        bound = UNKNOWN.contrast(C).standard_error
        assert np.sqrt(C @ V @ C) <= bound * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_joint_test_is_on_the_safe_side(seed):
    """Along the direction in which the sum of both errors exceeds the covariance most."""
    V = dependent(seed)
    _, directions = eigh(V, UNKNOWN.covariance)
    gap, exact = V @ directions[:, -1], directions[:, -1] @ V @ directions[:, -1]
    assert UNKNOWN.test(UNKNOWN.value - gap, joint=True).statistic <= exact * (1 + 1e-6)


def test_the_joint_test_of_one_is_the_test_of_one():
    one = UNKNOWN.contrast([1, -1, 0, 0])
    assert one.test(joint=True).statistic == pytest.approx(one.test().statistic ** 2, rel=1e-9)
    assert one.test(joint=True).p_value == pytest.approx(one.test().p_value, rel=1e-6)


def test_simultaneous_intervals_hold_for_any_dependence():
    low, high = UNKNOWN.confidence_interval(simultaneous=True)
    critical = t_quantile(0.95 ** (1 / 4))
    np.testing.assert_allclose((high - low) / 2, critical * UNKNOWN.standard_error, rtol=1e-12)


def test_noise_is_a_part_of_its_own():
    def psi(b, rng):
        return units(b) + 0.1 * rng.normal(size=4)

    est = idm.infer(model(), idm.Replicated(idm.Average(psi, "unknown"), rng=0))
    C = np.array([1.0, -1.0, 0.0, 0.0])
    errors = {part: quadratic(C, np.array(V))[0] for part, V in est.parts.items()}
    expected = np.hypot(errors["model"] + errors["evaluation"], errors["noise"])
    assert est.contrast(C).standard_error == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sample", ["independent", "unknown"])
def test_draws_of_a_combination_spread_like_its_error(sample):
    est = idm.infer(model(), idm.Average(units, sample), idm.Simulation(4000, rng=0))
    for C in CONTRASTS[:5]:
        if C == [3, 0, -1, 0]:  # the model has no part in it, so its draws do not move
            continue
        one = est.contrast(C)
        assert np.std(one.draws) == pytest.approx(one.standard_error, rel=0.05)
        low, high = one.confidence_interval(kind="percentile")
        assert (high - low) / 2 == pytest.approx(1.96 * one.standard_error, rel=0.1)


def test_replicates_that_do_not_move_have_no_percentiles():
    est = idm.infer(model(), idm.Average(units), idm.Simulation(200, rng=0))
    rows_alone = est.contrast([3, 0, -1, 0], names="difference of the rows")
    assert rows_alone.standard_error > 0.05
    with pytest.raises(ValueError, match=r"'difference of the rows' are equal.*kind='normal'"):
        rows_alone.confidence_interval(kind="percentile")


@pytest.mark.parametrize("sample", ["independent", "training"])
def test_other_samples_combine_by_their_covariance(sample):
    h = units if sample == "independent" else lambda b: np.column_stack([X @ b + Y, X @ b - Y])
    est = idm.infer(model(), idm.Average(h, sample))
    C = np.ones(len(est.names))
    C[1] = -1
    assert not est.errors_add
    assert est.contrast(C).standard_error == pytest.approx(
        float(np.sqrt(C @ est.covariance @ C)), rel=1e-9
    )


# Rows of the training in another order.

LABELS = pd.Index([f"row {i}" for i in RNG.permutation(N)])
FRAME = pd.DataFrame({"one": 1.0, "x": X[:, 1], "z": X[:, 2], "y": Y}, index=LABELS)
RESULTS = sm.OLS(FRAME["y"], FRAME[["one", "x", "z"]]).fit()


def labelled_model():
    """A fitted model that knows its rows."""
    found = idm.from_statsmodels(RESULTS)
    labels = RESULTS.model.data.row_labels
    object.__setattr__(found, "facts", found.facts.with_host(labels=labels))
    return found


def unmet(data):
    return lambda b: (data["y"] - data[["one", "x", "z"]] @ np.asarray(b)).clip(lower=0)


def exact():
    return idm.infer(idm.from_statsmodels(RESULTS), idm.Average(unmet(FRAME), "training"))


ORDERS = {
    "the same": (FRAME, None),
    "without labels": (FRAME.reset_index(drop=True), None),
    "labels of another kind": (FRAME.set_index(FRAME["x"].to_numpy()), None),
    "sorted": (FRAME.sort_index(), "in that order"),
    "shuffled": (FRAME.sample(frac=1.0, random_state=0), "in that order"),
    "other rows": (FRAME.rename(index={LABELS[7]: "row 1000"}), "in that order"),
    "too many": (pd.concat([FRAME, FRAME[:3]]), "missing values"),
}


@pytest.mark.parametrize("case", ORDERS)
def test_training_rows_in_another_order(case):
    data, refusal = ORDERS[case]
    h = idm.Average(unmet(data), "training")
    if refusal is None:
        found = idm.infer(labelled_model(), h)
        assert found.standard_error == pytest.approx(exact().standard_error, rel=1e-6)
    else:
        with pytest.raises(idm.EvaluationError, match=refusal):
            idm.infer(labelled_model(), h)


def test_the_advice_for_another_order_works():
    rows = RESULTS.model.data.row_labels
    h = idm.Average(lambda b: unmet(FRAME.sort_index())(b).loc[rows], "training")
    found = idm.infer(labelled_model(), h)
    assert found.standard_error == pytest.approx(exact().standard_error, rel=1e-6)


def test_other_samples_may_have_any_labels():
    found = idm.infer(labelled_model(), idm.Average(unmet(FRAME.sort_index()), "unknown"))
    assert found.standard_error > 0


# Weights: counts of rows weight the mean, variances do not.


def test_frequency_weights_count_rows_and_variance_weights_do_not():
    counts = RNG.integers(1, 4, size=N)
    h = lambda b: np.maximum(Y - X @ np.asarray(b), 0.0)
    for weights, expected in [("freq_weights", counts), ("var_weights", np.ones(N))]:
        results = sm.GLM(Y, X, **{weights: counts}).fit()
        found = idm.infer(idm.from_statsmodels(results), idm.Average(h, "training"))
        assert found.value == pytest.approx(np.average(h(results.params), weights=expected))


# An h that is none.

CONSTANT = {
    "repeated mean": lambda b: np.full(50, np.mean(OTHER @ b)),
    "broadcast sum": lambda b: np.broadcast_to(np.sum(OTHER @ b), (50,)),
    "one mean per column": lambda b: np.tile(units(b).mean(axis=0), (50, 1)),
    "effect in a linear model": lambda b: (0 * OTHER + np.eye(3)[1]) @ b,
}


@pytest.mark.parametrize("case", CONSTANT)
def test_an_h_without_differences_between_rows_is_pointed_out(case):
    with pytest.warns(idm.ImplicitDeltaWarning, match="the same for all 50 evaluation rows"):
        found = idm.infer(model(), idm.Average(CONSTANT[case]))
    plain = idm.infer(model(), lambda b: np.mean(CONSTANT[case](b), axis=0))
    np.testing.assert_allclose(found.standard_error, plain.standard_error, rtol=1e-6)


REFUSED = {
    "a mean": (lambda b: np.mean(OTHER @ b), "independent", "not averaged and not summed"),
    "a mean of shape 1": (lambda b: np.mean(OTHER @ b, keepdims=True), "unknown", "averages"),
    "one row of four": (lambda b: units(b)[:1], "independent", "one row"),
    "no rows": (lambda b: units(b)[:0], "independent", "one number per evaluation row"),
    "no columns": (lambda b: units(b)[:, :0], "independent", "one number per evaluation row"),
    "transposed": (lambda b: np.stack([X @ b, Y - X @ b]), "training", r"transposed.*\.T"),
    "too few rows": (lambda b: (X @ b)[:-2], "training", "missing values"),
    "a row of NaN": (lambda b: np.where(np.arange(50) == 3, np.nan, OTHER @ b), "unknown", "row 3"),
    "a column of NaN": (lambda b: units(b) * [1, 1, np.nan, 1], "unknown", "50 of 50 rows"),
    "NaN in pandas": (
        lambda b: pd.Series(np.where(np.arange(50) == 3, np.nan, OTHER @ b)),
        "independent",
        "row 3",
    ),
    "masked": (
        lambda b: np.ma.masked_greater(OTHER @ b, 1.5),
        "independent",
        "masked entries",
    ),
    "ragged": (lambda b: [b[:1], b], "independent", "different shapes"),
    "text": (lambda b: ["a"] * 50, "independent", "one number per evaluation row"),
    "complex": (lambda b: OTHER @ b + 0j, "independent", "one number per evaluation row"),
    "nothing": (lambda b: None, "independent", "one number per evaluation row"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_h_that_is_none_is_refused(case):
    h, sample, text = REFUSED[case]
    with pytest.raises(idm.EvaluationError, match=text):
        idm.infer(model(), idm.Average(h, sample))


KINDS = {
    "float64": lambda b: OTHER @ b,
    "list": lambda b: list(OTHER @ b),
    "list of lists": lambda b: (OTHER @ b)[:, None].tolist(),
    "pandas": lambda b: pd.Series(OTHER @ np.asarray(b, dtype=float)),
    "frame": lambda b: pd.DataFrame({"eta": OTHER @ np.asarray(b, dtype=float)}),
    "unmasked": lambda b: np.ma.masked_array(OTHER @ np.asarray(b, dtype=float)),
    "single": lambda b: (OTHER @ np.asarray(b, dtype=float)).astype(np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_any_kind(kind):
    found = idm.infer(model(), idm.Average(KINDS[kind]))
    expected = idm.infer(model(), idm.Average(lambda b: OTHER @ b))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-6)
    np.testing.assert_allclose(np.squeeze(found.standard_error), expected.standard_error, rtol=1e-4)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64])
def test_counts_are_averaged_like_numbers(dtype):
    h = lambda b: (100 * (OTHER @ b > 1)).astype(dtype)
    found = idm.infer(model(), idm.Average(h), idm.Simulation(400, rng=0))
    expected = idm.infer(
        model(), idm.Average(lambda b: h(b).astype(float)), idm.Simulation(400, rng=0)
    )
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-9)


def test_half_precision_does_not_overflow_in_the_sum():
    h = lambda b: (2000 + 100 * OTHER @ np.asarray(b, dtype=float)).astype(np.float16)
    found = idm.infer(model(), idm.Average(h), idm.Simulation(100, rng=0))
    expected = 2000 + 100 * np.mean(OTHER @ BETA)  # fifty of them sum to more than 65504
    assert found.value == pytest.approx(expected, abs=1.0)


def test_rows_that_become_nan_nearby_are_not_left_out():
    """Pandas sums around NaN: an average over fewer rows, divided by all of them."""
    edge = OTHER @ BETA

    def h(b):
        eta = OTHER @ np.asarray(b, dtype=float)
        return pd.Series(np.where(eta > edge + 1e-3, np.nan, eta))

    with pytest.raises(idm.ImplicitDeltaError, match="NaN"):
        idm.infer(model(), idm.Average(h), idm.Simulation(50, rng=0))
