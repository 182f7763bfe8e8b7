r"""The Lanczos recurrence over a block of columns: the one loop that reads a matrix by products.

A step of a column extends its Krylov space by one vector, and the tridiagonal T = V'AV by one row.
From T come bounds on b' A^-1 b, the smallest curvature, traces and draws; from the same vectors the
solution. The recurrence is written in its coupled two-term form, which is conjugate gradients on
unit residuals v:

    u = v - A p / p'Ap,   delta = u'u,   v <- u / sqrt(delta),   p <- v + sqrt(delta) p.

How it differs from the textbook (Golub & Van Loan, section 11.3), and why:

- All columns share the calls of the operator. A column that has finished leaves the block by
  trading places with the last, from where it may come back. After the start nothing of length d is
  allocated, apart from what the operator and the preconditioner return.
- A column that is not solved for (a probe) iterates A + s with s the mean curvature that it met
  first. The Krylov space is the same, T is that of A plus s, and directions along which A is flat
  or slightly negative by rounding divide nothing by zero.
- Vectors stay in single precision if b is; their inner products are summed in double precision.
- The residual is never recomputed from x: the recurrence stays meaningful where orthogonality is
  lost (Strakos & Tichy 2002).
- Vectors are made orthogonal to the first ones again, as many as fit in memory: two thirds of the
  steps, or half in single precision. Those of a preconditioned iteration are left.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal, eigvalsh_tridiagonal

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.linalg.arrays import Operator, check_finite, flat_along, ratio

CHUNK = 2**16  # numbers updated at a time
FLAT = 1e-14  # of the largest curvature met: below is rounding
COMPLETE = 100.0  # roundings of the largest curvature: what remains would point anywhere
MEMORY = 2**28  # bytes of all vectors kept, by default
TOGETHER = 16  # rows of a basis allocated at a time
FEWEST = 8  # vectors that save as much as they cost
CHECK_EVERY = 5  # steps of a root between two checks of convergence


class Krylov:
    """Krylov spaces of some columns; per-column numbers are in the order of b, then the probes.

    Row i of ``vectors`` and ``searches`` belongs to column ``order[i]``; the first rows, those of
    the ``active`` columns, are still being iterated.

    Parameters
    ----------
    operator, preconditioner : callable
        Apply A, symmetric, and about its inverse to a block (d, k).
    b : array (d, K), optional
        Columns to solve for: their ``x`` is updated, (K, d), and a curvature that is negative, or
        below ``flat`` times the largest so far, raises NotAMaximumError.
    probes : array (d, P), optional
        Columns of which only T is of interest. Their ``noise`` is the rounding in products, as far
        as the symmetry of A shows it.
    kept : int
        Vectors of each column that are stored.

    Attributes
    ----------
    size, first_size, lower, shrinkage : array (K + P,)
        Squared length of the residual, now and at the start, a lower bound of ``b' A^-1 b``, and
        ``|v|^2 / |p|^2``.
    lengths, ratios : list of lists
        The inverse pivots of T + s, and the squared ratios of successive residuals.

    Examples
    --------
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> krylov = Krylov(lambda v: A @ v, np.ones((3, 1)))
    >>> for _ in range(3):
    ...     krylov.step()
    >>> krylov.x.round(6), krylov.spectrum(0)[0].round(6)
    (array([[1.  , 0.5 , 0.25]]), array([1., 2., 4.]))
    """

    def __init__(
        self,
        operator: Operator,
        b: Array | None = None,
        probes: Array | None = None,
        *,
        preconditioner: Operator | None = None,
        flat: float = FLAT,
        kept: int = 0,
    ) -> None:
        self.operator, self.preconditioner, self.flat = operator, preconditioner, flat
        blocks = [block.T for block in (b, probes) if block is not None]
        self.solved, count = 0 if b is None else len(blocks[0]), sum(map(len, blocks))
        self.type: Any = np.float32 if blocks[0].dtype == np.float32 else np.float64
        self.vectors: Array = np.concatenate(blocks, dtype=self.type, casting="same_kind")
        self.x: Array = np.zeros((self.solved, self.vectors.shape[1]), dtype=self.type)
        self.bases = [Basis(0 if preconditioner else kept, self.vectors) for _ in range(count)]
        ahead = self._precondition(self.vectors)
        self.size = self._sizes(self.vectors, ahead)
        self.first_size, scale = self.size.copy(), ratio(1.0, np.sqrt(self.size))[:, None]
        self.searches: Array = np.multiply(ahead, scale, dtype=self.type, order="C")
        self.vectors *= scale
        self.lower, self.shift, self.noise, self.largest = np.zeros((4, count))
        self.shrinkage = np.ones(count)
        self.lengths: list[list[float]] = [[] for _ in range(count)]
        self.ratios: list[list[float]] = [[] for _ in range(count)]
        self.smallest_curvature, self.largest_curvature = math.inf, 0.0
        self.iterations = self.products = 0
        self.order, self.ended = np.arange(count), self.size == 0
        self.retire(self.ended)

    @property
    def running(self) -> NDArray[np.int_]:
        """The active columns that are solved for."""
        return self.active[self.active < self.solved]

    def step(self) -> None:
        """Take one step in every active column, in one call of the operator."""
        active, rows = self.active, slice(self.active.size)
        vectors, searches = self.vectors[rows], self.searches[rows]
        for column, vector in zip(active, vectors, strict=True):
            self.bases[column].append(vector)
        images = np.asarray(self.operator(searches.T), dtype=self.type).T
        length = 1 / self._pivots(active, vectors, searches, images)
        solving = active < self.solved
        rows_of_b, probes = np.flatnonzero(solving), np.flatnonzero(~solving)
        weights = np.sqrt(self.size[active]) * length
        _add(self.x, active[rows_of_b], weights[rows_of_b], searches, rows_of_b)
        _add(vectors, rows, -length, images, rows)
        _add(vectors, probes, -(length * self.shift[active])[probes], searches, probes)
        del images
        for column, vector in zip(active, vectors, strict=True):
            self.bases[column].clean(vector)
        self._advance(active, length, vectors, searches)
        self.iterations += 1
        self.products += active.size

    def retire(self, finished: NDArray[np.bool_]) -> None:
        """Move the rows of finished columns behind those of all others, which become active."""
        self.finished = finished | self.ended
        last = self.order.size
        for row in reversed(range(last)):
            if self.finished[self.order[row]]:
                last -= 1
                _swap(self.vectors, row, last)
                _swap(self.searches, row, last)
                self.order[[row, last]] = self.order[[last, row]]
        self.active = self.order[:last].copy()

    def vector(self, column: int) -> Array:
        """Return the newest vector of a column, (d,)."""
        return np.asarray(self.vectors[np.flatnonzero(self.order == column)[0]])

    def residuals(self) -> Array:
        """Return the residuals of the columns that are solved for, (K, d), in new memory."""
        rows = np.argsort(self.order)[: self.solved]
        return np.asarray(self.vectors[rows] * np.sqrt(self.size[: self.solved, None]))

    def residual_products(self) -> Array:
        """Multiply solutions and residuals, (K, K)."""
        products = (self.x @ self.vectors.T)[:, np.argsort(self.order)[: self.solved]]
        return np.asarray(products * np.sqrt(self.size[: self.solved]))

    def tridiagonal(self, column: int) -> tuple[Array, Array]:
        """Diagonal of T, and what is beside it; the last of these leads out of the space."""
        inverse, ratios = 1 / np.array(self.lengths[column]), np.array(self.ratios[column])
        diagonal = inverse - self.shift[column]
        diagonal[1:] += ratios[:-1] * inverse[:-1]
        return diagonal, np.sqrt(ratios) * inverse

    def spectrum(self, column: int) -> tuple[Array, Array]:
        """Eigenvalues (Ritz values of A) and eigenvectors of T."""
        diagonal, beside = self.tridiagonal(column)
        try:
            values, vectors = eigh_tridiagonal(diagonal, beside[:-1])
        except np.linalg.LinAlgError:  # of some LAPACKs, where QL does not fail
            values, vectors = eigh_tridiagonal(diagonal, beside[:-1], lapack_driver="stev")
        return values, vectors

    def ritz(self, column: int, k: int = 0) -> float:
        """Return the k-th Ritz value in ascending order; -1 is the largest."""
        diagonal, beside = self.tridiagonal(column)
        k %= diagonal.size
        picked = {"select": "i", "select_range": (k, k)}
        return float(eigvalsh_tridiagonal(diagonal, beside[:-1], **picked)[0])

    def flat_along(self, directions: Array, curvatures: Array) -> NotAMaximumError:
        """Describe the flattest of some directions, (k, d), by the parameters that dominate it."""
        k = int(np.argmin(curvatures))
        return flat_along(directions[k], float(curvatures[k]))

    def _advance(
        self, active: NDArray[np.int_], length: Array, vectors: Array, searches: Array
    ) -> None:
        """Scale the new residuals to unit vectors, and take the next search directions."""
        ahead, rounding = self._precondition(vectors), float(np.finfo(self.type).eps)
        shrunk, solving = self._sizes(vectors, ahead), active < self.solved
        self.largest[active] = np.maximum(self.largest[active], 1 / length)
        least = COMPLETE * rounding * self.largest[active] * length
        shrunk[~solving & (np.sqrt(shrunk) <= least)] = 0.0
        root = np.sqrt(shrunk)
        scale = ratio(1.0, root)[:, None]
        vectors *= scale
        searches *= root[:, None]
        searches += vectors if ahead is vectors else ahead * scale
        self.lower[active] += length * self.size[active]
        self.size[active] *= shrunk
        self.shrinkage[active] /= self.shrinkage[active] + shrunk
        for column, gamma, delta in zip(active, length, shrunk, strict=True):
            self.lengths[column].append(float(gamma))
            self.ratios[column].append(float(delta))
        at_rounding = self.size[active] <= rounding**2 * self.first_size[active]
        self.ended[active] = np.where(solving, at_rounding, shrunk == 0)
        if self.ended[active].any():
            self.retire(self.finished)

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

    def _pivots(
        self, active: NDArray[np.int_], vectors: Array, searches: Array, images: Array
    ) -> Array:
        """Return p' (A + s) p if it is finite and positive."""
        squares, products = _dots(searches, searches), _dots(searches, images)
        curvatures, solving = products / squares, active < self.solved
        check_finite(curvatures)
        if solving.any():
            self._check(searches, np.where(solving, curvatures, np.inf))
        if solving.all():
            return products
        if self.iterations == 0:
            self.shift[active[~solving]] = np.abs(curvatures[~solving])
        shift = self.shift[active]
        pivots = products + shift * squares
        if pivots.min() <= 0:
            raise NotAMaximumError.saddle(float(curvatures[np.argmin(pivots)]))
        self._listen(np.flatnonzero(~solving), vectors, searches, images, squares)
        return pivots

    def _listen(
        self, rows: NDArray[np.int_], vectors: Array, searches: Array, images: Array, squares: Array
    ) -> None:
        """Measure the rounding in products of probes: A is symmetric, so (v - p)' (A + s) p = 0."""
        columns, echo = self.active[rows], np.zeros(rows.size)
        for part in _chunks(rows.size, vectors.shape[1]):
            search = searches[rows, part]
            image = images[rows, part] + self.shift[columns, None] * search
            echo += np.einsum("kd,kd->k", vectors[rows, part] - search, image, dtype=np.float64)
        before = np.array([self.ratios[column][-1:] or [1.0] for column in columns])[:, 0]
        found = abs(echo) / (squares[rows] * np.sqrt(np.maximum(before, 1.0)))
        self.noise[columns] = np.maximum(self.noise[columns], found)

    def _check(self, searches: Array, curvatures: Array) -> None:
        """Raise NotAMaximumError if A is flat or negative along a direction of a solution."""
        smallest = float(curvatures.min())
        largest = float(np.abs(curvatures[np.isfinite(curvatures)]).max())
        self.smallest_curvature = min(self.smallest_curvature, smallest)
        self.largest_curvature = max(self.largest_curvature, largest)
        if abs(smallest) <= self.flat * self.largest_curvature:
            raise self.flat_along(searches, curvatures)
        if smallest < 0:
            raise NotAMaximumError.saddle(smallest)


