"""The experiment on autoencoders, at sizes of seconds and on made-up images."""

import pytest

pytest.importorskip("experiments")
pytest.importorskip("matplotlib")
pytest.importorskip("torch")

import matplotlib as mpl
import numpy as np
import torch

import implicit_delta as idm
from experiments.records import load_records, save_picture, save_records
from experiments.vae import claims as vae_claims
from experiments.vae import reconstruction
from experiments.vae.autoencoder import (
    LATENT,
    Autoencoder,
    elbo,
    mean_reconstruction,
    settling_adam,
)
from experiments.vae.autoencoder import reconstruction as image_reconstruction
from experiments.vae.push import Continuation, MinibatchPush

pytestmark = pytest.mark.slow

mpl.use("Agg")
TINY = reconstruction.Config(
    weights=(1.0, 2.0, 5.0), fractions=(0.0, 1.0), steps=3, further_steps=2
)


def test_noise_is_added_to_a_fraction_of_the_images():
    X = np.random.default_rng(0).uniform(size=(40, 784))
    noisy = reconstruction.perturb(X, 0.25, np.random.default_rng(1))
    assert np.sum(np.any(noisy != X, axis=1)) == 10
    assert np.all(noisy >= X)
    assert np.max(noisy - X) <= reconstruction.NOISE
    assert noisy.max() <= 1


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_push_by_minibatches_is_a_training_with_weighted_images(share):
    """T times the reconstruction of the pushed images less the KL term, on the same minibatches."""
    rng, T = np.random.default_rng(0), 5.0
    X, noise = (torch.as_tensor(rng.uniform(size=(40, k))) for k in (784, LATENT))
    pushed = np.arange(40) < 40 * share
    torch.manual_seed(0)
    start = Autoencoder().double()

    def weighted(module, batch):
        loss, divergence = module(*batch[:2])
        return -((1 + (T - 1) * batch[2]) * loss + divergence)

    model = idm.from_torch(start, (X, noise), elbo)
    other = idm.from_torch(start, (X, noise, torch.as_tensor(pushed)), weighted)
    plain, whole = (Continuation(m, settling_adam(9), 9, 8, seed=1) for m in (model, other))
    terms = idm.from_torch(start, (X, noise), image_reconstruction)
    method = MinibatchPush(T - 1, terms, pushed, plain, plain.end(), model.score(model.theta))

    def psi(module):
        return image_reconstruction(module, (X[pushed], noise[pushed])).sum()

    end, rest = (float(psi(model.at(t.end()).module).detach()) for t in (whole, plain))
    with pytest.warns(idm.DriftWarning):
        estimate = idm.infer(model, psi, method, strict=False)
    assert estimate.standard_error**2 == pytest.approx((end - rest) / (T - 1), rel=1e-6)
    with pytest.raises(idm.ConvergenceError, match="drift"):
        idm.infer(model, psi, method)


def test_a_psi_that_falls_under_its_push_is_refused():
    """A bonus of the wrong sign; a variance below zero is no variance."""
    y = np.random.default_rng(0).normal(size=50)
    model = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    training = Continuation(model, 0.1, 30, 50, seed=0)
    minus = idm.from_loglik(lambda m: np.full(50, -m[0] / 50) - 1e-9 * m[0] ** 2, start=[0.0])
    method = MinibatchPush(
        1.0, minus, np.ones(50, dtype=bool), training, training.end(), np.zeros(1)
    )
    with pytest.raises(idm.ConvergenceError, match="did not rise"):
        idm.infer(model, lambda m: m[0], method)


@pytest.fixture(scope="module")
def lines():
    """Records of a line with 40 images, of which all are evaluated."""
    images = np.random.default_rng(0).uniform(size=(40, 784))
    return reconstruction.one_line(TINY, images, 0.5, [0, 0])


