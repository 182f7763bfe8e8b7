"""The program of a pytree: its terms on a batch, their derivatives, and training; compiled."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.jax.graph import gradient, hessian, linearize
from implicit_delta.models.jax.module import JaxFunctional
from implicit_delta.models.jax.tangent import TangentFunctional, applied
from implicit_delta.models.jax.training import training
from implicit_delta.models.program import Calculus, Function, Product, Program, Step
from implicit_delta.models.terms import SupervisedTerms


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

    def trainer(self, theta: Array, optimizer: Any, n: int) -> Step:
        return training(self, theta, optimizer, n)

    def tangent(self, theta: Array) -> "JaxProgram | None":
        terms, origin = self.row_terms, self.functional.origin
        if isinstance(self.functional, TangentFunctional):
            return self
        if not isinstance(terms, SupervisedTerms):
            return None
        parts = {field.name: getattr(origin, field.name) for field in fields(origin)}
        touching = TangentFunctional(**parts, touched=origin, center=theta.copy())
        linear = (
            replace(terms, outputs_of=self.apply)
            if terms.outputs_of
            else replace(terms, apply=self.apply)
        )
        return replace(self, functional=touching, row_terms=linear)

    def apply(self, parameters: Any, *inputs: Any) -> Any:
        """As of any program; its tangent while psi is evaluated in that."""
        return applied(self.functional.origin, super().apply, parameters, *inputs)

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
