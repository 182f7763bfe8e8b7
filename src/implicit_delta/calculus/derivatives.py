"""Derivatives of a black box by central differences, extrapolated to step zero.

Why not `scipy.differentiate` or `jacobi`: both choose their steps from the point alone. A
log-likelihood has a natural unit in every direction, the length over which it changes by about
one (a standard error); at a fixed fraction of that unit neither truncation nor rounding matters,
three or four steps suffice, and a badly scaled parameter costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array

Function = Callable[[Array], Array]

FIRST_STEP = 0.25  # of the natural unit; halved at each further level
FEWEST_LEVELS, MOST_LEVELS = 3, 6
RELATIVE_TOLERANCE = 1e-11
# The doubt of an extrapolation is that of the coarser of the two before; the finer one is 16 times
# closer, and the result closer than either.
TOTAL_TOLERANCE, ROW_TOLERANCE = 1e-6, 1e-5  # of a slope in natural units, and of all its rows
LEAST_ROWS = 0.1  # length of the slopes of all rows below which these count as this
CURVATURE_TOLERANCE = 3e-5  # of the smallest curvature: over 16, 1e-6 of a standard error
# Of the largest: smaller ones need directions of their own. Times the above it is less than the
# error that a flat direction beside others is allowed.
LEAST_CURVATURE = 5e-5
ROUGH_STEP = 2.0**-7  # of the natural unit: what is left out is 1e-5 times the third derivative
SHORT_STEP = 2.0**-10
SHORT_ERROR = 1e-10  # of the length of a gradient: a tenth of what a standard error may be off
FEWEST_SHORT = 8  # coordinates from which on a look beforehand costs less than it may save
LOUD = 1e-12  # of f: bends above are no rounding
MOST_CHANGE = 10.0  # of a unit from one point to the next
BESIDE = 1e-5  # of the natural unit: hardly ever across a jump, yet far above rounding
FARTHEST_BESIDE = 0.1  # still nearer than the steps of most differences
HIDDEN = 64  # roundings of f: a move by less may leave the same number
BENT = 1e-3  # of a log-likelihood: more than rounding leaves, less than any distance that matters
LONGEST = 1e15  # times the size of a coordinate: one that bends nowhere nearer is flat
MOST_SHRINKS = 12  # times 4: a domain that ends 1e-7 natural units away is still found


@dataclass(frozen=True)
class Derivative:
    """Derivative and estimated error of each of its entries."""

    value: Array
    error: Array


def differentiate(
    f: Function, x: Array, directions: Array, rounding: Array | float = 0.0
) -> Derivative:
    r"""Differentiate f along each column of `directions`, in steps of a fraction of that column.

    Central differences :math:`(f(x + t u) - f(x - t u)) / 2t` at t = 1/4, 1/8, ... are
    extrapolated to t = 0 (Richardson), until the estimated error no longer matters.

    Parameters
    ----------
    f : callable
        (d,) to (m,).
    x : (d,) array
    directions : (d, k) array
        Their lengths set the unit of the step.
    rounding : (m,) array, optional
        Of each entry of f. Where that is much of its moves, longer steps tell more.

    Returns
    -------
    Derivative
        `value` and `error` of shape (m, k).

    Examples
    --------
    >>> differentiate(np.exp, np.array([0.0, 1.0]), np.eye(2)).value.round(12)
    array([[1.        , 0.        ],
           [0.        , 2.71828183]])
    """
    columns = [_along(f, x, u, rounding) for u in directions.T]
    return Derivative(
        np.stack([c.value for c in columns], axis=1), np.stack([c.error for c in columns], axis=1)
    )


def short_differences(f: Function, x: Array, units: Array) -> Array | None:
    """Differentiate f along each coordinate by one short difference, (m, d), if these suffice.

    Two evaluations a coordinate instead of six or more. Along a random mixture of all coordinates
    the extrapolated derivative must be the short difference beforehand, and that of all short
    differences together afterward: the sum of their errors in random proportions. So noise, kinks
    and jumps within a quarter of a unit, and a function that bends too much, give None.
    """
    if x.size < FEWEST_SHORT:
        return None
    proportions = np.random.default_rng(0).uniform(0.5, 1.0, x.size) * np.resize([1, -1], x.size)
    try:
        slope = _along(f, x, proportions * units).value
        with np.errstate(all="ignore"):
            first = _short(f, x, proportions * units)
    except Exception:  # f may end nearer than along each coordinate
        return None
    if not np.all(abs(first - slope) <= SHORT_ERROR * np.sqrt(x.size) * abs(slope)):
        return None
    found = np.stack([_short(f, x, step) for step in np.diag(units)], axis=1)
    error = abs(found @ proportions - slope)
    return found if np.all(error <= SHORT_ERROR * np.linalg.norm(found, axis=1)) else None


def summed_slopes(f: Function, x: Array, directions: Array) -> tuple[Derivative, Derivative]:
    """Differentiate f and its sum along directions of the length of a natural unit.

    Fewer steps than in `differentiate`: they end when the sum is known to a fraction of what the
    unit means, and the entries well enough to see kinks and noise.

    Returns
    -------
    rows, total : Derivative
        Of shape (m, k) and (k,).
    """
    columns = [_summed_along(f, x, u) for u in directions.T]
    value = np.stack([c.value for c in columns], axis=1)
    error = np.stack([c.error for c in columns], axis=1)
    return Derivative(value[:-1], error[:-1]), Derivative(value[-1], error[-1])


def rough_slopes(
    f: Function, x: Array, units: Array, step: float = ROUGH_STEP
) -> tuple[Array, Array]:
    """Differentiate the sum of f along each coordinate by one central difference: (d,) and (d,).

    Two evaluations each, and no estimate of the error. The second result is the bends over one
    unit, which tell how good the units are.
    """
    center = f(x)
    slopes, bends = np.zeros_like(x), np.zeros_like(x)
    for j, h in enumerate(step * units):
        ahead, behind = (f(_moved(x, j, way * h)) for way in (1, -1))
        slopes[j] = np.sum(ahead - behind) / (2 * h)
        bends[j] = np.sum(ahead - 2 * center + behind) / step**2
    return slopes, bends


def summed_differences(f: Function, x: Array, steps: Array) -> Array:
    """Differentiate the sum of f along each coordinate by one central difference, (d,)."""
    pairs = ((f(_moved(x, j, h)), f(_moved(x, j, -h))) for j, h in enumerate(steps))
    sums = [np.sum(ahead - behind) for ahead, behind in pairs]
    return np.asarray(np.array(sums) / (2 * steps))


@dataclass
class RunningSlopes:
    """Slopes of the sum of f on the way to its maximum: the units follow the bends.

    Two evaluations a coordinate. With steps of a thousandth of a unit, what a difference leaves
    out is 1e-7 times the third derivative.
    """

    f: Function
    units: Array

    def __call__(self, x: Array) -> Array:
        """Differentiate at x, (d,)."""
        slopes, bends = rough_slopes(self.f, x, self.units, SHORT_STEP)
        told = abs(bends) * SHORT_STEP**2 > LOUD * np.linalg.norm(self.f(x))
        with np.errstate(all="ignore"):
            change = np.where(told, 1 / np.sqrt(abs(bends)), 1.0)
        self.units = self.units * np.clip(change, 1 / MOST_CHANGE, MOST_CHANGE)
        return slopes


def second_differences(f: Function, x: Array, directions: Array) -> Derivative:
    r"""Differentiate the sum of f twice: the matrix :math:`u_i' H u_j` over pairs of directions.

    By polarization, :math:`2 u'Hv = S(u + v) - S(u) - S(v)` with the symmetric second difference
    :math:`S(u) = (f(x + tu) - 2 f(x) + f(x - tu)) / t^2`, so a pair costs two evaluations a level.

    Parameters
    ----------
    f : callable
        (d,) to (m,). Differences are taken entry by entry before summing, which keeps the
        rounding error at that of one entry rather than that of the sum.
    x : (d,) array
    directions : (d, k) array

    Returns
    -------
    Derivative
        `value` and `error` of shape (k, k), symmetric.

    Examples
    --------
    >>> second_differences(lambda x: x[:1] * x[1:] ** 2, np.ones(2), np.eye(2)).value.round(9)
    array([[0., 2.],
           [2., 2.]])
    """
    center = f(x)
    return _extrapolate(
        lambda t: _polarized(f, x, center, t * directions) / t**2, _curvature_settled
    )


def rough_second_differences(f: Function, x: Array, directions: Array) -> Array:
    """Differentiate twice over one short step, (k, k): two or three digits, at the least cost."""
    t = FIRST_STEP / 4
    return _polarized(f, x, f(x), t * directions) / t**2


def _polarized(f: Function, x: Array, center: Array, directions: Array) -> Array:
    k = directions.shape[1]
    rows, columns = np.triu_indices(k)
    pairs = [
        directions[:, i] if i == j else directions[:, i] + directions[:, j]
        for i, j in zip(rows, columns, strict=True)
    ]
    matrix = np.zeros((k, k))
    matrix[rows, columns] = [_bend(f, x, center, u) for u in pairs]
    own = np.diag(matrix)
    cross = np.triu(matrix - own[:, None] - own[None, :], 1) / 2
    return np.asarray(np.diag(own) + cross + cross.T)


def constant_beside(
    f: Function, x: Array, units: Array, slopes: Array | None = None
) -> NDArray[np.bool_]:
    """Whether each entry of f is exactly the same right beside x: (m,).

    Such an f is piecewise constant, and differences over longer steps only measure its jumps. The
    directions are random: a difference of two coordinates is the same if both move alike.

    With the slopes (m, d) that these differences tell, in units: where a move by so little would
    be lost in the rounding of f (a large constant), f is looked at farther away, and it is not
    called constant where that does not help.
    """
    center, reach = f(x), BESIDE
    same = _same(f, x, reach * units, center)
    if slopes is None:
        return same
    size, lost = np.linalg.norm(slopes, axis=1), HIDDEN * np.spacing(abs(center))
    hidden = same & (size > 0) & (size * reach <= lost)
    while np.any(hidden) and reach < FARTHEST_BESIDE:
        reach *= 10
        same = same & (~hidden | _same(f, x, reach * units, center))
        hidden = same & hidden & (size * reach <= lost)
    return np.asarray(same & ~hidden)


def _same(f: Function, x: Array, units: Array, center: Array) -> NDArray[np.bool_]:
    same = np.True_
    for step in units * np.random.default_rng(0).normal(size=(2, x.size)):
        same = same & (f(x + step) == center) & (f(x - step) == center)
    return np.asarray(same)


def flicker(f: Function, x: Array, steps: Array, center: Array) -> Array:
    """Largest move of each entry of f over next to nothing of some steps (S, d): noise, (m,)."""
    ends = [f(x + way * BESIDE * step) for step in steps for way in (1, -1)]
    return np.asarray(np.max(np.abs(np.array(ends) - center), axis=0))


def natural_units(f: Function, x: Array, guess: Array | None = None) -> Array:
    """Find for each coordinate the length over which the sum of f bends by about one.

    For a log-likelihood that is the standard error of the coordinate, the others held fixed.
    A coordinate along which f does not bend gets its own magnitude as unit, or the length over
    which f changes by one if that is longer. A guess that f bears out to a factor of two is kept as
    it is, and where f was evaluated for that, `second_differences` will ask for it again.
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
            bends = [
                _bend(f, x + middle * step, f(x + middle * step), step) for middle in (0, 1, -1)
            ]
        told = [abs(bend) for bend in bends if np.isfinite(bend)]
        if not told or told[0] > BENT:
            return True
    return False


