"""The Lanczos process: a tridiagonal picture of a matrix, as one vector sees it."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio
from implicit_delta.linalg.solvers.base import Operator, check_finite

COMPLETE = 1e-12  # of the diagonal: a remainder of rounding size would point anywhere


@dataclass
class Lanczos:
    """Three-term recurrence of each column; entries of the tridiagonal T are (k,).

    The columns run side by side, each with a basis of its own, so that one call of the operator
    serves all of them. The basis is not orthogonalized again: for a function of a matrix, lost
    orthogonality costs a few more steps and no accuracy (Druskin and Knizhnerman).
    """

    lengths: Array
    basis: list[Array]
    diagonal: list[Array]
    offdiagonal: list[Array]
    keep: bool = True

    @classmethod
    def started(cls, z: Array, keep: bool = True) -> "Lanczos":
        """Begin with the columns of z, (d, k); the whole basis is kept on demand."""
        lengths = np.linalg.norm(z, axis=0)
        return cls(lengths, [z / lengths], [], [], keep)

    @property
    def exhausted(self) -> bool:
        """Whether the Krylov spaces of all columns are complete."""
        return not np.any(self.offdiagonal[-1])

    def extend(self, operator: Operator) -> None:
        """Add one step, at the price of one product for each column."""
        newest = self.basis[-1]
        ahead = operator(newest)
        self.diagonal.append(np.sum(newest * ahead, axis=0))
        ahead = ahead - self.diagonal[-1] * newest
        if self.offdiagonal:
            ahead -= self.offdiagonal[-1] * self.basis[-2]
        size = np.linalg.norm(ahead, axis=0)
        size[size <= COMPLETE * np.abs(self.diagonal[-1])] = 0.0
        self.offdiagonal.append(size)
        self.basis.append(ratio(ahead, size))
        if not self.keep:
            del self.basis[:-2]

    def spectra(self) -> list[tuple[Array, Array]]:
        """Eigenvalues and eigenvectors of T, by column, cut where its space is complete."""
        diagonal, offdiagonal = np.array(self.diagonal), np.array(self.offdiagonal)[:-1]
        check_finite(diagonal)
        return [_eigh(*column) for column in zip(diagonal.T, offdiagonal.T, strict=True)]


def _eigh(diagonal: Array, offdiagonal: Array) -> tuple[Array, Array]:
    """Decompose T; the default of some LAPACKs fails where QL does not."""
    ended = np.flatnonzero(offdiagonal == 0)
    size = int(ended[0]) + 1 if ended.size else diagonal.size
    entries = diagonal[:size], offdiagonal[: size - 1]
    try:
        values, vectors = eigh_tridiagonal(*entries)
    except np.linalg.LinAlgError:
        values, vectors = eigh_tridiagonal(*entries, lapack_driver="stev")
    return values, vectors
