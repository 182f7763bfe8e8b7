r"""Noise of a function, by differences of high order along a line (Moré and Wild, 2011).

Differences of order k over a short step leave nothing of a smooth function, and of noise of
standard deviation s numbers of size :math:`s \sqrt{(2k)!} / k!`. Random numbers, rounding,
tolerances of solvers and small jumps are noise in this sense, whether or not the same point gives
the same value.
"""

from math import factorial

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.functions import Function
from implicit_delta.core.types import Array

# Of the natural unit: over it a smooth function leaves 2^-32 of its fourth derivative, over 8, in
# differences of order four, and jumps of a solver's tolerance are met.
LOOK = 2.0**-8
# Standard deviation of a log-likelihood from which on it is looked at again, with care: differences
# over the shortest steps of a climb are off by a millionth of a standard error.
AUDIBLE = 1e-9
# Factor within which orders agree on the noise. Two numbers that have a normal distribution differ
# by more in 15% of cases, by more than four times that in 4%; one order of a smooth function over a
# look is 256 times smaller than the one before, or so.
ALIKE = 4.0
BESIDE = 1e-5  # of the natural unit: hardly ever across a jump, yet far above rounding
FARTHEST_BESIDE = 0.1  # still nearer than the steps of most differences
HIDDEN = 64  # roundings of f: a move by less may leave the same number


def noise_of(f: Function, x: Array, step: Array, looks: int = 2, alike: float = ALIKE) -> Array:
    """Estimate the standard deviation of the noise of each entry of f, (m,).

    From values at x and at so many multiples of the step on either side. The highest orders of
    differences are taken together, and further ones as long as they agree within a factor.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> f = lambda x: np.exp(x) + 1e-6 * rng.normal(size=500)
    >>> noise = noise_of(f, np.zeros(1), np.array([0.01]), looks=6)
    >>> bool(0.8e-6 < np.sqrt(np.mean(noise**2)) < 1.2e-6)
    True
    >>> bool(noise_of(np.exp, np.zeros(1), np.array([0.01]), looks=6)[0] < 1e-12)
    True
    """
    table = np.array([f(x + k * step) for k in range(-looks, looks + 1)])
    sizes = []
    for order in range(1, 2 * looks + 1):
        table = np.diff(table, axis=0)
        share = factorial(order) ** 2 / factorial(2 * order)
        sizes.append(share * np.mean(table**2, axis=0))
    agree, total, count = np.ones(sizes[0].shape, bool), 0.0 * sizes[0], 0.0 * sizes[0]
    for weight, size in enumerate(reversed(sizes), start=1):  # so many differences are left of it
        if weight >= looks:
            agree = agree & (size <= alike**2 * total / count)
        total, count = total + np.where(agree, weight * size, 0.0), count + weight * agree
    return np.asarray(np.sqrt(total / count))


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
