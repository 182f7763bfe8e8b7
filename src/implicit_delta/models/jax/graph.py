"""Derivatives of the terms of a pytree, compiled.

Second derivatives are forward over reverse. A linearization kept between products would save the
forward pass: on a 36-50-6 network with 5148 rows that is a third of the time of a single product
and nothing of that of a block, for several times the memory, so none is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.models.jax.module import JaxFunctional
from implicit_delta.models.program import Calculus, Function, Linearization, Product, Program


def gradient(function: Function, flat: jax.Array, *data: Any) -> jax.Array:
    """Gradient of a function to a number, (d,)."""
    return cast(jax.Array, jax.grad(function)(flat, *data))


def hessian(function: Function, flat: jax.Array, *data: Any) -> Product:
    """Hessian of a function to a number."""
    slope = jax.grad(lambda point: function(point, *data))
    return jax.vmap(lambda v: jax.jvp(slope, (flat,), (v,))[1])


def linearize(function: Function, flat: jax.Array, *data: Any) -> Linearization:
    """Differentiate forwards where every operation has a rule for it, and backwards."""
    of_point = lambda point: function(point, *data)  # noqa: E731
    value, pull = jax.vjp(of_point, flat)
    forward = jax.vmap(lambda v: jax.jvp(of_point, (flat,), (v,))[1])
    try:
        jax.eval_shape(forward, flat[None])
    except TypeError:
        # Some operation has a rule for reverse mode only (custom_vjp). J'u is linear in u: its
        # derivative, in reverse, is J v.
        _, push = jax.vjp(lambda u: pull(u)[0], jnp.zeros_like(value))
        forward = jax.vmap(lambda v: push(v)[0])
    return Linearization(value, forward, jax.vmap(lambda u: pull(u)[0]))


@dataclass(frozen=True, eq=False)
class JaxProgram(Program):
    """The program of a pytree, compiled at the first call for each shape of a batch."""

    calculus = Calculus(
        gradient, hessian, linearize, jax.vjp, jax.vmap, jax.tree_util.tree_map,
        jax.tree_util.tree_leaves,
        lambda value: jnp.eye(value.size, dtype=value.dtype),
    )  # fmt: skip

    functional: JaxFunctional
    _compiled: dict[Any, Function] = field(init=False, default_factory=dict)
    _shared: list[tuple[dict[Any, Function], Callable[[], bool]]] = field(
        init=False, default_factory=list
    )

    def use(self, table: dict[Any, Function], same: Callable[[], bool]) -> None:
        """Share compiled functions with others, as long as a trace is still the same."""
        self._shared.append((table, same))

    def run(self, function: Function, *arguments: Any) -> Any:
        return self._compile(function, function, arguments)(*arguments)

    def product(self, build: Callable[..., Product], *arguments: Any) -> Product:
        def multiply(rows: Any, *arguments: Any) -> Any:
            return build(*arguments)(rows)

        def chunk(rows: Any) -> Any:
            return self._compile(build, multiply, (rows, *arguments))(rows, *arguments)

        return lambda block: np.concatenate([chunk(rows) for rows in block])

    def block(self, rows: Array, size: int) -> list[jax.Array]:
        """Cut rows into chunks of one width, a power of two: products are compiled for few."""
        most = self.at_once(size)
        width = min(1 << (len(rows) - 1).bit_length(), 1 << (most.bit_length() - 1))
        padded = np.zeros((-(-len(rows) // width) * width, rows.shape[1]))
        padded[: len(rows)] = rows
        return [self.functional.flat(padded[i : i + width]) for i in range(0, len(padded), width)]

    def outputs(self, flat: jax.Array, batch: Any) -> Any:
        """As of any program, in the working type: a model may cast them to another one."""
        outputs = super().outputs(flat, batch)
        return outputs.astype(flat.dtype) if isinstance(outputs, jax.Array) else outputs

    def output_size(self, flat: jax.Array, batch: Any) -> int:
        return int(np.prod(jax.eval_shape(self.outputs, flat, batch).shape[1:]))

    def _compile(self, named: Function, function: Function, arguments: Any) -> Any:
        """Compile a function once for each shape, by the name of one of this program.

        What is compiled now is shared only if it is traced from what the program began with.
        """
        leaves, structure = jax.tree_util.tree_flatten(arguments)
        name = named.__name__, structure, *((a.shape, a.dtype) for a in leaves)
        found = self._compiled.get(name)
        if found is None:
            found = self._compiled[name] = self._known(name, jax.jit(function))
        return found

    def _known(self, name: Any, fresh: Function) -> Function:
        """Take what others have compiled, or give it to them."""
        for table, same in self._shared:
            if name in table:
                return table[name]
            if same():
                table[name] = fresh
        return fresh

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without compiled functions."""
        return JaxProgram, (self.functional, self.row_terms, self.penalty, self.row_bytes)
