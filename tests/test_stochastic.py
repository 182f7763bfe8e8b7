"""Stochastic training against exact solutions, and what it says about its own error."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from scipy import stats
from torch import nn
from torch.utils.data import IterableDataset

import implicit_delta as idm
from implicit_delta import StochasticFiniteDifference
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods import training_pair
from implicit_delta.methods.training_pair import Anchor
from implicit_delta.models.batches import ascend
from implicit_delta.testing import check_method

torch.set_num_threads(1)


def orthogonal(curvature=(1.0, 1.0, 1.0), n=300):
    """Linear regression with a diagonal information matrix n * diag(curvature)."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(n, len(curvature))))[0]
    X = Q * np.sqrt(n * np.array(curvature))
    y = X @ np.ones(len(curvature)) + rng.normal(size=n)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    score = lambda b: (y - X @ b)[:, None] * X
    return idm.from_loglik(lambda b: -((y - X @ b) ** 2) / 2, beta, score=score)


def logistic(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 5))])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=6) / 2))) * 1.0
    module = nn.Linear(6, 1, bias=False).double()
    nn.init.zeros_(module.weight)
    model = idm.polish(idm.from_torch(module, (X, y), idm.Bernoulli()))
    at = torch.as_tensor(X[:100])
    return model, lambda m: torch.sigmoid(m(at)).mean()


@pytest.mark.slow
def test_logistic_regression_and_the_error_of_its_error():
    """Within 5 % each time, and the reported noise covers the difference in nine of ten."""
    model, psi = logistic()
    exact = idm.infer(model, psi).standard_error
    quantile, covered = stats.t.ppf(0.975, df=4), 0
    for seed in range(10):
        method = StochasticFiniteDifference(batch_size=1024, steps=25, samples=30, rng=seed)
        estimate = idm.infer(model, psi, method)
        assert estimate.standard_error == pytest.approx(exact, rel=0.05)
        error = estimate.diagnostics.notes["monte_carlo_error"] * estimate.standard_error
        covered += abs(estimate.standard_error - exact) <= quantile * error
        assert estimate.diagnostics.notes["most_reached"] > 0.98
    assert covered >= 9


@pytest.mark.slow
def test_keeps_the_contract():
    check_method(StochasticFiniteDifference(rng=0, samples=20), rtol=0.02)


@pytest.mark.slow
def test_noise_of_the_training_is_a_bias_that_an_anchor_removes():
    """Identical seeds, so both see the same minibatches; only the anchored ones hold still."""
    model, psi = logistic(n=2_000)
    exact = idm.infer(model, psi).standard_error
    options = {"batch_size": 64, "steps": 30, "samples": 120, "runs": 3, "rng": 0}
    plain = idm.infer(model, psi, StochasticFiniteDifference(**options, anchored=False))
    better = idm.infer(model, psi, StochasticFiniteDifference(**options))
    assert plain.standard_error < 0.97 * exact
    assert abs(better.standard_error - exact) < abs(plain.standard_error - exact) / 2


def test_an_anchored_training_without_a_push_stays_at_the_maximum():
    model, psi = logistic(n=2_000)
    anchor = Anchor(model, Evaluation.of(model, psi))
    rng = np.random.default_rng(0)
    batches = [rng.integers(2_000, size=64) for _ in range(20)]
    for theta in ascend(model, lambda theta, rows: anchor(rows), batches, 1.0):
        np.testing.assert_allclose(theta, model.theta, atol=1e-8)
    *_, noisy = ascend(model, None, batches, 1.0)
    assert np.max(abs(noisy - model.theta)) > 0.01


def test_batches_that_do_not_depend_on_each_other_leave_no_bias():
    """Rows of different curvature, one at a time; visited in epochs, 8.7 % would be missing."""
    h, y = np.array([0.2, 0.2, 0.2, 3.4]), np.array([1.0, 2.0, 3.0, 2.0])
    model = idm.from_loglik(
        lambda b: -h * (y - b[0]) ** 2 / 2,
        [np.average(y, weights=h)],
        score=lambda b: (h * (y - b[0]))[:, None],
    )
    method = StochasticFiniteDifference(
        optimizer=0.2, batch_size=1, steps=40, samples=100, runs=40, rng=0
    )
    estimate = idm.infer(model, lambda b: b[0], method, strict=False)
    noise = estimate.diagnostics.notes["monte_carlo_error"]
    assert noise < 0.015
    assert estimate.standard_error == pytest.approx(h.sum() ** -0.5, rel=3 * noise)


