"""Guarded ratios, sums of squares and the symmetric part of a matrix."""

from typing import Any

import numpy as np

from implicit_delta._core.types import Array


def ratio(above: Any, below: Any, otherwise: float = 0.0) -> Array:
    """Divide entry by entry, with broadcasting; ``otherwise`` where ``below`` is not positive.

    Examples
    --------
    >>> ratio(np.array([1.0, 3.0]), np.array([2.0, 0.0]))
    array([0.5, 0. ])
    """
    quotient = np.full(np.broadcast_shapes(np.shape(above), np.shape(below)), otherwise)
    return np.asarray(np.divide(above, below, out=quotient, where=np.greater(below, 0)))


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix, ``(A + A') / 2``."""
    return np.asarray(0.5 * (matrix + matrix.T))


def squared_length(v: Array) -> float:
    """Sum of squares in double precision: of ten million float32, ``v @ v`` was off by 3e-5."""
    return float(np.einsum("i,i->", v, v, dtype=np.float64))
