"""Parts of a pytree and batches of any make in JAX, against the whole and against torch's twin."""

import pytest

pytest.importorskip("jax")

import pickle

import jax
import jax.numpy as jnp
import numpy as np

import implicit_delta as idm
from implicit_delta.models.redraws import redraw

pytestmark = pytest.mark.slow  # JAX compiles every case
rng = np.random.default_rng(3)
X, Y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
PARAMS = {
    "body": {"w": rng.normal(size=(3, 4)), "b": rng.normal(size=4)},
    "head": {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=3)},
}
PLACES = {
    "body.b": range(4),
    "body.w": range(4, 16),
    "head.b": range(16, 19),
    "head.w": range(19, 31),
}


def mlp(params, x):
    hidden = jnp.tanh(x @ params["body"]["w"] + params["body"]["b"])
    return hidden @ params["head"]["w"] + params["head"]["b"]


def fitted(data=(X, Y), likelihood=None, **options):
    functions = {} if "outputs" in options else {"apply": mlp}
    likelihood = likelihood or idm.Categorical()
    return idm.from_jax(PARAMS, data, likelihood, l2=0.5, dtype="float64", **functions, **options)


SELECTIONS = {
    "head": ["head.b", "head.w"],
    "*.b": ["body.b", "head.b"],
    "w$": ["body.w", "head.w"],
    "body.w": ["body.w"],
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_part_has_the_block_of_the_whole(selection):
    whole, part = fitted(), fitted(parameters=selection)
    index = [i for name in SELECTIONS[selection] for i in PLACES[name]]
    np.testing.assert_array_equal(part.theta, whole.theta[index])
    for curvature in ("ggn", "hessian"):
        A = whole.information(whole.theta, np.eye(whole.d), curvature)[np.ix_(index, index)]
        B = part.information(part.theta, np.eye(part.d), curvature)
        np.testing.assert_allclose(B, A, atol=1e-10)
    psi = lambda params: jax.nn.softmax(mlp(params, X[:2]))[:, 0]
    G, H = whole.jacobian(psi, whole.theta)[:, index], part.jacobian(psi, part.theta)
    np.testing.assert_allclose(H, G, atol=1e-12)
    again = pickle.loads(pickle.dumps(part))
    np.testing.assert_allclose(
        again.rows.terms(part.theta), whole.rows.terms(whole.theta), rtol=1e-14
    )


def test_a_part_is_polished_and_the_rest_stays():
    model = idm.polish(fitted(parameters="head"))
    np.testing.assert_array_equal(model.params["body"]["w"], PARAMS["body"]["w"])
    np.testing.assert_allclose(model.score(model.theta), 0, atol=1e-5)


def test_nothing_that_matches_is_an_error_with_near_names():
    with pytest.raises(ValueError, match=r"Near: head"):
        fitted(parameters="haed")


by_key = {"outputs": lambda p, b: mlp(p, b["x"]), "targets": lambda b: b["y"]}
CUTS = [(0, 7), (7, 30), (30, 40)]
BATCHES = {
    "dict": ({"x": X, "y": Y}, by_key),
    "targets first": ((Y, X), {"outputs": lambda p, b: mlp(p, b[1]), "targets": lambda b: b[0]}),
    "list of tuples": ([(X[a:b], Y[a:b]) for a, b in CUTS], {}),
    "list of dicts": ([{"x": X[a:b], "y": Y[a:b]} for a, b in CUTS], by_key),
    "as before": ([X, Y], {}),
}


@pytest.mark.parametrize("case", BATCHES)
def test_every_make_of_batch_gives_the_same_model(case):
    data, functions = BATCHES[case]
    reference, model = fitted(), fitted(data, **functions)
    theta, v = reference.theta, rng.normal(size=(reference.d, 40))
    np.testing.assert_allclose(model.rows.terms(theta), reference.rows.terms(theta), rtol=1e-12)
    for block in (v, v[:, 0]):
        mine, theirs = (m.information(theta, block, "ggn") for m in (model, reference))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)
    for _ in range(2):
        model, reference = (redraw(m, np.random.default_rng(1)) for m in (model, reference))
        np.testing.assert_allclose(model.rows.terms(theta), reference.rows.terms(theta), rtol=1e-12)


def test_options_of_the_likelihood_reach_the_curvature():
    tokens = np.where(rng.random((40, 3)) < 0.3, -100, rng.integers(0, 3, (40, 3)))
    x = rng.normal(size=(40, 3, 3))
    model = fitted((x, tokens), idm.Categorical(-100, 0.1, [1.0, 2.0, 3.0]), parameters="head")
    A, H = (model.information(model.theta, np.eye(model.d), c) for c in ("ggn", "hessian"))
    np.testing.assert_allclose(A, H, atol=1e-10)  # outputs are linear in the head
    one = model.information(model.theta, np.eye(model.d)[:, 3], "ggn")
    np.testing.assert_allclose(one, A[:, 3], atol=1e-10)


def test_a_loss_with_the_wrong_sign_is_recognized():
    loss = lambda p, b: -jax.nn.log_softmax(mlp(p, b[0]))[jnp.arange(len(b[1])), b[1]]
    trained = idm.polish(fitted()).params
    with pytest.raises(ValueError, match="minus the loss"):
        idm.from_jax(trained, (X, Y), loss, l2=0.5, dtype="float64")


def test_arguments_that_do_not_go_together_are_refused():
    with pytest.raises(TypeError, match="apply= or outputs="):
        idm.from_jax(PARAMS, (X, Y), idm.Categorical(), apply=mlp, outputs=lambda p, b: 0)
    with pytest.raises(ValueError, match="taken as batches"):
        fitted([(X, Y), (X[:, :2], Y)])
    with pytest.raises(idm.UnsupportedModelError, match="targets"):
        fitted({"x": X, "y": Y})
