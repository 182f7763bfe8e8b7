"""JAX by the routes that torch has: batches of any make, parts, the tangent as a model."""

import pytest

pytest.importorskip("jax")

import pickle

import jax
import jax.numpy as jnp
import numpy as np

import implicit_delta as idm
from implicit_delta.models.outputs import tangent_model

pytestmark = pytest.mark.slow  # JAX compiles every case
RNG = np.random.default_rng(5)
N, T, P, H, C = 50, 4, 3, 5, 3
TOKENS = RNG.normal(size=(N, T, P))
LABELS = np.where(RNG.random((N, T)) < 0.2, -100, RNG.integers(0, C, (N, T)))
PARAMS = {
    "body": {"w": RNG.normal(size=(P, H))},
    "head": {"w": RNG.normal(size=(H, C)), "b": np.zeros(C)},
}
BATCH = {"x": TOKENS, "labels": LABELS}


def mlp(params, x, activation=jax.nn.relu):
    return activation(x @ params["body"]["w"]) @ params["head"]["w"] + params["head"]["b"]


def tagger(**options):
    """Tokens as terms of a sequence, some of them masked, in batches that are dicts."""
    return idm.from_jax(
        PARAMS,
        BATCH,
        idm.Categorical(ignore_index=-100),
        outputs=lambda p, b: mlp(p, b["x"]),
        targets=lambda b: b["labels"],
        l2=1.0,
        dtype="float64",
        **options,
    )


def classifier(**options):
    data = (TOKENS[:, 0], np.maximum(LABELS[:, 0], 0))
    settings = {"apply": mlp, "l2": 1.0, "dtype": "float64", **options}
    return idm.from_jax(PARAMS, data, idm.Categorical(), **settings)


def dense(model, psi):
    """Variance from the whole Gauss-Newton matrix, column by column."""
    columns = [model.information(model.theta, v, "ggn") for v in np.eye(model.d)]
    g = model.jacobian(psi, model.theta)
    return np.diag(g @ np.linalg.solve(np.array(columns), g.T))


@pytest.mark.filterwarnings("ignore:The model is not at its maximum")
@pytest.mark.parametrize("parameters", [None, "head", "*.w"])
def test_draws_of_masked_tokens_equal_the_dense_reference(parameters):
    model = tagger(parameters=parameters)
    psi = lambda p: model.apply(p, BATCH)[:3].ravel()
    drawn = idm.infer(model, psi, idm.Simulation(200, tangent=True, rng=0), strict=False)
    np.testing.assert_allclose(drawn.standard_error**2, dense(model, psi), rtol=1e-6)


@pytest.mark.parametrize("make", [tagger, classifier])
def test_a_tangent_is_a_model_with_linear_outputs(make):
    model = make()
    tangent, step = tangent_model(model), 0.5 * np.random.default_rng(1).normal(size=model.d)
    inputs = BATCH if make is tagger else TOKENS[:, 0]
    psi = lambda p: model.apply(p, inputs).ravel()
    expected = model.evaluate(psi, model.theta) + model.jacobian(psi, model.theta) @ step
    for _ in range(12):  # compiled after ten calls
        np.testing.assert_allclose(tangent.evaluate(psi, model.theta + step), expected, atol=1e-10)
    own = lambda p: tangent.apply(p, inputs).ravel()
    np.testing.assert_allclose(tangent.evaluate(own, model.theta + step), expected, atol=1e-10)
    moved = tangent.jacobian(psi, model.theta + step)
    np.testing.assert_allclose(moved, model.jacobian(psi, model.theta), atol=1e-10)
    there = tangent.space.language.evaluate_tangent(psi, tangent.theta, step)
    np.testing.assert_allclose(there, expected, atol=1e-10)
    A, B = (
        tangent.information(tangent.theta + step, np.eye(tangent.d), c) for c in ("ggn", "hessian")
    )
    np.testing.assert_allclose(A, B, atol=1e-9)  # linear: Gauss-Newton is the Hessian


def test_the_tangent_of_a_relu_network_has_a_maximum():
    tangent = idm.polish(classifier(), tangent=True)
    np.testing.assert_allclose(tangent.score(tangent.theta), 0, atol=1e-5)
    psi = lambda p: jax.nn.softmax(tangent.apply(p, TOKENS[:5, 1]))[:, 0]
    est = idm.infer(tangent, psi)
    np.testing.assert_allclose(est.standard_error**2, dense(tangent, psi), rtol=1e-6)
    again = pickle.loads(pickle.dumps(tangent))
    np.testing.assert_allclose(
        again.rows.terms(tangent.theta), tangent.rows.terms(tangent.theta), rtol=1e-12
    )


def test_a_tangent_under_a_penalty():
    penalty = lambda p: (p["head"]["w"] ** 2).sum()
    tangent = idm.polish(classifier(penalty=penalty), tangent=True)
    np.testing.assert_allclose(tangent.score(tangent.theta), 0, atol=1e-5)


def test_a_psi_past_the_tangent_is_refused():
    tangent = tangent_model(classifier())
    with pytest.raises(idm.UnsupportedModelError, match=r"model\.apply"):
        idm.infer(tangent, lambda p: mlp(p, TOKENS[:3, 0]).ravel(), strict=False)


def test_a_function_of_terms_has_no_tangent():
    loglik = lambda p, b: jax.nn.log_softmax(mlp(p, b["x"]))[:, 0, 0]
    model = idm.from_jax(PARAMS, BATCH, loglik, l2=1.0, dtype="float64")
    with pytest.raises(idm.UnsupportedModelError, match="polish"):
        tangent_model(model)


def test_accuracy_of_a_network_is_a_statistic():
    model = idm.polish(classifier(apply=lambda p, x: mlp(p, x, jnp.tanh)))
    y = RNG.integers(0, C, N)
    accuracy = lambda u, w: w @ (u.argmax(axis=1) == y) / w.sum()
    est = idm.infer(model, idm.Statistic(lambda p: model.apply(p, TOKENS[:, 1]), accuracy))
    assert 0 < est.budget["model"] < est.budget["total"]
