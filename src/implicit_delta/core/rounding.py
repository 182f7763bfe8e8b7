"""Tolerances for two floating-point computations of the same number.

Another processor, thread count or batch size adds the same summands in another order. A check
that compares two such results takes its tolerance from here.
"""

from typing import Any

import numpy as np

from implicit_delta.core.types import Array

EPS = float(np.finfo(np.float64).eps)
# Higham and Mary (2019), "A new approach to probabilistic rounding error analysis": with rounding
# errors of mean zero, a sum of n summands is off by at most L sqrt(n) eps / 2 of their absolute
# sum, except with probability 2 exp(-L^2 / 2). Two such sums differ by at most twice that. With
# L = 8 the probability is 2e-14.
MARGIN = 8.0

MOST_SUMMANDS = 10**6  # in a function of a user, whose sums have a length that is not known


def sum_rounding(length: int, eps: float = EPS) -> float:
    """Largest difference of two sums of the same summands, relative to their absolute sum."""
    return MARGIN * float(np.sqrt(max(length, 1))) * eps


def eps_of(values: Any) -> float:
    """Precision of an array: that of float32 if its entries are such numbers, and not all whole."""
    array = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        single = np.all(array.astype(np.float32) == array) and np.any(array % 1)
    return float(np.finfo(np.float32).eps) if single or array.dtype == np.float32 else EPS


def is_same(first: Array, second: Array, tolerance: float) -> bool:
    """Whether two arrays differ by at most a share of their largest entry, in any unit."""
    size = np.max(np.maximum(abs(first), abs(second)), initial=0.0)
    return bool(np.all(abs(first - second) <= tolerance * size))


def is_repeated(first: Array, second: Array) -> bool:
    """Whether two results of the same call differ by the order of sums alone.

    Threads, and the addresses of arrays in memory, change that order from call to call.
    """
    return is_same(first, second, sum_rounding(MOST_SUMMANDS, eps_of([first, second])))


def is_symmetric(matrix: Array) -> bool:
    """Whether a matrix with a positive diagonal is symmetric, in any unit of its rows.

    Half of the digits have to agree: a matrix may come from an inverse or from another library.
    """
    scale = np.sqrt(abs(np.diag(matrix)))
    gap = abs(matrix - matrix.T)
    return not np.any(gap > eps_of(matrix) ** 0.5 * np.outer(scale, scale))
