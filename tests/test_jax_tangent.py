"""The tangent of a function of a pytree, through `model.apply`."""

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np

import implicit_delta as idm
from implicit_delta.models.jax.tangent import applied, linearized
from implicit_delta.models.outputs import curvature_noise

N, P, H, C = 60, 3, 4, 2
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, P)), RNG.integers(0, C, N)
PARAMS = {"in": RNG.normal(size=(P, H)), "out": RNG.normal(size=(H, C))}


@jax.custom_vjp
def backwards_only(x):
    return jnp.tanh(x)


backwards_only.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (g * (1 - jnp.tanh(x) ** 2),))


def model_of(activation=jnp.tanh, params=PARAMS):
    mlp = lambda p, x: activation(x @ p["in"]) @ p["out"]
    return idm.from_jax(params, (X, Y), idm.Categorical(), apply=mlp, l2=1.0, dtype="float64")


def step_of(model):
    return np.random.default_rng(1).normal(size=model.d)


@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.relu, backwards_only])
def test_outputs_are_linear_in_the_step(activation):
    model = model_of(activation)
    delta, psi = step_of(model), lambda p: model.apply(p, X).ravel()
    value, slope = model.evaluate(psi, model.theta), model.jacobian(psi, model.theta)
    for factor in np.linspace(-1, 1, 15):  # compiled after ten calls
        found = model.space.language.evaluate_tangent(psi, model.theta, factor * delta)
        np.testing.assert_allclose(found, value + factor * slope @ delta, atol=1e-12)


def test_a_psi_that_calls_its_own_function_is_told():
    model = model_of()
    own = lambda p: (jnp.tanh(X @ p["in"]) @ p["out"]).sum()
    with pytest.raises(idm.UnsupportedModelError, match=r"model\.apply"):
        model.space.language.evaluate_tangent(own, model.theta, step_of(model))


def test_another_model_in_psi_stays_as_it_is():
    model, other = model_of(), model_of(params={key: -v for key, v in PARAMS.items()})
    delta = step_of(model)
    mine = lambda p: model.apply(p, X).ravel()
    both = lambda p: model.apply(p, X).ravel() - other.apply(other.params, X).ravel()
    fixed = other.evaluate(lambda p: other.apply(p, X).ravel(), other.theta)
    found = model.space.language.evaluate_tangent(both, model.theta, delta)
    expected = model.space.language.evaluate_tangent(mine, model.theta, delta) - fixed
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_accuracy_of_the_tangent():
    model = model_of()
    delta = step_of(model)
    outputs = model.space.language.evaluate_tangent(
        lambda p: model.apply(p, X).ravel(), model.theta, delta
    )
    accuracy = lambda p: jnp.mean(jnp.argmax(model.apply(p, X), 1) == Y)
    share = model.space.language.evaluate_tangent(accuracy, model.theta, delta)
    assert share == pytest.approx(np.mean(outputs.reshape(N, C).argmax(axis=1) == Y))


def test_classes_have_no_tangent():
    functional, theta = model_of().rows.functional, model_of().theta
    classes = lambda p, x: jnp.argmax(x @ p["in"], 1)
    with functional.context():
        pieces = functional.pieces(theta)
        with (
            pytest.raises(idm.UnsupportedModelError, match=r"int\d+ numbers.*tangent=False"),
            linearized(functional, pieces),
        ):
            applied(functional, classes, functional.filled(pieces), X)


def test_single_precision():
    model = idm.from_jax(PARAMS["in"], (X, Y), idm.Categorical(), apply=lambda p, x: x @ p, l2=1.0)
    psi, delta = (lambda p: model.apply(p, X).ravel()), step_of(model)
    expected = model.evaluate(psi, model.theta + delta)
    np.testing.assert_allclose(
        model.space.language.evaluate_tangent(psi, model.theta, delta), expected, atol=1e-5
    )


def test_a_function_of_terms_shows_no_outputs():
    loglik = lambda p, b: jax.nn.log_softmax(b[0] @ p)[:, 0]
    model = idm.from_jax(PARAMS["in"][:, :C], (X, Y), loglik, l2=1.0)
    with pytest.raises(idm.UnsupportedModelError, match="likelihood such as"):
        model.apply(model.params, X)


@pytest.mark.filterwarnings("ignore:The model is not at its maximum")
def test_draws_are_in_the_tangent_where_psi_goes_through_the_model():
    model = model_of()
    through, own = (
        lambda p: model.apply(p, X[:3]).ravel(),
        lambda p: (jnp.tanh(X[:3] @ p["in"]) @ p["out"]).ravel(),
    )
    solved = idm.infer(model, own, idm.Infinitesimal(curvature="ggn"), strict=False)
    drawn = idm.infer(model, through, idm.Simulation(200, rng=0), strict=False)
    assert drawn.method == "Simulation(draws=200, tangent=True, rng=0)"
    np.testing.assert_allclose(drawn.covariance, solved.covariance, rtol=1e-7)
    polished = idm.polish(model)
    with pytest.warns(idm.NonlinearityWarning, match="tangent=True"):
        weights = idm.infer(polished, own, idm.Simulation(200, rng=0), strict=False)
    assert weights.method == "Simulation(draws=200, tangent=False, rng=0)"


def test_noise_has_the_curvature_as_its_covariance():
    """Of 4000 draws the error of a variance is 2.2 %, the largest of 210 within 4.5 of that."""
    model = model_of()
    noise = curvature_noise(model, model.theta, np.random.default_rng(0), 4000)
    curvature = model.information(model.theta, np.eye(model.d), "ggn")
    white = np.linalg.solve(np.linalg.cholesky(curvature), noise)
    np.testing.assert_allclose(white @ white.T / 4000, np.eye(model.d), atol=4.5 * 0.022)
