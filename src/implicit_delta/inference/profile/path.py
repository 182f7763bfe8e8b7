"""The most extreme psi over likelihood regions of growing size: one side of a profile.

How it differs from the textbook (Venzon and Moolgavkar, 1988) and from a push with lambda alone:

- The path is walked in r, the root of the deviance, and not in psi or lambda. So each step is one
  in standard errors of theta, whatever psi does: lambda may stop growing along the path (where the
  local maximum of L + lambda psi ends), and psi may have a pole or an extreme on it.
- Every trial lies on the surface of the region. What is maximized there is lambda psi, which has
  the unit of a log-likelihood, so that the curvature of L scales this problem too.
- What a search leaves unfinished enters only squared, since psi is stationary on the surface.
"""

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.inference.profile.peaks import peak_of
from implicit_delta.inference.profile.rays import runaway
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import FARTHEST, Point, Surface
from implicit_delta.inference.profile.values import End, Kind, bounded_level

LONGEST_STEP, SHORTEST_STEP = 1.0, 1e-3  # in r; a turn of psi within the latter is looked at
FARTHEST_LOOK, LONGER_LOOK = 0.25, 3.0  # in r; times the look before
SATURATED = 1e-2  # relative change of psi over the last nine tenths of a ray without end


class Side:
    """One side of the path: the points that were needed so far, outwards from the fitted one.

    Parameters
    ----------
    region : Region
    sign : {-1, 1}
        Toward smaller or larger psi.
    tangent : (d,) array
        Derivative of theta with respect to r at the fitted point.
    error : float
        Derivative of psi with respect to r there: its standard error.

    Attributes
    ----------
    points : list of Point
        Ordered by r.
    last : End or None
        Where the path ends for good, because psi gets no more extreme or is unbounded.
    """

    def __init__(self, region: Region, sign: int, tangent: Array, error: float) -> None:
        self.points = [Point(region.model.theta, region.value, 0.0, 0.0)]
        self.last: End | None = None
        self.sign, self.region = sign, region
        self._tangent, self._error = sign * tangent, error
        self._step, self._looked = LONGEST_STEP, 0.0

    def end(self, root: float) -> End:
        """Find the most extreme psi up to this root of the deviance, at least as large as before.

        Raises
        ------
        ConvergenceError
            The path is lost.
        """
        while self.points[-1].root < root and self.last is None:
            before = self.points[-1].root
            steps = np.ceil((root - before) / self._step)
            self._advance(root if steps == 1 else before + (root - before) / steps, root)
        point = self.points[-1]
        return self.last or End(point.psi, point.theta, root**2, "quantile", point.lam)

    def _advance(self, root: float, goal: float) -> None:
        """Try for the point at `root`; where there is none, the next trial is less far."""
        surface, start = Surface(self.region, root), self._predict(root)
        if surface.is_open(start) and self._leaves(surface, start):
            return
        if start.size == 1 and surface.at_a_jump(start):
            self._stop("edge", surface.theta(start))
            return
        point, failure = surface.search(start, self.sign, self.points[-1].psi)
        if point is not None:
            self.points.append(point)
            self._step = min(2 * self._step, LONGEST_STEP)
            return
        self._step = (root - self.points[-1].root) / (8 if failure else 2)
        if failure and self._looked < goal:  # once, as searches that fail are expensive
            self._looked = goal
            self.last = runaway(self.region, self._tangent, self.sign, goal)
        if self.last is None and self._step < SHORTEST_STEP and not self._ends_before(goal):
            raise ConvergenceError(_lost(self.points[-1], self.sign, failure))

    def _stop(self, kind: Kind, theta: Array, psi: float | None = None) -> None:
        psi = self.region.psi(theta) if psi is None else psi
        self.last = End(psi, theta, self.region.deviance(theta), kind)
        root = float(np.sqrt(self.last.deviance))
        if root > self.points[-1].root and np.isfinite(psi):
            self.points.append(Point(theta, psi, 0.0, root))

    def _ends_before(self, goal: float) -> bool:
        """Look ahead for a turn or a pole of psi, at growing distances.

        Psi itself is looked at: beside a kink or a pole, differences of it are no derivative.
        """
        last = self.points[-1]
        limit = min(FARTHEST_LOOK, goal - last.root)
        looks = int(np.ceil(np.log(max(limit / self._step, 1)) / np.log(LONGER_LOOK)))
        return any(self._ends_within(limit / LONGER_LOOK**k) for k in range(looks, -1, -1))

    def _ends_within(self, reach: float) -> bool:
        last = self.points[-1]
        way = self.points[0].theta + self._predict(last.root + reach) - last.theta
        peak = peak_of(lambda x: self._rise(last.theta + x * way))
        if peak is None:
            return False
        theta = last.theta + peak.x * way
        if peak.diverges:
            self._stop("pole", theta, self.sign * np.inf)
        else:
            self._stop("extreme", theta)
        return True

    def _rise(self, theta: Array) -> float:
        """By how many standard errors psi is more extreme than so far."""
        return self.sign * (self.region.psi(theta) - self.points[-1].psi) / self._error

    def _leaves(self, surface: Surface, ray: Array) -> bool:
        """Follow a ray that stays in the region for ever, and see whether psi stays finite."""
        near, far = (self.points[0].theta + way * FARTHEST * ray for way in (0.1, 1.0))
        before, rise = self._rise(near), self._rise(far)
        whole = rise + abs(self.points[-1].psi - self.points[0].psi) / self._error
        if not before > 0:
            return False
        if rise - before <= SATURATED * whole:
            self._stop("limit", far)
        else:  # also if psi overflows
            self._stop("infinite", far, self.sign * np.inf)
        return True

    def _predict(self, root: float) -> Array:
        """Extrapolate the chord from the fitted point, per unit of r, to `root`."""
        last = self.points[-1]
        if last.root == 0:
            return root * self._tangent
        before, chord = self.points[-2], self._chord(last)
        turn = (chord - self._chord(before)) / (last.root - before.root)
        return np.asarray(root * (chord + (root - last.root) * turn))

    def _chord(self, point: Point) -> Array:
        if point.root == 0:
            return self._tangent
        return np.asarray((point.theta - self.points[0].theta) / point.root)


def _lost(last: Point, sign: int, failure: str) -> str:
    word, level = "larger" if sign > 0 else "smaller", bounded_level(last.root**2)
    lower = f"`confidence_level={level:g}`, up to which it was followed, " if level else ""
    return (
        f"The profile could not be followed to {word} values than psi = {last.psi:.6g} (deviance "
        f"{last.root**2:.3g}). {failure or 'Psi turns there, and turns back.'} Usual causes: psi "
        "has kinks, jumps or a pole nearby (a ratio whose numerator and denominator may both be "
        "zero), or the log-likelihood has an edge, a second maximum or no maximum at all "
        "(separated classes: add `l2=`). Try "
        f"{lower}the numerator and the denominator on their own, another parametrization, or "
        "`infer(model, psi, Bootstrap())`."
    )
