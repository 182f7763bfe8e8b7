"""Modules as people bring them: convolutions, attention, recurrence, a variance head."""

import pytest

pytest.importorskip("torch")

import pickle

import numpy as np
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.testing import check_model

pytestmark = pytest.mark.slow

torch.set_num_threads(1)
N = 40


class Convolutional(nn.Module):
    """BatchNorm with running averages of its own, and dropout."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.drop(torch.tanh(self.norm(self.conv(x))).mean((2, 3))))


class Encoder(nn.Module):
    """A transformer whose output layer is its embedding."""

    def __init__(self, vocabulary=5, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, dim_feedforward=6, batch_first=True, activation="gelu"
        )
        self.out = nn.Linear(width, vocabulary, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.layer(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 3, batch_first=True), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Heteroscedastic(nn.Module):
    """A mean and a log-variance."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(1, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))).unbind(1)


def normal(module, batch):
    x, y = batch
    mean, log_variance = module(x)
    return -0.5 * ((y - mean) ** 2 * torch.exp(-log_variance) + log_variance)


def problems():
    """Name, module, data, likelihood, psi."""
    torch.manual_seed(0)
    images, labels = torch.randn(N, 1, 5, 5), torch.randint(0, 3, (N,))
    cnn = Convolutional()
    for _ in range(5):  # running averages that are not those of a new module
        cnn.train()(2 * images + 1)
    yield (
        "convolution",
        cnn,
        (images, labels),
        idm.Categorical(),
        lambda m: torch.softmax(m(images[:9].double()), 1)[:, 0].mean(),
    )
    tokens, following = torch.randint(0, 5, (N, 6)), torch.randint(0, 5, (N,))
    yield (
        "transformer",
        Encoder(),
        (tokens, following),
        idm.Categorical(),
        lambda m: torch.softmax(m(tokens[:3]), 1)[:, 0].mean(),
    )
    series = torch.randn(N, 7, 1)
    sums = series.mean((1, 2)) + 0.1 * torch.randn(N)
    yield (
        "recurrence",
        Recurrent(),
        (series, sums),
        idm.Gaussian(0.02),
        lambda m: m(series[:4].double()).mean(),
    )
    x = torch.rand(N, 1) * 4 - 2
    y = torch.sin(x[:, 0]) + 0.3 * torch.randn(N) * torch.exp(x[:, 0] / 2)
    yield (
        "variance head",
        Heteroscedastic(),
        (x, y),
        normal,
        lambda m: torch.exp(m(torch.ones(1, 1).double())[1] / 2).squeeze(),
    )


PROBLEMS = {name: rest for name, *rest in problems()}


@pytest.fixture(scope="module", params=PROBLEMS)
def problem(request):
    module, data, likelihood, psi = PROBLEMS[request.param]
    model = idm.from_torch(module, data, likelihood, l2=2.0, dtype=torch.float64)
    return idm.polish(model), psi


def test_keeps_the_contract(problem):
    check_model(*problem)


def test_agrees_with_refits(problem):
    model, psi = problem
    solved = idm.infer(model, psi).standard_error
    refitted = idm.infer(model, psi, idm.FiniteDifference(push=0.02)).standard_error
    assert solved == pytest.approx(refitted, rel=1e-3)


def test_gauss_newton_curvature_of_rows_equals_that_of_products(problem):
    model, _ = problem
    if model.rows.outputs is not None:
        v = np.random.default_rng(0).normal(size=(model.d, 3))
        formed = model.rows.outputs.gauss_newton_matrix(model.theta, model.weights.values) @ v
        formed = formed + model.penalty.curvature(model.theta, v)
        products = model.information(model.theta, v, "ggn")
        np.testing.assert_allclose(formed, products, atol=1e-9 * abs(products).max())


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
def test_a_model_with_frozen_and_shared_parameters_survives_pickling():
    torch.manual_seed(0)
    net, tokens = Encoder().double(), torch.randint(0, 5, (N, 6))
    net.layer.requires_grad_(False)
    net.layer.linear2.requires_grad_(True)
    data = torch.utils.data.TensorDataset(tokens, torch.randint(0, 5, (N,)))
    model = idm.polish(idm.from_torch(net, data, idm.Categorical(), l2=5.0, batch_size=7))
    psi = lambda m: m.layer.linear2.weight[0, :2]
    before = idm.infer(model, psi, robust=True)
    copied = pickle.loads(pickle.dumps(model))
    after = idm.infer(copied, psi, robust=True)
    np.testing.assert_allclose(after.value, before.value, rtol=1e-12)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-9)
    assert copied.d == model.d == 5 * 4 + 4 * 6 + 4
    restored = copied.module
    assert restored.out.weight is restored.embed.weight
    assert len(pickle.dumps(model)) < 2 * len(pickle.dumps((net, tokens))) + 20_000
