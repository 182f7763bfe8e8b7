"""A part of psi whose derivative is blocked: refused or warned about, whatever blocks it."""

import warnings
from functools import cache

import pytest

pytest.importorskip("torch")
jax = pytest.importorskip("jax")

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.slopes import lines_of, slope_mismatch

torch.set_num_threads(1)
DETACHED, STEPS = "does not change as its derivative implies", "jumps near the fitted parameters"


@cache
def data(seed=0, n=300):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-X @ [0.5, 0.0, -0.5, -1.0]))).astype(float)
    b = np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ b))
        b = b + np.linalg.solve((X.T * (p * (1 - p))) @ X, X.T @ (y - p))
    return X, y, b


@cache
def in_jax(seed=0):
    X, y, b = data(seed)
    apply = lambda params, x: x @ params["b"]
    return idm.from_jax({"b": b}, (X, y), idm.Bernoulli(), apply=apply, dtype="float64")


@cache
def in_torch(seed=0):
    X, y, b = data(seed)
    net = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.as_tensor(b)
    rows = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    return idm.from_torch(net, rows, idm.Bernoulli())


@cache
def in_numpy(seed=0):
    X, y, b = data(seed)
    return idm.from_loglik(lambda b: y * (X @ b) - np.log1p(np.exp(X @ b)), start=b)


@cache
def in_equations(seed=0):
    X, y, b = data(seed)
    return idm.from_equations(lambda b: (y - 1 / (1 + np.exp(-X @ b)))[:, None] * X, start=b)


stop = jax.lax.stop_gradient


@jax.custom_jvp
def square(x):
    return x**2


square.defjvp(lambda x, v: (x[0] ** 2, x[0] * v[0]))  # half of the derivative


def without_graph(m):
    with torch.no_grad():
        return 0.5 * m.weight[0, 2]


GRID = np.linspace(-2, 2, 200)
BLOCKED = {
    "stop_gradient": (in_jax, lambda q: q["b"][1] + stop(q["b"][2])),
    "stop_gradient of little": (in_jax, lambda q: q["b"][1] + 0.05 * stop(q["b"][2])),
    "stop_gradient of the same": (in_jax, lambda q: q["b"][1] - 0.05 * stop(q["b"][1])),
    "a frozen factor": (in_jax, lambda q: jnp.exp(q["b"][1]) * stop(q["b"][3])),
    "custom_jvp": (in_jax, lambda q: q["b"][1] + square(q["b"][2])),
    "jax round, fine": (in_jax, lambda q: q["b"][1] + jnp.round(q["b"][2], 4)),
    "jax round, coarse": (in_jax, lambda q: q["b"][1] + jnp.round(q["b"][2], 1)),
    "jax integers": (in_jax, lambda q: q["b"][1] + (q["b"][2] * 1e4).astype(int) / 1e4),
    "jax floor": (in_jax, lambda q: q["b"][1] + jnp.floor(q["b"][2] * 50) / 50),
    "jax share": (in_jax, lambda q: q["b"][1] + jnp.mean(GRID * q["b"][2] + q["b"][0] > 0)),
    "one output of two": (
        in_jax, lambda q: jnp.stack([q["b"][1], q["b"][2] + 0.3 * stop(q["b"][3])]),
    ),
    "detach": (in_torch, lambda m: m.weight[0, 1] + m.weight[0, 2].detach()),
    "item": (in_torch, lambda m: m.weight[0, 1] * m.weight[0, 3].item()),
    "data": (in_torch, lambda m: m.weight[0, 1] + m.weight.data[0, 2]),
    "no_grad": (in_torch, lambda m: m.weight[0, 1] + without_graph(m)),
    "numpy": (in_torch, lambda m: m.weight[0, 1] + float(m.weight.detach().numpy()[0, 2])),
    "torch round": (in_torch, lambda m: m.weight[0, 1] + torch.round(m.weight[0, 2], decimals=2)),
    "long": (in_torch, lambda m: m.weight[0, 1] + (m.weight[0, 2] * 1000).long() / 1000),
    "torch share": (
        in_torch,
        lambda m: m.weight[0, 1]
        + (torch.as_tensor(GRID) * m.weight[0, 2] + m.weight[0, 0] > 0).double().mean(),
    ),
    "numpy round": (in_numpy, lambda b: b[1] + np.round(b[2], 2)),
    "numpy round, coarse": (in_numpy, lambda b: b[1] + np.round(b[2], 1)),
    "numpy floor": (in_numpy, lambda b: b[1] + np.floor(30 * b[2]) / 30),
    "numpy share": (in_numpy, lambda b: b[1] + np.mean(GRID * b[2] + b[0] > 0)),
    "equations round": (in_equations, lambda b: b[1] + np.round(b[2], 2)),
}  # fmt: skip


