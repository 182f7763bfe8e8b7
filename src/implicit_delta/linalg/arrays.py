"""Guarded ratios, roots of covariances, and checks of a symmetric matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import rq

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError

Operator = Callable[[Array], Array]

MOST_NAMED = 8
DOMINANT = 0.1  # of the largest entry: four categories beside a constant have one half each


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


def check_finite(values: Array) -> None:
    """Raise NotAMaximumError if the matrix or a product with it is not finite."""
    if not np.isfinite(values).all():
        raise NotAMaximumError.not_finite()


def flat_along(step: Array, curvature: float, weight: Array | None = None) -> NotAMaximumError:
    """Describe a flat direction, (d,), by the parameters that dominate it.

    Of several directions, or of one in other units, `weight` has the size of each entry.
    """
    weight = np.abs(step) if weight is None else weight
    large = np.flatnonzero(weight > DOMINANT * weight.max())
    first = np.argsort(-weight[large], kind="stable")[:MOST_NAMED]
    return NotAMaximumError.flat(curvature, sorted(large[first]))
