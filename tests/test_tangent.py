"""The tangent of a torch module: f(x; theta) + J(x) delta, used by psi like the module itself."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.models.outputs import tangent_model

torch.set_num_threads(1)
N, P, H, C = 60, 3, 4, 2
RNG = np.random.default_rng(0)
X = torch.as_tensor(RNG.normal(size=(N, P)))
Y = torch.as_tensor(RNG.integers(0, C, N))


def network(activation=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(P, H), activation(), nn.Linear(H, C)).double()


def categorical(module, key=None):
    """A model of a module whose outputs are at a key of what it returns."""
    if key is None:
        return idm.from_torch(module, (X, Y), idm.Categorical(), l2=1.0)
    entropy = lambda m, b: -nn.functional.cross_entropy(m(b[0])[key], b[1], reduction="none")
    return idm.from_torch(module, (X, Y), entropy, l2=1.0)


def step_of(model):
    return np.random.default_rng(1).normal(size=model.d)


def without_gradients(m):
    with torch.no_grad():
        return m(X).ravel()


def in_inference_mode(m):
    with torch.inference_mode():
        return m(X).ravel()


def looks_around(m):
    assert isinstance(m.eval(), nn.Sequential)
    assert not m.training
    weight = next(m.parameters())
    return m(X.to(weight.device, weight.dtype)).ravel()


def slope_of_the_inputs(m):
    x = X[:2].clone().requires_grad_()
    return torch.autograd.grad(m(x)[:, 0].sum(), x, create_graph=True)[0].ravel()


LINEAR = {  # linear in the outputs: their tangent is exact
    "call": lambda m: m(X).ravel(),
    "forward": lambda m: m.forward(X).ravel(),
    "no_grad": without_gradients,
    "inference mode": in_inference_mode,
    "attributes": looks_around,
    "a part": lambda m: m[0](X).ravel(),
    "vmap": lambda m: torch.vmap(m)(X).ravel(),
    "weights": lambda m: m[2].weight.ravel(),
    "a gradient in psi": slope_of_the_inputs,
}


@pytest.mark.parametrize("name", LINEAR)
def test_outputs_are_linear_in_the_step(name):
    model, psi = categorical(network()), LINEAR[name]
    smooth = LINEAR["call"] if name in ("no_grad", "inference mode") else psi
    delta = step_of(model)
    expected = model.evaluate(psi, model.theta) + model.jacobian(smooth, model.theta) @ delta
    found = model.space.language.evaluate_tangent(psi, model.theta, delta)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not any("forward" in vars(part) for part in model.rows.functional.module.modules())


def test_what_psi_does_to_the_outputs_is_not_linearized():
    model = categorical(network())
    delta = step_of(model)
    logits = model.space.language.evaluate_tangent(
        lambda m: m(X).ravel(), model.theta, delta
    ).reshape(N, C)
    share = model.space.language.evaluate_tangent(
        lambda m: (m(X).argmax(1) == Y).double().mean(), model.theta, delta
    )
    assert share == np.mean(logits.argmax(axis=1) == Y.numpy())


def test_chained_parts_have_the_same_derivative():
    model = categorical(network())
    chain, delta = (lambda m: m[2](m[1](m[0](X))).ravel()), 1e-5 * step_of(model)
    ends = [
        model.space.language.evaluate_tangent(chain, model.theta, side * delta) for side in (1, -1)
    ]
    slope = model.jacobian(LINEAR["call"], model.theta) @ delta
    np.testing.assert_allclose((ends[0] - ends[1]) / 2, slope, rtol=1e-6, atol=1e-14)


class Square(torch.autograd.Function):
    """An operation without a rule for forward mode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


class Wrapped(nn.Module):
    """A module with one layer that returns what a function makes of it."""

    def __init__(self, returned):
        super().__init__()
        self.layer, self.returned = nn.Linear(P, C).double(), returned

    def forward(self, x):
        return self.returned(self.layer(x), x)


class Box:
    """An object that the tangent cannot look into."""

    def __init__(self, z):
        self.z = z

    def __getitem__(self, key):
        return self.z


