"""Guarded ratios and the symmetric part of a matrix."""

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
