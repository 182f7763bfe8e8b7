"""Rows of a module or a pytree, which are visited batch by batch, whatever the framework."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Protocol, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import Counter
from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.models.batched_outputs import BatchOutputs
from implicit_delta.models.batches import Bonus, RowNumbers
from implicit_delta.models.facts import Curvature
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.program import Product, Program, in_context
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.rows import sum_of_blocks
from implicit_delta.models.terms import SupervisedTerms
from implicit_delta.models.weights import Weights

# Of the second derivatives of one batch. With ten million parameters and 2048 rows, one batch took
# 5.6 vectors of memory more than four of them, and as long.
BATCH_BYTES = 2**25

Data: TypeAlias = tuple[Any, Any]  # a batch and the weights of its rows


class Batches(Protocol):
    """Rows of data in a fixed order, in arrays of the backend."""

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once."""

    def split(self, most: int, sizes: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
        """Go through all rows once, at most so many at a time if batches of these sizes can be cut.

        With the number of rows.
        """

    def take(self, rows: RowNumbers) -> Any:
        """Make a batch of the rows with these numbers."""

    def with_targets(self, targets: Array, terms: SupervisedTerms) -> Self:
        """Replace the targets that these terms see."""


@dataclass(frozen=True, eq=False)
class BatchRows:
    """Rows of a program and batches.

    Attributes
    ----------
    program : Program
        Terms and their derivatives on one batch.
    batches : Batches
    sizes : tuple of int
        The number of rows in each batch.
    output_size : int
        Number of outputs of a row; 0 if they are not known.
    keep_graphs : bool
        Keep the products with a curvature, for the last theta and weights, between calls.
    counter : Counter
    cache : LastCache
        These products and the Gauss-Newton matrix, by theta and weights.
    """

    program: Program
    batches: Batches
    sizes: tuple[int, ...]
    output_size: int = 0
    keep_graphs: bool = False
    counter: Counter = field(default_factory=Counter)
    cache: LastCache = field(default_factory=LastCache, repr=False)

    symmetric = True

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def d(self) -> int:
        return int(self.functional.d)

    @property
    def functional(self) -> Any:
        """The model as a function of its flat parameters."""
        return self.program.functional

    @property
    def outputs(self) -> BatchOutputs | None:
        supervised = isinstance(self.program.row_terms, SupervisedTerms)
        return BatchOutputs(self) if supervised else None

    @property
    def passes(self) -> int:
        """Passes over all rows so far; a product with k vectors counts k times."""
        return self.counter.count

    @in_context
    def terms(self, theta: Array) -> Array:
        flat = self.functional.flat(theta)
        self.counter.count += 1
        parts = [self.run(self.program.terms, flat, batch) for batch in self.batches]
        return np.concatenate(parts, dtype=np.float64)

    @in_context
    def score(self, theta: Array, weights: Array) -> Array:
        self.counter.count += 1
        return self._slope(theta, self.weighted(weights))

    @in_context
    def batch_score(self, theta: Array, weights: Array, rows: NDArray[np.integer[Any]]) -> Array:
        return self._slope(theta, [self._taken(weights, rows)])

    @in_context
    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        return self.products(theta, weights, v, "hessian")

    @in_context
    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        flat, block = self.functional.flat(theta), self._block(v)
        self.counter.count += 1
        for rows, batch in zip(self.spans, self.batches, strict=True):
            found = self.program.product(self.program.along, flat, batch)(block)
            along = self.functional.numpy(found)[: v.shape[1]].T
            yield rows, along.astype(np.float64, copy=False)

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return sum_of_blocks(self, theta, v, reduce, *row_arrays)

    @in_context
    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "BatchRows":
        terms = self.program.row_terms
        if not isinstance(terms, SupervisedTerms):
            raise cannot_draw("the log-likelihood is a function of the parameters", self.n)
        flat = self.functional.flat(theta)
        self.counter.count += 1
        outputs = [self.run(self.program.outputs, flat, batch) for batch in self.batches]
        if len({array.shape[1:] for array in outputs}) > 1:
            raise cannot_draw("its batches have outputs of different shapes")
        drawn = terms.likelihood.redraw(
            np.concatenate(outputs), self.targets(), rng, weights.values
        )
        return self.changed(batches=self.batches.with_targets(drawn, terms))

    def tangent(self, theta: Array) -> "BatchRows | None":
        with self.functional.context():
            program = self.program.tangent(theta)
        if program is self.program:
            return self
        return None if program is None else self.changed(program=program)

    @property
    def running_averages(self) -> bool:
        return bool(self.functional.running_averages)

    def ascend(
        self,
        theta: Array,
        weights: Array,
        penalty: Penalty,
        bonus: Bonus | None,
        batches: Iterable[RowNumbers],
        optimizer: Any,
    ) -> Iterator[Array]:
        step = self.program.trainer(theta, optimizer, self.n)
        for rows in batches:

            def slope(point: Array, rows: RowNumbers = rows) -> Array:
                pull = penalty.score(point)
                return pull if bonus is None else pull - bonus(point, rows)

            with self.functional.context():
                data = self._taken(weights, rows)
            theta = step(*data, slope)
            if not np.all(np.isfinite(theta)):
                raise ConvergenceError(
                    "The stochastic training diverged: a parameter is NaN or infinite. Use a "
                    "smaller learning rate."
                )
            yield theta

    # For the outputs of these rows, and for what makes them; in the context.

    @property
    def spans(self) -> list[slice]:
        """The rows of each batch."""
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]

    def weighted(self, weights: Array) -> Iterator[Data]:
        """Go through the batches with the weights of their rows."""
        for rows, batch in zip(self.spans, self.batches, strict=True):
            yield batch, self.functional.flat(weights[rows])

    @in_context
    def targets(self) -> Array:
        """Targets of all rows, (n, ...)."""
        of = self.program.supervised.targets
        return np.concatenate([self.functional.numpy(of(batch)) for batch in self.batches])

    @in_context
    def inputs(self) -> Array:
        """Inputs of all rows, (n, p), where these are the first array of a batch."""
        parts = [self.functional.numpy(batch[0]) for batch in self.batches]
        return np.concatenate(parts, dtype=np.float64)

    def changed(self, **changes: Any) -> "BatchRows":
        """Replace some parts, with a cache of its own."""
        return replace(self, **changes, cache=LastCache())

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the program, for NumPy."""
        return self.functional.numpy(self.program.run(function, *arguments))

    def products(self, theta: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """A curvature times v, (d,) or (d, k): the sum over the batches."""
        columns = v.reshape(self.d, -1)
        block, total = self._block(columns), np.zeros(columns.shape[::-1], v.dtype)
        for product in self._curvatures(theta, weights, curvature):
            total += self.functional.numpy(product(block))[: len(total)]
        self.counter.count += len(total)
        return total.T.reshape(v.shape)

    def kept(self, theta: Array, weights: Array, name: str, make: Callable[[Array], Any]) -> Any:
        """Cache a result for the last theta, a copy, as its owner may change the original."""
        known = self.cache.holds((theta, weights), name)
        key = theta if known else theta.copy()
        return self.cache.get((key, weights), name, lambda: make(key))

    def _curvatures(self, theta: Array, weights: Array, curvature: Curvature) -> Iterable[Product]:
        """Curvature of every batch."""
        if not self.keep_graphs:
            return self._build(theta, weights, curvature)
        make = lambda point: list(self._build(point, weights, curvature))  # noqa: E731
        return cast(list[Product], self.kept(theta, weights, curvature, make))

    def _build(self, theta: Array, weights: Array, curvature: Curvature) -> Iterator[Product]:
        build = self.program.gauss_newton if curvature == "ggn" else self.program.hessian
        flat = self.functional.flat(theta)
        self.counter.count += self.keep_graphs  # forwards, once for all products
        for data in self.weighted(weights):
            yield self.program.product(build, flat, *data)

    def _slope(self, theta: Array, weighted: Iterable[Data]) -> Array:
        """Gradient of the weighted terms of batches."""
        flat, total = self.functional.flat(theta), np.zeros_like(theta)
        for data in weighted:
            total -= self.run(self.program.gradient, flat, *data)
        return total

    def _taken(self, weights: Array, rows: RowNumbers) -> Data:
        """Make a batch of some rows, with their weights."""
        return self.batches.take(rows), self.functional.flat(weights[rows])

    def _block(self, v: Array) -> Any:
        """Move the columns of v to the backend, as rows."""
        return self.program.block(v.T, self.sizes[0])
