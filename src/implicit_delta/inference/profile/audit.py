"""Search of a likelihood region for values of psi that the path has missed.

A path is local: it follows one extreme of psi over a growing region, and stops where psi turns. So
psi is evaluated elsewhere in the region too, and the likelihood behind its ends. Where psi leaves
the interval although the deviance is below the quantile, the search for its extreme starts again
from there. For a psi that is monotone along its path this costs few passes over the data.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError, UnsupportedModelError
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.extreme import (
    Found,
    Trial,
    cross,
    descended,
    extreme,
    verified,
)
from implicit_delta.inference.profile.path import golden_section, peak_of
from implicit_delta.inference.profile.problem import Problem
from implicit_delta.inference.profile.values import End, Values
from implicit_delta.methods.ascent import Ascent
from implicit_delta.optimize import Objective, lbfgs

ALONG = (0.2, 0.4, 0.6, 0.8)  # of the way to an end
INSIDE = 0.97  # of the radius of the region, were the objective a parabola
LINE, CLOUD = 200, 256  # points on a ray and in a region
MOST_AXES, ALIKE = 8, 0.95
SLACK = 1e-3  # standard errors: what the end of a path may be off
TILT, CURVED = 0.3, 0.8  # standard errors to the side; bend there, against that of the surface
BENT = 0.25  # nonlinearity of psi within half a standard error
AHEAD = 0.3  # of the way to an end
STARTS, ROUNDS = 3, 6
ROUNDED = 1e-9  # relative error of a deviance on the surface
BEHIND = (1.5, 2.2, 3.2, 4.7)  # times as far out as an end, or as two standard errors
ASIDE = (2.0, 4.0)  # times as far out as the region, across the path
FALLS = 1e-6  # relative fall of the deviance on the way out that is no rounding error
SAME = 0.1  # of the region: the climb has led back to the maximum that is known
CLIMBED = 1e-2  # standard errors from a second maximum
LOOKS = 100  # evaluations of psi around a second maximum


@dataclass(frozen=True, eq=False)
class Audit:
    """Psi all over the region.

    Attributes
    ----------
    problem : Problem
    ascent : Ascent
        How to climb to a second maximum.
    bend : float
        Nonlinearity of psi within half a standard error.
    """

    problem: Problem
    ascent: Ascent
    bend: float
    _cached: dict[tuple[str, bytes], float] = field(init=False, default_factory=dict, repr=False)

    @property
    def center(self) -> Array:
        """The maximum."""
        return self.problem.model.theta

    def completed(self, found: list[Values]) -> list[Values]:
        """Add second maxima of the likelihood, and move the ends out to what was missed.

        Raises
        ------
        ConvergenceError
            Psi is more extreme somewhere, and no search from there has converged.
        """
        tops = [self._second_maximum(ray, times) for ray, times in self._rays(found)]
        for top in (top for top in tops if top is not None):
            deviance = self.problem.deviance(top)
            found = [
                self._with_second_maximum(v, top) if deviance < v.root**2 else v for v in found
            ]
        return [self._extended(values) for values in found]

    # Second maxima.

    def _rays(self, found: list[Values]) -> Iterator[tuple[Array, tuple[float, ...]]]:
        """Rays that reach the surface of the region, and the multiples of them to look at."""
        for values in found:
            far = max(1.0, 2 / values.root)
            ends = [end.theta - self.center for _, end in values.ends if end.kind == "quantile"]
            turns = len(ends) == 1 and all(end.kind != "open" for _, end in values.ends)
            for ray in [*ends, *(-ray for ray in ends)] if turns else ends:
                yield ray, tuple(far * x for x in BEHIND)
        for way in self._across:
            yield from ((side * found[-1].root * way, ASIDE) for side in (-1, 1))

    def _second_maximum(self, ray: Array, times: tuple[float, ...]) -> Array | None:
        """Follow a ray, on which the deviance must not fall again, and climb from where it does."""
        before = 0.0
        for theta in (self.center + x * ray for x in times):
            deviance = self.problem.deviance(theta)
            if deviance < before * (1 - FALLS):
                top = self._climbed(theta)
                far = np.linalg.norm(top - self.center) > SAME * np.linalg.norm(ray)
                return top if far else None
            before = deviance
        return None

    def _climbed(self, theta: Array) -> Array:
        try:
            if self.problem.squares is not None:
                top = descended(self.problem, 1, self.problem.point(theta, 1), CLIMBED)
                return theta if top is None else top.theta
            found = self.ascent.climb(self.problem.model.at(theta))
        except (EvaluationError, UnsupportedModelError):
            return theta
        return found.x if found.converged else theta

    def _with_second_maximum(self, values: Values, top: Array) -> Values:
        """Add the values around a second maximum.

        With one parameter they are a piece of their own. With several the maxima may be connected
        elsewhere, so what lies between is kept.
        """
        values = replace(values, second=self.problem.deviance(top))
        if top.size == 1:
            return replace(values, others=(*values.others, self._on_line(values, top)))
        for sign in (-1, 1):
            found = self._searched(top, sign, values.root, self.problem.psi(top))
            if found.point is None:
                raise self._unfinished(values, top, found.failure)
            values = values.moved(sign, [self._end_of(found, sign, values.root)])
        return values

    def _on_line(self, values: Values, top: Array) -> Interval:
        step = values.root * self.problem.tangent
        low, high = (self._cross(top, way, values.root) for way in (-step, step))
        if "open" in (low.kind, high.kind):
            raise self._unfinished(values, top, "The likelihood levels off there.")
        shares = np.linspace(0, 1, LOOKS)[:, None]
        psi = [self.problem.psi(x) for x in low.theta + shares * (high.theta - low.theta)]
        return Interval(float(np.nanmin(psi)), float(np.nanmax(psi)))

    def _cross(self, start: Array, way: Array, root: float) -> Trial:
        """Go to the surface along a ray."""
        return cross(self.problem, lambda x: start + x * way, root)

    def _unfinished(self, values: Values, top: Array, failure: str) -> ConvergenceError:
        return ConvergenceError(
            "The log-likelihood has a second maximum that the data do not exclude: psi is "
            f"{self.problem.psi(top):.6g} there, and the deviance {values.second:.3g}, below the "
            f"quantile {values.root**2:.3g}. How far psi extends around it could not be found. "
            f"{failure} Try a lower confidence_level, or fit again with a penalty or a start that "
            "leaves one maximum."
        )

    # Values that were missed.

    def _extended(self, values: Values) -> Values:
        points = [*self._along(values), *self._pulled(values)]
        turns = any(end.kind not in ("quantile", "open") for _, end in values.ends)
        turns = turns or self._turns_behind(values)
        if turns or self.bend > BENT:
            points += self._all_over(values.root)
        for sign, end in values.ends:
            starts = self._suspicious(end, sign, points)
            values = values.moved(sign, self._on_surface(values, starts, sign))
        for _ in range(ROUNDS):
            strays = self._strays(values, points)
            if not strays:
                return values
            values = self._moved(values, strays)
        raise self._missed(values, strays[0])

    def _turns_behind(self, values: Values) -> bool:
        """Whether psi turns on the other side, where no end was looked for."""
        known = [(sign, end) for sign, end in values.ends if end.kind != "open"]
        if len(known) != 1:
            return False
        ((sign, end),) = known
        way = self.center - end.theta
        psi = [sign * self._psi(self.center + x * way) for x in (0.0, *ALONG, INSIDE)]
        return not np.all(np.diff(psi) < 0)

    def _suspicious(self, end: End, sign: int, points: list[Array]) -> list[Array]:
        """Points from which a search may lead to a more extreme psi than that of an end."""
        scale = self.problem.scale
        if end.kind != "quantile" or scale is None or end.theta.size == 1:
            return []
        gradient = self.problem.gradient(end.theta)
        if not np.any(gradient):
            return []
        unit = np.linalg.norm(scale.half_transpose(gradient)) * np.sqrt(end.deviance)
        bulges = [x for x in points if self._bulges(x, end, sign, gradient / unit)]
        return self._off_saddle(end, sign, self._level(gradient)) + self._most_extreme(bulges, sign)

    def _off_saddle(self, end: End, sign: int, ways: list[Array]) -> list[Array]:
        """Leave an end where psi is not largest on the surface, but has a saddle for symmetry.

        To the side of a maximum psi falls together with the surface, or rises by less.
        """
        starts: list[Array] = []
        lam = end.point.lam if end.point is not None else 0.0
        for way in ways:
            pair = [end.theta + side * TILT * way for side in (-1, 1)]
            rise = sign * (sum(map(self._psi, pair)) / 2 - end.psi)
            if rise * lam > CURVED * TILT**2 / 2:
                starts += pair
        ends = [self._on_ray(start, np.sqrt(end.deviance)) for start in starts]
        return [theta for theta in ends if sign * (self._psi(theta) - end.psi) > 0]

    def _bulges(self, theta: Array, end: End, sign: int, slope: Array) -> bool:
        """Whether psi is more extreme to the side of the path than farther out along it.

        `slope` measures how far theta is on the way to the end, which is at 1.
        """
        share = float(sign * (theta - self.center) @ slope)
        ahead = [x for x in ALONG if x > max(share, 0.0) + AHEAD]
        if not ahead:
            return False
        other = self._psi(self.center + ahead[0] * (end.theta - self.center))
        return bool(sign * (self._psi(theta) - other) > 0)

    def _psi(self, theta: Array) -> float:
        return self._recalled("psi", theta)

    def _inside(self, theta: Array, root: float) -> bool:
        return self._recalled("deviance", theta) <= root**2 * (1 + ROUNDED)

    def _recalled(self, name: str, theta: Array) -> float:
        key = name, theta.tobytes()
        if key not in self._cached:
            self._cached[key] = float(getattr(self.problem, name)(theta))
        return self._cached[key]

    def _on_ray(self, theta: Array, root: float) -> Array:
        """Go to the surface along the ray through theta."""
        return self._cross(self.center, theta - self.center, float(root)).theta

    def _pulled(self, values: Values) -> list[Array]:
        """Points to either side of the path, on the surface if psi is more extreme farther out."""
        root = values.root
        points = [self.center + s * root * way for way in self._across for s in (-INSIDE, INSIDE)]
        kept = [values.holds(self._psi(x)) or self._inside(x, root) for x in points]
        return [x if keep else self._on_ray(x, root) for x, keep in zip(points, kept, strict=True)]

    def _strays(self, values: Values, points: list[Array]) -> list[Array]:
        """Points in the region whose psi lies in none of the pieces."""
        slack = SLACK * min(self.problem.error, values.high.psi - values.low.psi)
        outside = [x for x in self._defined(points) if not values.holds(self._psi(x), slack)]
        return [x for x in outside if self._inside(x, values.root)]

    def _defined(self, points: list[Array]) -> list[Array]:
        return [x for x in points if np.isfinite(self._psi(x))]

    def _most_extreme(self, points: list[Array], sign: int) -> list[Array]:
        return sorted(self._defined(points), key=lambda x: -sign * self._psi(x))[:STARTS]

    def _moved(self, values: Values, strays: list[Array]) -> Values:
        """Climb from the most extreme strays on either side."""
        for sign in (-1, 1):
            psi = values.end(sign).psi
            starts = self._most_extreme(
                [x for x in strays if sign * (self._psi(x) - psi) > 0], sign
            )
            ends = [*self._on_surface(values, starts, sign), *self._within(values, starts, sign)]
            moved = values.moved(sign, ends)
            if starts and moved is values:
                moved = values.moved(sign, self._behind_poles(starts, sign))
            if starts and moved is values:
                raise self._missed(values, starts[0])
            values = moved
        return values

    def _on_surface(self, values: Values, starts: Iterable[Array], sign: int) -> Iterator[End]:
        """Look for extremes of psi on the surface, from these points."""
        for start in starts:
            if start.size == 1:  # the only point on this side: psi need not be smooth there
                trial = self._cross(self.center, start - self.center, values.root)
                if np.isfinite(self._psi(trial.theta)) and trial.kind != "open":
                    kind = "edge" if trial.kind == "jump" else "quantile"
                    yield End(self._psi(trial.theta), trial.theta, trial.root**2, kind)  # type: ignore[arg-type]
                continue
            found = self._searched(start, sign, values.root)
            if found.point is not None:
                yield self._end_of(found, sign, values.root)

    def _searched(self, start: Array, sign: int, root: float, beyond: float | None = None) -> Found:
        try:
            return extreme(self.problem, sign, root, self.problem.point(start, sign), beyond)
        except (EvaluationError, UnsupportedModelError) as error:
            return Found(None, str(error))

    def _end_of(self, found: Found, sign: int, root: float) -> End:
        assert found.point is not None
        point = verified(self.problem, sign, root, found.point)
        return End(point.psi, point.theta, root**2, "quantile", point)

    def _within(self, values: Values, starts: list[Array], sign: int) -> Iterator[End]:
        """Look for extremes of psi inside the region."""
        for start in starts:
            theta = self._peak(start, sign)
            if theta is None or not self._inside(theta, values.root):
                continue
            deviance = self.problem.deviance(theta)
            if self._diverges(start, theta, sign):
                yield End(sign * np.inf, theta, deviance, "pole")
            else:
                yield End(self._psi(theta), theta, deviance, "extreme")

    def _behind_poles(self, starts: list[Array], sign: int) -> Iterator[End]:
        """Look for poles of psi between the maximum and points in the region."""
        for start in starts:
            if self._diverges(start, self.center, sign):
                yield End(sign * np.inf, start, self.problem.deviance(start), "pole")

    def _diverges(self, start: Array, theta: Array, sign: int) -> bool:
        """Whether psi has a pole between a start and theta, or there."""
        unit, before = sign / self.problem.error, self._psi(start)
        peak = peak_of(lambda x: unit * (self.problem.psi(start + x * (theta - start)) - before))
        return peak is not None and peak[1]

    def _peak(self, theta: Array, sign: int) -> Array | None:
        """Climb psi itself: on a line between neighbors, elsewhere along its gradient."""
        problem, unit = self.problem, sign / self.problem.error
        if theta.size == 1:
            step = (theta - self.center) / LINE * 2
            x = golden_section(lambda x: sign * problem.psi(theta + x * step), -1.0, 1.0)
            return np.asarray(theta + x * step)
        climb = Objective(
            lambda x: unit * problem.psi(x),
            lambda x: unit * problem.gradient(x),
            scale=problem.scale,
        )
        try:
            found = lbfgs.maximize(climb, theta)
        except (EvaluationError, UnsupportedModelError):
            return None
        return found.x if found.converged else None

    def _missed(self, values: Values, theta: Array) -> ConvergenceError:
        low, high = values.interval
        return ConvergenceError(
            f"psi is {self._psi(theta):.6g} where the deviance is "
            f"{self.problem.deviance(theta):.3g}, below the quantile {values.root**2:.3g}, but the "
            f"path from the estimate has led to the interval [{low:.6g}, {high:.6g}]. Usual "
            "causes: psi jumps, has kinks, several extremes or a pole within the reach of the "
            "data. Profile the smooth and monotone parts of psi instead (what is inside `abs`, "
            "`max` or `clip`, the numerator and the denominator) and transform their ends, or use "
            "`infer(model, psi, Simulation())` or `infer(model, psi, Bootstrap())`."
        )

    # Points to look at.

    def _along(self, values: Values) -> list[Array]:
        """Points on the way to the ends, and on the other side where no end was looked for."""
        ends = [end.theta - self.center for _, end in values.ends if end.kind != "open"]
        ways = [*ends, *(-way for way in ends)] if len(ends) == 1 else ends
        return [self.center + x * way for way in ways for x in ALONG]

    def _all_over(self, root: float) -> list[Array]:
        """Points all over the region: of one parameter at equal steps, else drawn from it."""
        d, scale, tangent = self.center.size, self.problem.scale, self.problem.tangent
        if d == 1:
            steps = np.linspace(0, 1, LINE + 1)[1:]
            return [self.center + s * x * root * tangent for s in (1, -1) for x in steps]
        if scale is None:
            return []
        rng = np.random.default_rng(0)
        cloud = rng.standard_normal((d, CLOUD))
        radius = root * rng.uniform(size=CLOUD) ** (1 / d)
        return list(self.center + scale.half(cloud * radius / np.linalg.norm(cloud, axis=0)).T)

    @cached_property
    def _across(self) -> list[Array]:
        """Directions across the path where it starts, one standard error long each."""
        return self._level(self.problem.gradient(self.center))

    def _level(self, gradient: Array) -> list[Array]:
        """Directions along which psi has no slope, one standard error long each.

        Each of them moves one parameter more than the others do.
        """
        scale, chosen = self.problem.scale, list[Array]()
        if scale is None or gradient.size == 1 or not np.any(gradient):
            return chosen
        slope = scale.half_transpose(gradient)
        slope = slope / np.linalg.norm(slope)
        for axis in self._axes:
            rest = axis - (axis @ slope) * slope
            size = np.linalg.norm(rest)
            if size > 1e-6 and all(abs(rest @ other) < ALIKE * size for other in chosen):
                chosen.append(rest / size)
        return [scale.half(axis) for axis in chosen]

    @cached_property
    def _axes(self) -> list[Array]:
        """Each parameter in units of standard errors, or, of many, random sums of them."""
        scale, d = self.problem.scale, self.center.size
        assert scale is not None
        many = d > MOST_AXES
        draws = np.random.default_rng(0).normal(size=(d, MOST_AXES))
        axes = draws if many else scale.half_transpose(np.eye(d))
        return list((axes / np.linalg.norm(axes, axis=0)).T)
