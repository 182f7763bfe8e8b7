"""Psi that uses the user's own fitted object in place of its argument is refused."""

import copy
import pickle

import pytest

pytest.importorskip("torch")
jax = pytest.importorskip("jax")
pytest.importorskip("sklearn")

import jax.numpy as jnp
import numpy as np
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import implicit_delta as idm

torch.set_num_threads(1)
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
Y = rng.poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1])).astype(float)
XT, YT = torch.as_tensor(X), torch.as_tensor(Y)[:, None]
XJ = jnp.asarray(X)
OWN = "of what was given to"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 2), nn.Linear(2, 1)
        self.register_buffer("shift", torch.ones(1))

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


def trained():
    torch.manual_seed(0)
    net = Net().double()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        squares = sum((p**2).sum() for p in net.parameters())
        value = ((net(XT) - YT) ** 2).sum() / 2 + squares / 2
        value.backward()
        return value

    optimizer.step(loss)
    return net


NET = trained()
MODEL = idm.from_torch(NET, (XT, YT), idm.Gaussian(1.0), l2=1.0)
STATE, NAMED = NET.state_dict(), dict(NET.named_parameters())
BASELINE, OUTPUTS = copy.deepcopy(NET), NET(XT).detach()


class Holder:
    def __init__(self, net):
        self.net = net

    def psi(self, m):
        return m(XT).mean() + self.net(XT).mean()


def without_graph(m):
    with torch.no_grad():
        return m(XT).mean() * NET(XT).mean()


IN_TORCH = {
    "module": lambda m: m(XT).mean() + NET(XT).mean(),
    "module alone": lambda _: NET(XT).mean(),
    "first part": lambda m: m.head(torch.tanh(NET.encoder(XT))).mean(),
    "last part": lambda m: NET.head(torch.tanh(m.encoder(XT))).mean(),
    "weight": lambda m: m(XT).mean() * NET.head.weight.sum(),
    "data": lambda m: m(XT).mean() + NET.head.weight.data.sum(),
    "item": lambda m: m(XT).mean() * NET.head.bias.item(),
    "numpy": lambda m: m(XT).mean() * float(NET.head.bias.detach().numpy()[0]),
    "view": lambda m: m(XT).mean() + NET.head.weight.view(-1)[1:].sum(),
    "state": lambda m: m(XT).mean() + STATE["head.weight"].sum(),
    "functional call": lambda m: m(XT).mean() + torch.func.functional_call(NET, NAMED, XT).mean(),
    "vmap": lambda m: m(XT).mean() + torch.func.vmap(NET)(XT).mean(),
    "copy within": lambda m: m(XT).mean() + copy.deepcopy(NET)(XT).mean(),
    "no_grad": without_graph,
    "object": Holder(NET).psi,
    "norm": lambda m: m(XT).mean() / sum((p**2).sum() for p in NET.parameters()),
    "an entry": lambda m: (m(XT).mean(), m(XT[:1])[0, 0] + NET(XT[:1])[0, 0]),
    "list": [lambda m: m(XT).mean(), lambda m: m(XT[0]).sum() * NET(XT[0]).sum()],
}
NOT_IN_TORCH = {
    "argument": lambda m: m(XT).mean(),
    "copy": lambda m: (m(XT) * BASELINE(XT)).mean(),
    "outputs": lambda m: (m(XT) * OUTPUTS).mean(),
    "structure": lambda m: torch.func.functional_call(NET, dict(m.named_parameters()), XT).mean(),
    "buffer": lambda m: m(XT).mean() * NET.shift.sum(),
    "shape": lambda m: m(XT).mean() * NET.head.weight.shape[0],
    "type": lambda m: m(XT.to(next(NET.parameters()).dtype)).mean(),
}


@pytest.mark.parametrize("name", IN_TORCH)
def test_in_torch(name):
    before = {key: value.clone() for key, value in STATE.items()}
    with pytest.raises(idm.EvaluationError, match=f"{OWN} from_torch"):
        idm.infer(MODEL, IN_TORCH[name], strict=False)
    assert all(torch.equal(STATE[key], before[key]) for key in before)


@pytest.mark.parametrize("name", NOT_IN_TORCH)
def test_not_in_torch(name):
    assert idm.infer(MODEL, NOT_IN_TORCH[name], strict=False).standard_error > 0


def test_every_method_and_a_pickled_model():
    psi = IN_TORCH["module"]
    for method in (idm.Simulation(50, rng=0), idm.FiniteDifference()):
        with pytest.raises(idm.EvaluationError, match=OWN):
            idm.infer(MODEL, psi, method=method, strict=False)
    again = pickle.loads(pickle.dumps(MODEL))
    assert idm.infer(again, NOT_IN_TORCH["argument"], strict=False).standard_error > 0


def apply(params, x):
    return x @ params["b"] + params["c"]["d"]


@pytest.fixture(scope="module")
def in_jax():
    A = np.column_stack([X, np.ones(200)])
    b = np.linalg.solve(A.T @ A, A.T @ Y)
    with jax.enable_x64(True):
        params = {"b": jnp.asarray(b[:3]), "c": {"d": jnp.asarray(b[3:])}}
    model = idm.from_jax(params, (X, Y), idm.Gaussian(1.0), apply=apply, dtype="float64")
    return params, model


