"""Lengths of steps along coordinates whose unit is not known: none of them is absolute."""

from collections.abc import Callable

import numpy as np

from implicit_delta.core.types import Array

MOST_TRIES = 60  # factors of up to 1000 each: any two lengths of float64 are that close
FACTOR = 1e3
ABOUT = 4.0  # a move within this factor of the spread tells the length
LOST = 1e-12  # of a coordinate: a shorter length drowns in the rounding of the coordinate


def sizes(x: Array) -> Array:
    """Magnitude of each coordinate, (d,); a zero has the typical magnitude of the others.

    Where all are zero, there is no length yet, and a search has to begin somewhere: at one.

    Examples
    --------
    >>> sizes(np.array([-2.0, 0.0, 2.0]))
    array([2., 2., 2.])
    """
    found = abs(np.asarray(x, dtype=np.float64))
    known = found[found > 0]
    typical = np.exp(np.mean(np.log(known))) if known.size else 1.0
    return np.asarray(np.where(found > 0, found, typical))


def moving_lengths(f: Callable[[Array], Array], x: Array, spread: Array) -> Array:
    """Find for each coordinate the length over which f, (d,) to (q,), moves by its spread (q,).

    For summed equations and the root of their sum of squares over rows that is about the standard
    error of the coordinate, the others held fixed. A coordinate with which nothing moves keeps its
    size. An entry without spread tells nothing, nor does one whose spread is rounding.
    """
    with np.errstate(all="ignore"):
        center = f(x)
        return np.array([_length(f, x, j, center, spread) for j in range(x.size)])


def _length(f: Callable[[Array], Array], x: Array, j: int, center: Array, spread: Array) -> float:
    first = float(sizes(x)[j])
    told, h = spread > 0, first
    low, high = 0.0, np.inf  # lengths that were too short and too long
    for _ in range(MOST_TRIES):
        point = x.copy()
        point[j] += h
        moves = np.where(told, abs(f(point) - center) / np.where(told, spread, 1.0), 0.0)
        move = float(np.max(moves, initial=0.0))
        if 1 / ABOUT <= move <= ABOUT:
            return h / move
        if move < 1 / ABOUT:
            low = max(low, h)
            h *= min(1 / move, FACTOR) if move > 0 else FACTOR
        else:  # NaN too
            high = min(high, h)
            h /= min(move, FACTOR) if np.isfinite(move) else FACTOR
        if low > 0 and high < np.inf and not low < h < high:
            h = float(np.sqrt(low * high))
            if high <= 2 * low:  # a jump: what lies beyond it is more than its spread
                return high
        if h < LOST * abs(x[j]):
            told[int(np.argmax(moves))] = False
            if not told.any():
                break
            h, low, high = first, 0.0, np.inf
        if h > first / LOST**2:
            break
    return first
