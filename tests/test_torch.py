"""Torch models against the same models in NumPy, and against numbers from laplace-torch."""

import pytest

pytest.importorskip("torch")

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import implicit_delta as idm
from implicit_delta.core.clusters import Clusters
from implicit_delta.models.outputs import outputs_of, whitened_rows
from implicit_delta.models.reducers import scatter_of
from implicit_delta.testing import check_model

torch.set_num_threads(1)
N, P = 80, 3


def design():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), rng.normal(size=(N, P - 1))])
    return X, X @ [0.5, 1.0, -0.5], rng


def linear_cases():
    """Name, targets, likelihood, the same log-likelihood and its score in NumPy."""
    _, eta, rng = design()
    y = eta + rng.normal(size=N)
    yield "linear", y, idm.Gaussian(0.8), lambda f: -((y - f) ** 2) / 1.6, lambda f: (y - f) / 0.8
    b = (rng.random(N) < 1 / (1 + np.exp(-eta))) * 1.0
    logistic = lambda f: b * f - np.logaddexp(0, f)
    yield "logistic", b, idm.Bernoulli(), logistic, lambda f: b - 1 / (1 + np.exp(-f))
    c = rng.poisson(np.exp(eta)) * 1.0
    yield "poisson", c, idm.Poisson(), lambda f: c * f - np.exp(f), lambda f: c - np.exp(f)


@pytest.mark.parametrize("curvature", ["hessian", "ggn"])
@pytest.mark.parametrize("case", list(linear_cases()), ids=lambda case: case[0])
def test_same_covariance_as_the_same_model_in_numpy(case, curvature):
    _, y, likelihood, loglik, residual = case
    X, *_ = design()
    core = idm.from_loglik(
        lambda b: loglik(X @ b), start=np.zeros(P), score=lambda b: residual(X @ b)[:, None] * X
    )
    module = nn.Linear(P, 1, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.as_tensor(core.theta))
    model = idm.from_torch(module, (X, y), likelihood)
    at = X[:4] + 0.3
    mine = idm.infer(
        model,
        lambda m: torch.exp(m(torch.as_tensor(at))).squeeze(),
        idm.Infinitesimal(curvature=curvature),
    )
    theirs = idm.infer(core, lambda b: np.exp(at @ b))
    np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-12)
    np.testing.assert_allclose(mine.covariance, theirs.covariance, rtol=1e-8)


@pytest.mark.slow
def test_sin_network_agrees_with_residuals():
    """The paper's one-dimensional task: 80 predictions of a network of 20 tanh units."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=60)
    y, grid = np.sin(2 * x) + 0.2 * rng.normal(size=60), np.linspace(-2, 2, 80)
    H, noise, l2 = 20, 0.04, 1.0

    def predict(theta, at):
        a, b, c, d = theta[:H], theta[H : 2 * H], theta[2 * H : 3 * H], theta[3 * H]
        return np.tanh(np.outer(at, a) + b) @ c + d

    def jacobian(theta):
        a, b, c = theta[:H], theta[H : 2 * H], theta[2 * H : 3 * H]
        hidden = np.tanh(np.outer(x, a) + b)
        inner = (1 - hidden**2) * c
        return -np.column_stack([inner * x[:, None], inner, hidden, np.ones_like(x)])

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, H), nn.Tanh(), nn.Linear(H, 1)).double()
    model = idm.polish(idm.from_torch(net, (x[:, None], y), idm.Gaussian(noise), l2=l2))
    core = idm.from_residuals(
        lambda theta: y - predict(theta, x),
        model.theta,
        jacobian=jacobian,
        variance=noise,
        l2=l2,
    )
    at = torch.as_tensor(grid[:, None])
    method = idm.Infinitesimal(curvature="ggn")
    with pytest.warns(idm.NonlinearityWarning):  # so few data do bend the predictions
        mine = idm.infer(model, lambda net: net(at).squeeze(), method)
    with pytest.warns(idm.NonlinearityWarning):
        theirs = idm.infer(core, lambda theta: predict(theta, grid), method)
    scale = np.outer(theirs.standard_error, theirs.standard_error)
    assert np.max(abs(mine.covariance - theirs.covariance) / scale) < 1e-6


@pytest.fixture(scope="module")
def softmax():
    text = (Path(__file__).parent / "golden" / "laplace_softmax.json").read_text()
    record = json.loads(text)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    net.double().load_state_dict(
        {k: torch.tensor(v, dtype=torch.float64) for k, v in record["state_dict"].items()}
    )
    X, y = torch.tensor(record["x"], dtype=torch.float64), torch.tensor(record["y"])
    return record, idm.from_torch(net, (X, y), idm.Categorical(), l2=record["l2"])


def test_logits_have_the_variance_of_laplace_torch(softmax):
    record, model = softmax
    points = torch.tensor(record["points"], dtype=torch.float64)
    estimate = idm.infer(
        model, lambda net: net(points).flatten(), idm.Infinitesimal(curvature="ggn")
    )
    variance = np.array(record["variance"]).ravel()
    np.testing.assert_allclose(estimate.standard_error**2, variance, rtol=1e-5)
    joint = np.array(record["joint_covariance"])
    size = len(joint)
    np.testing.assert_allclose(
        estimate.covariance[:size, :size], joint, atol=1e-5 * np.max(np.diag(joint))
    )


def test_conjugate_gradients_agree_with_the_factorization(softmax):
    record, model = softmax
    points = torch.tensor(record["points"][:2], dtype=torch.float64)
    for curvature in ("hessian", "ggn"):
        dense, iterated = (
            idm.infer(
                model,
                lambda net: net(points).flatten(),
                idm.Infinitesimal(solver=solver, curvature=curvature),
            ).standard_error
            for solver in (idm.cholesky, idm.conjugate_gradient(rtol=1e-6))
        )
        np.testing.assert_allclose(iterated, dense, rtol=2e-6)


class Pairs(Dataset):
    """Rows one at a time, as a user's own dataset has them."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input": self.X[i], "label": self.y[i]}


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def small_data(n=50):
    g = torch.Generator().manual_seed(3)
    X = torch.randn(n, 2, generator=g, dtype=torch.float64)
    return X, torch.randint(0, 3, (n,), generator=g)


