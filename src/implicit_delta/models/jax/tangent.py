"""The tangent of a function of a pytree: linear in the step from the fitted parameters.

A pytree is plain data, and psi calls what it likes with it. So the tangent is reached through
`model.apply`, which is the function that was fitted, and its tangent while that is asked for.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax.flatten_util import ravel_pytree

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.jax.graph import linearize
from implicit_delta.models.jax.module import JaxFunctional


@dataclass(eq=False)
class _Center:
    """The pytree at which functions are linearized, and whether one was called."""

    functional: JaxFunctional
    pieces: list[Any]
    used: bool = field(init=False, default=False)


_center: ContextVar[_Center | None] = ContextVar("center", default=None)


@dataclass(frozen=True, eq=False)
class TangentFunctional(JaxFunctional):
    """The tangent of a functional at its center (d,), as a function of all parameters.

    What is called has to go through `applied`; where `strict`, a function that does not is refused.
    """

    touched: JaxFunctional
    center: Array
    strict: bool = False

    @property
    def origin(self) -> JaxFunctional:
        return self.touched

    def call(self, function: Callable[..., Any], pieces: Iterable[Any], *arguments: Any) -> Any:
        with linearized(self.touched, self.touched.pieces(self.center), self.strict):
            return super().call(function, pieces, *arguments)


@contextlib.contextmanager
def linearized(functional: JaxFunctional, pieces: list[Any], strict: bool = True) -> Iterator[None]:
    """Make `applied` the tangent at these parameters; refuse a psi that never calls it."""
    center = _Center(functional, pieces)
    token = _center.set(center)
    try:
        yield
    finally:
        _center.reset(token)
    if strict and not center.used:
        raise UnsupportedModelError(
            "psi calls its own functions with the parameters, so that the tangent of the network "
            "does not reach it. Call the fitted function through the model, `model.apply(params, "
            "x)`; or draw the weights themselves: `Simulation(tangent=False)`."
        )


def applied(functional: JaxFunctional, apply: Callable[..., Any], params: Any, *inputs: Any) -> Any:
    r"""Return ``apply(params, *inputs)``, or its tangent :math:`f(x; \theta) + J(x) \delta`.

    Psi of one model may call another one, which stays as it is.
    """
    data = tree_util.tree_map(partial(_typed, functional), inputs)
    center = _center.get()
    if center is None or center.functional is not functional:
        return apply(params, *data)
    center.used = True
    steps = [end - piece for end, piece in zip(_pieces(center, params), center.pieces, strict=True)]

    def function(pieces: list[Any]) -> Any:
        return apply(functional.filled(pieces), *data)

    value, slope = _derived(function, center.pieces, steps)
    return tree_util.tree_map(_moved, value, slope)


def _typed(functional: JaxFunctional, data: Any) -> Any:
    """Move NumPy's floats: uncompiled, JAX may take double precision for its own single."""
    is_float = isinstance(data, np.ndarray) and data.dtype.kind == "f"
    return functional.flat(data) if is_float else data


def _pieces(center: _Center, params: Any) -> list[Any]:
    leaves, kept = tree_util.tree_leaves(params), center.functional.leaves
    return [leaf for leaf, known in zip(leaves, kept, strict=True) if known is None]


def _derived(function: Callable[..., Any], pieces: list[Any], steps: list[Any]) -> Any:
    try:
        return jax.jvp(function, (pieces,), (steps,))
    except TypeError:  # some operation has a rule for reverse mode only (custom_vjp)
        flat, cut = ravel_pytree(pieces)
        restore = ravel_pytree(function(pieces))[1]
        linear = linearize(lambda point: ravel_pytree(function(cut(point)))[0], flat)
        slope = linear.forward(ravel_pytree(steps)[0][None])[0]
        return restore(linear.value), restore(slope)


def _moved(value: Any, slope: Any) -> Any:
    if slope.dtype == jax.dtypes.float0:
        raise UnsupportedModelError(
            f"The fitted function returns {jnp.asarray(value).dtype} numbers, which have no "
            "derivative, so that it has no tangent. Return logits or means from it and take "
            "classes or counts in psi; or draw the weights themselves: `Simulation(tangent=False)`."
        )
    return value + slope