def _along(f: Function, x: Array, direction: Array, rounding: Array | float = 0.0) -> Derivative:
    return _extrapolate(lambda t: _difference(f, x, t * direction) / (2 * t), _settled, rounding)


def _summed_along(f: Function, x: Array, direction: Array) -> Derivative:
    def level(t: float) -> Array:
        rows = _difference(f, x, t * direction) / (2 * t)
        return np.append(rows, np.sum(rows))

    return _extrapolate(level, _slope_settled)


def _short(f: Function, x: Array, direction: Array) -> Array:
    return _difference(f, x, SHORT_STEP * direction) / (2 * SHORT_STEP)


def _difference(f: Function, x: Array, step: Array) -> Array:
    return np.asarray(f(x + step) - f(x - step))


def _moved(x: Array, j: int, h: float) -> Array:
    """Add h to one coordinate, with the same rounding as a step along an axis."""
    step = np.zeros_like(x)
    step[j] = h
    return x + step


def _settled(best: Array, error: Array) -> bool:
    return bool(np.all(error <= RELATIVE_TOLERANCE * np.max(abs(best))))


def _slope_settled(best: Array, error: Array) -> bool:
    rows = max(float(np.linalg.norm(best[:-1])), LEAST_ROWS)
    known = np.linalg.norm(error[:-1]) <= ROW_TOLERANCE * rows
    return bool(known and error[-1] <= TOTAL_TOLERANCE)


