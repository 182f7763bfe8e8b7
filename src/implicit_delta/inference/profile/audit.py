"""Search of a likelihood region for values of psi that the path has missed.

A path is local: it follows one extreme of psi on the surface of a growing region, and stops where
psi turns. So psi is evaluated elsewhere in the region too. Where it leaves the interval although
the deviance is below the quantile, the search for its extreme starts again from there. For a psi
that is monotone along its path this costs no pass over the data.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.inference.profile.peaks import golden_section
from implicit_delta.inference.profile.probes import ALONG, LINE, Probes
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import Point, Surface
from implicit_delta.inference.profile.values import End, Values
from implicit_delta.optimize import Objective, lbfgs

SLACK = 1e-3  # standard errors: what the end of a path may be off
TILT, CURVED = 0.3, 0.8  # standard errors to the side; bend there, against that of the surface
BENT = 0.25  # nonlinearity of psi within half a standard error
AHEAD = 0.3  # of the way to an end
STARTS, ROUNDS = 3, 6
ROUNDED = 1e-9  # relative error of a deviance on the surface


@dataclass(frozen=True, eq=False)
class Audit:
    """Psi all over the region.

    Attributes
    ----------
    region : Region
    probes : Probes
    error : float
        The standard error of psi.
    bend : float
        Its nonlinearity within half a standard error.
    """

    region: Region
    probes: Probes
    error: float
    bend: float
    _psis: dict[bytes, float] = field(init=False, default_factory=dict, repr=False)
    _deviances: dict[bytes, float] = field(init=False, default_factory=dict, repr=False)

    def completed(self, values: Values) -> Values:
        """Move the ends out to what was missed.

        Raises
        ------
        ConvergenceError
            Psi is more extreme somewhere, and no search from there has converged.
        """
        beside = self._pulled(values, self.probes.beside(values.root))
        points = [*self.probes.along((values.low, values.high)), *beside]
        turns = any(end.kind not in ("quantile", "open") for _, end in values.ends)
        if turns or self.bend > BENT:
            points += self.probes.many((values.low, values.high), values.root)
        for sign, end in values.ends:
            starts = [*self._beside(end, sign, points)]
            if turns:
                starts += [*self._most(points, sign), 2 * self.region.model.theta - end.theta]
            values = values.moved(sign, self._on_surface(values, starts, sign))
        for _ in range(ROUNDS):
            strays = self._strays(values, points)
            if not strays:
                return values
            values = self._extended(values, strays)
        raise self._missed(values, strays[0])

    def _beside(self, end: End, sign: int, points: list[Array]) -> list[Array]:
        """Points from which a search may lead to a more extreme psi than that of an end."""
        scale = self.region.ascent.scale
        if end.kind != "quantile" or scale is None or end.theta.size == 1:
            return []
        gradient = self.region.gradient(end.theta)
        if not np.any(gradient):
            return []
        starts = self._off_saddle(end, sign, self.probes.level(gradient))
        unit = np.linalg.norm(scale.half_transpose(gradient)) * np.sqrt(end.deviance)
        return starts + self._most(
            [x for x in points if self._bulges(x, end, sign, gradient / unit)], sign
        )

    def _off_saddle(self, end: End, sign: int, ways: list[Array]) -> list[Array]:
        """Leave an end where psi is not largest on the surface, but has a saddle for symmetry.

        To the side of a maximum psi falls together with the surface, or rises by less.
        """
        starts: list[Array] = []
        for way in ways:
            pair = [end.theta + side * TILT * way for side in (-1, 1)]
            rise = sign * (sum(map(self._psi, pair)) / 2 - end.psi)
            if rise * abs(end.lam) > CURVED * TILT**2 / 2:
                starts += pair
        surface = Surface(self.region, float(np.sqrt(end.deviance)))
        ends = [surface.theta(start - surface.center) for start in starts]
        return [theta for theta in ends if sign * (self._psi(theta) - end.psi) > 0]

    def _bulges(self, theta: Array, end: End, sign: int, slope: Array) -> bool:
        """Whether psi is more extreme to the side of the path than farther out along it.

        `slope` measures how far theta is on the way to the end, which is at 1.
        """
        center = self.region.model.theta
        share = float(sign * (theta - center) @ slope)
        ahead = [x for x in ALONG if x > max(share, 0.0) + AHEAD]
        way = end.theta - center
        return bool(ahead) and sign * (self._psi(theta) - self._psi(center + ahead[0] * way)) > 0

    def _psi(self, theta: Array) -> float:
        key = theta.tobytes()
        if key not in self._psis:
            self._psis[key] = self.region.psi(theta)
        return self._psis[key]

    def _pulled(self, values: Values, points: list[Array]) -> list[Array]:
        """Pull points into the region if psi is more extreme there than at its ends.

        Beside a likelihood that is far from a parabola they may be anywhere.
        """
        surface = Surface(self.region, values.root)
        kept = [values.holds(self._psi(x)) or self._inside(x, values.root) for x in points]
        pairs = zip(points, kept, strict=True)
        return [x if keep else surface.theta(x - surface.center) for x, keep in pairs]

    def _inside(self, theta: Array, root: float) -> bool:
        key = theta.tobytes()
        if key not in self._deviances:
            self._deviances[key] = self.region.deviance(theta)
        return self._deviances[key] <= root**2 * (1 + ROUNDED)

    def _strays(self, values: Values, points: list[Array]) -> list[Array]:
        """Points in the region whose psi lies in none of the pieces."""
        slack = SLACK * min(self.error, values.high.psi - values.low.psi)
        defined = [x for x in points if np.isfinite(self._psi(x))]
        outside = [x for x in defined if not values.holds(self._psi(x), slack)]
        return [x for x in outside if self._inside(x, values.root)]

    def _most(self, points: list[Array], sign: int) -> list[Array]:
        defined = [x for x in points if np.isfinite(self._psi(x))]
        return sorted(defined, key=lambda x: -sign * self._psi(x))[:STARTS]

    def _extended(self, values: Values, strays: list[Array]) -> Values:
        """Climb from the most extreme strays on either side."""
        for sign in (-1, 1):
            psi = values.end(sign).psi
            starts = self._most([x for x in strays if sign * (self._psi(x) - psi) > 0], sign)
            ends = [*self._on_surface(values, starts, sign), *self._within(values, starts, sign)]
            moved = values.moved(sign, ends)
            if starts and moved is values:
                raise self._missed(values, starts[0])
            values = moved
        return values

    def _on_surface(self, values: Values, starts: list[Array], sign: int) -> Iterator[End]:
        """Look for extremes of psi on the surface, from rays through these points."""
        surface = Surface(self.region, values.root)
        for ray in (start - surface.center for start in starts):
            if ray.size == 1:
                yield from self._on_line(surface, ray)
                continue
            point, failure = surface.search(ray, sign)
            if failure and self.region.ascent.scale is not None:
                point = self._rescaled(values.root, surface.theta(ray), sign)
            if point is not None:
                yield End(point.psi, point.theta, values.root**2, "quantile", point.lam)

    def _rescaled(self, root: float, start: Array, sign: int) -> Point | None:
        """Search with the curvature of where it starts, from a Newton step into the region."""
        try:
            region = self.region.moved(start)
            scale = region.ascent.scale
            assert scale is not None
            center = start + scale.half(scale.half_transpose(region.model.score(start)))
        except (NotAMaximumError, UnsupportedModelError, EvaluationError):
            return None
        if not self._inside(center, root):
            return None
        return Surface(region, root, center).search(start - center, sign)[0]

    def _on_line(self, surface: Surface, ray: Array) -> Iterator[End]:
        """Take the only point of the surface on this side: psi need not be smooth there."""
        theta = surface.theta(ray)
        if np.isfinite(self._psi(theta)) and not surface.is_open(ray):
            jump = surface.at_a_jump(ray)
            yield End(
                self._psi(theta),
                theta,
                self.region.deviance(theta),
                "edge" if jump else "quantile",
            )

    def _within(self, values: Values, starts: list[Array], sign: int) -> Iterator[End]:
        """Look for extremes of psi inside the region."""
        for start in starts:
            theta = self._peak(start, sign)
            if theta is not None and self._inside(theta, values.root):
                yield End(self._psi(theta), theta, self.region.deviance(theta), "extreme")

    def _peak(self, theta: Array, sign: int) -> Array | None:
        """Climb psi itself: on a line between neighbors, elsewhere along its gradient."""
        region, unit = self.region, sign / self.error
        if theta.size == 1:
            step = (theta - region.model.theta) / LINE * 2
            x = golden_section(lambda x: sign * region.psi(theta + x * step), -1.0, 1.0)
            return np.asarray(theta + x * step)
        problem = Objective(
            lambda x: unit * region.psi(x),
            lambda x: unit * region.evaluation.jacobian(x)[0],
            scale=region.ascent.scale,
        )
        try:
            found = lbfgs.maximize(problem, theta)
        except (EvaluationError, UnsupportedModelError):
            return None
        return found.x if found.converged else None

    def _missed(self, values: Values, theta: Array) -> ConvergenceError:
        low, high = values.interval
        return ConvergenceError(
            f"psi is {self._psi(theta):.6g} where the deviance is "
            f"{self.region.deviance(theta):.3g}, below the quantile {values.root**2:.3g}, but the "
            f"path from the estimate has led to the interval [{low:.6g}, {high:.6g}]. Usual "
            "causes: psi jumps, has kinks, several extremes or a pole within the reach of the "
            "data. Profile the smooth and monotone parts of psi instead (what is inside `abs`, "
            "`max` or `clip`, the numerator and the denominator) and transform their ends, or use "
            "`infer(model, psi, Simulation())` or `infer(model, psi, Bootstrap())`."
        )
