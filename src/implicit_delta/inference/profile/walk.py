"""Both sides of the path, and the way around where psi has a pole."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.path import Side
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.sides import BOTH, open_end
from implicit_delta.inference.profile.values import End, Values

AT_INFINITY = 1e-9  # of the reciprocal at the fitted point: psi is at its pole
BISECTIONS, CONTINUOUS = 50, 1e-6  # toward a pole, and what a continuous reciprocal is there


@dataclass(frozen=True)
class Walk:
    """Both sides of the path.

    Attributes
    ----------
    region : Region
    tangent : (d,) array
        Derivative of theta with respect to r at the fitted point, toward larger psi.
    error : float
        The standard error of psi.
    below, above : Side
    """

    region: Region
    tangent: Array
    error: float
    below: Side
    above: Side

    @classmethod
    def of(cls, region: Region, tangent: Array, error: float) -> "Walk":
        """Start at the fitted point."""
        below, above = (Side(region, sign, tangent, error) for sign in (-1, 1))
        return cls(region, tangent, error, below, above)

    def values(self, roots: Sequence[float], signs: Sequence[int] = BOTH) -> list[Values]:
        """Walk outwards: the values up to each of these roots, which ascend."""
        sides = {-1: self.below, 1: self.above}
        below, above = (partial(self._end, sides[sign], signs) for sign in BOTH)
        found = [Values(root, below(root), above(root)) for root in roots]
        followed = min(sides[sign].points[-1].root for sign in signs)
        found = [replace(values, followed=followed) for values in found]
        for sign in (-1, 1):
            found = self._around(found, sign)
        return found

    def _end(self, side: Side, signs: Sequence[int], root: float) -> End:
        return side.end(root) if side.sign in signs else open_end(side.sign, side.points[0].theta)

    def _around(self, found: list[Values], sign: int) -> list[Values]:
        """Continue behind a pole on one side, as seen from the end on the other side.

        On the circle that the line and infinity make, psi is continuous. Seen from a point which
        is not among its values, it has no pole.
        """
        cut = [v.end(sign).kind == "pole" and np.isfinite(v.end(-sign).psi) for v in found]
        if not any(cut):
            return found
        c = [v.end(-sign).psi for v, pole in zip(found, cut, strict=True) if pole][-1]
        error = self.error / (self.region.value - c) ** 2
        side = Side(self.region.seen_from(c), sign, self.tangent, error)
        return [_behind(side, v, c) if pole else v for v, pole in zip(found, cut, strict=True)]


def _behind(side: Side, values: Values, c: float) -> Values:
    """Translate the end of a path in -1 / (psi - c)."""
    sign, infinite = side.sign, AT_INFINITY * abs(side.points[0].psi)
    try:
        end = side.end(values.root)
    except ConvergenceError as error:
        if sign * side.points[-1].psi > infinite:
            raise ConvergenceError(_half_way(values, sign)) from error
        return values  # psi is not defined behind its pole
    psi = c - 1 / end.psi if end.psi else np.inf
    if sign * end.psi > infinite:
        return values.joined(Interval(*sorted((_comes_back(side, c), psi))))
    if end.kind == "quantile" and sign * end.psi < -infinite:
        moved = replace(end, psi=psi)  # psi is steep, and has no pole
        return replace(values, high=moved) if sign > 0 else replace(values, low=moved)
    return values


def _comes_back(side: Side, c: float) -> float:
    """Psi right behind its pole: infinite, unless only one of its sides is (an exponential)."""
    height = [side.sign * point.psi for point in side.points]
    first = next((k for k, x in enumerate(height) if x > 0), 0)
    if first == 0:  # found by a ray, not on the path
        return -side.sign * np.inf
    before, behind = side.points[first - 1].theta, side.points[first].theta
    for _ in range(BISECTIONS):
        middle = (before + behind) / 2
        if side.sign * side.region.psi(middle) > 0:
            behind = middle
        else:
            before = middle
    reciprocal = side.region.psi(behind)
    far = abs(reciprocal) < CONTINUOUS * abs(height[0])
    return -side.sign * np.inf if far else c - 1 / reciprocal


def _half_way(values: Values, sign: int) -> str:
    pole, word = values.end(sign).deviance, "minus" if sign > 0 else "plus"
    return (
        f"Psi runs to infinity where the deviance is {pole:.3g}, below the quantile "
        f"{values.root**2:.3g}, and comes back from {word} infinity, as a ratio does whose "
        "denominator may be zero (Fieller). So its values are not one interval, and where those "
        "behind the pole end could not be found. Try "
        f"`confidence_level={values.bounded_level:g}`, up to which there is one interval, or the "
        "numerator and the denominator on their own."
    )