IN_JAX = {
    "params": lambda P: lambda p: apply(p, XJ).mean() + apply(P, XJ).mean(),
    "an entry": lambda P: lambda p: p["b"][1] + P["b"][2],
    "a part": lambda P: lambda p: p["b"][1] * P["c"]["d"][0],
    "compiled": lambda P: jax.jit(lambda p: p["b"][0] * apply(P, XJ).mean()),
    "loop": lambda P: (
        lambda p: p["b"][0] + jax.lax.fori_loop(0, 3, lambda i, x: x + P["b"][i], 0.0)
    ),
    "vmap": lambda P: lambda p: p["b"][0] * jax.vmap(lambda x: x @ P["b"])(XJ).mean(),
    "gradient": lambda P: lambda p: p["b"][0] * jax.grad(lambda x: apply(P, x).sum())(XJ).sum(),
    "merged": lambda P: lambda p: apply({**P, "b": p["b"]}, XJ).mean(),
    "stopped": lambda P: lambda p: p["b"][0] + jax.lax.stop_gradient(P["b"][1]),
    "dict": lambda P: {"one": lambda p: p["b"][0], "two": lambda p: p["b"][0] * P["b"][1]},
}


def with_baseline(baseline):
    return lambda p: (apply(p, XJ) * apply(baseline, XJ)).mean()


NOT_IN_JAX = {
    "argument": lambda P: lambda p: apply(p, XJ).mean(),
    "copy": lambda P: with_baseline(jax.tree.map(jnp.copy, P)),
    "number": lambda P: lambda p, c=float(P["b"][2]): p["b"][1] - c,
    "structure": lambda P: (
        lambda p: apply(jax.tree.unflatten(jax.tree.structure(P), jax.tree.leaves(p)), XJ).mean()
    ),
    "size": lambda P: lambda p: p["b"].sum() / P["b"].size,
}


@pytest.mark.parametrize("name", IN_JAX)
def test_in_jax(in_jax, name):
    params, model = in_jax
    with pytest.raises(idm.EvaluationError, match=f"{OWN} from_jax"):
        idm.infer(model, IN_JAX[name](params))


@pytest.mark.parametrize("name", NOT_IN_JAX)
def test_not_in_jax(in_jax, name):
    params, model = in_jax
    assert idm.infer(model, NOT_IN_JAX[name](params)).standard_error > 0


ESTIMATORS = {
    "linear": LinearRegression(),
    "ridge": Ridge(),
    "poisson": PoissonRegressor(alpha=0, tol=1e-9),
    "logistic": LogisticRegression(tol=1e-9),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression(tol=1e-9)),
    "perceptron": MLPRegressor(
        hidden_layer_sizes=(2,), alpha=1.0, solver="lbfgs", max_iter=5000, random_state=0
    ),
}


def mean(estimator):
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(X)[:, 1].mean()
    return estimator.predict(X).mean()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_in_sklearn(name):
    y = (Y > 0).astype(int) if name in ("logistic", "pipeline") else Y
    own = ESTIMATORS[name].fit(X, y)
    model, kind = idm.from_sklearn(own, X, y), type(own)
    last = own[-1] if name == "pipeline" else own
    first = getattr(last, "coef_", None)
    wrong = {
        "part": lambda e: mean(e) + 0.3 * mean(own),
        "all": lambda _: mean(own),
        "list": [mean, lambda e: mean(e) * mean(own)],
        "copy within": lambda e: mean(e) * mean(copy.deepcopy(own)),
    }
    if first is not None:
        wrong["coefficients"] = lambda e: mean(e) * last.coef_.sum()
        wrong["intercept"] = lambda e: mean(e) * np.sum(last.intercept_)
        wrong["score"] = lambda e: mean(e) * own.score(X, y)
    else:
        wrong["loss"] = lambda e: mean(e) / own.loss_
        wrong["first layer"] = lambda e: mean(e) * own.coefs_[0].sum()
    for psi in wrong.values():
        with pytest.raises(idm.EvaluationError, match=f"{OWN} from_sklearn"):
            idm.infer(model, psi, strict=False)
        assert type(own) is kind
    baseline = copy.deepcopy(own)
    right = [mean, lambda e: mean(e) * mean(baseline), lambda e: mean(e) * own.n_features_in_]
    if name == "pipeline":
        right.append(lambda e: e[-1].predict_proba(own[:-1].transform(X))[:, 1].mean())
    for psi in right:
        assert idm.infer(model, psi, strict=False).standard_error > 0
    with pytest.raises(ZeroDivisionError):
        idm.infer(model, lambda e: mean(e) / 0.0 if mean(e) == 0 else 1 // 0)
    assert type(last).__module__.startswith("sklearn.")
    assert not hasattr(type(last), "_unwatched")
    assert idm.infer(pickle.loads(pickle.dumps(model)), mean, strict=False).standard_error > 0
