"""Constraints of a model as those of a profile: in standard errors, along its equalities."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.extreme import REACHED, Limits, Rows
from implicit_delta.inference.profile.path import End
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.constraints import Constraints, box
from implicit_delta.models.coordinates import active_constraints, restricted, slope_inside
from implicit_delta.models.fixed import without_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of

ROUNDING = 1e-8  # standard errors from a bound: at it
AT_TOP = 1e-4  # standard errors: nothing holds the maximum
STRAIGHT = 6.0  # standard errors beyond a bound: the quantile is that of a line, to 1e-5


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
    """The inequalities of a model, in coordinates along its equalities alone.

    Attributes
    ----------
    evaluation : Evaluation
        On the model in these coordinates.
    constraints : Constraints
    """

    evaluation: Evaluation
    constraints: Constraints

    @property
    def model(self) -> FittedModel:
        """The model in these coordinates."""
        return self.evaluation.model

    @cached_property
    def curvature(self) -> Factor | None:
        """The curvature of the log-likelihood, where it has one: of no event it is a line."""
        try:
            return Ascent.of(self.model).scale
        except (NotAMaximumError, UnsupportedModelError):
            return None

    @cached_property
    def scale(self) -> Factor:
        """The curvature, or the slope and the unit of each parameter: of a line the only ones."""
        slope = abs(slope_inside(self.model, self.model.theta))
        lengths = np.maximum(1 / objective_of(self.model).units, slope)
        return self.curvature or factorize(np.diag(lengths**2))

    @property
    def limits(self) -> Limits:
        """All inequalities, for `extreme`."""
        return Limits(self.rows, self._gaps, self.inside)

    def rows(self, theta: Array) -> Rows:
        """Distances inside of both sides, and inner normals, in standard errors."""
        slopes, lengths = self._slopes(theta), self._lengths
        normals = np.vstack([slopes / lengths[:, None], -slopes / lengths[:, None]])[self._kept]
        return Rows(self._gaps(theta), normals, np.zeros(len(normals), dtype=bool))

    def reached(self, theta: Array) -> list[str]:
        """Spell out the limits that theta is at."""
        sides = np.repeat([-1, 1], self.constraints.low.size)[self._kept]
        rows = np.tile(np.arange(self.constraints.low.size), 2)[self._kept]
        at = self._gaps(theta) <= REACHED
        return [
            self.constraints.spelled(int(r), int(s))
            for r, s in zip(rows[at], sides[at], strict=True)
        ]

    def inside(self, theta: Array) -> Array:
        """Undo rounding errors on either side of bounds of single parameters."""
        if self.model.space.chart is not None:
            return theta
        low, high = self._box
        near = ROUNDING * np.linalg.norm(self.scale.half(np.eye(theta.size)), axis=1)
        theta = np.where(abs(theta - low) <= near, low, theta)
        return np.clip(np.where(abs(theta - high) <= near, high, theta), low, high)

    def straight(self, sign: int) -> bool:
        """Whether the log-likelihood is a line to larger (smaller) psi, for all that is seen."""
        gradient = sign * self.evaluation.jacobian(self.model.theta)[0]
        ahead = self.scale.solve(gradient)
        ahead = ahead / (np.sqrt(gradient @ ahead) or 1.0)
        fall = -float(ahead @ slope_inside(self.model, self.model.theta))
        bend = 1.0  # of other parameters there may be none: along psi it decides
        if self.curvature is None:
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
    def _box(self) -> tuple[Array, Array]:
        return box(self.constraints, self.model.theta)

    @cached_property
    def _kept(self) -> NDArray[np.intp]:
        of = self.constraints
        ends = np.concatenate([of.low, of.high])
        return np.flatnonzero(np.isfinite(ends) & ~np.tile(of.equal, 2))

    def _gaps(self, theta: Array) -> Array:
        """Distances inside, (k,); zero where rounding is all that is left."""
        whole = self._whole(theta)
        value, of = self.constraints.value(whole), self.constraints
        gaps = np.concatenate([value - of.low, of.high - value])
        near = np.tile(of.near(whole, 0.0 * value), 2)
        gaps = np.where(abs(gaps) <= near, 0.0, gaps)
        return np.asarray((gaps / np.tile(self._lengths, 2))[self._kept])

    @cached_property
    def _lengths(self) -> Array:
        slopes = np.asarray(self.scale.half_transpose(self._slopes(self.model.theta).T))
        lengths = np.linalg.norm(slopes, axis=0)
        return np.where(lengths > 0, lengths, 1.0)

    def _slopes(self, theta: Array) -> Array:
        """Differentiate the constraints with respect to these coordinates, (m, d)."""
        chart, whole = self.model.space.chart, self._whole(theta)
        slope = self.constraints.slope(whole)
        return np.asarray(slope if chart is None else slope @ chart.slope(whole))

    def _whole(self, theta: Array) -> Array:
        chart = self.model.space.chart
        return theta if chart is None else chart.point(theta)

    def holds(self, theta: Array) -> bool:
        """Whether theta satisfies the constraints, but for rounding."""
        return bool(np.all(self._gaps(theta) >= -REACHED))
