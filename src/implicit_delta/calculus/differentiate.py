r"""Derivatives of a black box by central differences, extrapolated to step zero.

Why not `scipy.differentiate` or `jacobi`: both choose their steps from the point alone. A
log-likelihood has a natural unit in every direction, the length over which it changes by about
one (a standard error); at a fixed fraction of that unit neither truncation nor rounding matters,
three or four steps suffice, and a badly scaled parameter costs nothing.

Where f is noisy, the first steps are as long as the unit, and of all extrapolated values that one
is kept whose truncation and noise together are least: differences of order k over a step t carry
noise of about :math:`s / t^k`.
"""

from collections.abc import Callable

import numpy as np

from implicit_delta.calculus.functions import Derivative, Function, bend, moved
from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array

FIRST_STEP = 0.25  # of the natural unit; halved at each further level
# Where f is noisy. Beyond one unit a log-likelihood of few observations is no polynomial any more.
LONGEST_STEP = 1.0
FEWEST_LEVELS, MOST_LEVELS = 3, 6
# Of a function that changes by about one over the unit. Over a sixteenth of it a second difference
# carries 600 times that, which is 1e-5: as much as a curvature may be off.
LOUD = 2e-8
# Two standard deviations of a central first difference over t, times t, and of a second one times
# t^2 (mixed ones included).
AMPLIFIED = {1: 2 / np.sqrt(2.0), 2: 2 * np.sqrt(6.0)}
RELATIVE_TOLERANCE = 1e-11
CURVATURE_TOLERANCE = 3e-5  # of the smallest curvature: over 16, 1e-6 of a standard error
# Of the largest: smaller ones need directions of their own. Times the above it is less than the
# error that a flat direction beside others is allowed.
LEAST_CURVATURE = 5e-5
SHORT_STEP = 2.0**-10  # of the natural unit: what is left out is 1e-7 times the third derivative
SHORTEST_STEP = 2.0**-12  # 1e-8 of it, and rounding of L leaves less
SHORT_ERROR = 1e-10  # of the length of a gradient: a tenth of what a standard error may be off
FEWEST_SHORT = 8  # coordinates from which on a look beforehand costs less than it may save
NEGLIGIBLE = 0.1  # length of a derivative in units below which it counts as this
MOST_SHRINKS = 12  # times 4: a domain that ends 1e-7 natural units away is still found
SETTLED = 1e-5  # of a column's length: far above what rounding or an ODE solver leave
FIRST_SHARE = 1e-2  # of the size of a coordinate without a unit: the first of many steps
MOST_DECADES = 15  # from a place at 1e6 to a width of 1e-9
ROUGH = 0.1  # of a column's length: beyond it the step is too long, not the function noisy
SHORTEST = 1 / 8  # of a step: the shortest difference of most extrapolations
MOST_WORSE = 2  # steps in a row that settle less: what is left is noise, or a kink


def differentiate(
    f: Function,
    x: Array,
    units: Array | None = None,
    order: int = 1,
    *,
    directions: Array | None = None,
    rtol: float | None = None,
    noise: Array | float = 0.0,
) -> Derivative:
    r"""Differentiate f once, or its sum twice, by differences that know their error.

    Central differences over t = 1/4, 1/8, ... of a unit are extrapolated to t = 0 (Richardson)
    until the estimated error no longer matters. Second ones are those of pairs of directions,
    :math:`2 u'Hv = S(u + v) - S(u) - S(v)` with the symmetric second difference
    :math:`S(u) = (f(x + tu) - 2 f(x) + f(x - tu)) / t^2`: two evaluations a pair and a level.

    Parameters
    ----------
    f : callable
        (d,) to (m,). Second differences are taken entry by entry before summing, which keeps the
        rounding error at that of one entry rather than that of the sum.
    x : (d,) array
    units : (d,) array, optional
        Lengths over which f changes by about one: standard errors. Without them, steps begin at a
        share of the size of each coordinate, and shrink until differences settle.
    order : {1, 2}
    directions : (d, k) array, optional
        The coordinates by default. Along others without units, their lengths are the units.
    rtol : float, optional
        Error at which to stop: of a column of the first derivative over its length, or a tenth of
        what it is expected to be in units if that is more; of the second derivatives in units over
        the least curvature. By default a first derivative is known to rounding.
    noise : (m,) array or float
        Standard deviation of each entry of f, or of their sum for second derivatives.

    Returns
    -------
    Derivative
        `value` and `error` of shape (m, k), or (k, k) and symmetric for second derivatives.

    Examples
    --------
    >>> differentiate(np.exp, np.array([0.0, 1.0]), np.ones(2)).value.round(9)
    array([[1.        , 0.        ],
           [0.        , 2.71828183]])
    >>> differentiate(lambda x: x[:1] * x[1:] ** 2, np.ones(2), np.ones(2), 2).value.round(9)
    array([[0., 2.],
           [2., 2.]])
    """
    if directions is None:
        if units is None:
            return _with_shrinking_steps(f, x, FIRST_SHARE * sizes(x), noise)
        steps, lengths = np.diag(units), 1 / units
    else:
        steps, lengths = directions, np.ones(directions.shape[1])
        if units is not None:
            lengths = np.max(abs(directions) / units[:, None], axis=0, initial=0.0)
            lengths = np.where(lengths > 0, lengths, 1.0)
            steps = directions / lengths
    if order == 2:
        found = _second(f, x, steps, rtol or CURVATURE_TOLERANCE, noise)
        return found.scaled(np.outer(lengths, lengths))
    short = short_differences(f, x, units) if directions is None and rtol is None else None
    if short is not None:
        return Derivative(short, SHORT_ERROR * abs(short), noise).scaled(lengths)
    columns = [_along(f, x, u, rtol, noise) for u in steps.T]
    value, error = (np.stack([c[i] for c in columns], axis=1) for i in (0, 1))
    return Derivative(value, error, noise).scaled(np.asarray(lengths))


