"""Stochastic training steps on a JAX model, with any optax optimizer."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.models.base import Bonus, RowNumbers
from implicit_delta.models.jax.graph import Program

if TYPE_CHECKING:
    from implicit_delta.models.jax.model import JaxModel


def train(
    model: "JaxModel", bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
) -> Iterator[Array]:
    """Yield theta after each step; see `FittedModel.ascend`."""
    functional, arrays = model.functional, model.batches.arrays
    _check_optimizer(optimizer)
    start, step = _training(model.program, optimizer, model.n)
    with functional.precision():
        flat = functional.flat(model.theta)
        state = start(flat)
    theta = model.theta
    for rows in batches:
        extra = model.l2 * theta if bonus is None else model.l2 * theta - bonus(theta, rows)
        # Not around the yield: whoever takes theta has a precision of their own.
        with functional.precision():
            weights = functional.flat(model.weights[rows])
            flat, state = step(flat, state, functional.flat(extra), arrays, rows, weights)
            theta = np.asarray(flat, dtype=np.float64)
        if not np.all(np.isfinite(theta)):
            raise ConvergenceError(
                "The stochastic training diverged: a parameter is NaN or infinite. Use a smaller "
                "learning rate."
            )
        yield theta


@lru_cache(maxsize=8)  # a method trains again and again, and compiles once
def _training(program: Program, optimizer: Any, n: int) -> tuple[Callable[..., Any], ...]:
    """How a training starts, and one step on minus L / n, with its sum over rows from a batch."""
    parameters = program.functional.parameters
    stepper = _optax().sgd(float(optimizer)) if _is_rate(optimizer) else optimizer

    def loss(flat: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
        mean = -program.weighted_sum(flat, batch, weights) / weights.size
        return mean if program.penalty is None else mean + program.plain_penalty(flat) / n

    def step(
        flat: jax.Array,
        state: Any,
        extra: jax.Array,
        arrays: Any,
        rows: jax.Array,
        weights: jax.Array,
    ) -> tuple[jax.Array, Any]:
        batch = jax.tree_util.tree_map(lambda a: a[rows], arrays)
        gradient = jax.grad(loss)(flat, batch, weights) + extra / n
        # As a pytree: some optimizers treat each parameter, or those of some names, alike.
        updates, state = stepper.update(parameters(gradient), state, parameters(flat))
        moves = [jnp.ravel(leaf) for leaf in jax.tree_util.tree_leaves(updates)]
        return flat + jnp.concatenate(moves), state

    return jax.jit(lambda flat: stepper.init(parameters(flat))), jax.jit(step)


def _check_optimizer(optimizer: Any) -> None:
    if _is_rate(optimizer) or (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        return
    raise TypeError(
        f"optimizer is a {type(optimizer).__name__}; give a learning rate or an optax optimizer, "
        "such as `optax.adam(1e-3)`."
    )


def _is_rate(optimizer: Any) -> bool:
    return isinstance(optimizer, (int, float))


def _optax() -> Any:
    try:
        import optax
    except ModuleNotFoundError as error:
        raise ImportError(
            "Training a JAX model needs optax, which is not installed: "
            'pip install "implicit-delta[jax]".'
        ) from error
    return optax
