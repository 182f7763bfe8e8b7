"""Modules of Flax and Equinox as people bring them, and the same network in all of them."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("equinox")
pytest.importorskip("flax")

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax import tree_util

import implicit_delta as idm
from implicit_delta.models.batches import ascend
from implicit_delta.testing import check_model

pytestmark = pytest.mark.slow

N, INPUTS, HIDDEN = 60, 2, 3


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, INPUTS))
    return x, np.sin(x[:, 0]) + 0.2 * rng.normal(size=N)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        hidden = jnp.tanh(linen.Dense(HIDDEN)(x))
        return linen.Dense(1)(hidden)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(INPUTS, HIDDEN, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.outer = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.outer(self.drop(jnp.tanh(self.inner(x))))


def equinox_model(net, likelihood=None, **options):
    return idm.from_jax(
        net, data(), likelihood or idm.Gaussian(0.04), l2=0.5, dtype="float64",
        apply=lambda net, x: jax.vmap(net)(x), **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    """An Equinox network at its optimum, in the precision of most users."""
    net = eqx.nn.MLP(INPUTS, 1, HIDDEN, 1, activation=jnp.tanh, key=jax.random.key(0))
    return idm.polish(equinox_model(net))


def test_an_equinox_module_is_a_pytree_with_settings(trained):
    net = trained.params
    assert isinstance(net, eqx.nn.MLP)
    assert net.activation is not None
    assert trained.d == INPUTS * HIDDEN + HIDDEN + HIDDEN + 1
    assert trained.names[:2] == ("layers.0.weight[0,0]", "layers.0.weight[0,1]")
    check_model(trained, lambda net: jax.vmap(net)(jnp.ones((2, INPUTS))).ravel())


def layers(net):
    """Kernels and biases as in Flax; in NumPy, as old JAX cannot transpose its float64 outside."""
    return [
        {"kernel": np.asarray(layer.weight).T, "bias": np.asarray(layer.bias)}
        for layer in net.layers
    ]


def linen_model(net):
    inner, outer = layers(net)
    variables = {"params": {"Dense_0": inner, "Dense_1": outer}}
    model = idm.from_jax(
        variables, data(), idm.Gaussian(0.04), apply=Linen().apply, l2=0.5, dtype="float64"
    )
    return model, lambda variables, x: Linen().apply(variables, x)


def nnx_parts(net):
    made = Nnx(nnx.Rngs(0))
    made.eval()
    for layer, values in zip((made.inner, made.outer), layers(net), strict=True):
        for name, value in values.items():
            set_value(getattr(layer, name), value)
    return made


def set_value(variable, value):
    if hasattr(variable, "set_value"):
        variable.set_value(value)
    else:  # before Flax 0.12
        variable.value = value


def nnx_model(net):
    graph, params, rest = nnx.split(nnx_parts(net), nnx.Param, ...)
    apply = lambda params, x: nnx.merge(graph, params, rest)(x)
    return idm.from_jax(
        params, data(), idm.Gaussian(0.04), apply=apply, l2=0.5, dtype="float64"
    ), apply  # fmt: skip


def called_model(net):
    """An nnx module is a pytree that can be called; psi gets such a module."""
    made = nnx_parts(net)
    if tree_util.all_leaves([made]):
        pytest.skip("nnx modules of old Flax are no pytrees")
    model = idm.from_jax(made, data(), idm.Gaussian(0.04), l2=0.5, dtype="float64")
    return model, lambda net, x: net(x)


@pytest.mark.parametrize("make", [linen_model, nnx_model, called_model])
def test_the_same_network_in_flax_has_the_same_errors(trained, make):
    at = np.linspace(-1, 1, 5)[:, None] * np.ones(INPUTS)
    expected = idm.infer(trained, lambda net: jax.vmap(net)(at)[:, 0])
    model, apply = make(trained.params)
    estimate = idm.infer(model, lambda params: apply(params, at)[:, 0])
    np.testing.assert_allclose(estimate.value, expected.value, rtol=1e-8)
    scale = np.outer(expected.standard_error, expected.standard_error)
    assert np.max(abs(estimate.covariance - expected.covariance) / scale) < 1e-8


class Convolutional(eqx.Module):
    """A convolution, BatchNorm with a state, shared weights and an integer that is no parameter."""

    conv: eqx.nn.Conv1d
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear
    shift: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.conv = eqx.nn.Conv1d(1, 2, 3, key=a)
        self.norm = eqx.nn.BatchNorm(2, axis_name="batch", mode="batch")
        self.head = eqx.nn.Linear(2, 2, key=b)
        self.shift = jnp.array(1)

    def __call__(self, x, state):
        hidden, state = self.norm(self.conv(x[None] + self.shift), state)
        return self.head(jnp.tanh(self.head(jnp.tanh(hidden.mean(1))))), state


def convolutional():
    net, state = eqx.nn.make_with_state(Convolutional)(jax.random.key(1))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(N, 6)).astype(np.float32), rng.integers(0, 2, size=N)

    def forward(net, x, state):
        call = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return call(x, state)

    for _ in range(3):  # running averages that are not those of a new module
        _, state = forward(net, 2 * x + 1, state)
    return net, state, forward, (x, y)


def test_batch_norm_with_running_averages():
    net, state, forward, (x, y) = convolutional()
    frozen = eqx.nn.inference_mode(net)
    apply = lambda net, x: forward(net, x, state)[0]
    model = idm.from_jax(
        frozen, (x, y), idm.Categorical(), apply=apply, l2=1.0, dtype="float64"
    )  # fmt: skip
    check_model(model)
    assert not any("shift" in name for name in model.names)


def test_batch_norm_without_running_averages_is_refused():
    net, state, forward, rows = convolutional()
    apply = lambda net, x: forward(net, x, state)[0]
    with pytest.raises(idm.UnsupportedModelError, match="running averages"):
        idm.from_jax(net, rows, idm.Categorical(), apply=apply, l2=1.0)


def test_dropout_with_a_fixed_key_is_refused():
    class Dropping(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(linen.Dropout(0.5, deterministic=False)(linen.Dense(8)(x)))

    key = jax.random.key(0)
    variables = Dropping().init({"params": key, "dropout": key}, jnp.ones((1, INPUTS)))
    apply = lambda variables, x: Dropping().apply(variables, x, rngs={"dropout": key})
    with pytest.raises(idm.UnsupportedModelError, match="dropout that is on"):
        idm.from_jax(variables, data(), idm.Gaussian(1.0), apply=apply)


def test_flax_variables_with_a_state_are_told_from_parameters():
    class Normalized(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(linen.BatchNorm(use_running_average=True)(x))

    net = Normalized()
    variables = net.init(jax.random.key(0), jnp.ones((1, INPUTS)))
    with pytest.raises(idm.UnsupportedModelError, match="also batch_stats"):
        idm.from_jax(variables, data(), idm.Gaussian(1.0), apply=net.apply)
    model = idm.from_jax(
        variables["params"], data(), idm.Gaussian(1.0),
        apply=lambda params, x: net.apply({**variables, "params": params}, x),
    )  # fmt: skip
    assert model.d == 2 * INPUTS + INPUTS + 1


def test_a_recurrent_network_with_a_variance_head():
    class Recurrent(eqx.Module):
        cell: eqx.nn.GRUCell
        head: eqx.nn.Linear

        def __call__(self, series):
            step = lambda state, x: (self.cell(x[None], state), None)
            state, _ = jax.lax.scan(step, jnp.zeros(2, series.dtype), series)
            return self.head(state)

    def normal(net, batch):
        mean, log_variance = jax.vmap(net)(batch["series"]).T
        return -0.5 * ((batch["y"] - mean) ** 2 * jnp.exp(-log_variance) + log_variance)

    a, b = jax.random.split(jax.random.key(2))
    net = Recurrent(eqx.nn.GRUCell(1, 2, key=a), eqx.nn.Linear(2, 2, key=b))
    rng = np.random.default_rng(2)
    series = rng.normal(size=(N, 5))
    rows = {"series": series, "y": series.mean(1) + 0.3 * rng.normal(size=N)}
    model = idm.from_jax(net, rows, normal, l2=2.0, dtype="float64")
    check_model(model)


def test_optimizers_get_a_pytree_without_settings(trained):
    import optax

    start = trained.at(trained.theta + 0.3)
    decay = optax.add_decayed_weights(0.1, mask=lambda p: tree_util.tree_map(jnp.ndim, p))
    step, *_ = ascend(start, None, [np.arange(N)], optax.chain(decay, optax.sgd(0.1)))
    assert np.all(step != start.theta)


def mlp(params, x):
    hidden = jnp.tanh(x @ params["inner"]["w"] + params["inner"]["b"])
    return hidden @ params["outer"]


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
def test_a_model_survives_pickling():
    rng = np.random.default_rng(0)
    params = {
        "inner": {"w": rng.normal(size=(INPUTS, HIDDEN)), "b": np.zeros(HIDDEN)},
        "outer": rng.normal(size=HIDDEN),
    }
    made = idm.from_jax(
        params, data(), idm.Gaussian("mle"), apply=mlp, l2=0.05, dtype="float64", batch_size=25
    )
    model, psi = idm.polish(made), lambda params: mlp(params, data()[0][:2])
    before = idm.infer(model, psi, robust=True)
    after = idm.infer(pickle.loads(pickle.dumps(model)), psi, robust=True)
    np.testing.assert_allclose(after.value, before.value, rtol=1e-12)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-9)
