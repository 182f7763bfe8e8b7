"""The fitted model of a pytree of JAX parameters."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar, cast

import jax
import numpy as np
from scipy.linalg.blas import dsyrk

from implicit_delta._core.arguments import Counter, as_parameters, as_weights
from implicit_delta._core.cache import LastCache
from implicit_delta._core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.base import Bonus, Curvature, FittedModel, RowNumbers
from implicit_delta.models.jax import checks as checks
from implicit_delta.models.jax.data import Batches, arrays_of
from implicit_delta.models.jax.evaluation import Evaluator
from implicit_delta.models.jax.graph import Compiled, Program
from implicit_delta.models.jax.module import Functional, separate
from implicit_delta.models.jax.terms import Supervised, terms_of
from implicit_delta.models.jax.training import train
from implicit_delta.models.module_checks import NO_OUTPUTS, check_numbers
from implicit_delta.models.noise import with_variance

DENSE_FROM = 32  # columns asked for at once from which on forming it is cheaper
BATCH_BYTES = 2**28  # what the second derivatives of one batch may keep
JACOBIAN_BYTES = 2**26  # of the output Jacobians held at a time
ROWS_AT_ONCE = 16_384  # rows times vectors in one product; more are slower, not faster

F = TypeVar("F", bound=Callable[..., Any])


def make(
    params: Any,
    data: Any,
    likelihood: Any,
    *,
    apply: Callable[..., Any] | None,
    l2: float,
    penalty: Callable[[Any], Any] | None,
    batch_size: int | None,
    weights: Any,
    dtype: Any,
) -> "JaxModel":
    """Check and convert what a user gave; see `from_jax`."""
    check_numbers(l2, batch_size)
    terms = terms_of(params, likelihood, apply)
    functional, theta = separate(params, dtype)
    program = Program(functional, terms, penalty)
    with functional.precision():
        flat = functional.flat(theta)
        arrays, n = arrays_of(data, functional.dtype)
        checks.check_shapes(program, flat, arrays, n)
        cost = checks.row_bytes(program, flat, Batches(arrays, n, n))
        batches = Batches(arrays, n, batch_size or max(1, BATCH_BYTES // cost))
        checks.check_terms(program, flat, batches)
        if penalty is not None:
            checks.check_penalty(program, flat)
    model = JaxModel(
        program=program,
        evaluator=Evaluator(functional),
        batches=batches,
        theta=theta,
        weights=as_weights(weights, n),
        l2=float(l2),
        names=functional.names,
    )
    return _with_noise(model)


def _precise(method: F) -> F:
    """Run a method in the model's own precision."""

    @wraps(method)
    def precise(self: "JaxModel", *args: Any, **kwargs: Any) -> Any:
        with self.functional.precision():
            return method(self, *args, **kwargs)

    return cast(F, precise)


