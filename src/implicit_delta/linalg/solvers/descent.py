"""Conjugate-gradient iteration over the columns of a block."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.solvers.base import Operator, check_finite
from implicit_delta.linalg.solvers.basis import Basis
from implicit_delta.linalg.solvers.factor import flat_along

CHUNK = 2**16  # numbers updated at a time
ROUNDING = float(np.finfo(float).eps)
FLAT = 1e-14  # of the largest curvature met; below is rounding

# How this differs from the textbook (Golub & Van Loan, section 11.3), and why:
# - It stops on bounds of b' A^-1 b (Golub & Meurant 2010), not on the residual, which on
#   ill-conditioned problems stops orders of magnitude too early or goes on for nothing.
# - The upper bound is Gauss-Radau quadrature with a node mu below all eigenvalues, by the
#   recurrence of Meurant & Tichy (2013), where such a mu is known. Where it has to be guessed it
#   changes on the way, and the simpler bound of Meurant & Tichy (2019) serves, which bounds the
#   former and costs at most 7 % more iterations in our trials.
# - All columns share the calls of the operator, and a column that has finished leaves the block
#   by trading places with the last, from where it may come back: nothing of length d is allocated
#   after the start, apart from what the operator and the preconditioner return. Updates run over
#   chunks for the same reason.
# - Vectors stay in single precision if b is; their inner products are summed in double precision.
# - The residual is never recomputed from x. The bounds rest on the recurrence, which stays
#   meaningful where orthogonality is lost (Strakos & Tichy 2002).
# - Residuals are made orthogonal to the first ones again, as many as fit in memory: two thirds of
#   the steps, or half in single precision. Residuals of a preconditioned iteration are left.
# - Off the diagonal, b_j' A^-1 b_k = b_j' x_k + x_j' r_k + r_j' A^-1 r_k; keeping the second term
#   makes the error a product of two small numbers, where b_j' x_k alone would be off by one.


class Descent:
    """Conjugate gradients; per-column numbers are (K,) in the order of b, vectors are rows.

    Row i of ``residuals`` and ``searches`` belongs to column ``order[i]``; the first rows, those of
    the ``active`` columns, are still being iterated. A curvature below ``flat`` times the largest
    so far counts as zero. Of every column as many residuals as ``kept`` are stored.
    """

    def __init__(
        self,
        operator: Operator,
        b: Array,
        preconditioner: Operator | None = None,
        flat: float = FLAT,
        kept: int = 0,
    ) -> None:
        self.operator, self.preconditioner, self.flat = operator, preconditioner, flat
        d, K = b.shape
        self.type: Any = np.float32 if b.dtype == np.float32 else np.float64
        self.x: Array = np.zeros((K, d), dtype=self.type)
        self.residuals: Array = np.array(b.T, dtype=self.type, order="C")
        self.bases = [Basis(0 if preconditioner else kept, d, self.type) for _ in range(K)]
        self.order = np.arange(K)
        self.searches = np.array(self._precondition(self.residuals), order="C")
        self.size = self._sizes(self.residuals, self.searches)
        self.first_size = self.size.copy()
        self.lower = np.zeros(K)
        self.shrinkage = np.ones(K)  # |r_k|^2 / |p_k|^2
        self.lengths: list[list[float]] = [[] for _ in range(K)]
        self.ratios: list[list[float]] = [[] for _ in range(K)]
        self.smallest_curvature, self.largest_curvature = math.inf, 0.0
        self.iterations = self.products = 0
        self.active = self.order
        self.retire(self.size == 0)

    def step(self, operator: Operator | None = None) -> None:
        """Take one step in every active column; a passenger may have its own way to apply A."""
        active, rows = self.active, slice(self.active.size)
        searches, residuals = self.searches[rows], self.residuals[rows]
        for column, residual in zip(active, residuals, strict=True):
            self.bases[column].append(residual, math.sqrt(self.size[column]))
        images = np.asarray((operator or self.operator)(searches.T), dtype=self.type).T
        length = self.size[active] / self._curvatures(searches, images)
        _add(self.x, active, length, searches)
        _add(self.residuals, rows, -length, images)
        del images
        for column, residual in zip(active, residuals, strict=True):
            self.bases[column].clean(residual)
        self.lower[active] += length * self.size[active]
        preconditioned = self._precondition(residuals)
        size = self._sizes(residuals, preconditioned)
        ratio = size / self.size[active]
        searches *= ratio[:, None]
        searches += preconditioned
        self.size[active] = size
        self.shrinkage[active] /= self.shrinkage[active] + ratio
        self.iterations += 1
        self.products += active.size
        for column, gamma, delta in zip(active, length, ratio, strict=True):
            self.lengths[column].append(float(gamma))
            self.ratios[column].append(float(delta))

    def at_rounding(self) -> NDArray[np.bool_]:
        """Whether the residual of each column has no correct digit left, (K,)."""
        rounding = float(np.finfo(self.type).eps)
        return np.asarray(self.size <= rounding**2 * self.first_size)

    def retire(self, finished: NDArray[np.bool_]) -> None:
        """Move the rows of finished columns behind those of all others, which become active."""
        last = self.order.size
        for row in reversed(range(last)):
            if finished[self.order[row]]:
                last -= 1
                _swap(self.residuals, row, last)
                _swap(self.searches, row, last)
                self.order[[row, last]] = self.order[[last, row]]
        self.active = self.order[:last].copy()

    def spectrum(self, column: int) -> tuple[Array, Array]:
        """Ritz values of A in the space searched for a column, and their shares of b' A^-1 b."""
        inverse, ratios = 1.0 / np.array(self.lengths[column]), np.array(self.ratios[column][:-1])
        diagonal = inverse.copy()
        diagonal[1:] += ratios * inverse[:-1]
        values, vectors = eigh_tridiagonal(diagonal, np.sqrt(ratios) * inverse[:-1])
        shares = vectors[0] ** 2 / values
        return values, shares / shares.sum()

    def flat_along(self, directions: Array, curvatures: Array) -> NotAMaximumError:
        """Describe the flattest of some directions, (k, d), by the parameters that dominate it."""
        k = int(np.argmin(curvatures))
        direction = directions[k] / np.linalg.norm(directions[k])
        return flat_along(np.ones(direction.size), direction, float(curvatures[k]))

    def _precondition(self, rows: Array) -> Array:
        if self.preconditioner is None:
            return rows
        return np.asarray(self.preconditioner(rows.T), dtype=self.type).T

    def _sizes(self, residuals: Array, preconditioned: Array) -> Array:
        sizes = _dots(residuals, preconditioned)
        if self.preconditioner is not None and (sizes < 0).any():
            raise ValueError("The preconditioner is not positive definite: r' M^-1 r < 0.")
        check_finite(sizes)
        return sizes

    def _curvatures(self, searches: Array, images: Array) -> Array:
        """Return p' A p if it is finite and positive."""
        products = _dots(searches, images)
        curvatures = products / _dots(searches, searches)
        check_finite(curvatures)
        smallest, largest = float(curvatures.min()), float(np.abs(curvatures).max())
        self.smallest_curvature = min(self.smallest_curvature, smallest)
        self.largest_curvature = max(self.largest_curvature, largest)
        if abs(smallest) <= self.flat * self.largest_curvature:
            raise self.flat_along(searches, curvatures)
        if smallest < 0:
            raise NotAMaximumError.saddle(smallest)
        return products


def _chunks(rows: int, d: int) -> Iterator[slice]:
    width = max(1, CHUNK // max(rows, 1))
    return (slice(first, first + width) for first in range(0, d, width))


def _dots(a: Array, b: Array) -> Array:
    total = np.zeros(a.shape[0])
    for part in _chunks(*a.shape):
        total += np.einsum("kd,kd->k", a[:, part], b[:, part], dtype=np.float64)
    return total


def _add(target: Array, rows: slice | NDArray[np.int_], weights: Array, source: Array) -> None:
    for part in _chunks(*source.shape):
        target[rows, part] += weights[:, None] * source[:, part]


def _swap(rows: Array, i: int, j: int) -> None:
    for part in _chunks(1, rows.shape[1]) if i != j else ():
        rows[[i, j], part] = rows[[j, i], part]
