"""Ends of an interval within constraints: extremes of psi over the feasible part of a region.

The path of `Side` walks along the surface of a likelihood region, and knows no limits. Where these
cut into the region, each end is a problem of its own: the most extreme psi whose deviance is at
most the quantile and that satisfies all constraints. It is followed from the maximum in steps of
the root of the deviance, solved by sequential quadratic programming in coordinates in which the
region is close to a ball, and checked: there the gradient of psi is a combination of those of the
deviance and of the limits that are reached, with the right signs (Karush, Kuhn and Tucker).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls

from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.path import End, Values
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.sides import BOTH, open_end
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.constrained_fit import box
from implicit_delta.models.constraints import Constraints
from implicit_delta.models.coordinates import active_constraints, restricted, slope_inside
from implicit_delta.models.fixed import without_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.optimize import lbfgs
from implicit_delta.optimize.objective import LinearScale

STEPS = 4  # roots of the deviance on the way to an end
STARTS = 2  # further ones for the last step, in random directions
OPTIONS = {"maxiter": 200, "ftol": 1e-12}
REACHED = 1e-6  # relative: the deviance is at the quantile, or a row at its limit
ROUNDING = 1e-8  # standard errors from a bound: at it
STATIONARY = 1e-3  # of the gradient of psi that may be left; it enters squared
AT_TOP = 1e-4  # standard errors: nothing holds the maximum
STRAIGHT = 6.0  # standard errors beyond a bound: the quantile is that of a line, to 1e-5
HUGE = 1e100  # stands for what is not defined


class Point(NamedTuple):
    """The best theta for one root of the deviance."""

    theta: Array
    psi: float
    lam: float
    root: float


def without_inequalities(model: FittedModel) -> FittedModel:
    """Build the model in coordinates along its equalities alone."""
    whole = model.space.whole or model
    active = active_constraints(whole)
    assert active is not None
    for row in active.rows:
        active = active if active.constraints.equal[row] else active.without(int(row))
    chart = active.chart(whole.theta, objective_of(whole).units)
    base = whole if chart is None else restricted(whole, chart)
    return without_constraints(base)


@dataclass(frozen=True, eq=False)
class Feasible:
    """Psi and the deviance where the constraints hold.

    Attributes
    ----------
    evaluation : Evaluation
        On the model in coordinates along its equalities alone.
    constraints : Constraints
    """

    evaluation: Evaluation
    constraints: Constraints

    @property
    def model(self) -> FittedModel:
        """The model in these coordinates."""
        return self.evaluation.model

    @cached_property
    def region(self) -> Region:
        """The deviance from the constrained maximum, and psi guarded."""
        return Region.of(self.evaluation, Ascent(lbfgs, None))

    @cached_property
    def root(self) -> Array:
        """Columns of one standard error each, (d, d): by the curvature, or each parameter's own."""
        scale = self._scale
        if scale is not None:
            return scale.half(np.eye(self.model.d))
        slope = abs(slope_inside(self.model, self.model.theta))  # of a line it is the only unit
        return np.diag(1 / np.maximum(1 / objective_of(self.model).units, slope))

    def straight(self, sign: int) -> bool:
        """Whether the log-likelihood is a line to larger (smaller) psi, for all that is seen."""
        ahead = self.root @ self._uphill(sign)
        fall = -float(ahead @ slope_inside(self.model, self.model.theta))
        bend = 1.0  # of other parameters there may be none: along psi it decides
        if self._scale is None:
            bend = float(ahead @ self.model.information(self.model.theta, ahead))
        return fall > REACHED and fall > STRAIGHT * np.sqrt(max(bend, 0.0))

    def beyond(self, end: End) -> float:
        r"""Standard errors beyond its bound at which a parabola through an end would have its top.

        Of a parabola that falls from a bound, :math:`D = 2 \delta u + u^2` after u standard errors,
        the share :math:`t = 2 \delta u / D` is that of the slope at the bound, and :math:`\delta =
        t \sqrt{D / (1 - t)} / 2`: zero where nothing holds psi, infinite for a line (no event).
        """
        away = end.theta - self.model.theta
        if not end.deviance > 0 or not np.any(away):
            return 0.0
        share = -2 * float(slope_inside(self.model, self.model.theta) @ away) / end.deviance
        if share >= 1:
            return np.inf
        found = share * np.sqrt(end.deviance / (1 - share)) / 2
        return float(found) if found > AT_TOP else 0.0

    @cached_property
    def _scale(self) -> LinearScale | None:
        try:
            return Ascent.of(self.model).scale
        except (NotAMaximumError, UnsupportedModelError):  # no event: there is no curvature
            return None

    def values(
        self, roots: list[float], signs: Sequence[int] = BOTH
    ) -> tuple[list[Values], list[Point]]:
        """Find the ends up to each of these roots, which ascend, and the points on the way."""
        paths = {sign: self._path(sign, roots) if sign in signs else [] for sign in BOTH}
        found = [
            Values(r, self._end(paths[-1], -1, r), self._end(paths[1], 1, r), followed=roots[-1])
            for r in roots
        ]
        center = Point(self.model.theta, self.region.value, 0.0, 0.0)
        return found, [*reversed(paths[-1]), center, *paths[1]]

    def reached(self, theta: Array) -> list[str]:
        """Spell out the limits that theta is at."""
        value = self.constraints.value(self._whole(theta))
        near = self._near(theta, REACHED)
        ends = ((-1, value - self.constraints.low), (1, self.constraints.high - value))
        rows = [(int(row), side) for side, gap in ends for row in np.flatnonzero(gap <= near)]
        return [
            self.constraints.spelled(*key) for key in rows if not self.constraints.equal[key[0]]
        ]

    def _end(self, path: list[Point], sign: int, root: float) -> End:
        if not path:
            return open_end(sign, self.model.theta)
        point = next(point for point in path if point.root == root)
        if sign * (point.psi - self.region.value) < 0:  # by rounding: the maximum is in the region
            return End(self.region.value, self.model.theta, 0.0, "bound")
        deviance = self.region.deviance(point.theta)
        at_quantile = deviance >= root**2 * (1 - 10 * REACHED)
        return End(point.psi, point.theta, deviance, "quantile" if at_quantile else "bound")

    def _path(self, sign: int, roots: list[float]) -> list[Point]:
        """Follow the extreme outwards; each point is labelled by the root that it was sought at."""
        between = [x * roots[0] for x in np.arange(1, STEPS) / STEPS]
        path, x, before = list[Point](), np.zeros(self.model.d), 0.0
        for root in [*between, *roots]:
            ahead = x * root / before if before else self._uphill(sign) * root
            final = root in roots
            others = [x, *self._random(root)]
            point = self._first(sign, root, [ahead, *others])
            if final:  # psi may have several extremes
                point = max(point, *self._found(sign, root, others), key=lambda p: sign * p.psi)
            path.append(point)
            x, before = self._inverse(point.theta), root
        return path

    def _found(self, sign: int, root: float, starts: list[Array]) -> Iterator[Point]:
        points = (self._search(sign, root, x) for x in starts)
        return (point for point in points if point is not None)

    def _first(self, sign: int, root: float, starts: list[Array]) -> Point:
        point = next(self._found(sign, root, starts), None)
        if point is None:
            raise ConvergenceError(
                f"The {'upper' if sign > 0 else 'lower'} end of the interval within the "
                f"constraints was not found (deviance up to {root**2:.3g}). Usual causes: psi has "
                "kinks or a pole, or is unbounded there, or the log-likelihood is not defined at a "
                "limit. Ask for a lower confidence_level, or for a smooth part of psi; without "
                "its constraints the model has a profile too."
            )
        return point

    def _search(self, sign: int, root: float, start: Array) -> Point | None:
        """Maximize sign * psi in the feasible part of a region."""
        unit = sign / self._size

        def rest(x: Array) -> float:
            """Half of the deviance that is left up to the quantile, in units of the root."""
            with np.errstate(all="ignore"):
                value = self.model.objective(self._theta(x))
            left = (root**2 / 2 - (self.region.top - value)) / root
            return left if np.isfinite(left) else -HUGE

        def fall(x: Array) -> float:
            value = -unit * self.region.psi(self._theta(x))
            return value if np.isfinite(value) else HUGE

        inside = {
            "type": "ineq",
            "fun": rest,
            "jac": lambda x: self.root.T @ self.model.score(self._theta(x)) / root,
        }
        try:
            found = minimize(
                fall,
                self._inside(start),
                jac=lambda x: -unit * self.root.T @ self.region.gradient(self._theta(x)),
                method="SLSQP",
                constraints=[inside, *self.limits()],
                options=OPTIONS,
            )
        except (EvaluationError, UnsupportedModelError):
            return None
        return self._checked(sign, root, np.asarray(found.x))

    def _inside(self, x: Array) -> Array:
        """Move a start into the bounds, beyond which the log-likelihood may not be defined."""
        if self.model.space.chart is not None:
            return x
        theta = self._theta(x)
        return self._inverse(np.clip(theta, *box(self.constraints, theta)))

    def _checked(self, sign: int, root: float, x: Array) -> Point | None:
        """Return the point, if it is feasible and psi is stationary there."""
        theta = self._snapped(self._theta(x))
        if not np.all(np.isfinite(theta)) or not self.holds(theta):
            return None
        deviance = self.region.deviance(theta)
        if not deviance <= root**2 * (1 + REACHED) + REACHED**2:
            return None
        try:
            slope = sign * self.root.T @ self.region.gradient(theta)
        except EvaluationError:
            return None
        columns = [*self.normals(theta)]
        at_quantile = deviance >= root**2 * (1 - 10 * REACHED)
        if at_quantile:
            columns.insert(0, -self.root.T @ self.model.score(theta))
        strength, left = np.zeros(1), float(np.linalg.norm(slope))
        if columns:
            strength, left = nnls(np.array(columns).T, slope)
        if not left <= STATIONARY * np.linalg.norm(slope):
            return None
        lam = sign / strength[0] if at_quantile and strength[0] > 0 else 0.0
        return Point(theta, self.region.psi(theta), float(lam), root)

    def _snapped(self, theta: Array) -> Array:
        """Undo rounding errors on either side of bounds of single parameters."""
        if self.model.space.chart is not None:
            return theta
        low, high = box(self.constraints, theta)
        near = ROUNDING * np.minimum(
            objective_of(self.model).units, np.linalg.norm(self.root, axis=1)
        )
        theta = np.where(abs(theta - low) <= near, low, theta)
        return np.clip(np.where(abs(theta - high) <= near, high, theta), low, high)

    def holds(self, theta: Array) -> bool:
        """Whether theta satisfies the constraints, but for rounding."""
        beyond = self.constraints.violation(self._whole(theta))
        return bool(np.all(beyond <= self._near(theta, REACHED)))

    def _near(self, theta: Array, errors: float) -> Array:
        """Distance from its limit within which a row is at it, (m,)."""
        lengths = np.linalg.norm(self._slopes(theta), axis=1)
        return self.constraints.near(self._whole(theta), errors * lengths)

    def normals(self, theta: Array) -> Iterator[Array]:
        """Outward normals of the limits that are reached, in these coordinates, of length one."""
        whole = self._whole(theta)
        value, rows = self.constraints.value(whole), self._slopes(theta)
        rows = ratio(rows, np.linalg.norm(rows, axis=1, keepdims=True))
        near = self._near(theta, 10 * REACHED)
        for sign, gap in ((-1, value - self.constraints.low), (1, self.constraints.high - value)):
            yield from (sign * row for row in rows[(gap <= near) & ~self.constraints.equal])

    def limits(self) -> list[dict[str, Any]]:
        """Write the inequalities as scipy's dicts, in standard errors."""
        of = self.constraints
        lengths = np.linalg.norm(self._slopes(self.model.theta), axis=1)
        lengths[lengths == 0] = 1.0
        sides = (
            (1.0, of.low, ~of.equal & np.isfinite(of.low)),
            (-1.0, of.high, ~of.equal & np.isfinite(of.high)),
        )
        return [
            {
                "type": "ineq",
                "fun": lambda x, s=sign, e=end, r=rows: (
                    s * ((of.value(self._whole(self._theta(x))) - e) / lengths)[r]
                ),
                "jac": lambda x, s=sign, r=rows: (
                    s * (self._slopes(self._theta(x)) / lengths[:, None])[r]
                ),
            }
            for sign, end, rows in sides
            if rows.any()
        ]

    def _slopes(self, theta: Array) -> Array:
        """Differentiate the constraints with respect to x, (m, d)."""
        chart, whole = self.model.space.chart, self._whole(theta)
        slope = self.constraints.slope(whole)
        return np.asarray((slope if chart is None else slope @ chart.slope(whole)) @ self.root)

    def _whole(self, theta: Array) -> Array:
        chart = self.model.space.chart
        return theta if chart is None else chart.point(theta)

    def _theta(self, x: Array) -> Array:
        return np.asarray(self.model.theta + self.root @ x)

    def _inverse(self, theta: Array) -> Array:
        return np.asarray(np.linalg.solve(self.root, theta - self.model.theta))

    @cached_property
    def _size(self) -> float:
        """Length of the gradient of psi, in standard errors."""
        return float(np.linalg.norm(self.root.T @ self.region.gradient(self.model.theta))) or 1.0

    def _uphill(self, sign: int) -> Array:
        return sign * self.root.T @ self.region.gradient(self.model.theta) / self._size

    def _random(self, root: float) -> Array:
        ways = np.random.default_rng(0).standard_normal((STARTS, self.model.d))
        return np.asarray(root * ways / np.linalg.norm(ways, axis=1, keepdims=True))
