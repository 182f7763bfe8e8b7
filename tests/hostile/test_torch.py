"""Modules and losses that break a silent assumption."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

import implicit_delta as idm

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X.sum(1) + torch.sin(torch.arange(40.0, dtype=torch.float64))


def line():
    torch.manual_seed(1)
    return nn.Linear(3, 1, dtype=torch.float64)


def contrastive(module, batch):
    z = module(batch[0])
    scores = -((z - z.T) ** 2)
    return torch.diag(torch.log_softmax(scores, 1)) - (batch[1] - z[:, 0]) ** 2


def normalized_by_the_batch(module, batch):
    z = module(batch[0])[:, 0]
    return -((batch[1] - (z - z.mean())) ** 2)


def weighted_by_the_batch(module, batch):
    return -((batch[1] - module(batch[0])[:, 0]) ** 2) / len(batch[0])


def with_batch_statistics(module, batch):
    z = nn.functional.batch_norm(module(batch[0]), None, None, training=True)
    return -((batch[1] - z[:, 0]) ** 2)


def from_outside(module, batch):
    return -((batch[1] - module(X[: len(batch[1])])[:, 0]) ** 2) - 0.1 * batch[1].mean()


DEPENDENT = [
    contrastive,
    normalized_by_the_batch,
    weighted_by_the_batch,
    with_batch_statistics,
    from_outside,
]


@pytest.mark.parametrize("loglik", DEPENDENT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("batch_size", [None, 8])
def test_terms_that_depend_on_other_rows_are_refused(loglik, batch_size):
    with pytest.raises(idm.UnsupportedModelError, match="other rows in its batch"):
        idm.from_torch(line(), (X, Y), loglik, batch_size=batch_size)


class Square(torch.autograd.Function):
    """x^2 with a backward whose own derivative is off by a factor."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        first = 2 * grad * x
        return first.detach() + Square.factor * (first - first.detach())


@pytest.mark.parametrize("factor", [0.0, 0.93, 1.07, 2.0])
def test_a_wrong_second_derivative_is_refused(monkeypatch, factor):
    monkeypatch.setattr(Square, "factor", factor)
    loglik = lambda module, batch: -Square.apply(batch[1] - module(batch[0])[:, 0]) / 2
    with pytest.raises(idm.UnsupportedModelError, match="second derivative"):
        idm.from_torch(line(), (X, Y), loglik)


def test_a_right_one_is_accepted():
    loglik = lambda module, batch: -Square.apply(batch[1] - module(batch[0])[:, 0]) / 2
    custom = idm.polish(idm.from_torch(line(), (X, Y), loglik))
    plain = idm.polish(idm.from_torch(line(), (X, Y), idm.Gaussian(1.0)))
    psi = lambda module: module(X[:1]).sum()
    expected = idm.infer(plain, psi).standard_error
    assert idm.infer(custom, psi).standard_error == pytest.approx(expected, rel=1e-8)


def ridge_variance(seed, l2):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(20, 8))
    y = A @ (0.05 * rng.normal(size=8)) + rng.normal(size=20)
    model = idm.from_residuals(lambda b: y - A @ b, start=np.zeros(8), variance="unbiased", l2=l2)
    return float(np.sum((y - A @ model.theta) ** 2) / -2 / np.sum(model.rows.terms(model.theta)))


@pytest.mark.slow
@pytest.mark.parametrize("l2", [0.0, 5.0, 20.0])
def test_an_unbiased_noise_variance_is_unbiased_under_a_ridge(l2):
    """Four Monte-Carlo errors of the mean of 100; the signal is small, so shrinkage adds little."""
    found = np.array([ridge_variance(seed, l2) for seed in range(100)])
    assert abs(found.mean() - 1.0) < 4 * found.std() / 10 + 0.01


HALF_DETACHED = {
    "weight": lambda m: (3 * m.weight.detach() + m.bias).sum(),
    "bias": lambda m: (m.weight + 3 * m.bias.detach()).sum(),
    "item": lambda m: m(X[:1]).sum() * m.bias.item(),
    "no_grad": lambda m: m(X[:1]).sum() + frozen(m),
}


def frozen(module):
    with torch.no_grad():
        return 2 * module(X[1:2]).sum()


@pytest.mark.parametrize("name", HALF_DETACHED)
def test_a_psi_that_is_partly_detached_is_refused(name):
    model = idm.polish(idm.from_torch(line(), (X, Y), idm.Gaussian(1.0)))
    with pytest.raises(idm.EvaluationError, match="detached"):
        idm.infer(model, HALF_DETACHED[name])


BENT = {
    "tanh": lambda th: np.tanh(4 * (th[0] - 3)),
    "exp": lambda th: np.exp(3 * (th[0] - 3)),
}


@pytest.mark.parametrize("name", BENT)
def test_a_robust_simulation_of_a_psi_that_bends_warns_and_has_no_percentiles(name):
    y = np.random.default_rng(0).normal(3, 2, 50)
    model = idm.from_loglik(lambda th: -((y - th[0]) ** 2) / 2, [y.mean()])
    with pytest.warns(idm.NonlinearityWarning, match="Bootstrap"):
        found = idm.infer(model, BENT[name], idm.Simulation(2000, rng=0), robust=True)
    with pytest.raises(ValueError, match="percentile"):
        found.confidence_interval(kind="percentile")
    assert found.diagnostics.notes["variance"] == "robust (HC0)"
