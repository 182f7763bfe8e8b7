"""Training loops of any kind as black boxes."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

import implicit_delta as idm

torch.set_num_threads(1)
y = np.random.default_rng(0).poisson(4.0, size=50)


def poisson(bonus):
    """Newton's method for the logarithm of a rate, with a numerical derivative of the bonus."""
    theta, h = np.log(y.mean()), 1e-4
    for _ in range(30):
        slope = np.sum(y - np.exp(theta)) + (bonus(theta + h) - bonus(theta - h)) / (2 * h)
        theta += slope / y.sum()
    return theta


def logistic_data():
    torch.manual_seed(0)
    X = torch.randn(200, 2).double()
    labels = (X[:, 0] + torch.randn(200) > 0).double()
    return X, labels


def logistic(bonus):
    """A torch module trained by L-BFGS; as people write it, with a mean loss."""
    X, labels = logistic_data()
    module = nn.Linear(2, 1).double()
    for p in module.parameters():
        nn.init.zeros_(p)
    optimizer = torch.optim.LBFGS(
        module.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(module(X).squeeze(), labels)
        loss = loss - bonus(module) / len(labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return module


def test_a_rate_has_its_standard_error():
    estimate = idm.refit(poisson, lambda theta: np.exp(theta))
    assert estimate.value == pytest.approx(y.mean())
    assert estimate.standard_error == pytest.approx(np.sqrt(y.mean() / 50), rel=1e-3)
    notes = estimate.diagnostics.notes
    assert notes["trainings"] == 5  # two without bonus, a small push, and two ends
    assert notes["noise_floor"] == 0
    assert float(notes["lam"]) * estimate.standard_error == pytest.approx(0.25, rel=0.1)


def test_modules_agree_with_from_torch():
    X, labels = logistic_data()
    at = X[:3]
    psi = lambda module: torch.sigmoid(module(at)).squeeze()
    black_box = idm.refit(logistic, psi)
    solved = idm.infer(idm.from_torch(logistic(lambda m: 0.0), (X, labels), idm.Bernoulli()), psi)
    np.testing.assert_allclose(black_box.value, solved.value, rtol=1e-6)
    scale = np.outer(solved.standard_error, solved.standard_error)
    assert np.max(abs(black_box.covariance - solved.covariance) / scale) < 0.015
    assert black_box.diagnostics.asymmetry < 0.02


def test_a_small_lambda_comes_closer():
    exact = np.sqrt(y.mean() / 50)
    half, tenth = (
        idm.refit(poisson, np.exp, lam=push / exact).standard_error for push in (0.5, 0.1)
    )
    assert abs(tenth - exact) < abs(half - exact) / 10  # the error goes with the square


@pytest.mark.slow
def test_trainings_may_run_in_parallel():
    alone = idm.refit(poisson, np.exp)
    together = idm.refit(poisson, np.exp, n_jobs=2)
    assert together.standard_error == alone.standard_error


def noisy(size):
    generator = np.random.default_rng(0)
    return lambda bonus: poisson(bonus) + size * generator.normal()


def test_a_training_that_is_not_reproducible_is_warned_about():
    with pytest.warns(idm.NotDeterministicWarning, match=r"uncertain by about \d+%.*seed"):
        estimate = idm.refit(noisy(1e-2), np.exp)
    assert estimate.diagnostics.notes["noise_floor"] > 0
    assert estimate.standard_error == pytest.approx(np.sqrt(y.mean() / 50), rel=0.2)


def test_noise_as_large_as_the_response_is_refused():
    with pytest.raises(idm.ConvergenceError, match="seed"):
        idm.refit(noisy(0.05), np.exp)


def test_a_training_that_leaves_the_bonus_out_is_noticed():
    with pytest.raises(idm.ConvergenceError, match="leaves the bonus out"):
        idm.refit(lambda bonus: poisson(lambda theta: 0.0), np.exp)
    with pytest.raises(idm.ConvergenceError, match="although it was pushed to rise"):
        idm.refit(lambda bonus: poisson(lambda theta: -bonus(theta)), np.exp, lam=0.5)


def test_bad_input_is_explained():
    with pytest.raises(TypeError, match="must return the trained model"):
        idm.refit(lambda bonus: None, np.exp)
    with pytest.raises(ValueError, match="lam must be positive"):
        idm.refit(poisson, np.exp, lam=-1.0)
    with pytest.raises(idm.EvaluationError, match="NaN"):
        idm.refit(poisson, lambda theta: theta * np.nan)


def test_a_psi_that_is_zero_has_a_standard_error_too():
    estimate = idm.refit(poisson, lambda theta: theta - np.log(y.mean()), names="log rate")
    assert estimate.standard_error == pytest.approx(1 / np.sqrt(y.sum()), rel=1e-2)
    assert estimate.names == ("log rate",)


@pytest.mark.parametrize("rest", [2.0**-52, 1e-13, -1e-15])
def test_a_psi_that_is_rounding_is_not_pushed_by_its_inverse(rest):
    estimate = idm.refit(poisson, lambda theta: theta - np.log(y.mean()) + rest)
    assert estimate.standard_error == pytest.approx(1 / np.sqrt(y.sum()), rel=1e-2)


def test_a_psi_in_tiny_units_is_pushed_enough():
    estimate = idm.refit(poisson, lambda theta: 1e-34 * theta)
    assert estimate.standard_error == pytest.approx(1e-34 / np.sqrt(y.sum()), rel=1e-2)
