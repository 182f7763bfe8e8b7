"""Lengths of steps along coordinates whose unit is not known: none of them is absolute."""

import numpy as np

from implicit_delta.calculus.functions import Function, bend, moved
from implicit_delta.core.types import Array

MOST_TRIES = 60  # factors of up to 1000 each: any two lengths of float64 are that close
FACTOR = 1e3
ABOUT = 4.0  # a move within this factor of the spread tells the length
LOST = 1e-12  # of a coordinate: a shorter length drowns in the rounding of the coordinate
TRIAL = 0.25  # of a guess of a unit: differences over it are needed anyway
ROUNDED = 1e-13  # of the length of all terms: second differences of less are rounding
BENT = 1e-3  # of a log-likelihood: more than rounding leaves, less than any distance that matters
LONGEST = 1e15  # times the size of a coordinate: one that bends nowhere nearer is flat


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


def moving_lengths(f: Function, x: Array, spread: Array) -> Array:
    """Find for each coordinate the length over which f, (d,) to (q,), moves by its spread (q,).

    For summed equations and the root of their sum of squares over rows that is about the standard
    error of the coordinate, the others held fixed. A coordinate with which nothing moves keeps its
    size. An entry without spread tells nothing, nor does one whose spread is rounding.
    """
    with np.errstate(all="ignore"):
        center = f(x)
        return np.array([_length(f, x, j, center, spread) for j in range(x.size)])


def _length(f: Function, x: Array, j: int, center: Array, spread: Array) -> float:
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


def natural_units(f: Function, x: Array, guess: Array | None = None) -> Array:
    """Find for each coordinate the length over which the sum of f bends by about one.

    For a log-likelihood that is the standard error of the coordinate, the others held fixed.
    A coordinate along which f does not bend gets its own magnitude as unit, or the length over
    which f changes by one if that is longer. A guess that f bears out to a factor of two is kept as
    it is, and where f was evaluated for that, second differences will ask for it again.
    """
    center = f(x)
    guesses = [None] * x.size if guess is None else list(guess)
    return np.array([_natural_unit(f, x, center, j, unit) for j, unit in enumerate(guesses)])


def bends_far(f: Function, x: Array, direction: Array) -> bool:
    """Whether the sum of f bends along a direction at any of several distances, up to 1e8.

    Where f ends on one side, as that of a rate does at zero, the other side tells.
    """
    for far in (1e2, 1e4, 1e6, 1e8):
        step = far * direction
        with np.errstate(all="ignore"):
            centers = [x + middle * step for middle in (0, 1, -1)]
            bends = [abs(bend(f, center, f(center), step)) for center in centers]
        told = [found for found in bends if np.isfinite(found)]
        if not told or told[0] > BENT:
            return True
    return False


def _natural_unit(f: Function, x: Array, center: Array, j: int, guess: float | None) -> float:
    size = float(sizes(x)[j])
    h, unit = (1e-3 * size, size) if guess is None else (TRIAL * guess, guess)
    ends = False  # whether f is not defined ten steps from here
    for _ in range(40):
        with np.errstate(all="ignore"):
            ahead, behind = f(moved(x, j, h)), f(moved(x, j, -h))
            turn = abs(float(np.sum(ahead - 2 * center + behind)))
            noise = ROUNDED * max(map(_length_of, (center, ahead, behind))) + 1e-300
        if not np.isfinite(turn) or turn > 100.0:
            ends = ends or not np.isfinite(turn)
            h /= 10.0
        elif h == TRIAL * unit and 1 / 4 <= turn / TRIAL**2 <= 4:
            return float(unit)
        elif turn > max(1e-2, 1e3 * noise):
            return float(h / np.sqrt(turn))
        elif turn > 10 * noise:
            unit = h / np.sqrt(turn)
            h = TRIAL * unit if turn > 1e3 * noise else min(unit, 30.0 * h)
        elif guess is not None:  # of a climb that ended elsewhere: f does not turn there
            return _natural_unit(f, x, center, j, None)
        elif ends or h > LONGEST * size:
            change = abs(float(np.sum(ahead - center)))
            return float(max(unit, h / change)) if 1e3 * noise < change else float(unit)
        else:
            h *= 10.0
    return float(unit)


def _length_of(terms: Array) -> float:
    return float(np.sqrt(terms @ terms))
