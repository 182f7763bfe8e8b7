"""Inverse square root of a matrix times vectors, by the Lanczos process."""

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.linalg.lanczos import Lanczos
from implicit_delta.linalg.solvers.base import Operator

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

    - The columns run side by side, and the basis is not orthogonalized again; see `Lanczos`.
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
    lanczos = Lanczos.started(z)
    known, change, left = np.zeros((0, z.shape[1])), np.inf, np.inf
    for step in range(1, max_iterations + 1):
        lanczos.extend(operator)
        if step % CHECK_EVERY == 0 or lanczos.exhausted:
            found = _coefficients(lanczos)
            previous, change = change, _change(found, known)
            known, left = found, _remaining(change, previous)
        if left <= rtol or lanczos.exhausted:
            return np.asarray(np.einsum("jdk,jk->dk", np.array(lanczos.basis[:step]), known))
    raise ConvergenceError.unfinished_root(left, max_iterations)


def _coefficients(lanczos: Lanczos) -> Array:
    """Return the coordinates of the results in their bases, (steps, k)."""
    steps = len(lanczos.diagonal)
    columns = [_inverse_root_column(*spectrum, steps) for spectrum in lanczos.spectra()]
    return np.asarray(np.column_stack(columns) * lanczos.lengths)


def _inverse_root_column(values: Array, vectors: Array, steps: int) -> Array:
    """Return the first column of T^-1/2, (steps,), zero where the Krylov space is complete."""
    if values[0] <= FLAT * values[-1]:
        flat = values[0] >= -FLAT * values[-1]
        raise (NotAMaximumError.flat if flat else NotAMaximumError.saddle)(float(values[0]))
    column = np.zeros(steps)
    column[: values.size] = (vectors / np.sqrt(values)) @ vectors[0]
    return column


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