def test_a_training_as_in_the_paper_visits_all_rows_in_turn(monkeypatch):
    seen = []

    def stay(model, bonus, batches, optimizer):
        for rows in batches:
            seen.append(rows)
            yield model.theta

    model = orthogonal()
    monkeypatch.setattr(training_pair, "ascend", stay)
    for anchored, repeats in ((True, True), (False, False)):
        seen.clear()
        method = StochasticFiniteDifference(
            lam=1.0, optimizer=0.1, batch_size=100, steps=5, samples=1, runs=2, anchored=anchored
        )
        with pytest.raises(idm.ConvergenceError):  # nothing moves
            idm.infer(model, lambda b: b[0], method)
        epoch = np.concatenate(seen[:6:2])  # of one end; the other sees the same rows
        assert (np.unique(epoch).size < 300) == repeats


def test_an_anchored_training_evaluates_psi_only_in_its_samples():
    model, calls = orthogonal(), []

    def psi(b):
        calls.append(b)
        return np.exp(b[0])

    counts = []
    for steps in (20, 60):
        calls.clear()
        idm.infer(model, psi, StochasticFiniteDifference(steps=steps, samples=5, runs=2))
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_the_tangent_of_psi_is_wrong_in_the_second_order():
    """Twice the push, four times the error: sinh(z) / z, with z = lambda V, for psi = exp(b)."""
    model = orthogonal()
    psi = lambda b: np.exp(b[0])
    exact = idm.infer(model, psi).standard_error ** 2
    for push in (0.25, 0.5):
        lam = push / exact**0.5
        method = StochasticFiniteDifference(lam=lam, steps=200, batch_size=300, runs=2, samples=1)
        moved = lam * exact / psi(model.theta)  # of b, so that psi moves by lam * exact
        found = idm.infer(model, psi, method).standard_error ** 2
        assert found / exact == pytest.approx(np.sinh(moved) / moved, rel=1e-6)
        assert found / exact - 1 > 1e-5


@pytest.mark.parametrize("steps", [0, 5, 20])
def test_most_reached_is_that_of_gradient_ascent(steps):
    """With one curvature h the share after t steps is 1 - (1 - rate * h / n)^t exactly."""
    model, rate = orthogonal(), 0.1
    method = StochasticFiniteDifference(
        lam=1.0, optimizer=rate, steps=steps, samples=3, runs=2, batch_size=300
    )
    with pytest.warns(idm.DriftWarning, match="more steps"):
        estimate = idm.infer(model, lambda b: b[0], method)
    share = np.mean([1 - (1 - rate) ** (steps + s) for s in (1, 2, 3)])
    assert estimate.standard_error**2 * 300 == pytest.approx(share, rel=1e-9)
    assert estimate.diagnostics.notes["most_reached"] == pytest.approx(share, rel=1e-9)


def test_most_reached_is_never_too_small():
    model = orthogonal(curvature=(1.0, 0.2, 0.05))
    psi = lambda b: b.sum()
    exact = idm.infer(model, psi).standard_error ** 2
    method = StochasticFiniteDifference(
        lam=1.0, optimizer=1.0, steps=5, samples=1, runs=2, batch_size=300
    )
    with pytest.warns(idm.DriftWarning):
        estimate = idm.infer(model, psi, method)
    reached = estimate.standard_error**2 / exact
    assert reached < 0.5
    assert reached <= estimate.diagnostics.notes["most_reached"] < 0.95


def test_doubling_finds_the_steps_that_are_needed():
    model = orthogonal(curvature=(1.0, 0.1, 0.02))
    psi = lambda b: b.sum()
    exact = idm.infer(model, psi).standard_error
    method = StochasticFiniteDifference(samples=10, runs=2, batch_size=300, rng=0)
    estimate = idm.infer(model, psi, method)
    assert estimate.standard_error == pytest.approx(exact, rel=1e-3)
    assert estimate.diagnostics.notes["steps"] >= 100
    with pytest.raises(idm.ConvergenceError, match="still changes after"):
        idm.infer(model, psi, StochasticFiniteDifference(samples=10, max_steps=50, batch_size=300))


