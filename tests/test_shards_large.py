"""Very many rows: shards draw their own weights, and send their strongest rows and sums alone."""

import pickle

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.redraws import reweight
from implicit_delta.models.resampling import resampled
from implicit_delta.models.sharded import rows as sharded
from implicit_delta.models.sharded.engine import bytes_of
from implicit_delta.models.sharded.resampled import Draw, uniform
from implicit_delta.models.sharded.serial import Serial
from implicit_delta.models.shards import model_over

pytestmark = pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
rng = np.random.default_rng(3)
N = 160
X = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
Y = rng.poisson(np.exp(X @ [0.4, 0.3, -0.2])).astype(float)
WEIGHTS = rng.integers(0, 4, N).astype(float)
WEIGHTS[41:60] = 0.0  # all of a part
VILLAGE = rng.integers(0, 30, N)
CUTS = {1: [], 2: [37], 5: [9, 41, 60, 120]}


def rows_of(k):
    return [slice(a, b) for a, b in zip([0, *CUTS[k]], [*CUTS[k], N], strict=True)]


def builder(theta, **options):
    def build(rows):
        A, y = X[rows], Y[rows]
        own = {name: value[rows] if name == "weights" else value for name, value in options.items()}
        return idm.from_loglik(
            lambda t: y * (A @ t) - np.exp(A @ t),
            theta,
            score=lambda t: (y - np.exp(A @ t))[:, None] * A,
            **own,
        )

    return build


OPTIONS = {
    "plain": {},
    "counts": {"weights": np.maximum(WEIGHTS, 1.0)},
    "halves": {"weights": np.maximum(WEIGHTS, 1.0) / 2},
    "precision": {"weights": np.maximum(WEIGHTS, 0.5), "weight_kind": "precision"},
    "sampling": {"weights": np.maximum(WEIGHTS, 0.5), "weight_kind": "sampling"},
    "penalty": {"l2": 0.7},
}


def fitted(name):
    whole = builder([0.4, 0.3, -0.2], **OPTIONS[name])(slice(None))
    theta = np.asarray(idm.polish(whole).theta)
    return builder(theta, **OPTIONS[name])


def rate(theta):
    return np.exp(theta[0] + theta[1])


@pytest.fixture
def many(monkeypatch):
    """Take any number of rows for too many to be drawn here."""
    monkeypatch.setattr(sharded, "DRAWN_HERE", 0)


BOOTSTRAPS = {
    "resample": ("resample", {}),
    "bayesian": ("bayesian", {}),
    "one-step": ("one-step", {}),
    "clusters": ("resample", {"clusters": VILLAGE}),
    "smooth clusters": ("bayesian", {"clusters": VILLAGE}),
}


@pytest.mark.parametrize("how", BOOTSTRAPS)
@pytest.mark.parametrize("name", OPTIONS)
def test_draws_depend_on_the_number_of_the_row_alone(many, name, how):
    kind, options = BOOTSTRAPS[how]
    build, method = fitted(name), idm.Bootstrap(8, kind, rng=5)
    found = [
        idm.infer(idm.from_shards(build, rows_of(k)), rate, method, **options).draws for k in CUTS
    ]
    here = idm.infer(build(slice(None)), rate, method, **options).draws
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)
    assert np.all(found[0] != here)  # those of one process are other draws


@pytest.mark.parametrize("how", BOOTSTRAPS)
def test_the_spread_is_that_of_multinomial_draws(many, how):
    kind, options = BOOTSTRAPS[how]
    build, B = fitted("counts"), 300
    here, there = (
        idm.infer(model, rate, idm.Bootstrap(B, kind, rng=5), **options).standard_error
        for model in (build(slice(None)), idm.from_shards(build, rows_of(2)))
    )
    assert abs(np.log(there / here)) < 4 * np.sqrt(2 / (2 * (B - 1)))  # both have this error


@pytest.mark.parametrize("clusters", [None, VILLAGE])
@pytest.mark.parametrize("sample", ["training", "independent"])
def test_an_average_over_training_rows_is_that_of_the_draw(many, sample, clusters):
    build = fitted("counts")
    average = idm.Average(lambda t: np.exp(X @ t), sample=sample)
    one, five = (
        idm.infer(
            idm.from_shards(build, rows_of(k)), average, idm.Bootstrap(8, rng=5), clusters=clusters
        ).draws
        for k in (1, 5)
    )
    np.testing.assert_allclose(five, one, rtol=1e-6)


def test_weights_here_are_those_of_the_shards(many):
    build = fitted("counts")
    whole = idm.from_shards(build, rows_of(5))
    model = resampled(whole, "resample", np.random.default_rng(1))
    whole = reweight(build(slice(None)), model.weights.values)
    assert np.all(model.weights.values == np.round(model.weights.values))
    assert model.weights.values.sum() > 0
    np.testing.assert_allclose(model.score(model.theta), whole.score(whole.theta), atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"clusters": VILLAGE}])