def cross_entropy(module, batch):
    return -nn.functional.cross_entropy(module(batch["input"]), batch["label"], reduction="none")


def test_tensors_datasets_and_loaders_are_the_same_data():
    net, (X, y) = small_net(), small_data()
    reference = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.3)
    v = np.random.default_rng(0).normal(size=(reference.d, 2))
    same = {
        "batches": idm.from_torch(net, (X, y), idm.Categorical(), l2=0.3, batch_size=7),
        "arrays": idm.from_torch(net, (X.numpy(), y.numpy()), idm.Categorical(), l2=0.3),
        "dataset": idm.from_torch(net, TensorDataset(X, y), idm.Categorical(), l2=0.3),
        "shuffled": idm.from_torch(
            net,
            DataLoader(TensorDataset(X, y), batch_size=8, shuffle=True),
            idm.Categorical(),
            l2=0.3,
        ),
        "dicts": idm.from_torch(
            net, DataLoader(Pairs(X, y), batch_size=8, shuffle=True), cross_entropy, l2=0.3
        ),
        "dict of tensors": idm.from_torch(net, {"input": X, "label": y}, cross_entropy, l2=0.3),
    }
    for name, model in same.items():
        assert model.n == 50, name
        np.testing.assert_allclose(model.rows.terms(model.theta), reference.rows.terms(model.theta))
        np.testing.assert_allclose(
            model.information(model.theta, v), reference.information(model.theta, v), rtol=1e-9
        )


def test_gauss_newton_matrix_formed_equals_its_products():
    net, data = small_net(), small_data()
    for weights in (None, np.arange(50.0)):
        for batch_size in (None, 7):
            model = idm.from_torch(
                net, data, idm.Categorical(), l2=0.3, weights=weights, batch_size=batch_size,
                penalty=lambda m: 0.5 * m[0].weight.square().sum(),
            )  # fmt: skip
            identity = np.eye(model.d)
            formed = outputs_of(model).gauss_newton_matrix(model.theta, model.weights.values)
            formed = formed + model.penalty.curvature(model.theta, identity)
            columns = [model.information(model.theta, e, "ggn") for e in identity]
            np.testing.assert_allclose(formed, np.array(columns).T, atol=1e-10)
            several = np.hstack([identity[:, ::-1], -2 * identity, np.ones((model.d, 1))])
            for block in (several, several[:, :-1]):
                product = model.information(model.theta, block, "ggn")
                np.testing.assert_allclose(product, formed @ block, atol=1e-10)


def test_keeps_the_contract():
    X, y = small_data()
    psi = lambda net: nn.functional.cross_entropy(net(X[:9]), y[:9])
    check_model(idm.from_torch(small_net(), (X, y), idm.Categorical(), l2=0.5), psi)
    penalty = lambda m: sum(p.cosh().sum() for p in m.parameters())
    weights = np.random.default_rng(0).integers(0, 3, 50)
    model = idm.from_torch(
        small_net(), (X, y), idm.Categorical(), penalty=penalty, weights=weights, batch_size=9
    )
    check_model(model, psi)


class Altered:
    """An object with other values of some members."""

    def __init__(self, inner, **members):
        self.inner, self.members = inner, members

    def __getattr__(self, name):
        return self.members[name] if name in self.members else getattr(self.inner, name)