def penalized():
    """A penalized logistic regression with weighted rows."""
    torch.manual_seed(0)
    X = torch.randn(60, 2)
    y = (X[:, 0] + torch.randn(60) > 0).float()
    weights = np.random.default_rng(0).integers(0, 3, 60)
    model = idm.from_torch(
        nn.Linear(2, 1), (X, y), idm.Bernoulli(), weights=weights, dtype=torch.float64,
        l2=2.0, penalty=lambda m: m.bias.cosh().sum(),
    )  # fmt: skip
    at = torch.randn(2, 2).double()
    return idm.polish(model), lambda m: m(at).squeeze()


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [None, lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5)],
    ids=["rate", "momentum"],
)
def test_weights_and_penalties_are_part_of_the_training(optimizer):
    model, psi = penalized()
    exact = idm.infer(model, psi).covariance
    estimate = idm.infer(
        model,
        psi,
        StochasticFiniteDifference(optimizer=optimizer, samples=5, runs=2, batch_size=60),
    )
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.max(abs(estimate.covariance - exact) / scale) < 0.03  # lambda is not infinitesimal


@pytest.mark.slow
def test_adam_agrees_too():
    model, psi = logistic(n=2_000)
    exact = idm.infer(model, psi).standard_error
    method = StochasticFiniteDifference(
        optimizer=lambda p: torch.optim.Adam(p, lr=3e-3), batch_size=500, steps=300, samples=100,
        runs=2, rng=0,
    )  # fmt: skip
    assert idm.infer(model, psi, method).standard_error == pytest.approx(exact, rel=0.05)


def test_one_sided_pushes_as_in_the_paper():
    model = orthogonal()
    method = StochasticFiniteDifference(central=False, batch_size=300, samples=5, runs=2)
    estimate = idm.infer(model, lambda b: b[:2], method)
    np.testing.assert_allclose(estimate.covariance, np.eye(2) / 300, atol=1e-3 / 300)


def test_the_same_seed_gives_the_same_answer_and_prints_itself():
    model, psi = logistic(n=500)
    options = {"batch_size": 50, "steps": 20, "samples": 20, "runs": 2, "rng": 3}
    first, again = (idm.infer(model, psi, StochasticFiniteDifference(**options)) for _ in "ab")
    assert first.standard_error == again.standard_error
    assert "rng=3" in first.method
    assert first.diagnostics.notes["lam"] * first.standard_error == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lam": 0.0}, "lam"),
        ({"batch_size": 0}, "batch_size"),
        ({"runs": 1}, "runs"),
        ({"samples": 0}, "samples"),
        ({"steps": -1}, "steps"),
        ({"tolerance": 2.0}, "tolerance"),
    ],
)
def test_bad_configurations_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        StochasticFiniteDifference(**options)


@pytest.mark.parametrize(
    ("optimizer", "match"),
    [
        (lambda p: torch.optim.LBFGS(p), "cannot be compared"),
        (lambda p: "adam", "makes a torch optimizer"),
    ],
)
def test_optimizers_that_cannot_be_used_are_explained(optimizer, match):
    model, psi = penalized()
    with pytest.raises(TypeError, match=match):
        idm.infer(model, psi, StochasticFiniteDifference(optimizer=optimizer))
    with pytest.raises(TypeError, match="learning rate"):
        idm.infer(orthogonal(), lambda b: b[0], StochasticFiniteDifference(optimizer=optimizer))


def test_a_rate_that_is_too_large_is_noticed():
    model, psi = penalized()
    method = StochasticFiniteDifference(lam=1.0, optimizer=1e4, steps=400, batch_size=60, runs=2)
    with pytest.raises(idm.ConvergenceError, match="smaller learning rate"):
        idm.infer(model, psi, method)


def test_a_stream_has_no_random_minibatches():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(torch.ones(9, 1), torch.ones(9), strict=True)

    model = idm.from_torch(nn.Linear(1, 1), Stream(), idm.Gaussian(1.0), l2=1.0)
    method = StochasticFiniteDifference(lam=1.0, optimizer=0.1)
    with pytest.raises(idm.UnsupportedModelError, match="length and an index"):
        idm.infer(model, lambda m: m.weight.squeeze(), method)