def central_slopes(f: Function, x: Array, steps: Array) -> Array:
    """Difference the sum of f over one step along each coordinate, (d,): two evaluations each."""
    pairs = ((f(moved(x, j, h)), f(moved(x, j, -h))) for j, h in enumerate(steps))
    return np.asarray(np.array([np.sum(ahead - behind) for ahead, behind in pairs]) / (2 * steps))


def central_differences(f: Function, x: Array, steps: Array) -> tuple[Array, Array]:
    """Difference the sum of f over one step along each coordinate: slopes and bends, (d,) each.

    One evaluation more than for slopes alone. The bends are over the step, not squared.
    """
    center, slopes, bends = f(x), np.zeros_like(x), np.zeros_like(x)
    for j, h in enumerate(steps):
        ahead, behind = (f(moved(x, j, way * h)) for way in (1, -1))
        slopes[j] = np.sum(ahead - behind) / (2 * h)
        bends[j] = np.sum(ahead - 2 * center + behind)
    return slopes, bends


def balanced_step(noise: float) -> float:
    """Share of a unit over which one central difference leaves out as much as noise adds."""
    return float(np.clip((3 * noise) ** (1 / 3), SHORTEST_STEP, FIRST_STEP))


def second_differences(f: Function, x: Array, steps: Array) -> Array:
    """Differentiate the sum of f twice over one step along pairs of the columns (d, k): (k, k)."""
    center, k = f(x), steps.shape[1]
    rows, columns = np.triu_indices(k)
    pairs = [
        steps[:, i] if i == j else steps[:, i] + steps[:, j]
        for i, j in zip(rows, columns, strict=True)
    ]
    matrix = np.zeros((k, k))
    matrix[rows, columns] = [bend(f, x, center, u) for u in pairs]
    own = np.diag(matrix)
    cross = np.triu(matrix - own[:, None] - own[None, :], 1) / 2
    return np.asarray(np.diag(own) + cross + cross.T)


def short_differences(f: Function, x: Array, units: Array | None) -> Array | None:
    """Differentiate f along each coordinate by one short difference, (m, d), if these suffice.

    Two evaluations a coordinate instead of six or more. Along a random mixture of all coordinates
    the extrapolated derivative must be the short difference beforehand, and that of all short
    differences together afterward: the sum of their errors in random proportions. So noise, kinks
    and jumps within a quarter of a unit, and a function that bends too much, give None.
    """
    if x.size < FEWEST_SHORT or units is None:
        return None
    proportions = np.random.default_rng(0).uniform(0.5, 1.0, x.size) * np.resize([1, -1], x.size)
    try:
        slope = _along(f, x, proportions * units, None, 0.0)[0]
        with np.errstate(all="ignore"):
            first = _difference(f, x, proportions * units, SHORT_STEP)
    except Exception:  # f may end nearer than along each coordinate
        return None
    if not np.all(abs(first - slope) <= SHORT_ERROR * np.sqrt(x.size) * abs(slope)):
        return None
    found = np.stack([_difference(f, x, step, SHORT_STEP) for step in np.diag(units)], axis=1)
    error = abs(found @ proportions - slope)
    return found if np.all(error <= SHORT_ERROR * np.linalg.norm(found, axis=1)) else None