def test_the_gain_is_the_push_times_the_variance(lines):
    assert [row["T"] for row in lines] == 2 * list(TINY.weights)
    resting = lines[0]["psi"]
    for row in lines:
        if row["T"] == 1:
            assert (row["psi"], row["improvement"]) == (resting, 0)
            continue
        gain = (row["T"] - 1) * row["variance"] / 40
        assert row["improvement"] == pytest.approx(gain)
        assert row["psi"] == pytest.approx(resting + gain)


def test_what_strict_mode_refuses_is_in_the_records(lines):
    pushed = [row for row in lines if row["T"] > 1]
    assert all(row["drift"] > 1 for row in pushed)
    assert {row["warnings"] for row in pushed} == {"DriftWarning"}


def test_pushes_along_all_evaluated_images_are_the_same(lines):
    """Identical weights, minibatches and draws: of the two kinds of push nothing differs."""
    halves = lines[: len(TINY.weights)], lines[len(TINY.weights) :]
    for one, other in zip(*halves, strict=True):
        assert {**one, "pushed": ""} == {**other, "pushed": ""}


def test_reconstruction_is_measured_on_fixed_draws():
    X, module = torch.rand(3, 784), Autoencoder()
    same, again, other = (float(mean_reconstruction(X, k)(module).detach()) for k in (0, 0, 1))
    assert same == again != other


def test_the_rate_falls_to_zero():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer, way = settling_adam(4)([parameter]), [0.0]
    for _ in range(4):
        parameter.grad = torch.ones(1)
        optimizer.step()
        way.append(-parameter.item())
    np.testing.assert_allclose(np.diff(way), 1e-3 * np.array([1, 0.75, 0.5, 0.25]), rtol=1e-4)


def test_the_picture_is_drawn_from_records(lines, tmp_path):
    records = [
        {"fraction": f, "repeat": k, **row} for f in (0.0, 1.0) for k in (0, 1) for row in lines
    ]
    save_records(tmp_path / "records.csv", records)
    save_picture(reconstruction.plot(load_records(tmp_path / "records.csv")), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def gains_of(by_fraction, by_weight, noise=0.01, repeats=5):
    """Records of made-up gains, a product of two factors, with noise over the repeats."""
    rng = np.random.default_rng(0)
    return [
        {"pushed": "all", "fraction": f, "repeat": k, "T": T, "drift": 2.0, "variance": 4.0,
         "improvement": size * factor + noise * rng.normal()}
        for k in range(repeats)
        for f, factor in by_fraction.items()
        for T, size in by_weight.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("by_fraction", "by_weight", "holds"),
    [
        ({0.0: 1.0, 0.5: 1.5, 1.0: 2.0}, {1.0: 0.0, 2.0: 1.0, 5.0: 4.0}, [True, True, True]),
        ({0.0: 1.0, 0.5: 1.5, 1.0: 1.5}, {1.0: 0.0, 2.0: 1.0, 5.0: 3.0}, [True, False, False]),
        ({0.0: 1.0, 0.5: 1.5, 1.0: 1.2}, {1.0: 0.0, 2.0: 1.0, 5.0: 1.0}, [False, False, False]),
    ],
)
def test_claims_on_an_autoencoder_follow_from_the_gains(by_fraction, by_weight, holds):
    claims = list(vae_claims.claims_on_reconstruction(gains_of(by_fraction, by_weight)))
    assert [c["holds"] for c in claims] == holds


def test_a_claim_of_growth_needs_more_than_one_repeat():
    records = gains_of({0.0: 1.0, 1.0: 2.0}, {1.0: 0.0, 2.0: 1.0, 5.0: 4.0}, repeats=1)
    claims = list(vae_claims.claims_on_reconstruction(records))
    assert [c["holds"] for c in claims[:2]] == [False, False]


def test_steps_are_counted_by_their_direction():
    assert vae_claims.direction(np.array([1.0, 1.1, 0.9])) == 1
    assert vae_claims.direction(np.array([-1.0, -1.1, -0.9])) == -1
    assert vae_claims.direction(np.array([1.0, -1.1, 0.9])) == 0
