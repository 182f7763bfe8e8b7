"""Stochastic training of a pytree, with any optax optimizer."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.models.program import Step

if TYPE_CHECKING:
    from implicit_delta.models.jax.program import JaxProgram


def training(program: "JaxProgram", theta: Array, optimizer: Any, n: int) -> Step:
    """Start a training; see `Program.trainer`."""
    functional = program.functional
    _check_optimizer(optimizer)
    start, advance = _compiled(program, optimizer, n)
    with functional.context():
        flat = functional.flat(theta)
        state = start(flat)

    def step(batch: Any, weights: Any, slope: Callable[[Array], Array]) -> Array:
        nonlocal flat, state, theta
        extra = slope(theta)  # in the caller's precision
        with functional.context():
            flat, state = advance(flat, state, functional.flat(extra), batch, weights)
            theta = np.asarray(flat, dtype=np.float64)
        return theta

    return step


@lru_cache(maxsize=8)  # a method trains again and again, and compiles once
def _compiled(program: "JaxProgram", optimizer: Any, n: int) -> tuple[Callable[..., Any], ...]:
    """The start of a training, and one step on minus the mean of a batch and a slope over n."""
    parameters = program.functional.parameters
    stepper = _sgd(float(optimizer)) if _is_rate(optimizer) else optimizer

    def loss(flat: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
        mean: jax.Array = program.loss(flat, batch, weights) / weights.size
        return mean

    def advance(flat: Any, state: Any, extra: Any, batch: Any, weights: Any) -> Any:
        gradient = jax.grad(loss)(flat, batch, weights) + extra / n
        # As a pytree: some optimizers treat each parameter, or those of some names, alike.
        updates, state = stepper.update(parameters(gradient), state, parameters(flat))
        moves = [jnp.ravel(leaf) for leaf in jax.tree_util.tree_leaves(updates)]
        return flat + jnp.concatenate(moves), state

    return jax.jit(lambda flat: stepper.init(parameters(flat))), jax.jit(advance)


def _check_optimizer(optimizer: Any) -> None:
    if _is_rate(optimizer) or (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        return
    raise TypeError(
        f"optimizer is a {type(optimizer).__name__}; give a learning rate or an optax optimizer, "
        "such as `optax.adam(1e-3)`."
    )


def _is_rate(optimizer: Any) -> bool:
    return isinstance(optimizer, (int, float))


def _sgd(rate: float) -> Any:
    return optional("optax", "Training a JAX model").sgd(rate)