def test_parts_without_weight_stay_silent(many, options):
    build = fitted("plain")
    found = [
        idm.infer(
            idm.polish(reweight(idm.from_shards(build, rows_of(k)), WEIGHTS)),
            rate,
            idm.Bootstrap(5, rng=2),
            **options,
        ).draws
        for k in CUTS
    ]
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)


def test_few_rows_are_drawn_as_in_one_process():
    build = fitted("plain")
    model = idm.from_shards(build, rows_of(2))
    assert resampled(model, "resample", np.random.default_rng(0)) is None


def test_the_hash_is_splitmix64():
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # of seed 1234567
    found = uniform(1234567, np.arange(3))
    np.testing.assert_array_equal(found, [(z >> 11) / 2**53 for z in known])


@pytest.mark.parametrize("kind", ["resample", "bayesian"])
@pytest.mark.parametrize("own", [0.0, 0.5, 1.0, 3.0, 2000.0])
def test_drawn_numbers_have_mean_and_variance_of_their_own(kind, own):
    m = 20_000
    found = Draw(kind, 2**63 - 1).often(np.arange(10**12, 10**12 + m), np.full(m, own))
    assert np.all(found >= 0)
    assert abs(found.mean() - own) <= 4 * np.sqrt(own / m)
    fourth = own + 3 * own**2 if kind == "resample" else 6 * own + 3 * own**2
    assert abs(found.var() - own) <= 4 * np.sqrt((fourth - own**2) / m)
    near = np.corrcoef(found[1:], found[:-1])[0, 1] if own else 0.0
    assert abs(near) < 4 / np.sqrt(m)


def two(theta):
    return np.array([rate(theta), theta[2]])


@pytest.mark.parametrize("psi", [rate, two])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("options", [{}, {"robust": True}, {"clusters": VILLAGE}], ids=str)
def test_the_strongest_rows_of_all_shards_are_merged(name, psi, options):
    build = fitted(name)
    whole = idm.infer(build(slice(None)), psi, influence=True, **options)
    for k in CUTS:
        est = idm.infer(idm.from_shards(build, rows_of(k)), psi, **options)
        assert est.influence is None
        for count in (0, 1, 7, 1000):
            top, known = est.top_influence(count), whole.top_influence(count)
            np.testing.assert_array_equal(top.row, known.row)
            np.testing.assert_allclose(top.influence, known.influence, rtol=1e-8, atol=1e-14)
            assert (top.label, top.names) == (None, known.names)


def test_only_the_strongest_rows_travel():
    model, sizes = spied(fitted("plain"), 2)
    est = idm.infer(model, rate)
    sizes.clear()
    est.top_influence(3)
    assert sizes == [2 * 3 * 8] * 2  # numbers of rows, and their influences


def test_labels_of_rows_come_with_the_strongest():
    smf = pytest.importorskip("statsmodels.formula.api")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"y": Y, "x": X[:, 1]}, index=[f"r{i}" for i in range(N)])
    start = smf.poisson("y ~ x", frame).fit(disp=0)
    whole = idm.infer(idm.from_statsmodels(start), lambda p: p["x"], influence=True)

    def build(rows):
        part = smf.poisson("y ~ x", frame.iloc[rows]).fit(disp=0)
        return idm.from_statsmodels(part).at(start.params.to_numpy())

    est = idm.infer(idm.from_shards(build, rows_of(2)), lambda p: p["x"])
    assert est.top_influence(4).label == whole.top_influence(4).label
    assert list(est.top_influence(4).row) == list(whole.top_influence(4).row)


@pytest.mark.parametrize("kind", ["frequency", "precision", "sampling"])
def test_rows_without_weight_are_ranked_as_in_one_process(kind):
    build = fitted("plain")
    options = {"weights": np.ones(N), "weight_kind": kind}
    build = builder(np.asarray(build(slice(0, 2)).theta), **options)
    one = idm.polish(reweight(build(slice(None)), WEIGHTS))
    many = reweight(idm.from_shards(build, rows_of(5)), WEIGHTS).at(one.theta)
    whole = idm.infer(one, rate, influence=True).top_influence(N)
    top = idm.infer(many, rate).top_influence(N)
    np.testing.assert_array_equal(top.row, whole.row)
    np.testing.assert_allclose(top.influence, whole.influence, rtol=1e-7, atol=1e-13)


def test_rows_that_were_not_kept_are_asked_for():
    est = idm.infer(idm.from_shards(fitted("plain"), rows_of(2)), two)
    with pytest.raises(ValueError, match="number of rows"):
        est.top_influence(-1)
    with pytest.raises(ValueError, match="influence=True"):
        est[0].top_influence(2)
    with pytest.raises(ValueError, match="influence=True"):
        pickle.loads(pickle.dumps(est)).top_influence(2)


def test_influences_that_make_up_for_leverage_are_not_those_of_terms():
    theta = np.linalg.lstsq(X, Y, rcond=None)[0]

    def build(rows):
        A, y = X[rows], Y[rows]
        return idm.from_residuals(lambda b: y - A @ b, theta, jacobian=lambda b: -A)

    model = idm.from_shards(build, rows_of(2))
    adjusted = idm.infer(model, lambda b: b[0], robust="HC3", influence=True).top_influence(3)
    whole = idm.infer(build(slice(None)), lambda b: b[0], robust="HC3", influence=True)
    np.testing.assert_allclose(adjusted.influence, whole.top_influence(3).influence, rtol=1e-9)
    with pytest.raises(ValueError, match="influence=True"):
        idm.infer(model, lambda b: b[0], robust="HC3").top_influence(3)