def _along(
    f: Function, x: Array, step: Array, rtol: float | None, noise: Array | float
) -> tuple[Array, Array]:
    """Extrapolate along a step of one unit: derivative and error, (m,) each."""
    least = 0.0 if rtol is None else NEGLIGIBLE
    tolerance = rtol or RELATIVE_TOLERANCE

    def settled(best: Array, error: Array) -> bool:
        return bool(np.linalg.norm(error) <= tolerance * max(float(np.linalg.norm(best)), least))

    loud = rtol is not None and bool(np.max(noise) > LOUD)
    return _extrapolate(lambda t: _difference(f, x, step, t), settled, 1, noise, loud)


def _second(f: Function, x: Array, steps: Array, rtol: float, noise: Array | float) -> Derivative:
    """Extrapolate second differences of the sum along steps of one unit (d, k)."""

    def settled(best: Array, error: Array) -> bool:
        curvatures = abs(np.linalg.eigvalsh(best))
        least = max(curvatures.min(), LEAST_CURVATURE * curvatures.max())
        return bool(np.linalg.norm(error) <= rtol * least)

    level, loud = lambda t: second_differences(f, x, t * steps) / t**2, bool(np.max(noise) > LOUD)
    found = _extrapolate(level, settled, 2, noise, loud)
    return Derivative(*found, noise)


def _difference(f: Function, x: Array, step: Array, t: float) -> Array:
    return np.asarray((f(x + t * step) - f(x - t * step)) / (2 * t))


def _extrapolate(
    level: Callable[[float], Array],
    settled: Callable[[Array, Array], bool],
    order: int,
    noise: Array | float,
    loud: bool,
) -> tuple[Array, Array]:
    """Richardson's tableau in t^2; each entry keeps its most trustworthy estimate (Ridders).

    The error of an estimate is its distance from the coarser of the two that it is made of, or
    four times what noise adds. Equal estimates are no proof where noise hides the moves.
    """
    t, row = _first_level(level, LONGEST_STEP if loud else FIRST_STEP)
    best, error = row[0], np.full_like(row[0], np.inf)
    for count in range(2, MOST_LEVELS + 1):
        t /= 2
        blur = AMPLIFIED[order] * noise / t**order
        previous, row = row, [level(t)]
        for power, older in enumerate(previous, start=1):
            row.append(row[-1] + (row[-1] - older) / (4**power - 1))
            doubt = np.maximum(abs(row[-1] - row[-2]), abs(row[-1] - older)) + blur
            better = doubt < error
            best, error = np.where(better, row[-1], best), np.where(better, doubt, error)
        if count >= FEWEST_LEVELS and settled(best, error - (0.0 if loud else blur)):
            break
        if loud and np.all(blur > error / 2):  # shorter steps are louder
            break
    still = best == 0  # nothing has moved, not by rounding either
    return best, np.where(still, 0.0, error) if np.any(noise) else error


def _first_level(level: Callable[[float], Array], t: float) -> tuple[float, list[Array]]:
    """Shrink the first step until both ends lie inside the domain of f."""
    for _ in range(MOST_SHRINKS):
        with np.errstate(all="ignore"):
            value = level(t)
        if np.all(np.isfinite(value)):
            return t, [value]
        t /= 4
    raise FloatingPointError("the function is not finite on both sides of the point")


def _with_shrinking_steps(f: Function, x: Array, steps: Array, noise: Array | float) -> Derivative:
    """Differentiate along coordinates in steps as given or, where they are too long, shorter.

    A step that is far longer than f is smooth gives differences that do not settle as it is
    halved, or none at all: zero. Such a column is tried again with a tenth of it, and so on.
    The error includes the rounding of f, which extrapolation does not show where it is the same
    in a few short steps.
    """
    rounding = np.spacing(abs(f(x)))
    columns = [_shrinking(f, x, j, step, rounding) for j, step in enumerate(steps)]
    value, error = (np.stack([c[i] for c in columns], axis=1) for i in (0, 1))
    return Derivative(value, error, np.maximum(noise, rounding))


def _shrinking(f: Function, x: Array, j: int, step: float, rounding: Array) -> tuple[Array, Array]:
    best: tuple[Array, Array] | None = None
    doubt, worse = np.inf, 0
    for _ in range(MOST_DECADES):
        try:
            found = _along(f, x, moved(np.zeros_like(x), j, step), None, 0.0)
        except FloatingPointError:  # the domain ends nearby
            step /= 10
            continue
        size = float(np.linalg.norm(found[0]))
        share = float(np.linalg.norm(found[1])) / size if size > 0 else np.inf
        if best is None or share < doubt:
            best = found[0] / step, (found[1] + rounding / SHORTEST) / step
            doubt, worse = share, 0
        elif doubt < ROUGH:
            worse += 1
        if doubt <= SETTLED or worse == MOST_WORSE:
            break
        step /= 10
    if best is None:
        raise FloatingPointError("the function is not finite on both sides of the point")
    return best
