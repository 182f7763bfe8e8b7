"""Inverse square root of a matrix times vectors, by the Lanczos process."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.numerics.arrays import ratio
from implicit_delta.numerics.solvers.base import Operator, check_finite

CHECK_EVERY = 5  # steps between two checks of convergence
FLAT = 1e-14  # of the largest eigenvalue; below is rounding


def inverse_root(
    operator: Operator, z: Array, *, rtol: float = 1e-3, max_iterations: int = 1000
) -> Array:
    r"""Return :math:`A^{-1/2} z`, one column per column of z, by the Lanczos process.

    With V an orthonormal basis of the Krylov space of A and a column of z, and T = V'AV
    tridiagonal, :math:`A^{-1/2} z \approx |z|\, V T^{-1/2} e_1`. For z standard normal the
    result is normal with covariance :math:`A^{-1}`.

    Differences from the textbook:

    - The columns run side by side, each with a basis of its own, so that one call of the operator
      serves all of them.
    - The basis is kept and not orthogonalized again: for a function of a matrix, lost
      orthogonality costs a few more steps and no accuracy (Druskin and Knizhnerman).
    - It stops on the remaining error, extrapolated from the changes over the last two checks: the
      error decays geometrically, and slowly for an ill-conditioned A.

    Parameters
    ----------
    operator : callable
        Applies A, symmetric positive definite: (d, k) to (d, k).
    z : array (d, k)
    rtol : float
        Error allowed, relative to the length of each column.
    max_iterations : int
        Also bounds the memory: that many blocks of the size of z.

    Raises
    ------
    NotAMaximumError
        A has a negative or vanishing eigenvalue.
    ConvergenceError
        The accuracy was not reached.

    Examples
    --------
    >>> A = np.diag([1.0, 4.0, 25.0])
    >>> inverse_root(lambda v: A @ v, np.ones((3, 1)), rtol=1e-9).ravel().round(6)
    array([1. , 0.5, 0.2])
    """
    lanczos = _Lanczos.started(z)
    known, change, left = np.zeros((0, z.shape[1])), np.inf, np.inf
    for step in range(1, max_iterations + 1):
        lanczos.extend(operator)
        if step % CHECK_EVERY == 0 or lanczos.exhausted:
            found = lanczos.coefficients()
            previous, change = change, _change(found, known)
            known, left = found, _remaining(change, previous)
        if left <= rtol or lanczos.exhausted:
            return np.asarray(np.einsum("jdk,jk->dk", np.array(lanczos.basis[:step]), known))
    raise ConvergenceError.unfinished_root(left, max_iterations)


@dataclass
class _Lanczos:
    """Three-term recurrence of each column; entries of the tridiagonal T are (k,)."""

    lengths: Array
    basis: list[Array]
    diagonal: list[Array]
    offdiagonal: list[Array]

    @classmethod
    def started(cls, z: Array) -> "_Lanczos":
        lengths = np.linalg.norm(z, axis=0)
        return cls(lengths, [z / lengths], [], [])

    @property
    def exhausted(self) -> bool:
        """Whether the Krylov spaces of all columns are complete."""
        return not np.any(self.offdiagonal[-1])

    def extend(self, operator: Operator) -> None:
        newest = self.basis[-1]
        ahead = operator(newest)
        self.diagonal.append(np.sum(newest * ahead, axis=0))
        ahead = ahead - self.diagonal[-1] * newest
        if self.offdiagonal:
            ahead -= self.offdiagonal[-1] * self.basis[-2]
        size = np.linalg.norm(ahead, axis=0)
        # A remainder of rounding size would point anywhere; the space is complete.
        size[size <= 1e-12 * np.abs(self.diagonal[-1])] = 0.0
        self.offdiagonal.append(size)
        self.basis.append(ratio(ahead, size))

    def coefficients(self) -> Array:
        """Return the coordinates of the results in their bases, (steps, k)."""
        diagonal, offdiagonal = np.array(self.diagonal), np.array(self.offdiagonal)[:-1]
        columns = map(_inverse_root_column, diagonal.T, offdiagonal.T)
        return np.asarray(np.column_stack(list(columns)) * self.lengths)


def _inverse_root_column(diagonal: Array, offdiagonal: Array) -> Array:
    """Return the first column of T^-1/2, cut where the Krylov space is complete."""
    ended = np.flatnonzero(offdiagonal == 0)
    size = int(ended[0]) + 1 if ended.size else diagonal.size
    check_finite(diagonal)
    values, vectors = _eigh(diagonal[:size], offdiagonal[: size - 1])
    if values[0] <= FLAT * values[-1]:
        flat = values[0] >= -FLAT * values[-1]
        raise (NotAMaximumError.flat if flat else NotAMaximumError.saddle)(float(values[0]))
    column = np.zeros(diagonal.size)
    column[:size] = (vectors / np.sqrt(values)) @ vectors[0]
    return column


def _eigh(diagonal: Array, offdiagonal: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors; the default of some LAPACKs fails where QL does not."""
    try:
        values, vectors = eigh_tridiagonal(diagonal, offdiagonal)
    except np.linalg.LinAlgError:
        values, vectors = eigh_tridiagonal(diagonal, offdiagonal, lapack_driver="stev")
    return values, vectors


def _change(found: Array, known: Array) -> float:
    """Return the largest relative change of a column since the last check."""
    difference = found.copy()
    difference[: known.shape[0]] -= known
    return float(np.max(np.linalg.norm(difference, axis=0) / np.linalg.norm(found, axis=0)))


def _remaining(change: float, previous: float) -> float:
    """Sum all changes to come, if they shrink like the last two."""
    if not change < previous < np.inf:
        return np.inf
    ratio = change / previous
    return change * ratio / (1 - ratio)