def spied(build, k):
    """A sharded model, and the bytes of each answer of a shard."""
    sizes = []

    class Spied(Serial):
        def each(self, ask, *arguments, **options):
            for answer in super().each(ask, *arguments, **options):
                sizes.append(bytes_of(answer))
                yield answer

    return model_over(Spied(build, tuple(rows_of(k)))), sizes


def price(theta, rows=slice(None)):
    return np.exp(X[rows] @ theta)


def prices(theta, rows=slice(None)):
    return np.column_stack([price(theta, rows), 1e6 + X[rows] @ theta])  # far from zero


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize("sample", ["independent", "unknown"])
@pytest.mark.parametrize("h", [price, prices])
@pytest.mark.parametrize("total", [False, True])
def test_sums_of_an_average_travel_and_no_rows(h, sample, total, k):
    build = fitted("counts")
    options = {"sample": sample, "total": total}
    whole = idm.infer(build(slice(None)), idm.Average(h, **options))
    model, sizes = spied(build, k)
    sizes.clear()
    est = idm.infer(model, idm.Average(idm.on_shards(h), **options))
    assert max(sizes) < 2 * N  # bytes: neither numbers nor truths of all rows
    np.testing.assert_allclose(est.value, whole.value, rtol=1e-12)
    errors = np.atleast_1d(whole.standard_error)
    gap = abs(np.atleast_2d(est.covariance - whole.covariance)) / np.outer(errors, errors)
    assert np.max(gap) < 1e-9
    for part in whole.budget:
        np.testing.assert_allclose(est.budget[part], whole.budget[part], rtol=1e-8)


def test_very_many_columns_are_as_in_one_process():
    def many_prices(theta, rows=slice(None)):
        return np.exp(X[rows] @ theta)[:, None] * np.linspace(1, 2, 501)

    build = fitted("plain")
    whole = idm.infer(build(slice(None)), idm.Average(many_prices))
    est = idm.infer(idm.from_shards(build, rows_of(5)), idm.Average(idm.on_shards(many_prices)))
    np.testing.assert_allclose(est.standard_error, whole.standard_error, rtol=1e-8)


def test_shares_of_rows_come_with_influences():
    build = fitted("plain")
    whole = idm.infer(build(slice(None)), idm.Average(price), influence=True)
    model = idm.from_shards(build, rows_of(5))
    est = idm.infer(model, idm.Average(idm.on_shards(price)), influence=True)
    np.testing.assert_allclose(est.deviations, whole.deviations, rtol=1e-9, atol=1e-15)


def rough(theta, rows):
    found = price(theta, rows)
    found[-1] = np.nan
    return found


def masked(theta, rows):
    return np.ma.masked_greater(price(theta, rows), 1.5)


def uneven(theta, rows):
    return price(theta, rows) if rows.start else prices(theta, rows)


SPOILED = {
    "nan": (rough, "row 36 of the part"),
    "masked": (masked, "masked"),
    "mean": (lambda t, rows: price(t, rows).mean(), "one value per row"),
    "text": (lambda t, rows: np.array(["a"] * (rows.stop - rows.start)), "one value per row"),
    "cube": (lambda t, rows: price(t, rows)[:, None, None], "one value per row"),
    "uneven": (uneven, "same K"),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_rows_that_cannot_be_added_up_are_refused(fault):
    h, text = SPOILED[fault]
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match=text):
        idm.infer(idm.from_shards(fitted("plain"), rows_of(2)), idm.Average(idm.on_shards(h)))


def test_one_row_has_no_sampling_error_and_equal_rows_warn():
    model = idm.from_shards(fitted("plain"), rows_of(1))
    with pytest.raises(idm.EvaluationError, match="one row"):
        idm.infer(model, idm.Average(idm.on_shards(lambda t, rows: price(t, rows)[:1])))
    with pytest.warns(idm.ImplicitDeltaWarning, match="same for all"):
        idm.infer(model, idm.Average(idm.on_shards(lambda t, rows: 0 * X[rows, 1] + t[1])))


def test_parts_may_have_no_evaluation_rows():
    def of_first(theta, rows):  # a group that one part has none of
        return price(theta, rows)[np.arange(N)[rows] >= 50]

    build = fitted("plain")
    whole = idm.infer(build(slice(None)), idm.Average(lambda t: price(t)[50:]))
    est = idm.infer(idm.from_shards(build, rows_of(5)), idm.Average(idm.on_shards(of_first)))
    np.testing.assert_allclose(est.standard_error, whole.standard_error, rtol=1e-9)
    with pytest.raises(idm.EvaluationError, match="one number per"):
        idm.infer(
            idm.from_shards(build, rows_of(5)),
            idm.Average(idm.on_shards(lambda t, rows: price(t, rows)[:0])),
        )
