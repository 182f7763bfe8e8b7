"""A model as functions of its flat parameters: terms, penalty and their derivatives on one batch.

All arrays are those of the backend.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from inspect import isgeneratorfunction
from itertools import product
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.penalty import Penalty, Ridge
from implicit_delta.models.terms import RowTerms, SupervisedTerms

BLOCK_BYTES = 2**26  # of the second derivatives of a batch, times vectors
MOST_NAMES = 10_000  # beyond, a table of parameters has no reader

Function: TypeAlias = Callable[..., Any]  # of the flat parameters (d,) and data
Product: TypeAlias = Callable[[Any], Any]  # a matrix times each row of a block (k, d)
# Train on a batch with the weights of its rows, and with the slope (d,) of what is added to minus
# their sum, as a function of theta: theta (d,) afterwards.
Step: TypeAlias = Callable[[Any, Any, Callable[[Array], Array]], Array]
Method = TypeVar("Method", bound=Callable[..., Any])


def in_context(method: Method) -> Method:
    """Run a method in the context of its functional; of a generator, all but what its user does."""

    @wraps(method)
    def within(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.functional.context():
            return method(self, *args, **kwargs)

    @wraps(method)
    def blocks_within(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        blocks = method(self, *args, **kwargs)
        while True:
            with self.functional.context():
                block = next(blocks, None)
            if block is None:
                return
            yield block

    return cast(Method, blocks_within if isgeneratorfunction(method) else within)


@dataclass(frozen=True)
class Linearization:
    """The derivative J of a function to (b, ...), at one point.

    `forward` maps each row v of (k, d) to J v, (k, b, ...); `backward` each row u to J' u.
    """

    value: Any
    forward: Product
    backward: Product


@dataclass(frozen=True)
class Calculus:
    """Derivatives of a backend; the first three of a function, at flat parameters and data."""

    gradient: Callable[..., Any]
    hessian: Callable[..., Product]
    linearize: Callable[..., Linearization]
    vjp: Callable[..., Any]
    vmap: Callable[..., Any]
    map: Callable[..., Any]  # a function over nested arrays
    leaves: Callable[[Any], Any]  # these arrays
    identity: Callable[[Any], Any]  # (C, C) for an array of C numbers


@dataclass(frozen=True, eq=False)
class Functional(ABC):
    """A module or a pytree without the values of its parameters, which come in as one flat array.

    The layout has the name and the shape of each parameter; the dtype is that of the work, and
    `given` names those of the parameters as they were given.
    """

    layout: tuple[tuple[str, tuple[int, ...]], ...]
    dtype: Any
    given: str

    @abstractmethod
    def __call__(self, function: Callable[..., Any], flat: Any, *arguments: Any) -> Any:
        """Call ``function(model, *arguments)`` with the parameters taken from flat (d,)."""

    @property
    def d(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    def kind(self) -> str:
        """Name of the type of the work."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def running_averages(self) -> bool:
        """Whether it keeps averages over batches that belong to the last state of a training."""
        return False

    @property
    @abstractmethod
    def eps(self) -> float:
        """Precision of the type of the work."""

    @property
    def longest_sum(self) -> int:
        """Most summands of a product with one of the parameters: all axes but its shortest."""
        shapes = [shape for _, shape in self.layout if shape]
        return max((math.prod(shape) // max(min(shape), 1) for shape in shapes), default=1)

    @abstractmethod
    def context(self) -> AbstractContextManager[None]:
        """Set the backend up for the work, whatever the user has set."""

    @abstractmethod
    def flat(self, theta: Array) -> Any:
        """Move parameters (d,), or rows of them, or weights to the backend in the working type."""

    @abstractmethod
    def numpy(self, values: Any) -> Any:
        """Move an array of the backend to NumPy; return anything else as it is."""

    def evaluated(self, value: Any) -> Any:
        """Convert to NumPy whatever psi returned."""
        if isinstance(value, (tuple, list)):
            return np.array([self.evaluated(item) for item in value])
        return self.numpy(value)

    @property
    def names(self) -> tuple[str, ...] | None:
        """A name for each of the d numbers, ``0.weight[2,1]``; None for very many."""
        if self.d > MOST_NAMES:
            return None
        return tuple(label for name, shape in self.layout for label in _labels(name, shape))


@dataclass(frozen=True, eq=False)
class Program(ABC):
    """Functions of the flat parameters (d,) and one batch of b rows.

    They are called through `run` and `product`, so that a backend can compile them. One program
    serves all models that differ in theta and weights only.
    """

    calculus: ClassVar[Calculus]

    functional: Functional
    row_terms: RowTerms
    penalty: Callable[[Any], Any] | None = None
    row_bytes: int = 1  # of the second derivatives of a row

    @abstractmethod
    def run(self, function: Function, *arguments: Any) -> Any:
        """Call a function of this program."""

    @abstractmethod
    def product(self, build: Callable[..., Product], *arguments: Any) -> Product:
        """Call a function of this program that builds products with blocks."""

    @abstractmethod
    def block(self, rows: Array, size: int) -> Any:
        """Move rows (k, d) to the backend, for products on batches of this size.

        The backend may append rows of zeros.
        """

    def at_once(self, rows: int) -> int:
        """Vectors in one product on a batch: more need memory, and are slower, not faster."""
        return max(1, BLOCK_BYTES // (self.row_bytes * rows))

    @abstractmethod
    def output_size(self, flat: Any, batch: Any) -> int:
        """The number C of outputs of a row."""

    @abstractmethod
    def trainer(self, theta: Array, optimizer: Any, n: int) -> Step:
        """Start a stochastic training at theta.

        A step descends minus the mean of the weighted terms of a batch, plus its slope over n.
        """

    @abstractmethod
    def tangent(self, theta: Array) -> Self | None:
        """Make the program of the outputs linearized around theta; None if it cannot reach them."""

    def apply(self, parameters: Any, *inputs: Any) -> Any:
        """Outputs for inputs, or for a batch where the user's function takes one."""
        terms = self.supervised
        return (terms.outputs_of or terms.apply)(parameters, *inputs)

    def mean(self, parameters: Any, inputs: Array) -> Any:
        """Means of the targets of inputs (m, p), in the types of the backend."""
        return self.supervised.likelihood.mean(self.apply(parameters, self.functional.flat(inputs)))

    def terms(self, flat: Any, batch: Any) -> Any:
        """Log-likelihood of each row, (b,)."""
        return self.functional(self.row_terms, flat, batch)

    def outputs(self, flat: Any, batch: Any) -> Any:
        """Outputs for the inputs of a batch, (b, ...)."""
        return self.functional(self.supervised.outputs, flat, batch)

    def loss(self, flat: Any, *data: Any) -> Any:
        """Minus the weighted terms of a batch, for data (batch, weights); without, the penalty."""
        if not data:
            assert self.penalty is not None
            return self.functional(self.penalty, flat)
        batch, weights = data
        return (-weights * self.terms(flat, batch)).sum()

    def gradient(self, flat: Any, *data: Any) -> Any:
        """Gradient of the loss, (d,)."""
        return self.calculus.gradient(self.loss, flat, *data)

    def hessian(self, flat: Any, *data: Any) -> Product:
        """Hessian of the loss."""
        return self.calculus.hessian(self.loss, flat, *data)

    def gauss_newton(self, flat: Any, batch: Any, weights: Any) -> Product:
        r"""Gauss-Newton matrix :math:`\sum_i w_i J_i' H_i J_i` of a batch: forth, curve, back."""
        linear = self.calculus.linearize(self.outputs, flat, batch)
        terms = self.supervised
        curve = terms.likelihood.curvature(linear.value)
        mass = terms.likelihood.mass(linear.value, terms.targets(batch))
        columns = weights.reshape(-1, *[1] * (linear.value.ndim - 1)) * mass
        return lambda block: linear.backward(columns * curve(linear.forward(block)))

    def noise(self, flat: Any, batch: Any, weights: Any) -> Product:
        r"""Map rows e, (k, b C), to :math:`\sum_i \sqrt{w_i} J_i' S_i e_i`, (k, d)."""
        linear, terms = self.calculus.linearize(self.outputs, flat, batch), self.supervised
        shape = linear.value.shape
        _, pull = self.calculus.vjp(terms.likelihood.root(linear.value), linear.value)
        mass = terms.likelihood.mass(linear.value, terms.targets(batch))
        roots = (weights.reshape(-1, *[1] * (len(shape) - 1)) * mass) ** 0.5
        rooted = self.calculus.vmap(lambda e: roots * pull(e)[0])
        return lambda block: linear.backward(rooted(block.reshape(-1, *shape)))

    def tangents(self, flat: Any, batch: Any) -> Product:
        """Derivative of the outputs along each row of a block, (k, b, ...)."""
        return self.calculus.linearize(self.outputs, flat, batch).forward

    def factors(self, flat: Any, batch: Any, weights: Any) -> Any:
        r"""Rows U, (b C, d), with U'U the Gauss-Newton matrix: :math:`\sqrt{w_i} S_i' J_i` by row.

        One backward pass per output, instead of d products.
        """
        factor, leaves = self._factor(flat, batch), self.calculus.leaves(batch)
        return self.calculus.vmap(factor)(leaves, weights).reshape(-1, len(flat))

    def factors_by_row(self, flat: Any, batch: Any, weights: Any) -> Any:
        """Factors row by row, for models whose control flow depends on the data."""
        factor, leaves = self._factor(flat, batch), self.calculus.leaves(batch)
        rows = zip(*leaves, strict=True)
        parts = [factor(row, weight) for row, weight in zip(rows, weights, strict=True)]
        return np.concatenate([self.functional.numpy(part) for part in parts])

    def pulled(self, flat: Any, batch: Any, cotangents: Any) -> Any:
        """J_i' u_i of each row for cotangents u, (b, C): (b, d)."""

        def pull_back(row: Any, cotangent: Any) -> Any:
            _, value, pull = self._row(flat, batch, row)
            return pull(cotangent.reshape(value.shape))[0]

        return self.calculus.vmap(pull_back)(self.calculus.leaves(batch), cotangents)

    def _row(self, flat: Any, batch: Any, row: Any) -> tuple[Any, Any, Function]:
        """Batch of one row, from its arrays, with its output and the function u to J'u."""
        arrays = iter(row)
        single = self.calculus.map(lambda _: next(arrays)[None], batch)
        return single, *self.calculus.vjp(lambda point: self.outputs(point, single)[0], flat)

    def _factor(self, flat: Any, batch: Any) -> Function:
        """Factor of one row, (C, d), as a function of its arrays and its weight."""
        calculus, terms = self.calculus, self.supervised

        def factor(row: Any, weight: Any) -> Any:
            single, value, pull = self._row(flat, batch, row)
            basis = calculus.identity(value)
            mass = weight * terms.likelihood.mass(value[None], terms.targets(single))
            rooted = terms.likelihood.root(value[None])(basis.reshape(-1, 1, *value.shape))
            root = (mass**0.5 * rooted).reshape(len(basis), -1)
            return calculus.vmap(pull)(root.T.reshape(-1, *value.shape))[0]

        return factor

    def along(self, flat: Any, batch: Any) -> Product:
        """Derivative of each term along each row of a block, (k, b)."""
        return self.calculus.linearize(self.terms, flat, batch).forward

    @property
    def supervised(self) -> SupervisedTerms:
        """The terms, of a likelihood of outputs."""
        assert isinstance(self.row_terms, SupervisedTerms)
        return self.row_terms


@dataclass(frozen=True, eq=False)
class ProgramPenalty:
    """The penalty of a program, with blocks of directions as for batches of a size."""

    program: Program
    size: int
    name: str = ""

    def value(self, theta: Array) -> float:
        return float(self._run(self.program.loss, theta))

    def score(self, theta: Array) -> Array:
        return np.asarray(self._run(self.program.gradient, theta))

    def curvature(self, theta: Array, v: Array) -> Array:
        functional, block = self.program.functional, v.reshape(theta.size, -1).T
        with functional.context():
            product = self.program.product(self.program.hessian, functional.flat(theta))
            found = functional.numpy(product(self.program.block(block, self.size)))
        return np.asarray(found[: len(block)].T.reshape(v.shape))

    def _run(self, function: Function, theta: Array) -> Any:
        functional = self.program.functional
        with functional.context():
            return functional.numpy(self.program.run(function, functional.flat(theta)))


def penalty_of(program: Program, l2: float, size: int) -> Penalty:
    """Make the penalty of a program, with a ridge."""
    written = program.penalty
    name = getattr(written, "__name__", type(written).__name__)
    functions = () if written is None else (ProgramPenalty(program, size, name),)
    return Penalty((Ridge(l2),) if l2 else (), functions)


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    if int(np.prod(shape)) == 1:
        return [name]
    places = product(*(map(str, range(size)) for size in shape))
    return [f"{name}[{','.join(place)}]" for place in places]