def _curvature_settled(best: Array, error: Array) -> bool:
    sizes = abs(np.linalg.eigvalsh(best))
    least = max(sizes.min(), LEAST_CURVATURE * sizes.max())
    return bool(np.linalg.norm(error) <= CURVATURE_TOLERANCE * least)


def _bend(f: Function, x: Array, center: Array, step: Array) -> float:
    return float(np.sum(f(x + step) - 2 * center + f(x - step)))


def _extrapolate(
    level: Callable[[float], Array],
    settled: Callable[[Array, Array], bool],
    rounding: Array | float = 0.0,
) -> Derivative:
    """Richardson's tableau in t^2; each entry keeps its most trustworthy estimate (Ridders).

    Equal estimates are no proof where rounding hides the moves: it adds to their doubt.
    """
    t, row = _first_level(level)
    best, error = row[0], np.full_like(row[0], np.inf)
    for count in range(2, MOST_LEVELS + 1):
        t /= 2
        previous, row = row, [level(t)]
        for order, older in enumerate(previous, start=1):
            row.append(row[-1] + (row[-1] - older) / (4**order - 1))
            doubt = np.maximum(abs(row[-1] - row[-2]), abs(row[-1] - older)) + rounding / (2 * t)
            better = doubt < error
            best, error = np.where(better, row[-1], best), np.where(better, doubt, error)
        if count >= FEWEST_LEVELS and settled(best, error - rounding / (2 * t)):
            break
    still = best == 0  # nothing has moved, not by rounding either
    return Derivative(best, np.where(still, 0.0, error) if np.any(rounding) else error)