MISTAKES = {
    "noise too large": ("noise", lambda found: 1.5 * found),
    "noise of another shape": ("noise", np.transpose),
    "spread of another shape": (
        "whitened",
        lambda parts: (p._replace(spread=p.spread[:, :1]) for p in parts),
    ),
    "spread below zero": ("whitened", lambda parts: (p._replace(spread=-p.spread) for p in parts)),
    "redraws of other parameters": ("redraw", lambda draw: lambda theta, *a: draw(theta + 0.5, *a)),
    "too much noise in redraws": ("redraw", None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_contract_of_outputs_notices_a_mistake(mistake):
    X, y = small_data()
    likelihood = idm.Categorical()
    if mistake == "too much noise in redraws":
        y, likelihood = X[:, [0, 1, 0]] + 0.5, idm.Gaussian(1.0)
    model = idm.from_torch(small_net(), (X, y), likelihood, l2=0.5)
    member, change = MISTAKES[mistake]
    rows, outputs = model.rows, model.rows.outputs
    if change is None:
        wider = outputs.with_likelihood(idm.Gaussian(3.0))

        def redraw(*arguments):
            return wider.redraw(*arguments).outputs.with_likelihood(likelihood)

        wrong = Altered(rows, redraw=redraw)
    elif member == "redraw":
        wrong = Altered(rows, redraw=change(rows.redraw))
    else:
        altered = Altered(outputs, **{member: lambda *a: change(getattr(outputs, member)(*a))})
        wrong = Altered(rows, outputs=altered)
    with pytest.raises(AssertionError, match=r"noise|spread|score"):
        check_model(replace(model, rows=wrong))


def test_float32_modules_may_be_lifted():
    X, y = small_data()
    net = small_net().float()
    lifted = idm.from_torch(net, (X.float(), y), idm.Categorical(), l2=0.5, dtype=torch.float64)
    single = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.5, dtype="float32")
    v = np.ones(lifted.d)
    assert lifted.facts.precision.dtype == "float64"
    assert single.facts.precision.dtype == "float32"
    assert single.theta.dtype == single.information(single.theta, v).dtype == np.float64
    np.testing.assert_allclose(
        single.information(single.theta, v), lifted.information(lifted.theta, v), rtol=1e-4
    )
    assert next(net.parameters()).dtype == torch.float32


def test_noise_variance_is_that_of_least_squares():
    X, eta, rng = design()
    y = eta + rng.normal(size=N)
    beta, squares = np.linalg.lstsq(X, y, rcond=None)[:2]
    module = nn.Linear(P, 1, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.as_tensor(beta))
    psi = lambda m: m.weight.flatten()
    for variance, divisor in (("mle", N), ("unbiased", N - P)):
        model = idm.from_torch(module, (X, y), idm.Gaussian(variance))
        expected = squares / divisor * np.linalg.inv(X.T @ X)
        np.testing.assert_allclose(idm.infer(model, psi).covariance, expected, rtol=1e-9)


def test_several_outputs_share_one_noise_variance():
    X, eta, rng = design()
    Y = np.column_stack([eta, -eta]) + rng.normal(size=(N, 2))
    beta, squares = np.linalg.lstsq(X, Y, rcond=None)[:2]
    module = nn.Linear(P, 2, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.as_tensor(beta.T))
    model = idm.from_torch(module, (X, Y), idm.Gaussian("unbiased"))
    expected = squares.sum() / (2 * N - 2 * P) * np.linalg.inv(X.T @ X)
    covariance = idm.infer(model, lambda m: m.weight[0]).covariance
    np.testing.assert_allclose(covariance, expected, rtol=1e-9)


def test_frozen_parameters_are_known_and_shared_ones_count_once():
    net, (X, y) = small_net(), small_data()
    net[0].weight.requires_grad_(False)
    net[0].bias.requires_grad_(False)
    model = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.5)
    assert model.d == 3 * 4 + 3
    assert model.names[:2] == ("2.weight[0,0]", "2.weight[0,1]")

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(2, 2, bias=False)
            self.decode = nn.Linear(2, 2, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x):
            return self.decode(torch.tanh(self.encode(x)))

    tied = idm.from_torch(Tied().double(), (X, X), idm.Gaussian(1.0), l2=1.0)
    assert tied.d == 4
    check_model(tied)


def test_module_of_a_model_has_its_parameters():
    net, (X, y) = small_net(), small_data()
    model = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.5)
    moved = model.at(model.theta + 1.0)
    copied = moved.module
    values = nn.utils.parameters_to_vector(copied.parameters()).detach().numpy()
    np.testing.assert_array_equal(values, model.theta + 1.0)
    assert all(p.requires_grad for p in copied.parameters())
    assert float(net[0].weight[0, 0].detach()) == model.theta[0]