class Basis:
    """The first vectors of a Krylov space, as rows.

    Rounding brings back the eigenvectors that are found first, those of the largest eigenvalues,
    and each of them costs steps anew. It is these that the first vectors span: 20 of them saved
    nine in ten of the steps that all together saved, on networks in either precision.
    """

    def __init__(self, most: int, like: Array) -> None:
        self.most, self.blocks, self.count = min(most, like.shape[1]), list[Array](), 0

    def append(self, vector: Array) -> None:
        """Keep a vector, if there is room."""
        if self.count == self.most:
            return
        if self.count % TOGETHER == 0:
            rows = min(TOGETHER, self.most - self.count)
            self.blocks.append(np.empty((rows, vector.size), dtype=vector.dtype))
        self.blocks[-1][self.count % TOGETHER] = vector
        self.count += 1

    def clean(self, vector: Array) -> None:
        """Take out of a vector, in place, what it has of those that are kept."""
        for k, block in enumerate(self.blocks):
            rows = block[: self.count - k * TOGETHER]
            vector -= (rows @ vector) @ rows

    def combine(self, weights: Array) -> Array:
        """Sum the vectors with these weights, (d,)."""
        parts = np.split(weights, range(TOGETHER, weights.size, TOGETHER))
        pairs = zip(parts, self.blocks, strict=True)
        return np.asarray(sum(part @ block[: part.size] for part, block in pairs))


