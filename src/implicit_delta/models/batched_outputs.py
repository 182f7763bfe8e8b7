"""Outputs of a module or a pytree, batch by batch, and its Gauss-Newton matrix."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Gaussian, Likelihood, Poisson
from implicit_delta.models.curvature import gram, times
from implicit_delta.models.model import FittedModel
from implicit_delta.models.noise import Noise, estimated_noise
from implicit_delta.models.output_curvature import OutputCurvature, negligible_below
from implicit_delta.models.parametrization import Parametrization
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.program import Program, in_context
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import Whitened
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.batched import BatchRows

NO_BATCHING = (RuntimeError, NotImplementedError, ValueError, TypeError)  # errors of torch.vmap
DENSE_FROM = 32  # columns at once from which on forming the Gauss-Newton matrix is cheaper
JACOBIAN_BYTES = 2**26  # of the output Jacobians held at a time
# A part of the Gauss-Newton matrix saves most of the time of forming it, unless that is short, much
# is kept, or products for many columns or eigenvalues of many outputs take as long.
LONG = 1e10  # multiplications: a quarter of a second
PRODUCTS, OUTPUTS = 70, 50  # parameters for each column, and for each output
MOST_KEPT = 0.5  # of the eigenvalues
PASS_BYTES = 2**20  # of derivatives: a pass over fewer, such as one row, takes as long


@dataclass(frozen=True, eq=False)
class BatchOutputs:
    """Outputs of rows in batches, with a likelihood of their targets."""

    rows: "BatchRows"

    is_linear = False

    @property
    def size(self) -> int:
        return self.rows.output_size

    @property
    def program(self) -> Program:
        """Functions of a batch."""
        return self.rows.program

    @property
    def functional(self) -> Any:
        """The model as a function of its flat parameters."""
        return self.rows.functional

    @property
    def likelihood(self) -> Likelihood:
        return self.program.supervised.likelihood

    @property
    def pseudo(self) -> str:
        return self.likelihood.pseudo

    @property
    def can_be_overdispersed(self) -> bool:
        return isinstance(self.likelihood, Gaussian | Poisson)

    @in_context
    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        if v.ndim == 2 and v.shape[1] >= DENSE_FROM and self.rows.d <= GAUSS_NEWTON_LIMIT:
            return times(self.gauss_newton_matrix(theta, weights), v)
        return self.rows.products(theta, weights, v, "ggn")

    @in_context
    def gauss_newton_matrix(self, theta: Array, weights: Array) -> Array:
        """The whole Gauss-Newton matrix (d, d), kept for the last theta and weights."""
        make = lambda point: self._formed(point, weights)  # noqa: E731
        matrix: Array = self.rows.kept(theta, weights, "matrix", make)
        return matrix

    @in_context
    def gauss_newton_part(self, theta: Array, weights: Array, columns: int) -> Array | None:
        """Leave out directions in which the outputs hardly have any curvature."""
        few = columns < DENSE_FROM and columns * PRODUCTS <= self.rows.d
        known = self.rows.cache.holds((theta, weights), "matrix")
        if not few or known or not self._is_worth_splitting():
            return None
        with contextlib.suppress(*NO_BATCHING):
            return self._formed_part(theta, weights, columns)
        return None

    @in_context
    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        r"""Draw :math:`\sum_i \sqrt{w_i} J_i' S_i \epsilon_i`."""
        flat, total = self.functional.flat(theta), np.zeros((count, self.rows.d))
        for size, data in zip(self.rows.sizes, self.rows.weighted(weights), strict=True):
            outputs = size * self.program.output_size(flat, data[0])
            noise = self.program.block(rng.standard_normal((count, outputs)), size)
            pulled = self.program.product(self.program.noise, flat, *data)(noise)
            total += self.functional.numpy(pulled)[:count]
        self.rows.counter.count += count
        return np.asarray(total.T)

    @in_context
    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        most = max(1, JACOBIAN_BYTES // (8 * self.size * v.shape[1]))
        self.rows.counter.count += 1
        for batch, size in self.rows.batches.split(most, self.rows.sizes):
            yield self._whitened(theta, batch, size, v)

    def with_likelihood(self, likelihood: Any) -> "BatchRows":
        terms = replace(self.program.supervised, likelihood=likelihood)
        return self.rows.changed(program=replace(self.program, row_terms=terms))

    def estimated_noise(
        self,
        theta: Array,
        weights: Weights,
        penalty: Penalty,
        rule: Any,
        chart: Parametrization | None = None,
    ) -> Noise:
        """Estimate the variance; of a chart, its coordinates alone count as parameters."""
        unit = self.with_likelihood(Gaussian(rule))  # whose terms take the variance to be 1
        rows = unit if chart is None else Restricted(unit, chart)
        z = theta if chart is None else chart.coordinates(theta)

        def gauss_newton() -> Array:
            matrix = BatchOutputs(unit).gauss_newton_matrix(theta, weights.values)
            if chart is not None:  # unit directions at right angles, for the ridge
                along = np.linalg.qr(chart.push(theta, np.eye(chart.size)))[0]
                matrix = along.T @ matrix @ along
            return matrix + penalty.floor * np.eye(z.size)

        targets = self.rows.targets().reshape(-1, self.size).astype(np.float64)
        known = None if penalty.functions else gauss_newton
        model = FittedModel(z, rows, weights, penalty)
        return estimated_noise(Gaussian(rule), model, targets, known)

    def _whitened(self, theta: Array, batch: Any, size: int, v: Array) -> Whitened:
        """Whiten a batch in NumPy, in double precision: the likelihoods are the same there."""
        flat, likelihood = self.functional.flat(theta), self.likelihood
        outputs = np.asarray(self.rows.run(self.program.outputs, flat, batch), dtype=np.float64)
        targets = np.asarray(self.functional.numpy(self.program.supervised.targets(batch)))
        rows = self._by_factors(flat, batch, size, v)
        if rows is None:
            product = self.program.product(self.program.tangents, flat, batch)
            moved = self.functional.numpy(product(self.program.block(v.T, size)))[: v.shape[1]]
            root = np.asarray(likelihood.root(outputs)(moved.astype(np.float64, copy=False)))
            root = root * np.sqrt(likelihood.mass(outputs, targets))
            rows = np.moveaxis(root.reshape(v.shape[1], size, -1), 0, -1)
        return Whitened(
            rows,
            likelihood.residual(outputs, targets).reshape(size, -1),
            likelihood.spread(outputs).reshape(size, -1),
        )

    def _by_factors(self, flat: Any, batch: Any, size: int, v: Array) -> Array | None:
        """Whitened rows times as many columns as parameters, (b, p, k): a pass for each output."""
        if not self.size <= self.rows.d <= v.shape[1]:
            return None
        with contextlib.suppress(*NO_BATCHING), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # and still a gain
            ones = self.functional.flat(np.ones(size))
            factors = self.rows.run(self.program.factors, flat, batch, ones)
            return np.asarray((factors.astype(np.float64) @ v).reshape(size, -1, v.shape[1]))
        return None

    def _formed(self, theta: Array, weights: Array) -> Array:
        """Gauss-Newton matrix from factors, or from products where columns are better.

        These are fewer than backward passes, or torch cannot batch some operation.
        """
        flat = self.functional.flat(theta)
        self.rows.counter.count += 1
        ways = [self.program.factors] if self.size <= self.rows.d else []
        if ways and self._by_row_is_faster():
            ways.append(self.program.factors_by_row)
        for way in ways:
            with contextlib.suppress(*NO_BATCHING):
                return gram(self._factors(flat, weights, way), self.rows.d)
        return self.rows.products(theta, weights, np.eye(self.rows.d), "ggn")

    def _by_row_is_faster(self) -> bool:
        """Compare a pass forth and back for each row with one over all rows for each column."""
        row = self.program.row_bytes
        by_row = self.rows.n * max(PASS_BYTES, (1 + self.size) * row)
        return by_row < self.rows.d * max(PASS_BYTES, self.rows.n * row)

    def _factors(self, flat: Any, weights: Array, way: Callable[..., Any]) -> Iterator[Array]:
        """Factors of the Gauss-Newton matrix, of as many rows at a time as fit into memory."""
        for batch, rows in self._split():
            factors = self.rows.run(way, flat, batch, self.functional.flat(weights[rows]))
            yield factors.astype(np.float64, copy=False)

    def _split(self) -> Iterator[tuple[Any, slice]]:
        """Batches, with the numbers of their rows, of which the Jacobians fit into memory."""
        most, stop = max(1, JACOBIAN_BYTES // (8 * self.size * self.rows.d)), 0
        for batch, size in self.rows.batches.split(most, self.rows.sizes):
            start, stop = stop, stop + size
            yield batch, slice(start, stop)

    def _is_worth_splitting(self) -> bool:
        """Whether a part of the Gauss-Newton matrix is worth a look: it takes long, outputs little.

        Rounding in single precision would show in what makes up for the rest.
        """
        d = self.rows.d
        small = OUTPUTS * self.size <= d <= GAUSS_NEWTON_LIMIT
        double = self.functional.kind == "float64"
        return double and small and self.rows.n * self.size * d**2 >= LONG

    def _formed_part(self, theta: Array, weights: Array, columns: int) -> Array | None:
        flat = self.functional.flat(theta)
        self.rows.counter.count += 1
        curvatures = self._output_curvatures(flat, weights)
        values = np.concatenate([curved.values for _, curved in curvatures])
        cut = negligible_below(values, columns)
        if np.mean(values > cut) > MOST_KEPT:
            return None
        return gram(self._factors_above(flat, weights, cut), self.rows.d)

    def _factors_above(self, flat: Any, weights: Array, cut: float) -> Iterator[Array]:
        """Factors of the Gauss-Newton matrix for larger eigenvalues of the outputs' curvature."""
        for batch, curved in self._output_curvatures(flat, weights):
            rows, roots = curved.above(cut)
            taken = self.program.calculus.map(lambda leaf, rows=rows: leaf[rows], batch)
            yield self.rows.run(self.program.pulled, flat, taken, self.functional.flat(roots))

    def _output_curvatures(
        self, flat: Any, weights: Array
    ) -> Iterator[tuple[Any, OutputCurvature]]:
        terms = self.program.supervised
        for batch, rows in self._split():
            outputs = np.asarray(self.rows.run(self.program.outputs, flat, batch), np.float64)
            if any(len(leaf) != len(outputs) for leaf in self.program.calculus.leaves(batch)):
                raise ValueError("Some array of a batch has not a row for each observation.")
            targets = np.asarray(self.functional.numpy(terms.targets(batch)))
            yield batch, OutputCurvature.of(terms.likelihood, outputs, targets, weights[rows])
