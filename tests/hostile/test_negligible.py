"""Curvature that looks negligible and is not: what is left out of a matrix must be made up for."""

import pytest

pytest.importorskip("torch")

from dataclasses import replace

import numpy as np
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.core.cache import LastCache
from implicit_delta.linalg.solvers import Solution
from implicit_delta.linalg.solvers.direct import solve_with_part
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.outputs import gauss_newton_part
from implicit_delta.models.penalty import Penalty

torch.set_num_threads(1)
N, P, C = 300, 6, 4
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@pytest.fixture
def eager(monkeypatch):
    """Look for parts of small matrices too."""
    for name, limit in {"LONG": 0, "PRODUCTS": 0, "OUTPUTS": 0, "MOST_KEPT": 0.9}.items():
        monkeypatch.setattr(f"implicit_delta.models.batched_outputs.{name}", limit)


def whole_curvature(model):
    return model.information(model.theta, np.eye(model.d), "ggn")


def without_cache(model):
    return replace(model, rows=replace(model.rows, cache=LastCache()))


def inputs(seed=0):
    return torch.randn(N, P, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sure(outputs=C, seed=0, gain=6.0):
    """A network whose logits are large, so that most rows hardly curve."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(P, 12), nn.Tanh(), nn.Linear(12, outputs)).double()
    net[2].weight.data *= gain
    return net


def labels(count=C):
    return torch.arange(N) % count


@case
def plain():
    return idm.from_torch(sure(), (inputs(), labels()), idm.Categorical(), l2=1.0)


@case
def another_network():
    return idm.from_torch(sure(seed=3), (inputs(3), labels()), idm.Categorical(), l2=0.3)


@case
def weights():
    counts = np.random.default_rng(0).integers(0, 4, N)
    data = inputs(), labels()
    return idm.from_torch(sure(), data, idm.Categorical(), l2=1.0, weights=counts, batch_size=70)


@case
def one_weight_beyond_all():
    counts = np.where(np.arange(N) == 7, 1e9, 1.0)
    return idm.from_torch(sure(), (inputs(), labels()), idm.Categorical(), l2=1.0, weights=counts)


@case
def tiny_curvature_and_huge_jacobian():
    """One row of 300 is sure to four digits, and yet has most of the curvature."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(P, C, bias=False)).double()
    W, X = net[0].weight.detach(), inputs()
    X[0] = 9 * torch.linalg.pinv(W)[:, 0]  # a logit of 9, the others 0
    X[0] += 1e3 * torch.linalg.qr(W.T, mode="complete")[0][:, -1]  # which no logit sees
    model = idm.from_torch(net, (X, labels()), idm.Categorical(), l2=1.0)
    assert np.linalg.eigvalsh(whole_curvature(model))[-1] > 100
    return without_cache(model)


@case
def separated_classes():
    net = sure(gain=60.0)
    X = inputs()
    return idm.from_torch(net, (X, net(X).argmax(1)), idm.Categorical(), l2=1e-3)


@case
def all_rows_are_sure():
    net = sure(gain=1e4)
    return idm.from_torch(net, (inputs(), labels()), idm.Categorical(), l2=1.0)


@case
def several_logits():
    y = (inputs(1)[:, :C] > 0).double()
    return idm.from_torch(sure(), (inputs(), y), idm.Bernoulli(), l2=1.0)


@case
def rates_of_all_sizes():
    y = torch.ones(N, C, dtype=torch.float64)
    return idm.from_torch(sure(gain=3.0), (inputs(), y), idm.Poisson(), l2=1.0)


@case
def tokens():
    torch.manual_seed(0)
    X = inputs().reshape(100, 3, P)
    y = (torch.arange(300) % C).reshape(100, 3)
    y[:, 2] = -100
    return idm.from_torch(sure(), (X, y), idm.Categorical(ignore_index=-100), l2=1.0)


@case
def class_weights_and_smoothing():
    likelihood = idm.Categorical(class_weights=(1.0, 5.0, 0.1, 1.0), label_smoothing=0.1)
    return idm.from_torch(sure(), (inputs(), labels()), likelihood, l2=1.0)


@case
def a_penalty():
    penalty = lambda m: sum(p.cosh().sum() for p in m.parameters())
    data = inputs(), labels()
    return idm.from_torch(sure(), data, idm.Categorical(), penalty=penalty)


@case
def batches_of_any_make():
    data = {"x": inputs(), "y": labels()}
    return idm.from_torch(
        sure(), data, idm.Categorical(), l2=1.0,
        outputs=lambda net, batch: net(batch["x"]), targets=lambda batch: batch["y"],
    )  # fmt: skip


@case
def in_jax():
    jax = pytest.importorskip("jax")
    net, X, y = sure(), inputs().numpy(), labels().numpy()
    params = [p.detach().numpy() for p in net.parameters()]
    apply = lambda p, x: jax.numpy.tanh(x @ p[0].T + p[1]) @ p[2].T + p[3]
    return idm.from_jax(params, (X, y), idm.Categorical(), apply=apply, l2=1.0)


@case
def arrays_beside_the_rows():
    """Batches with an array that has no row for each observation."""
    X, y, shift = inputs(), labels(), torch.ones(7, P, dtype=torch.float64)
    halves = [{"x": X[i : i + 150], "y": y[i : i + 150], "shift": shift} for i in (0, 150)]
    return idm.from_torch(
        sure(), halves, idm.Categorical(), l2=1.0,
        outputs=lambda net, batch: net(batch["x"] + batch["shift"].mean(0)),
        targets=lambda batch: batch["y"],
    )  # fmt: skip


def solved(model, b, part) -> Solution:
    product = lambda v: model.information(model.theta, v, "ggn")
    return idm.cholesky.solve(product, b, part=part)


ASKED = [
    (name, columns) for name in CASES for columns in (1, 3) if (name, columns) != ("in_jax", 3)
]


@pytest.mark.parametrize(("name", "columns"), ASKED)
def test_the_rest_is_made_up_for(name, columns, eager):
    model = CASES[name]()
    b = np.random.default_rng(1).normal(size=(model.d, columns))
    part = gauss_newton_part(model, model.theta, columns)
    found = solved(model, b, part)
    whole = whole_curvature(CASES[name]())
    if part is not None:
        gap = np.linalg.eigvalsh(whole - part)
        assert gap[0] >= -1e-12 * np.abs(whole).max(), "the part is at most the whole"
        assert gap[-1] > 0, "and less"
    before = solved(CASES[name](), b, None)
    np.testing.assert_allclose(found.quadratic, before.quadratic, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.x, before.x, rtol=1e-7, atol=1e-9 * np.abs(before.x).max())
    truth = b.T @ np.linalg.solve(whole, b)
    rounding = 1e-15 * np.linalg.cond(whole)
    np.testing.assert_allclose(np.diag(found.quadratic), np.diag(truth), rtol=1e-9 + rounding)
    slack = (1e-10 + rounding) * np.diag(truth)
    assert np.all(found.lower - slack <= np.diag(truth))
    assert np.all(np.diag(truth) <= found.upper + slack)
    lowest = np.linalg.eigvalsh(whole)[0]
    assert lowest * (1 - 1e-9) - rounding <= found.smallest_curvature <= 1.1 * lowest


@pytest.mark.parametrize(
    "name", ["plain", "weights", "tokens", "class_weights_and_smoothing", "several_logits"]
)
def test_a_part_suffices_where_it_should(name, eager):
    model = CASES[name]()
    b = np.ones((model.d, 1))
    found = solved(model, b, gauss_newton_part(model, model.theta, 1))
    assert found.by_part
    assert found.products < model.d / 2


def spread(rng, d, decades):
    """A random matrix whose eigenvalues go over some decades."""
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (Q * np.logspace(0, -decades, d)) @ Q.T


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("missing", [1e-8, 1e-2, 1.0, 1e3])
def test_bounds_hold_however_far_from_the_solution(missing, steps, monkeypatch):
    monkeypatch.setattr("implicit_delta.linalg.solvers.direct.MOST_STEPS", steps)
    monkeypatch.setattr("implicit_delta.linalg.solvers.direct.ACCURATE", np.inf)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        P, E = spread(rng, 12, 4), missing * spread(rng, 12, seed % 9)
        b = rng.normal(size=(12, 2))
        found = solve_with_part(lambda v, A=P + E: A @ v, b, P)
        truth = np.diag(b.T @ np.linalg.solve(P + E, b))
        assert np.all(found.lower <= truth * (1 + 1e-10)), seed
        assert np.all(truth <= found.upper * (1 + 1e-10)), seed


def test_a_part_too_far_from_the_whole_is_not_used():
    rng = np.random.default_rng(0)
    P, E, b = spread(rng, 80, 4), 1e4 * spread(rng, 80, 2), rng.normal(size=(80, 1))
    A = P + E
    assert solve_with_part(lambda v: A @ v, b, P) is None
    assert solve_with_part(lambda v: A @ v, b, 0 * P) is None, "singular"
    found = idm.cholesky.solve(lambda v: A @ v, b, part=P)
    assert not found.by_part
    assert found.quadratic == idm.cholesky.solve(lambda v: A @ v, b).quadratic


def test_no_part_of_batches_with_other_arrays(eager):
    model = arrays_beside_the_rows()
    assert gauss_newton_part(model, model.theta, 1) is None


def softmax_regression(likelihood, y, **options):
    torch.manual_seed(0)
    net = nn.Linear(P, C).double()
    net.weight.data *= 10
    net.bias.data *= 10
    return idm.polish(idm.from_torch(net, (4 * inputs(), y), likelihood, **options))


METHOD = idm.Infinitesimal(idm.cholesky, "ggn")
FITS = {
    "rows left out": (idm.Categorical(), {"l2": 0.1}),
    "damped": (idm.Categorical(), {"l2": 0.1}),
    "redundant logits": (idm.Categorical(), {"l2": 0.0}),
    "nothing to leave out": (idm.Gaussian(1.0), {"l2": 0.1}),
}


@pytest.mark.parametrize("name", FITS)
def test_estimates_and_their_diagnostics(name, request):
    likelihood, options = FITS[name]
    X = inputs()
    classes = (X[:, :C] + 0.3 * inputs(5)[:, :C]).argmax(1)
    y = X[:, :C].clone() if isinstance(likelihood, idm.Gaussian) else classes
    model = softmax_regression(likelihood, y, **options)
    psi = lambda net: (net(X[:5])[:, 0] - net(X[:5])[:, 1]).mean()
    method = idm.Infinitesimal(idm.cholesky, "ggn", damping=2.0) if name == "damped" else METHOD
    before = idm.infer(without_cache(model), psi, method)
    request.getfixturevalue("eager")
    after = idm.infer(without_cache(model), psi, method)
    np.testing.assert_allclose(after.standard_error, before.standard_error, rtol=1e-9)
    told = {"accuracy": after.diagnostics.notes.get("accuracy", "")}
    if name in ("rows left out", "damped"):
        assert told["accuracy"].startswith("bounded, at most")
        assert "accuracy" not in before.diagnostics.notes
    else:
        assert after.standard_error == before.standard_error
        assert after.diagnostics.notes == before.diagnostics.notes


def test_models_with_other_penalties_share_the_matrix(eager):
    net, X, y = sure(gain=1.0), inputs(), labels()
    model = idm.from_torch(net, (X, y), idm.Categorical(), l2=0.5)
    tied, passes = early_stopped(model), model.rows.passes
    bare = replace(tied, penalty=Penalty())
    for each in (tied, bare, model):
        held, again = whole_curvature(each), whole_curvature(without_cache(each))
        np.testing.assert_allclose(held, again, atol=1e-12 * again.max())
    assert whole_curvature(bare) is not whole_curvature(bare)
    assert (
        model.rows.passes - passes == 3
    )  # one for the tether, and those without the cache but one