def _first_level(level: Callable[[float], Array]) -> tuple[float, list[Array]]:
    """Shrink the first step until both ends lie inside the domain of f."""
    t = FIRST_STEP
    for _ in range(MOST_SHRINKS):
        with np.errstate(all="ignore"):
            value = level(t)
        if np.all(np.isfinite(value)):
            return t, [value]
        t /= 4
    raise FloatingPointError("the function is not finite on both sides of the point")


def _natural_unit(f: Function, x: Array, center: Array, j: int, guess: float | None) -> float:
    size = max(abs(x[j]), 1e-3)
    h, unit = 1e-3 * size, size
    if guess is not None:
        h, unit = FIRST_STEP * guess, guess
    ends = False  # whether f is not defined ten steps from here
    for _ in range(40):
        with np.errstate(all="ignore"):
            ahead, behind = f(_moved(x, j, h)), f(_moved(x, j, -h))
            bend = abs(float(np.sum(ahead - 2 * center + behind)))
            noise = 1e-13 * max(map(_length, (center, ahead, behind))) + 1e-300
        if not np.isfinite(bend) or bend > 100.0:
            ends = ends or not np.isfinite(bend)
            h /= 10.0
        elif h == FIRST_STEP * unit and 1 / 4 <= bend / FIRST_STEP**2 <= 4:
            return float(unit)
        elif bend > max(1e-2, 1e3 * noise):
            return float(h / np.sqrt(bend))
        elif bend > 10 * noise:
            unit = h / np.sqrt(bend)
            h = FIRST_STEP * unit if bend > 1e3 * noise else min(unit, 30.0 * h)
        elif guess is not None:  # of a climb that ended elsewhere: f does not bend there
            return _natural_unit(f, x, center, j, None)
        elif ends or h > LONGEST * size:
            change = abs(float(np.sum(ahead - center)))
            return float(max(unit, h / change)) if 1e3 * noise < change else float(unit)
        else:
            h *= 10.0
    return float(unit)


def _length(terms: Array) -> float:
    return float(np.sqrt(terms @ terms))