def test_polish_finishes_the_training():
    net, (X, y) = small_net(), small_data()
    psi = lambda net: nn.functional.cross_entropy(net(X), y)
    rough = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.5)
    with pytest.raises(idm.ImplicitDeltaError):
        idm.infer(rough, psi, idm.Infinitesimal())
    done = idm.polish(rough, psi)
    assert done.gain > 0
    assert abs(done.moved) > 1
    assert idm.infer(done.model, psi).diagnostics.drift < 1e-5
    assert np.linalg.norm(done.model.score(done.model.theta)) < 1e-5


def test_parameters_are_an_evaluation_for_every_method():
    X, y = small_data()
    module = nn.Sequential(nn.Linear(2, 1)).double()
    model = idm.polish(idm.from_torch(module, (X, (y > 1).double()), idm.Bernoulli(), l2=1.0))
    solved = idm.infer(model, idm.parameters)
    refitted = idm.infer(model, idm.parameters, idm.FiniteDifference(push=0.01))
    np.testing.assert_allclose(refitted.covariance, solved.covariance, rtol=1e-3)
    assert solved.names == ("0.weight[0,0]", "0.weight[0,1]", "0.bias")


def test_very_many_parameters_stay_in_single_precision(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.torch.module.MOST_DOUBLE", 10)
    X, y = small_data()
    psi = lambda net: net(X[:1].to(next(net.parameters()).dtype)).mean()
    method = idm.Infinitesimal(idm.conjugate_gradient, "ggn")
    single = idm.from_torch(
        small_net().float(), (X, y), idm.Categorical(), l2=0.5, dtype=torch.float32
    )
    double = idm.from_torch(small_net(), (X, y), idm.Categorical(), l2=0.5)
    assert single.theta.dtype == np.float32
    assert single.information(single.theta, single.theta).dtype == np.float32
    assert single.at(single.theta + 1).theta.dtype == np.float32
    errors = []
    for model in (single, double):
        with pytest.warns(idm.DriftWarning):
            errors.append(idm.infer(model, psi, method, strict=False).standard_error)
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)


@pytest.mark.parametrize("batch_size", [None, 7])
def test_scatter_of_batches_is_that_of_all_rows(batch_size):
    weights = np.random.default_rng(0).integers(0, 3, 50).astype(float)
    model = idm.from_torch(
        small_net(), small_data(), idm.Categorical(), weights=weights, batch_size=batch_size
    )
    v = np.random.default_rng(1).normal(size=(model.d, 4))
    rows, passes = model.terms_along(model.theta, v), model.rows.passes
    for clusters in (None, Clusters.of(np.arange(50) % 11, weights)):
        expected = scatter_of(rows, weights, clusters)
        np.testing.assert_allclose(model.scatter(model.theta, v, clusters), expected, rtol=1e-10)
    assert model.rows.passes == passes + 2


def test_a_model_prints_what_it_is_made_of():
    X, y = small_data()
    model = idm.from_torch(small_net(), (X, y), idm.Categorical(), l2=3.0)
    lines = [
        "from_torch: 50 rows, 27 parameters",
        "log-likelihood: Categorical(), float64",
        "l2: 3",
    ]
    assert str(model).split("\n  ") == lines
    written = idm.from_torch(
        small_net().float(), {"input": X, "label": y}, cross_entropy, l2=0.5,
        penalty=lambda net: net[0].weight.abs().sum(),
    )  # fmt: skip
    told = "log-likelihood: cross_entropy, float64 copy of float32\n  penalty: <lambda>\n  l2: 0.5"
    assert told in repr(written)


@pytest.mark.parametrize(
    ("likelihood", "ignored"),
    [
        (idm.Categorical(), 0),
        (idm.Categorical(class_weights=(1.0, 2.0, 0.5)), 0),
        (idm.Categorical(ignore_index=-100), 5),
    ],
    ids=["plain", "class weights", "ignored"],
)
@pytest.mark.parametrize("batch_size", [7, 40])
def test_whitened_rows_are_the_same_for_few_columns_and_for_many(likelihood, ignored, batch_size):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(40, 4, dtype=torch.float64), torch.randint(0, 3, (40,))
    y[:ignored] = -100
    loader = DataLoader(TensorDataset(x, y), batch_size)
    model = idm.from_torch(net, loader, likelihood)
    v = np.random.default_rng(0).normal(size=(model.d, model.d + 2))
    rows = lambda v: np.concatenate([part.rows for part in whitened_rows(model, model.theta, v)])
    few = np.concatenate([rows(part) for part in np.array_split(v, 4, axis=1)], axis=-1)
    np.testing.assert_allclose(rows(v), few, atol=1e-12)