def told(model, psi, **options):
    """Texts of the refusal or the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            idm.infer(model, psi, **options)
        except (idm.EvaluationError, idm.ConvergenceError) as error:
            return str(error)
    return " ".join(str(w.message) for w in caught)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BLOCKED)
def test_a_blocked_part_is_named(name, seed):
    make, psi = BLOCKED[name]
    text = told(make(seed), psi)
    assert any(part in text for part in (DETACHED, STEPS, "do not settle", "`Smoothed(psi)`")), text


METHODS = {
    "conjugate gradients": idm.Infinitesimal(solver=idm.conjugate_gradient),
    "finite difference": idm.FiniteDifference(),
    "finite difference, lam": idm.FiniteDifference(lam=0.5),
    "stochastic": idm.StochasticFiniteDifference(rng=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["stop_gradient", "detach"])
def test_every_method_that_uses_the_derivative_compares_it(name, method):
    make, psi = BLOCKED[name]
    assert DETACHED in told(make(), psi, method=METHODS[method])


def fine(q):
    return q["b"][1]


@pytest.mark.parametrize("name", ["stop_gradient of little", "jax round, coarse"])
@pytest.mark.parametrize("kind", ["list", "dict", "beside a question", "tuple of psi"])
def test_an_entry_of_several_is_named(name, kind):
    model, psi = in_jax(), BLOCKED[name][1]
    several = {
        "list": [fine, psi],
        "dict": {"fine": fine, "blocked": psi},
        "beside a question": [idm.parameters, psi],
        "tuple of psi": lambda q: (jnp.exp(fine(q)), psi(q)),
    }[kind]
    text = told(model, several)
    assert DETACHED in text or STEPS in text or "`Smoothed(psi)`" in text
    assert {"dict": "blocked", "tuple of psi": "psi[1]"}.get(kind, "") in text


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("make", ["torch", "jax"])
def test_units_of_the_columns_do_not_matter(make, unit):
    """A smooth psi is answered, a blocked part refused, in any unit of each column."""
    X, y, b = data()
    scale = np.array([1.0, unit, 1.0, 1 / unit])
    if make == "torch":
        net = nn.Linear(4, 1, bias=False).double()
        with torch.no_grad():
            net.weight[:] = torch.as_tensor(b / scale)
        rows = torch.as_tensor(X * scale), torch.as_tensor(y)[:, None]
        model, point = idm.from_torch(net, rows, idm.Bernoulli()), rows[0][:1]
        smooth = lambda m: torch.sigmoid(m(point))[0, 0]
        blocked = lambda m: smooth(m) + 0.1 * m(point).detach()[0, 0]
    else:
        model = idm.from_jax(
            {"b": b / scale}, (X * scale, y), idm.Bernoulli(),
            apply=lambda q, x: x @ q["b"], dtype="float64",
        )  # fmt: skip
        smooth = lambda q: jax.nn.sigmoid(X[0] * scale @ q["b"])
        blocked = lambda q: smooth(q) + 0.1 * stop(X[0] * scale @ q["b"])
    plain = idm.infer(in_numpy(), lambda b: 1 / (1 + np.exp(-X[0] @ b)))
    np.testing.assert_allclose(idm.infer(model, smooth).standard_error, plain.standard_error, 1e-5)
    assert DETACHED in told(model, blocked)


def test_few_evaluations_are_added():
    """At most 18 for a smooth psi: both ends of three steps, of up to three lengths."""
    model, calls = in_numpy(), []

    def psi(b):
        calls.append(b)
        return 1 / (1 + np.exp(-b[0] - b[1]))

    evaluation = Evaluation.of(model, psi)
    response = idm.Infinitesimal().respond(model, evaluation)
    jacobian, errors = evaluation.jacobian(model.theta), np.sqrt(response.covariance.diagonal())
    calls.clear()
    draw = lambda z: (
        np.linalg.cholesky(np.linalg.inv(model.information(model.theta, np.eye(4)))) @ z
    )
    lines = lines_of(evaluation, jacobian, errors, draw, whitened=True)
    assert len(calls) == 6
    assert slope_mismatch(lines, errors) is None
    assert len(calls) <= 18


def test_a_profile_compares_it_too():
    make, psi = BLOCKED["detach"]
    with pytest.raises(idm.EvaluationError, match=DETACHED):
        idm.profile(make(), psi)


@pytest.mark.slow
def test_whatever_changes_the_standard_error_by_four_percent_is_seen():
    """Random missing parts, from 0.3 to 100% of the derivative, in random directions."""
    model, rng, missed, total = in_jax(), np.random.default_rng(0), 0, 0
    V = np.linalg.inv(model.information(model.theta, np.eye(4)))
    units = 1 / np.sqrt(np.diag(V))
    for _ in range(60):
        g = rng.normal(size=4) * units
        b = rng.normal(size=4) * units * 10 ** rng.uniform(-2.5, 0)
        ratio = np.sqrt(g @ V @ g / ((g + b) @ V @ (g + b)))
        text = told(model, lambda q, g=g, b=b: g @ q["b"] + stop(b @ q["b"]))
        total += abs(ratio - 1) > 0.04
        missed += abs(ratio - 1) > 0.04 and DETACHED not in text
    assert total > 20
    assert missed == 0


SMOOTH = {
    "exp": lambda q: jnp.exp(q["b"][1]),
    "a ratio": lambda q: q["b"][1] / q["b"][3],
    "relu": lambda q: jnp.maximum(q["b"][0] * GRID + q["b"][1], 0).mean(),
    "abs": lambda q: jnp.abs(q["b"]).sum(),
    "sort": lambda q: jnp.sort(q["b"])[1],
    "a large constant": lambda q: 1e6 + q["b"][1],
    "single precision": lambda q: jax.nn.sigmoid(q["b"][1].astype(jnp.float32)),
    "a shift that cancels": lambda q: (
        stop(q["b"].max()) + jnp.log(jnp.exp(q["b"] - stop(q["b"].max())).sum())
    ),
    "a step far away": lambda q: q["b"][1] + (q["b"][3] > 0),
    "many outputs": lambda q: jnp.tanh(GRID * q["b"][2] + q["b"][1]),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_evaluations_are_answered_silently(name, seed):
    """Warnings are errors here."""
    assert np.all(idm.infer(in_jax(seed), SMOOTH[name]).standard_error > 0)


def test_random_psi_with_common_numbers_and_an_iteration_inside():
    model = in_numpy()

    def simulated(b, rng):
        return np.mean(np.exp(b[1] + 0.1 * rng.normal(size=200)))

    def solved(b):
        x = 0.0
        for _ in range(60):  # x = cos(x + b)
            x = np.cos(x + b[1])
        return x

    for psi in (simulated, solved):
        assert idm.infer(model, psi).standard_error > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_networks_are_answered(activation, dtype):
    torch.manual_seed(0)
    X = torch.randn(200, 3).double()
    y = (torch.sin(X[:, :1]) + 0.3 * torch.randn(200, 1)).double()
    net = nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 1)).to(dtype)
    X, y = X.to(dtype), y.to(dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(X), y).backward()
        optimizer.step()
    model = idm.from_torch(net, (X, y), idm.Gaussian(0.3), l2=1.0)
    new = torch.randn(50, 3).to(dtype)
    for psi in (lambda m: m(new).mean(), lambda m: m(new)[:5, 0]):
        text = told(model, psi, strict=False)
        assert DETACHED not in text
        assert STEPS not in text
