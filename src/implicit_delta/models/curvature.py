"""The Gauss-Newton matrix, formed."""

from collections.abc import Iterable

import numpy as np
from scipy.linalg.blas import dsyrk

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.arrays import symmetric

SADDLE = -0.05  # which rough differences leave certain


def gram(factors: Iterable[Array], d: int) -> Array:
    """Sum U'U over blocks of rows U, (m, d), by symmetric products: (d, d)."""
    matrix = np.zeros((d, d), order="F")
    for U in factors:
        matrix = dsyrk(1.0, U.T, beta=1.0, c=matrix, overwrite_c=True, lower=True)
    matrix += matrix.T  # of zeros above the diagonal, which doubles
    matrix[np.diag_indices(d)] /= 2
    return matrix.T  # the same, in the order of NumPy


def times(matrix: Array, v: Array) -> Array:
    """Multiply by (d, k); scaled columns of the identity need no product."""
    if np.count_nonzero(v) == v.shape[1]:
        rows, columns = np.nonzero(v)
        if np.array_equal(rows, columns) and v.shape == matrix.shape:
            return np.asarray(matrix * np.diag(v))
        if np.array_equal(np.sort(columns), np.arange(v.shape[1])):
            picked = np.empty_like(v)
            picked[:, columns] = matrix[:, rows] * v[rows, columns]
            return picked
    return np.asarray(matrix @ v)


def refuse_saddle(curvature: Array) -> None:
    """Raise at a saddle: a negative eigenvalue of a curvature in units of each parameter's own."""
    least = np.linalg.eigvalsh(symmetric(curvature))[0] if np.isfinite(curvature).all() else 0.0
    if least < SADDLE:
        raise NotAMaximumError.saddle(float(least))
