"""The path of the extreme of psi over likelihood regions of growing size, and where it ends.

It ends at a quantile of the deviance; or before, where psi turns, has a pole, or is held by the
region itself: which of these it is, values of psi ahead show. Behind a pole the path continues in
-1 / (psi - c), on the circle that the line and infinity make.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError, UnsupportedModelError
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.extreme import Found, extreme, verified
from implicit_delta.inference.profile.problem import REACHED, ROUNDED, STATIONARY, Point, Problem
from implicit_delta.inference.profile.values import End, Kind, Values, bounded_level

LONGEST_STEP, SHORTEST_STEP = 1.5, 1e-3  # in r; a turn of psi within the latter is looked at
PASSING = 1e-2  # share of the gradient of psi that may be left on the way
STARTS = 2  # in random directions, where constraints hold
FARTHEST_LOOK, LONGER_LOOK = 0.25, 3.0  # in r; times the look before
SATURATED = 1e-2  # relative change of psi over the last nine tenths of a ray without end
AT_INFINITY = 1e-9  # of the reciprocal at the fitted point: psi is at its pole
BISECTIONS, CONTINUOUS = 50, 1e-6  # toward a pole, and what a continuous reciprocal is there
LOOKS, BEYOND = 41, 4.0  # values looked at on [0, 4] for a peak
CLOSER = (1e-1, 1e-3, 1e-5)  # distances from a peak over which a pole keeps growing
GROWS = 0.8  # growth over one of these relative to that over the one before: 1 for a logarithm
ROUNDING = 1e-2  # growth that is no rounding error
GOLDEN, SECTIONS = (5**0.5 - 1) / 2, 45  # a width of 4e-10

BOTH = (-1, 1)


def follow(
    problem: Problem, roots: Sequence[float], signs: Sequence[int] = BOTH
) -> tuple[list[Values], list[tuple[int, Point]]]:
    """Find the values up to each of these roots, which ascend, and the points on the way."""
    sides = {sign: Side(problem, sign) for sign in BOTH}

    def ends(sign: int) -> list[End]:
        if sign not in signs:
            return [End(sign * np.inf, problem.model.theta, 0.0, "open")] * len(roots)
        return [sides[sign].end(root) for root in roots]

    pairs = list(zip(roots, ends(-1), ends(1), strict=True))
    followed = min(sides[sign].points[-1].root for sign in signs)
    found = [Values(root, low, high, followed=followed) for root, low, high in pairs]
    for sign in BOTH if problem.limits is None else ():
        found = _past_pole(problem, found, sign)
    below, above = ([(sign, x) for x in sides[sign].points] for sign in BOTH)
    return found, [*reversed(below), *above[1:]]


class Side:
    """One side of the path: the points that were needed so far, outwards from the fitted one.

    Attributes
    ----------
    points : list of Point
        Ordered by r.
    last : End or None
        Where the path ends for good, because psi gets no more extreme or is unbounded.
    """

    def __init__(self, problem: Problem, sign: int) -> None:
        self.problem, self.sign = problem, sign
        center = problem.model.theta
        center = problem.limits.inside(center) if problem.limits is not None else center
        self.points = [problem.point(center, sign, 0.0)]
        self.last: End | None = None
        self._step, self._root = LONGEST_STEP, 0.0

    def end(self, root: float) -> End:
        """Find the most extreme psi up to this root of the deviance, at least as large as before.

        Raises
        ------
        ConvergenceError
            The path is lost.
        """
        while self._root < root and self.last is None:
            before = self._root
            steps = np.ceil((root - before) / self._step)
            self._advance(root if steps == 1 else before + (root - before) / steps, root)
        point = self.points[-1]
        return self.last or End(point.psi, point.theta, root**2, "quantile", point)

    def _best_of_starts(self, found: Found, root: float) -> Found:
        """Search from elsewhere too where constraints may leave several extremes."""
        problem, center = self.problem, self.points[0].theta
        assert problem.limits is not None
        assert problem.scale is not None
        ways = np.random.default_rng(0).standard_normal((STARTS, center.size))
        ways = root * ways / np.linalg.norm(ways, axis=1, keepdims=True)
        starts = center + np.vstack([0 * ways[:1], np.asarray(problem.scale.half(ways.T)).T])
        every = [found]
        for start in map(problem.limits.inside, starts):
            with suppress(EvaluationError, UnsupportedModelError, ArithmeticError, ValueError):
                point = problem.point(start, self.sign)
                every.append(extreme(problem, self.sign, root, point))
        reached = [x for x in every if x.point is not None and x.point.root <= root * (1 + REACHED)]
        return max(
            reached, key=lambda x: self.sign * x.point.psi if x.point else -np.inf, default=found
        )

    def _advance(self, root: float, goal: float) -> None:
        """Search at `root`; where nothing is found, the next search is less far."""
        last = self.points[-1]
        if self.problem.is_bounded and np.isinf(last.lam) and last.unexplained <= ROUNDED:
            self.last = End(last.psi, last.theta, last.root**2, "bound", last)
            return
        final = root == goal or self.problem.is_bounded
        tolerance = STATIONARY if final else PASSING
        found = extreme(self.problem, self.sign, root, last, last.psi, tolerance)
        if self.problem.is_bounded and root == goal and last.theta.size > 1:
            found = self._best_of_starts(found, root)
        if found.kind == "open" and found.theta is not None and self._ends_far_out(found.theta):
            return
        if found.kind == "jump" and found.theta is not None:
            self._stop("edge", found.theta)
            return
        if found.point is not None:
            point = found.point
            if root == goal and self.problem.limits is None and self.problem.squares is None:
                point = verified(self.problem, self.sign, root, point)
            held = point.root < root * (1 - REACHED)
            self.points.append(point if held else replace(point, root=root))
            self._root = root
            self._step = min(2 * self._step, LONGEST_STEP)
            return
        self._step = (root - self._root) / (8 if found.failure else 2)
        if self._step < SHORTEST_STEP and not self._ends_before(goal):
            raise ConvergenceError(_lost_text(last, self.sign, found.failure))

    def _stop(self, kind: Kind, theta: Array, psi: float | None = None) -> None:
        psi = self.problem.psi(theta) if psi is None else psi
        root = self.problem.root(theta)
        self.last = End(psi, theta, root**2, kind)
        if root > self.points[-1].root and np.isfinite(psi):
            self.points.append(self.points[-1].at(theta, psi, root, 0.0))

    def _ends_before(self, goal: float) -> bool:
        """Look ahead for a turn or a pole of psi, at growing distances.

        Psi itself is looked at: at a kink or a pole, differences of it are no derivative.
        """
        last = self.points[-1]
        limit = min(FARTHEST_LOOK, goal - last.root)
        looks = int(np.ceil(np.log(max(limit / self._step, 1)) / np.log(LONGER_LOOK)))
        return any(self._ends_within(limit / LONGER_LOOK**k) for k in range(looks, -1, -1))

    def _ends_within(self, reach: float) -> bool:
        last = self.points[-1]
        way = self._predict(last.root + reach) - last.theta
        peak = peak_of(lambda x: self._rise(last.theta + x * way))
        if peak is None:
            return False
        theta, diverges = last.theta + peak[0] * way, peak[1]
        if diverges:
            self._stop("pole", theta, self.sign * np.inf)
        else:
            self._stop("extreme", theta)
        return True

    def _rise(self, theta: Array) -> float:
        """By how many standard errors psi is more extreme than so far."""
        return self.sign * (self.problem.psi(theta) - self.points[-1].psi) / self.problem.error

    def _ends_far_out(self, far: Array) -> bool:
        """Whether a ray that stays in the region for ever ends the path, psi finite or not."""
        center = self.points[0].theta
        before, rise = self._rise(center + 0.1 * (far - center)), self._rise(far)
        whole = rise + abs(self.points[-1].psi - self.points[0].psi) / self.problem.error
        if not before > 0:
            return False
        if rise - before <= SATURATED * whole:
            self._stop("limit", far)
        else:  # also if psi overflows
            self._stop("infinite", far, self.sign * np.inf)
        return True

    def _predict(self, root: float) -> Array:
        """Extrapolate the chord from the fitted point, per unit of r, to `root`."""
        first, last = self.points[0].theta, self.points[-1]
        tangent = self.sign * self.problem.tangent
        if last.root == 0:
            return np.asarray(first + root * tangent)
        before = self.points[-2]
        chord, other = (
            (point.theta - first) / point.root if point.root else tangent
            for point in (last, before)
        )
        turn = (chord - other) / (last.root - before.root)
        return np.asarray(first + root * (chord + (root - last.root) * turn))


def _lost_text(last: Point, sign: int, failure: str) -> str:
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


def _past_pole(problem: Problem, found: list[Values], sign: int) -> list[Values]:
    """Continue behind a pole on one side, as seen from the end on the other side.

    Seen from a point that is not among its values, psi has no pole.
    """
    cut = [v.end(sign).kind == "pole" and np.isfinite(v.end(-sign).psi) for v in found]
    if not any(cut):
        return found
    c = [v.end(-sign).psi for v, pole in zip(found, cut, strict=True) if pole][-1]
    side = Side(problem.with_reciprocal(c), sign)
    return [
        _with_piece_past_pole(side, v, c) if pole else v for v, pole in zip(found, cut, strict=True)
    ]


def _with_piece_past_pole(side: Side, values: Values, c: float) -> Values:
    """Translate the end of a path in -1 / (psi - c)."""
    sign, infinite = side.sign, AT_INFINITY * abs(side.points[0].psi)
    try:
        end = side.end(values.root)
    except ConvergenceError as error:
        if sign * side.points[-1].psi > infinite:
            raise ConvergenceError(_half_found_text(values, sign)) from error
        return values  # psi is not defined behind its pole
    psi = c - 1 / end.psi if end.psi else np.inf
    if sign * end.psi > infinite:
        piece = Interval(*sorted((_value_past_pole(side, c), psi)))
        return replace(values, others=(*values.others, piece))
    if end.kind == "quantile" and sign * end.psi < -infinite:
        moved = replace(end, psi=psi, point=None)  # psi is steep, and has no pole
        return replace(values, high=moved) if sign > 0 else replace(values, low=moved)
    return values


def _value_past_pole(side: Side, c: float) -> float:
    """Psi right behind its pole: infinite, unless only one of its sides is (an exponential)."""
    height = [side.sign * point.psi for point in side.points]
    first = next((k for k, x in enumerate(height) if x > 0), 0)
    if first == 0:  # found by a ray, not on the path
        return -side.sign * np.inf
    before, behind = side.points[first - 1].theta, side.points[first].theta
    for _ in range(BISECTIONS):
        middle = (before + behind) / 2
        if side.sign * side.problem.psi(middle) > 0:
            behind = middle
        else:
            before = middle
    reciprocal = side.problem.psi(behind)
    far = abs(reciprocal) < CONTINUOUS * abs(height[0])
    return -side.sign * np.inf if far else c - 1 / reciprocal


def _half_found_text(values: Values, sign: int) -> str:
    pole, word = values.end(sign).deviance, "minus" if sign > 0 else "plus"
    return (
        f"Psi runs to infinity where the deviance is {pole:.3g}, below the quantile "
        f"{values.root**2:.3g}, and comes back from {word} infinity, as a ratio does whose "
        "denominator may be zero (Fieller). So its values are not one interval, and where those "
        "behind the pole end could not be found. Try "
        f"`confidence_level={values.bounded_level:g}`, up to which there is one interval, or the "
        "numerator and the denominator on their own."
    )


def peak_of(f: Callable[[float], float]) -> tuple[float, bool] | None:
    """Find a peak, a kink, a plateau, a jump or a pole of f on [0, 1], and whether f diverges.

    `f` is NaN where it is not defined, finite at 0, and changes by about one over unit length.
    None if it only rises.
    """

    def height(x: float) -> float:
        found = f(x)
        return found if found == found else -np.inf

    looks = np.linspace(0, BEYOND, LOOKS)
    heights = [height(x) for x in looks]
    best = int(np.argmax(heights))
    if looks[best] > 1:
        return None
    x = golden_section(height, looks[max(best - 1, 0)], looks[best + 1])
    x = x if height(x) > heights[best] else float(looks[best])
    far, near, nearest = (height(x - step) for step in CLOSER)
    return x, near > far and nearest - near > max(GROWS * (near - far), ROUNDING)


def golden_section(height: Callable[[float], float], low: float, high: float) -> float:
    """Maximize on an interval without the help of parabolas, which a pole or a jump misleads."""
    for _ in range(SECTIONS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        pairs = (height(left), -left, low, right), (height(right), -right, left, high)
        _, best, low, high = max(pairs)
    return -float(best)
