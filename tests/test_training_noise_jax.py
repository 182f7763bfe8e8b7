"""Noise of the training of pytrees: the same lines of the budget as for torch modules."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.outputs import tangent_model
from implicit_delta.models.redraws import reweight

jax = pytest.importorskip("jax")
jnp = jax.numpy

rng = np.random.default_rng(5)
N = 120
X = np.column_stack([np.ones(N), rng.normal(size=N)])
Y = X @ [1.0, -0.5] + rng.normal(size=N)
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
STATES = BETA + 0.02 * np.random.default_rng(0).normal(size=(24, 2))


def tree(theta):
    return {"constant": np.asarray(theta[0]), "slope": np.asarray(theta[1])}


def line(params, x):
    return x @ jnp.stack([params["constant"], params["slope"]])


def fitted(theta=BETA, **options):
    return idm.from_jax(
        tree(theta), (X, Y), idm.Gaussian(1.0), apply=line, dtype="float64", **options
    )


def both(params):
    return jnp.stack([params["constant"], params["slope"]])


def twin(**states):
    """The same model in torch."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor(BETA)[None])
    given = {
        kind: [{"weight": torch.tensor(row[None].copy())} for row in rows]
        for kind, rows in states.items()
    }
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    return idm.from_torch(net, data, idm.Gaussian(1.0), **given)


def test_the_lines_are_those_of_the_same_model_in_torch():
    for kind, count in (("checkpoints", 24), ("replicates", 4)):
        theirs = idm.infer(twin(**{kind: STATES[:count]}), lambda net: net.weight[0])
        ours = idm.infer(fitted(**{kind: [tree(row) for row in STATES[:count]]}), both)
        assert list(ours.parts) == list(theirs.parts)
        for name, part in ours.parts.items():
            np.testing.assert_allclose(part, theirs.parts[name], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(ours.df, theirs.df, rtol=1e-6)


def test_states_belong_to_one_theta():
    model = fitted(checkpoints=[tree(row) for row in STATES])
    assert model.facts.training.checkpoints.shape == (24, 2)
    kept = reweight(model, np.full(N, 2.0))
    assert kept.facts.training.checkpoints is model.facts.training.checkpoints
    assert model.at(model.theta + 1.0).facts.training.checkpoints is None
    mean = idm.averaged(model)
    np.testing.assert_allclose(mean.theta, STATES.mean(axis=0))
    assert float(mean.params["slope"]) == pytest.approx(STATES[:, 1].mean())


def test_a_tangent_has_no_replicates():
    given = [tree(row) for row in STATES]
    touching = tangent_model(fitted(checkpoints=given, replicates=given[:3]))
    assert touching.facts.training.replicates is None
    assert touching.facts.training.checkpoints.shape == (24, 2)


def test_continued_training_and_its_average():
    optax = pytest.importorskip("optax")
    model = idm.continue_training(fitted(), optax.sgd(0.08), batch_size=8, every=4, rng=0)
    assert model.facts.training.checkpoints.shape == (64, 2)
    whole = idm.infer(model, both).budget["training"]
    mean = idm.infer(idm.averaged(model), both, strict=False).budget["training"]
    assert np.all(mean < whole / 2)
    np.testing.assert_allclose(
        model.facts.training.checkpoints,
        idm.continue_training(
            twin(), 0.08, batch_size=8, every=4, rng=0
        ).facts.training.checkpoints,
        rtol=1e-9,
    )


def test_only_selected_parameters_move():
    given = [tree([BETA[0], row[1]]) for row in STATES]
    model = fitted(parameters="slope", checkpoints=given)
    np.testing.assert_array_equal(model.facts.training.checkpoints, STATES[:, 1:])
    moved = [tree(row) for row in STATES]
    with pytest.warns(idm.ImplicitDeltaWarning, match="noise of the selected parameters alone"):
        fitted(parameters="slope", checkpoints=moved)
    with pytest.raises(ValueError, match="The replicates differ from params in 'constant'"):
        fitted(parameters="slope", replicates=moved)


TREES = [tree(row) for row in STATES]
BAD = {
    "one pytree": (TREES[0], "must be a list"),
    "stacked": (
        {"constant": STATES[:, 0], "slope": STATES[:, 1]},
        "jax.tree.map",
    ),
    "two": (TREES[:2], "at least 3"),
    "the model itself": ([tree(BETA)] * 5, "All 5 checkpoints are the model itself"),
    "one state": ([TREES[0]] * 5, "one and the same state"),
    "saved twice": ([TREES[0], TREES[0], TREES[1]], "are the same"),
    "another name": ([{"a": t["constant"], "slope": t["slope"]} for t in TREES], "'constant'"),
    "another shape": ([{**t, "slope": np.ones(2)} for t in TREES], "same architecture"),
    "diverged": ([*TREES[:3], tree([np.nan, 0.0])], "diverged"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_states_are_refused(case):
    given, text = BAD[case]
    with pytest.raises((TypeError, ValueError), match=text):
        fitted(checkpoints=given)


def test_a_list_of_layers_is_a_pytree_too():
    params = [np.array(BETA[0]), np.array(BETA[1])]
    apply = lambda p, x: x @ jnp.stack(p)
    options = {"apply": apply, "dtype": "float64"}
    given = [[np.array(a), np.array(b)] for a, b in STATES]
    model = idm.from_jax(params, (X, Y), idm.Gaussian(1.0), checkpoints=given, **options)
    np.testing.assert_array_equal(model.facts.training.checkpoints, STATES)
    with pytest.raises(ValueError, match=r"at least 3|no parameter"):
        idm.from_jax(params, (X, Y), idm.Gaussian(1.0), checkpoints=given[0], **options)
