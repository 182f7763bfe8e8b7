"""Statistics x models: F1, calibration, a fairness gap, a top-k share, a quantile."""

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import warnings

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier
from torch import nn

import implicit_delta as idm

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(7)
N, P = 400, 3
X, NEW = RNG.normal(size=(N, P)), RNG.normal(size=(N, P))
draw = lambda x: (x[:, 0] - x[:, 1] * x[:, 2] + RNG.logistic(size=len(x)) > 0).astype(int)
Y, NEW_Y, GROUP = draw(X), draw(NEW), RNG.random(N) < 0.4


def f1(u, w):
    hits, named = w @ ((u > 0.5) * NEW_Y), w @ (u > 0.5)
    return 2 * hits / (named + w @ NEW_Y)


def calibration_error(u, w):
    bins = np.minimum((u * 5).astype(int), 4)
    gaps = [abs(np.sum((w * (u - NEW_Y))[bins == k])) for k in range(5)]
    return sum(gaps) / w.sum()


def gap(u, w):
    rates = [w[rows] @ (u[rows] > 0.5) / w[rows].sum() for rows in (GROUP, ~GROUP)]
    return rates[0] - rates[1]


def top_share(u, w):
    """Share of the positives among the fifth with the highest scores."""
    order = np.argsort(-u, kind="stable")
    total = np.cumsum(w[order])
    taken = np.clip((0.2 * total[-1] - (total - w[order])) / w[order], 0, 1) * w[order]
    return taken @ NEW_Y[order] / (w @ NEW_Y)


def quantile(u, w):
    order = np.argsort(u)
    total = np.cumsum(w[order])
    return u[order][np.searchsorted(total, 0.9 * total[-1])]


STATISTICS = (f1, calibration_error, gap, top_share, quantile)


def network(width):
    layers = [nn.Linear(P, width), nn.Tanh()]
    layers += [nn.Linear(width, width), nn.Tanh()] if width > 8 else []
    return nn.Sequential(*layers, *([nn.Linear(width, width), nn.Tanh()] if width > 8 else []),
                         nn.Linear(width, 1)).double()  # fmt: skip


def torch_model(width=8):
    torch.manual_seed(0)
    net, x, y = network(width), torch.tensor(X), torch.tensor(Y)[:, None].double()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), y, reduction="sum")
        loss = loss + sum(p.square().sum() for p in net.parameters())
        loss.backward()
        return loss

    optimizer.step(closure)
    model = idm.from_torch(net, (x, y), idm.Bernoulli(), l2=2.0)
    return model, lambda net: torch.sigmoid(net(torch.tensor(NEW)))[:, 0]


def sklearn_model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = MLPClassifier((8,), activation="tanh", alpha=2.0, solver="lbfgs", random_state=0)
        net.fit(X, Y)
    return idm.from_sklearn(net, X, Y), lambda net: net.predict_proba(NEW)[:, 1]


def jax_model():
    pytest.importorskip("jax")
    import jax
    import jax.numpy as jnp

    small = torch_model()[0].module
    weights = [p.detach().numpy() for p in small.parameters()]
    params = dict(zip(("w", "b", "v", "c"), weights, strict=True))
    apply = lambda p, x: jnp.tanh(x @ p["w"].T + p["b"]) @ p["v"].T + p["c"]
    model = idm.from_jax(
        params, (X, Y[:, None]), idm.Bernoulli(), apply=apply, l2=2.0, dtype="float64"
    )
    return model, lambda p: jax.nn.sigmoid(model.apply(p, NEW))[:, 0]


MAKERS = {
    "torch": torch_model,
    "large torch": lambda: torch_model(40),
    "sklearn": sklearn_model,
    "jax": jax_model,
}


@pytest.fixture(scope="module")
def cached():
    return {}


def model_of(name, cached):
    if name not in cached:
        cached[name] = MAKERS[name]()
    return cached[name]


def drawn_error(model, units, function):
    """Standard deviation of a statistic over 400 tangent draws, with its jumps."""
    psi = lambda m: function(np.asarray(units_of(units, m)), np.ones(N))
    est = idm.infer(model, psi, idm.Simulation(400, tangent=True, rng=0), strict=False)
    return est.standard_error


def units_of(units, model):
    found = units(model)
    return found.detach().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)


@pytest.mark.parametrize("function", STATISTICS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_a_statistic_has_both_parts_of_its_error(name, function, cached):
    model, units = model_of(name, cached)
    assert (model.d > 2500) == (name == "large torch")
    method = idm.Infinitesimal(curvature="ggn")
    est = idm.infer(model, idm.Statistic(units, function), method, strict=False)
    rows = idm.infer(model, idm.Statistic(units, function, sample="unknown"), method, strict=False)
    assert est.value == pytest.approx(function(units_of(units, native(model)), np.ones(N)))
    assert 0 < est.budget["evaluation"] < est.standard_error <= rows.standard_error
    if name != "large torch":
        # Jumps of one sample are in the draws and not in the model's part, which may be small then.
        whole = drawn_error(model, units, function)
        assert 0.2 * whole < est.budget["model"] < 1.15 * whole


def native(model):
    if hasattr(model, "module"):
        return model.module
    if hasattr(model, "params"):
        return model.params
    return model.evaluate(lambda fitted: fitted, model.theta)
