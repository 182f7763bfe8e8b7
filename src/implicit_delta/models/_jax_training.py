"""Stochastic training steps on a JAX model, with any optax optimizer."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._typing import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.models.base import Bonus

if TYPE_CHECKING:
    from implicit_delta.models._jax_model import JaxModel


def train(
    model: "JaxModel", bonus: Bonus | None, batches: Iterable[Array], optimizer: Any
) -> Iterator[Array]:
    """Yield theta after each step; see `FittedModel.ascend`."""
    functional, stepper = model.functional, _stepper(optimizer)
    step = _step(model, stepper)
    with functional.precision():
        flat = functional.flat(model.theta)
        state = stepper.init(functional.parameters(flat))
    theta = model.theta
    for rows in batches:
        extra = model.l2 * theta if bonus is None else model.l2 * theta - bonus(theta)
        # Not around the yield: whoever takes theta has a precision of their own.
        with functional.precision():
            batch, weights = model.batches.take(rows), functional.flat(model.weights[rows])
            flat, state = step(flat, state, functional.flat(extra / model.n), batch, weights)
            theta = np.asarray(flat, dtype=np.float64)
        if not np.all(np.isfinite(theta)):
            raise ConvergenceError(
                "The stochastic training diverged: a parameter is NaN or infinite. Use a smaller "
                "learning rate."
            )
        yield theta


def _step(model: "JaxModel", stepper: Any) -> Callable[..., tuple[jax.Array, Any]]:
    """One step on minus L / n, its sum over rows estimated from those of a batch."""
    program, functional = model.program, model.functional

    def loss(flat: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
        mean = -program.weighted_sum(flat, batch, weights) / weights.size
        return mean if program.penalty is None else mean + program.plain_penalty(flat) / model.n

    def step(
        flat: jax.Array, state: Any, extra: jax.Array, batch: Any, weights: jax.Array
    ) -> tuple[jax.Array, Any]:
        gradient = jax.grad(loss)(flat, batch, weights) + extra
        # As a pytree: some optimizers treat each parameter, or those of some names, alike.
        updates, state = stepper.update(
            functional.parameters(gradient), state, functional.parameters(flat)
        )
        moves = [jnp.ravel(leaf) for leaf in jax.tree_util.tree_leaves(updates)]
        return flat + jnp.concatenate(moves), state

    return jax.jit(step)


def _stepper(optimizer: Any) -> Any:
    """An optax transformation: that of plain gradient descent for a rate."""
    if isinstance(optimizer, (int, float)):
        return _optax().sgd(float(optimizer))
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            f"optimizer is a {type(optimizer).__name__}; give a learning rate or an optax "
            "optimizer, such as `optax.adam(1e-3)`."
        )
    return optimizer


def _optax() -> Any:
    try:
        import optax
    except ModuleNotFoundError as error:
        raise ImportError(
            'Training a JAX model needs optax, which is not installed: pip install "implicit-'
            'delta[jax]".'
        ) from error
    return optax