STRUCTURES = {
    "dict": lambda z, x: {"z": z, "mask": None, "x": x, "classes": C},
    "tuple in dict": lambda z, x: {"z": z.tanh(), "hidden": (z, 2 * z)},
    "no forward mode": lambda z, x: {"z": Square.apply(z), "mask": x > 0},
    "in place": lambda z, x: {"z": z.mul_(2).relu_()},
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_outputs_keep_their_structure(name):
    model = categorical(Wrapped(STRUCTURES[name]), "z")
    psi, delta = (lambda m: m(X)["z"].ravel()), step_of(model)
    expected = model.evaluate(psi, model.theta) + model.jacobian(psi, model.theta) @ delta
    np.testing.assert_allclose(
        model.space.language.evaluate_tangent(psi, model.theta, delta), expected, atol=1e-12
    )


MOVING = {
    "classes": lambda z, x: {"z": z, "class": z.argmax(1)},
    "a number": lambda z, x: {"z": z, "largest": z.max().item()},
    "detached": lambda z, x: {"z": z, "fixed": z.detach()},
    "an object": lambda z, x: Box(z),
}


@pytest.mark.parametrize("name", MOVING)
def test_outputs_that_move_without_a_derivative_are_refused(name):
    model = categorical(Wrapped(MOVING[name]), "z")
    with pytest.raises(idm.UnsupportedModelError, match="tangent=False"):
        model.space.language.evaluate_tangent(
            lambda m: m(X)["z"].sum(), model.theta, step_of(model)
        )


def test_shared_weights():
    module = network()
    module.append(nn.Linear(C, H).double())
    module.append(nn.Linear(H, C).double())
    module[4].weight = module[2].weight
    model = categorical(module)
    psi, delta = LINEAR["call"], step_of(model)
    expected = model.evaluate(psi, model.theta) + model.jacobian(psi, model.theta) @ delta
    np.testing.assert_allclose(
        model.space.language.evaluate_tangent(psi, model.theta, delta), expected, atol=1e-12
    )


def test_linear_predictors_are_their_own_tangent():
    sm = pytest.importorskip("statsmodels.api")
    results = sm.Logit(Y.numpy(), X.numpy()).fit(disp=0)
    model, delta = idm.from_statsmodels(results), np.ones(P)
    psi = lambda b: results.model.predict(b, X.numpy()).mean()
    moved = model.space.language.evaluate_tangent(psi, model.theta, delta)
    assert moved == model.evaluate(psi, model.theta + delta)


def test_a_model_without_outputs_has_no_tangent():
    model = idm.from_loglik(lambda th: -(th[:1] ** 2) / 2, theta=[0.0])
    with pytest.raises(idm.UnsupportedModelError, match="tangent=False"):
        model.space.language.evaluate_tangent(lambda th: th[0], model.theta, np.ones(1))


# The tangent as a model of its own


ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.GELU]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_tangent_is_a_linear_predictor_of_its_jacobian(activation):
    module = nn.Sequential(*network(activation)[:2], nn.Linear(H, 1).double())
    y = Y.double().numpy()
    model = idm.from_torch(module, (X, Y.double()), idm.Bernoulli(), l2=0.5)
    tangent, psi = tangent_model(model), lambda m: m(X)[:, 0]
    delta = step_of(model)
    theta, J = model.theta + delta, model.jacobian(psi, model.theta)
    eta = model.evaluate(psi, model.theta) + J @ delta
    p = 1 / (1 + np.exp(-eta))
    information = J.T @ ((p * (1 - p))[:, None] * J) + 0.5 * np.eye(model.d)
    np.testing.assert_allclose(
        tangent.rows.terms(theta), y * eta - np.logaddexp(0, eta), atol=1e-12
    )
    np.testing.assert_allclose(tangent.score(theta), J.T @ (y - p) - 0.5 * theta, atol=1e-10)
    for curvature in ("hessian", "ggn"):
        found = tangent.information(theta, np.eye(model.d), curvature)
        np.testing.assert_allclose(found, information, atol=1e-10)
    along = tangent.terms_along(theta, delta[:, None])[:, 0]
    np.testing.assert_allclose(along, (y - p) * (J @ delta), atol=1e-12)
    np.testing.assert_allclose(tangent.jacobian(psi, theta), J, atol=1e-12)
    np.testing.assert_allclose(
        tangent.space.language.evaluate_tangent(psi, theta, delta), eta + J @ delta, atol=1e-12
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_polish_finds_the_maximum_of_the_tangent(activation):
    model = categorical(network(activation))
    done = idm.polish(model, tangent=True)
    assert abs(done.score(done.theta)).max() < 1e-6
    logits = lambda m: m(X[:3]).ravel()
    estimate = idm.infer(done, logits)
    assert estimate.diagnostics.drift < 1e-6
    moved = model.space.language.evaluate_tangent(logits, model.theta, done.theta - model.theta)
    np.testing.assert_allclose(estimate.value, moved, atol=1e-10)
    np.testing.assert_allclose(
        idm.infer(done, logits, idm.Simulation(100, rng=0)).covariance,
        estimate.covariance,
        rtol=1e-6,
    )
    both = idm.polish(model, lambda m: m(X)[0, 0], tangent=True)
    assert both.gain > 0


def test_what_has_no_tangent_is_not_polished_there():
    model = idm.from_loglik(lambda th: -(th[:1] ** 2) / 2, theta=[0.0])
    with pytest.raises(idm.UnsupportedModelError, match="outputs of a network"):
        idm.polish(model, tangent=True)
    square = categorical(Wrapped(STRUCTURES["no forward mode"]), "z")
    with pytest.raises(idm.UnsupportedModelError, match="no derivative in forward mode"):
        idm.polish(square, tangent=True)