def room(memory: int, d: int, K: int, kind: Any) -> int:
    """Vectors of d numbers for each of K bases; none if there would be few of them."""
    most = int(memory // (np.dtype(kind).itemsize * max(1, d * K)))
    return most if most >= min(FEWEST, d) else 0


def inverse_root(
    operator: Operator, z: Array, *, rtol: float = 1e-3, max_iterations: int = 1000
) -> Array:
    r"""Return :math:`A^{-1/2} z`, (d, k), one column per column of z.

    With V an orthonormal basis of the Krylov space of A and a column of z, and T = V'AV
    tridiagonal, :math:`A^{-1/2} z \approx |z|\, V T^{-1/2} e_1`; for z standard normal its
    covariance is :math:`A^{-1}`. It stops where the error that is left, extrapolated from the
    changes over the last two checks, is below `rtol` times the length of each column. The memory is
    that of as many z as there were steps.

    Raises
    ------
    NotAMaximumError
        A has a negative or vanishing eigenvalue.
    ConvergenceError
        The accuracy was not reached in `max_iterations`.

    Examples
    --------
    >>> A = np.diag([1.0, 4.0, 25.0])
    >>> inverse_root(lambda v: A @ v, np.ones((3, 1)), rtol=1e-9).ravel().round(6)
    array([1. , 0.5, 0.2])
    """
    krylov = Krylov(operator, probes=z, kept=max_iterations)
    known, change, left = np.zeros((0, z.shape[1])), np.inf, np.inf
    while krylov.active.size and left > rtol:
        if krylov.iterations == max_iterations:
            raise ConvergenceError.unfinished_root(left, max_iterations)
        krylov.step()
        if krylov.iterations % CHECK_EVERY == 0 or not krylov.active.size:
            found = np.column_stack([_root_column(krylov, k) for k in range(z.shape[1])])
            previous, change = change, _change(found, known)
            known, left = found, _remaining(change, previous)
    spaces = enumerate(zip(krylov.bases, krylov.lengths, strict=True))
    return np.column_stack([basis.combine(known[: len(n), k]) for k, (basis, n) in spaces])


def _root_column(krylov: Krylov, column: int) -> Array:
    """Return the coordinates of the result in the basis, (steps,), zero beyond a complete space."""
    values, vectors = krylov.spectrum(column)
    if values[0] <= FLAT * values[-1]:
        flat = values[0] >= -FLAT * values[-1]
        raise (NotAMaximumError.flat if flat else NotAMaximumError.saddle)(float(values[0]))
    found = np.zeros(krylov.iterations)
    found[: values.size] = (vectors / np.sqrt(values)) @ vectors[0]
    found[1::2] *= -1  # the vectors are residuals, of alternating sign
    return found * math.sqrt(krylov.first_size[column])


def _change(found: Array, known: Array) -> float:
    """Return the largest relative change of a column since the last check."""
    difference = found.copy()
    difference[: known.shape[0]] -= known
    return float(np.max(np.linalg.norm(difference, axis=0) / np.linalg.norm(found, axis=0)))


def _remaining(change: float, previous: float) -> float:
    """Sum all changes to come, if they shrink like the last two."""
    if not change < previous < np.inf:
        return np.inf
    return change * change / (previous - change)


def _chunks(rows: int, d: int) -> Iterator[slice]:
    width = max(1, CHUNK // max(rows, 1))
    return (slice(first, first + width) for first in range(0, d, width))


def _dots(a: Array, b: Array) -> Array:
    total = np.zeros(a.shape[0])
    for part in _chunks(*a.shape):
        total += np.einsum("kd,kd->k", a[:, part], b[:, part], dtype=np.float64)
    return total


def _add(target: Array, rows: Any, weights: Array, source: Array, from_rows: Any) -> None:
    for part in _chunks(weights.size, source.shape[1]) if weights.size else ():
        target[rows, part] += weights[:, None] * source[from_rows, part]


def _swap(rows: Array, i: int, j: int) -> None:
    for part in _chunks(1, rows.shape[1]) if i != j else ():
        rows[[i, j], part] = rows[[j, i], part]
