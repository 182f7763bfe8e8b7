"""Compiled JAX functions shared between models: nothing is compiled twice, and nothing is stale."""

import contextlib

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp

import implicit_delta as idm

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.random.default_rng(1).normal(size=40)
COLUMNS, FACTOR = np.ones(2), np.ones(1)  # what the functions below read from outside
EVENT = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compilations():
    seen = []

    def listen(event, *_, **__):
        seen.append(event) if event == EVENT else None

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture(autouse=True)
def outside():
    COLUMNS[:], FACTOR[:] = 1.0, 1.0


def apply(params, x):
    return x @ (COLUMNS * params["w"])


def within_jit(params, x):
    return x @ jax.jit(lambda w: COLUMNS * w)(params["w"])


@jax.custom_jvp
def scaled(w):
    return 1.0 * w


@scaled.defjvp
def _(primals, tangents):
    return scaled(*primals), tangents[0] * COLUMNS


def by_rule(params, x):
    """The value is always that of w; the derivative is not."""
    return x @ scaled(params["w"])


def psi(params):
    return FACTOR[0] * params["w"][0] + 0.0 * params["w"][1] ** 2


def ridge(params):
    return COLUMNS[0] * jnp.sum(params["w"] ** 2)


def model(function=apply, x=X, **options):
    options = {"l2": 1.0, "dtype": "float64", **options}
    return idm.from_jax({"w": jnp.zeros(2)}, (x, Y), idm.Gaussian(1.0), apply=function, **options)


METHOD = idm.Infinitesimal()


def error(fitted, function=psi):
    return float(idm.infer(fitted, function, METHOD, strict=False).standard_error)


def exact(x=X, columns=(1.0, 1.0), l2=1.0, weights=1.0, factor=1.0):
    rows = x * np.asarray(columns)
    matrix = (rows.T * weights) @ rows + l2 * np.eye(2)
    return factor * np.sqrt(np.linalg.inv(matrix)[0, 0])


pytestmark = pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")


@pytest.mark.parametrize("function", [apply, within_jit])
def test_a_second_model_compiles_nothing(function):
    error(model(function))
    with compilations() as seen:
        other = error(model(function, 2 * X, l2=3.0, weights=np.arange(40.0)))
    assert not seen
    assert other == pytest.approx(exact(2 * X, l2=3.0, weights=np.arange(40.0)), rel=1e-9)


@pytest.mark.parametrize("function", [apply, within_jit, by_rule])
def test_what_functions_read_from_outside_is_that_of_now(function):
    assert error(model(function)) == pytest.approx(exact(), rel=1e-9)
    COLUMNS[0] = 3.0
    assert error(model(function)) == pytest.approx(exact(columns=(3, 1)), rel=1e-9)
    COLUMNS[0] = 1.0
    assert error(model(function)) == pytest.approx(exact(), rel=1e-9)


def test_a_change_between_the_model_and_its_question_does_not_reach_others():
    first = model(lambda p, x: apply(p, x))
    shared = first.rows.program.row_terms.apply
    COLUMNS[0] = 3.0
    error(first)  # compiles what it needs now
    COLUMNS[0] = 1.0
    assert error(model(shared)) == pytest.approx(exact(), rel=1e-9)


def test_closures_over_other_arrays_are_other_functions():
    def made(columns):
        return lambda params, x: x @ (columns * params["w"])

    for columns in ((1.0, 2.0), (3.0, 1.0)):
        found = error(model(made(np.array(columns))))
        assert found == pytest.approx(exact(columns=columns), rel=1e-9)


def test_psi_that_reads_from_outside_is_evaluated_now():
    fitted = model()
    many = idm.Simulation(60, rng=0)
    first = idm.infer(fitted, psi, many, strict=False).standard_error
    FACTOR[0] = 7.0
    for again in (fitted, model()):
        found = idm.infer(again, psi, many, strict=False).standard_error
        assert found == pytest.approx(7 * first, rel=1e-9)
        assert error(again) == pytest.approx(exact(factor=7.0), rel=1e-9)


def test_penalties_and_other_options():
    for scale in (1.0, 5.0):
        COLUMNS[:] = scale
        found = error(model(lambda p, x: x @ p["w"], penalty=ridge, l2=0.0))
        assert found == pytest.approx(exact(l2=2 * scale), rel=1e-9)
    COLUMNS[:] = 1.0
    for scale in (1.0, 5.0):
        COLUMNS[0] = scale
        found = error(model(penalty=ridge, l2=0.0))
        assert found == pytest.approx(exact(columns=(scale, 1), l2=2 * scale), rel=1e-9)


def test_types_shapes_and_structures():
    for dtype, close in [("float32", 1e-4), ("float64", 1e-9), ("float32", 1e-4)]:
        found = error(model(alone, dtype=dtype), lambda p: p["w"][0])
        assert found == pytest.approx(exact(), rel=close)
    other = idm.from_jax(
        {"a": jnp.zeros(3), "w": jnp.zeros(2)},
        (X, Y),
        idm.Gaussian(1.0),
        apply=apply,
        l2=1.0,
        dtype="float64",
    )
    assert error(other) == pytest.approx(exact(), rel=1e-9)
    held = idm.from_jax(
        {"w": jnp.ones(2), "k": jnp.ones(2)},
        (X, Y),
        idm.Gaussian(1.0),
        apply=known,
        parameters="w",
        l2=1.0,
        dtype="float64",
    )
    other = idm.from_jax(
        {"w": jnp.ones(2), "k": 2 * jnp.ones(2)},
        (X, Y),
        idm.Gaussian(1.0),
        apply=known,
        parameters="w",
        l2=1.0,
        dtype="float64",
    )
    assert error(held) == pytest.approx(exact(), rel=1e-9)
    assert error(other) == pytest.approx(exact(columns=(2, 2)), rel=1e-9)


def alone(params, x):
    return x @ params["w"]


def known(params, x):
    return x @ (params["k"] * params["w"])
