"""Very many rows: shards draw their own weights, and send their strongest rows and sums alone."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.sharded import model as sharded
from implicit_delta.models.sharded.resampled import Draw, uniform

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
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
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
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
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
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
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
    model = idm.from_shards(build, rows_of(5)).resampled("resample", np.random.default_rng(1))
    whole = build(slice(None)).reweighted(model.weights)
    assert np.all(model.weights == np.round(model.weights))
    assert model.weights.sum() > 0
    np.testing.assert_allclose(model.score(model.theta), whole.score(whole.theta), atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"clusters": VILLAGE}])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_parts_without_weight_stay_silent(many, options):
    build = fitted("plain")
    found = [
        idm.infer(
            idm.polish(idm.from_shards(build, rows_of(k)).reweighted(WEIGHTS)),
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
    assert model.resampled("resample", np.random.default_rng(0)) is None


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
