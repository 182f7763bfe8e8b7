"""JAX models in float32: float64 by default, and float32 where they only work so."""

import warnings

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
import numpy as np
from jax import lax

import implicit_delta as idm
from implicit_delta.models.jax.module import x64

pytestmark = pytest.mark.slow  # JAX compiles

KEYS = jax.random.split(jax.random.PRNGKey(0), 10)
X, XV = jax.random.normal(KEYS[0], (60, 8)), jax.random.normal(KEYS[2], (20, 8))
Y = (X[:, 0] + 0.5 * jax.random.normal(KEYS[1], (60,)) > 0).astype(int)
YV = (XV[:, 0] > 0).astype(int)


def perceptron():
    params = {
        "a": jax.random.normal(KEYS[3], (8, 5)) / 2,
        "b": jnp.zeros(5),
        "c": jax.random.normal(KEYS[4], (5, 2)),
    }
    return params, lambda p, x: jnp.tanh(x @ p["a"] + p["b"]) @ p["c"]


def literals():
    """Arrays of float32 that are made on the way, and take part in sums."""
    params, apply = perceptron()
    return params, lambda p, x: (apply(p, x) + jnp.ones(2, jnp.float32)) * jnp.float32(1.5)


def in_numpy():
    params, apply = perceptron()
    return jax.tree_util.tree_map(np.asarray, params), apply


def in_bfloat16():
    params, apply = perceptron()
    return jax.tree_util.tree_map(lambda a: a.astype(jnp.bfloat16), params), apply


def casts():
    params, _ = perceptron()
    hidden = lambda p, x: jnp.tanh(x @ p["a"] + p["b"]).astype(jnp.float32)
    return params, lambda p, x: hidden(p, x) @ p["c"]


def scanned(dtype=None):
    shapes = {"w": (3, 3), "u": (2, 3), "o": (3, 2)}
    params = {name: jax.random.normal(KEYS[5], shape) / 2 for name, shape in shapes.items()}

    def apply(p, x):
        def step(h, u):
            return jnp.tanh(h @ p["w"] + u @ p["u"]), None

        one = lambda row: lax.scan(step, jnp.zeros(3, dtype), row.reshape(4, 2))[0] @ p["o"]
        return jax.vmap(one)(x)

    return params, apply


def flax(dtype=None):
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Conv(3, (2, 2), dtype=dtype)(x.reshape(-1, 2, 4, 1))
            x = nn.relu(nn.LayerNorm(dtype=dtype)(x)).reshape(len(x), -1)
            return nn.Dense(2, dtype=dtype)(x)

    net = Net()
    return net.init(KEYS[5], X), net.apply


def equinox_convolution():
    """Calls `lax.conv_general_dilated`, which refuses inputs of another type."""
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        conv: eqx.nn.Conv1d
        out: eqx.nn.Linear

        def __call__(self, x):
            return self.out(jax.nn.gelu(self.conv(x.reshape(2, 4))).ravel())

    net = Net(eqx.nn.Conv1d(2, 3, 2, key=KEYS[6]), eqx.nn.Linear(9, 2, key=KEYS[7]))
    return net, lambda net, x: jax.vmap(net)(x)


def equinox_perceptron():
    eqx = pytest.importorskip("equinox")
    return eqx.nn.MLP(8, 2, 5, 1, key=KEYS[8]), lambda net, x: jax.vmap(net)(x)


def equinox_recurrent():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        cell: eqx.nn.GRUCell
        out: eqx.nn.Linear

        def __call__(self, x):
            h = jnp.zeros(3)
            for u in x.reshape(4, 2):
                h = self.cell(u, h)
            return self.out(h)

    net = Net(eqx.nn.GRUCell(2, 3, key=KEYS[5]), eqx.nn.Linear(3, 2, key=KEYS[6]))
    return net, lambda net, x: jax.vmap(net)(x)


# The rounding of a psi in which float32 arrays meet `lax`: it is then computed in float32.
IN_DOUBLE = {
    "perceptron": (perceptron, 1e-10),
    "literals": (literals, 1e-10),
    "numpy": (in_numpy, 1e-10),
    "bfloat16": (in_bfloat16, 1e-10),
    "scan": (scanned, 1e-10),
    "flax": (flax, 1e-10),
    "equinox": (equinox_perceptron, 1e-10),
    "equinox gru": (equinox_recurrent, 1e-10),
    "equinox convolution": (equinox_convolution, 1e-6),
}
IN_SINGLE = {
    "casts": (casts, "casts to float32"),
    "scan of float32": (lambda: scanned(jnp.float32), "carry"),
    "flax in float32": (lambda: flax(jnp.float32), "casts to float32"),
}


