"""Penalties of all kinds of models: one object with value, score and curvature."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint
from scipy.special import expit, log_expit

import implicit_delta as idm
from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.penalty import Penalty, Ridge

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = (RNG.uniform(size=60) < expit(X @ [0.5, -0.3, 0.2])).astype(float)
CLASSES = RNG.integers(3, size=60)


def loglik(theta):
    return log_expit((2 * Y - 1) * (X @ theta))


def cosh(theta):
    return np.sum(np.cosh(theta - 0.1))


def numpy_model(**options):
    options = {"l2": 1.5, "penalty": cosh} | options
    return idm.from_loglik(loglik, start=[0.3, -0.2, 0.1], **options)


def score(theta):
    return (Y - expit(X @ theta))[:, None] * X


def shards():
    theta = np.asarray(numpy_model().theta)

    def build(rows):
        def own(th):
            return log_expit((2 * Y[rows] - 1) * (X[rows] @ th))

        return idm.from_loglik(own, theta=theta, l2=1.5, penalty=cosh)

    return idm.from_shards(build, [slice(0, 25), slice(25, 60)])


def torch_model(**options):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 1).double()
    with torch.no_grad():
        net.weight[:], net.bias[:] = 0.1, 0.2
    options = {"l2": 1.5, "penalty": lambda module: module.weight.cosh().sum()} | options
    data = (torch.as_tensor(X), torch.as_tensor(Y[:, None]))
    return idm.from_torch(net, data, idm.Bernoulli(), **options)


def jax_model():
    jnp = pytest.importorskip("jax.numpy")
    params = {"w": np.array([0.1, 0.2, -0.1])}
    return idm.from_jax(
        params, (X, Y), idm.Bernoulli(), apply=lambda p, x: x @ p["w"], l2=1.5,
        penalty=lambda p: jnp.cosh(p["w"]).sum(),
    )  # fmt: skip


def logistic(y=Y, **options):
    linear_model = pytest.importorskip("sklearn.linear_model")
    fit = linear_model.LogisticRegression(C=0.5, max_iter=1000, tol=1e-10, **options).fit(X, y)
    return idm.from_sklearn(fit, X, y)


def ridge_regression():
    linear_model = pytest.importorskip("sklearn.linear_model")
    y = X @ [0.5, -0.3, 0.2] + RNG.standard_normal(60)
    return in_free_coordinates(
        idm.from_sklearn(linear_model.Ridge(alpha=2.0, positive=True).fit(X, y), X, y)
    )


def parts():
    def half(rows, columns):
        x, y = X[rows][:, columns].copy(), Y[rows].copy()
        return lambda th: log_expit((2 * y - 1) * (x @ np.asarray(th)))

    one = idm.from_loglik(half(slice(30), [0, 1]), start={"a": 0.1, "b": 0.2}, l2=0.5)
    return one + idm.from_loglik(half(slice(30, 60), [1, 2]), start={"b": 0.1, "c": 0.2}, l2=2.0)


def circle(theta):
    return theta[0] ** 2 + theta[1] ** 2


MODELS = {
    "differences": numpy_model,
    "score": lambda: numpy_model(score=score),
    "ridge": lambda: numpy_model(penalty=None),
    "function": lambda: numpy_model(l2=0.0),
    "bound": lambda: in_free_coordinates(
        numpy_model(bounds=[(None, 0.05), (None, None), (None, None)])
    ),
    "line": lambda: in_free_coordinates(
        numpy_model(constraints=LinearConstraint([[1, 1, 0]], 0.5, 0.5))
    ),
    "circle": lambda: in_free_coordinates(
        numpy_model(constraints=NonlinearConstraint(circle, 1.0, 1.0))
    ),
    "parts": parts,
    "shards": shards,
    "torch": torch_model,
    "torch ridge": lambda: torch_model(penalty=None),
    "early stop": lambda: early_stopped(torch_model(penalty=None)),
    "jax": jax_model,
    "two classes": logistic,
    "three classes": lambda: logistic(CLASSES),
    "mean loss at a bound": ridge_regression,
}


@pytest.mark.parametrize("name", MODELS)
def test_the_penalty_is_what_the_objective_subtracts(name):
    """Differences of models with it and without are those of its own value and derivatives."""
    model = MODELS[name]()
    bare, penalty = replace(model, penalty=Penalty()), model.penalty
    assert penalty
    assert not bare.penalty
    theta = np.asarray(model.theta) + 0.02 / np.arange(1, model.d + 1)
    units, block = np.sqrt(np.arange(1.0, model.d + 1)), np.eye(model.d)
    gain = bare.objective(theta) - model.objective(theta)
    assert gain == pytest.approx(penalty.value(theta), rel=1e-9)
    pull = bare.score(theta) - model.score(theta)
    np.testing.assert_allclose(pull, penalty.score(theta), atol=1e-6)
    curve = model.information(theta, block) - bare.information(theta, block)
    np.testing.assert_allclose(curve, penalty.curvature(theta, block), atol=1e-5)
    np.testing.assert_allclose(curve @ units, penalty.curvature(theta, units), atol=1e-5)
    slope = differentiate(lambda th: np.array([penalty.value(th)]), theta, directions=block).value[
        0
    ]
    np.testing.assert_allclose(penalty.score(theta), slope, atol=1e-7)
    turned = differentiate(penalty.score, theta, directions=block).value
    np.testing.assert_allclose(penalty.curvature(theta, block), turned, atol=1e-5)
    least = np.linalg.eigvalsh(penalty.curvature(theta, block))[0]
    assert penalty.floor <= least * (1 + 1e-6) + 1e-9


def test_an_early_stop_is_one_more_ridge_around_the_start():
    start = np.array([0.1, 0.2])
    given = Penalty((Ridge(2.0),))
    stopped = given.stopped_early(3.0, start)
    assert given.early_stop is None
    assert stopped.early_stop.strength == 3.0
    assert stopped.floor == 5.0
    assert stopped.given.ridges == given.ridges
    np.testing.assert_array_equal(stopped.score(start), given.score(start))
    again = stopped.stopped_early(4.0, None)  # instead of the one before
    assert again.floor == 6.0


def test_noise_of_a_ridge_has_its_curvature_as_covariance():
    """Of n draws an entry of the covariance has an error of sqrt(2 / n) of the largest."""
    ridge = Ridge(np.array([1.0, 4.0, 0.0]), basis=np.array([[1.0, 0], [1, 1], [0, 2]]))
    drawn = ridge.noise(np.random.default_rng(0), 2, 40_000)
    expected = ridge.curvature(np.zeros(2), np.eye(2))
    error = np.max(abs(drawn @ drawn.T / 40_000 - expected)) / expected.max()
    assert error < 5 * np.sqrt(2 / 40_000)
