"""Guarded ratios, sums of squares and the symmetric part of a matrix."""

from typing import Any

import numpy as np
from scipy.linalg import rq

from implicit_delta.core.types import Array


def ratio(above: Any, below: Any, otherwise: float = 0.0) -> Array:
    """Divide entry by entry, with broadcasting; ``otherwise`` where ``below`` is not positive.

    Examples
    --------
    >>> ratio(np.array([1.0, 3.0]), np.array([2.0, 0.0]))
    array([0.5, 0. ])
    """
    positive = np.greater(below, 0)
    if positive.all():
        return np.asarray(np.divide(above, below), dtype=np.float64)
    quotient = np.full(np.broadcast_shapes(np.shape(above), np.shape(below)), otherwise)
    return np.asarray(np.divide(above, below, out=quotient, where=positive))


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix, ``(A + A') / 2``."""
    return np.asarray(0.5 * (matrix + matrix.T))


def squared_length(v: Array) -> float:
    """Sum of squares in double precision: of ten million float32, ``v @ v`` was off by 3e-5."""
    return float(np.einsum("i,i->", v, v, dtype=np.float64))


def covariance_root(V: Array) -> Array:
    """Return the upper triangular R with ``R R' = V``, (d, d), of a semidefinite V in any units.

    Where V is positive definite, R is the only one with a positive diagonal.
    """
    errors = _errors(V)
    values, vectors = np.linalg.eigh(symmetric(V / np.outer(errors, errors)))
    triangle, _ = rq(vectors * np.sqrt(np.maximum(values, 0.0)))
    return np.asarray(errors[:, None] * triangle * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def pseudo_solve(V: Array, v: Array) -> Array:
    """Multiply the pseudo-inverse of a covariance, formed in standard errors, by (d,) or (d, k)."""
    errors = _errors(V)
    inverse = np.linalg.pinv(symmetric(V / np.outer(errors, errors)), hermitian=True)
    return np.asarray((inverse @ (v.T / errors).T).T / errors).T


def _errors(V: Array) -> Array:
    errors = np.sqrt(np.maximum(np.diag(V), 0.0))
    return np.where(errors > 0, errors, 1.0)