@dataclass(frozen=True, eq=False, repr=False)
class JaxModel(FittedModel):
    """A pytree of parameters at its maximum; made by `from_jax`."""

    program: Program
    evaluator: Evaluator
    batches: Batches
    theta: Array
    weights: Array
    l2: float = 0.0
    names: tuple[str, ...] | None = None
    counter: Counter = field(default_factory=Counter)
    _last: LastCache = field(init=False, default_factory=LastCache)

    @property
    def passes(self) -> int:
        """How many times all rows were visited; a product with k vectors counts k times."""
        return self.counter.count

    @property
    def functional(self) -> Functional:
        """The pytree without its parameters."""
        return self.program.functional

    @property
    def params(self) -> Any:
        """The pytree with theta as its parameters, in the working type."""
        with self.functional.precision():
            return self.functional.tree(self.functional.flat(self.theta))

    @_precise
    def terms(self, theta: Array) -> Array:
        """Log-likelihood of each row, (n,)."""
        flat = self.functional.flat(theta)
        self.counter.count += 1
        parts = [np.asarray(self.program.terms(flat, batch)) for batch in self.batches]
        return np.concatenate(parts).astype(np.float64)

    @_precise
    def objective(self, theta: Array) -> float:
        """L: the weighted sum of the terms less the penalty."""
        value = float(self.weights @ self.terms(theta)) - self.l2 / 2 * float(theta @ theta)
        if self.program.penalty is None:
            return value
        return value - float(self.program.penalty_value(self.functional.flat(theta)))

    @_precise
    def score(self, theta: Array) -> Array:
        """Gradient of L, (d,)."""
        flat, total = self.functional.flat(theta), -self.l2 * theta
        self.counter.count += 1
        for batch, weights in self._weighted():
            total += np.asarray(self.program.gradient(flat, batch, weights))
        if self.program.penalty is not None:
            total -= np.asarray(self.program.penalty_gradient(flat))
        return total

    @_precise
    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        """Minus the Hessian of L (or its Gauss-Newton part) times v, by batches."""
        if curvature == "ggn" and not isinstance(self.program.row_terms, Supervised):
            raise UnsupportedModelError(NO_OUTPUTS)
        block = v.reshape(self.d, -1)
        if curvature == "ggn" and block.shape[1] >= DENSE_FROM and self.d <= GAUSS_NEWTON_LIMIT:
            return np.asarray(self.gauss_newton_matrix(theta) @ v)
        return self._products(theta, block, curvature).reshape(v.shape)

    @_precise
    def gauss_newton_matrix(self, theta: Array) -> Array:
        """The whole Gauss-Newton matrix (d, d), kept for the last theta."""
        matrix: Array = self._last.get(theta.copy(), "matrix", lambda: self._form(theta))
        return matrix

    @_precise
    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along each column of v, (n, k)."""
        flat = self.functional.flat(theta)
        self.counter.count += 1
        parts = [self._blocks(self.program.along, flat, v.T, batch) for batch in self.batches]
        return np.concatenate(parts, axis=1).T

    @_precise
    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi of the pytree with theta as its parameters."""
        return self.evaluator.value(psi, theta, np.array_equal(theta, self.theta))

    @_precise
    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Jacobian of psi by automatic differentiation, (K, d)."""
        return self.evaluator.jacobian(psi, theta, np.array_equal(theta, self.theta))

    def reweighted(self, weights: Array) -> "JaxModel":
        """Build the same model with other weights."""
        return replace(self, weights=as_weights(weights, self.n))

    def at(self, theta: Array) -> "JaxModel":
        """Build the same model at another theta, with the same noise variance."""
        return replace(self, theta=as_parameters(theta))

    @_precise
    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        """Estimate the score from a batch of rows, (d,)."""
        flat = self.functional.flat(theta)
        batch = jax.tree_util.tree_map(lambda array: array[rows], self.batches.arrays)
        weights = self.functional.flat(self.weights[rows] * (self.n / len(rows)))
        total = np.asarray(self.program.gradient(flat, batch, weights)) - self.l2 * theta
        if self.program.penalty is not None:
            total -= np.asarray(self.program.penalty_gradient(flat))
        return total

    def ascend(
        self, bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
    ) -> Iterator[Array]:
        """Yield theta after each step of an optax optimizer, or of a rate."""
        return train(self, bonus, batches, optimizer)

    def __repr__(self) -> str:
        """Name the sizes and the likelihood, without the numbers."""
        terms = self.program.row_terms
        what = terms.likelihood if isinstance(terms, Supervised) else terms.name
        penalty = f"l2={self.l2:g}" + (", penalty" if self.program.penalty else "")
        return f"JaxModel(n={self.n}, d={self.d}, {what}, {penalty}, {self.functional.dtype})"

    def _weighted(self) -> Iterator[tuple[Any, jax.Array]]:
        """Go through the batches with the weights of their rows."""
        for (start, stop), batch in zip(self.batches.bounds, self.batches, strict=True):
            yield batch, self.functional.flat(self.weights[start:stop])

    def _products(self, theta: Array, block: Array, curvature: Curvature) -> Array:
        """The curvature times the columns of (d, k), one batch after the other."""
        flat, rows = self.functional.flat(theta), block.T
        product = self.program.gauss_newton if curvature == "ggn" else self.program.hessian
        total = self.l2 * rows
        for batch, weights in self._weighted():
            total += self._blocks(product, flat, rows, batch, weights)
        if self.program.penalty is not None:
            total += self._blocks(self.program.penalty_hessian, flat, rows)
        self.counter.count += block.shape[1]
        return np.asarray(total.T)

    def _blocks(self, product: Compiled, flat: jax.Array, rows: Array, *batch: Any) -> Array:
        """Apply a product to the rows of (k, d), some at a time.

        Their number is padded with zeros to a power of two, to compile for few different numbers.
        """
        most = max(1, ROWS_AT_ONCE // self.batches.bounds[0][1])
        width = min(1 << (len(rows) - 1).bit_length(), 1 << (most.bit_length() - 1))
        padded = np.zeros((-(-len(rows) // width) * width, self.d))
        padded[: len(rows)] = rows
        parts = [
            np.asarray(product(flat, self.functional.flat(padded[i : i + width]), *batch))
            for i in range(0, len(padded), width)
        ]
        return np.concatenate(parts)[: len(rows)].astype(np.float64)

    def _form(self, theta: Array) -> Array:
        """Form the matrix as U'U from the Jacobians of rows."""
        flat, matrix = self.functional.flat(theta), np.zeros((self.d, self.d), order="F")
        self.counter.count += 1
        for start, stop in replace(self.batches, batch_size=self._chunk(flat)).bounds:
            batch = self.batches.slice(start, stop)
            weights = self.functional.flat(self.weights[start:stop])
            U = np.asarray(self.program.factors(flat, batch, weights), dtype=np.float64)
            matrix = dsyrk(1.0, U.T, beta=1.0, c=matrix, overwrite_c=True, lower=True)
        matrix = np.tril(matrix) + np.tril(matrix, -1).T + self.l2 * np.eye(self.d)
        if self.program.penalty is not None:
            matrix += self._blocks(self.program.penalty_hessian, flat, np.eye(self.d))
        return matrix

    def _chunk(self, flat: jax.Array) -> int:
        """How many rows' Jacobians fit into memory."""
        return max(1, JACOBIAN_BYTES // (8 * self._outputs(flat) * self.d))

    def _outputs(self, flat: jax.Array) -> int:
        """How many outputs a row has."""
        shape = jax.eval_shape(self.program.outputs, flat, self.batches.arrays).shape
        return int(np.prod(shape[1:]))


def _with_noise(model: JaxModel) -> JaxModel:
    """Plug in the noise variance of a Gaussian likelihood that left it open."""
    terms = model.program.row_terms
    if not isinstance(terms, Supervised) or not isinstance(terms.likelihood, Gaussian):
        return model
    if isinstance(terms.likelihood.variance, float):
        return model
    with model.functional.precision():
        outputs = model._outputs(model.functional.flat(model.theta))
    matrix = None if model.program.penalty else lambda: model.gauss_newton_matrix(model.theta)
    filled = with_variance(terms.likelihood, model, outputs, matrix)
    program = replace(model.program, row_terms=replace(terms, likelihood=filled))
    return replace(model, program=program)