def answered(params, apply, X, XV, **given):
    """The mean loss on other rows; building the model raises no warning."""

    def psi(params):
        losses = jax.nn.log_softmax(apply(params, XV))
        return -jnp.take_along_axis(losses, YV[:, None], axis=1).mean()

    model = idm.from_jax(params, (X, Y), idm.Categorical(), apply=apply, l2=1.0, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that were never trained
        return model, idm.infer(model, psi, idm.Infinitesimal(curvature="ggn"), strict=False)


def widened(tree):
    is_real = lambda a: hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.floating)
    wide = lambda a: jnp.asarray(np.asarray(a).astype(np.float64)) if is_real(a) else a
    return jax.tree_util.tree_map(wide, tree)


@pytest.mark.parametrize("name", IN_DOUBLE)
def test_answers_are_those_of_parameters_made_double(name):
    make, rounding = IN_DOUBLE[name]
    params, apply = make()
    before = jax.tree_util.tree_map(np.array, jax.tree_util.tree_leaves(params))
    model, est = answered(params, apply, X, XV)
    assert "float64, on a copy of the" in est.diagnostics.notes["precision"]
    assert "float64 copy of" in repr(model)
    for one, other in zip(before, jax.tree_util.tree_leaves(params), strict=True):
        if one.dtype != object:
            np.testing.assert_array_equal(one, np.asarray(other))
    with x64(True):
        _, expected = answered(widened(params), apply, widened(X), widened(XV))
    assert "precision" not in expected.diagnostics.notes
    np.testing.assert_allclose(est.value, expected.value, rtol=rounding)
    np.testing.assert_allclose(est.standard_error, expected.standard_error, rtol=rounding)


@pytest.mark.parametrize("name", IN_SINGLE)
def test_models_that_only_work_in_float32_stay_there(name):
    """Without a false alarm about their rows, and the note gives the reason."""
    make, reason = IN_SINGLE[name]
    params, apply = make()
    model, est = answered(params, apply, X, XV)
    assert model.facts.precision.is_single
    assert est.diagnostics.notes["precision"].startswith("float32: ")
    assert reason in est.diagnostics.notes["precision"]
    _, same = answered(params, apply, X, XV, dtype="float32")
    assert (est.value, est.standard_error) == (same.value, same.standard_error)


@pytest.mark.parametrize("dtype", ["float32", jnp.float32, np.float32, np.dtype("float32")])
def test_dtype_keeps_single_precision(dtype):
    model, est = answered(*perceptron(), X, XV, dtype=dtype)
    _, double = answered(*perceptron(), X, XV)
    assert model.facts.precision.dtype == "float32"
    assert est.diagnostics.notes["precision"] == "float32"
    np.testing.assert_allclose(est.standard_error, double.standard_error, rtol=1e-3)


def test_many_parameters_stay_in_the_type_of_jax(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.jax.module.MOST_PROMOTED", 20)
    assert idm.from_jax(
        perceptron()[0], (X, Y), idm.Categorical(), apply=perceptron()[1]
    ).facts.precision.is_single


def test_large_data_are_converted_batch_by_batch(monkeypatch):
    _, expected = answered(*perceptron(), X, XV)
    monkeypatch.setattr("implicit_delta.models.jax.data.KEPT_BYTES", 100)
    model, est = answered(*perceptron(), X, XV, batch_size=7)
    assert model.rows.batches.arrays[0].dtype == np.float32
    np.testing.assert_allclose(est.standard_error, expected.standard_error, rtol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_no_logit_in_float32_is_refused(seed):
    one, two, three = jax.random.split(jax.random.PRNGKey(seed), 3)
    X = jax.random.normal(one, (300, 4)) * (1.0 if seed % 3 else 10.0)
    y = jax.random.bernoulli(two, jax.nn.sigmoid(X @ jax.random.normal(three, (4,)) / X.std()))
    apply = lambda p, x: x @ p["b"] + p["a"]
    start = {"a": jnp.zeros(()), "b": jnp.zeros(4)}
    model = idm.polish(idm.from_jax(start, (X, y * 1.0), idm.Bernoulli(), apply=apply))
    est = idm.infer(model, lambda p: jax.nn.sigmoid(apply(p, X)).mean())
    assert est.value == pytest.approx(float(y.mean()), rel=1e-6)  # of a logit with a constant
