"""Constraints in a profile: in standard errors, along equalities, and quantiles near them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.optimize import nnls
from scipy.special import erf, ndtr

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError, NotAMaximumError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.problem import REACHED, Limits, Rows
from implicit_delta.inference.profile.values import End
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.boundaries import NEAR
from implicit_delta.models.constraints import Constraints, box
from implicit_delta.models.coordinates import active_constraints, restricted, slope_inside
from implicit_delta.models.fixed import without_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of

ROUNDING = 1e-8  # standard errors from a bound: at it
AT_TOP = 1e-4  # standard errors: nothing holds the maximum
OWN = 0.99  # cosine between the gradients of psi and of a limit: psi's own
DRAWS = 8192  # their quantile is uncertain by about 1 %
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

    def is_straight(self, sign: int) -> bool:
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


def roots_at_bound(levels: list[float], roots: list[float], beyond: list[float]) -> list[float]:
    r"""Roots of the deviance of one-sided limits of a psi that a bound holds.

    With no event seen the log-likelihood falls by the rate times the exposure, and the probability
    of no event is the likelihood ratio itself: the limit is where that is one less the level, at
    the deviance :math:`-2 \log(1 - \text{level})`, 5.99 at 95 %, and exact; the 2.71 of a parabola
    would cover 74 % at worst. Between the two the deviance rises with the standard errors
    :math:`\delta` by which the top of a parabola would lie beyond the bound, by the share
    :math:`\operatorname{erf}(\delta / 2)` of the difference: steeply enough to reach 5.99 where no
    sample of a parabola gets, and not so steeply that a top closer to the bound could have the
    lower limit (more events, a smaller limit). For a normal estimate that takes a slope below
    2 * 1.645 at zero; it is 1.85.
    """
    base = np.square(roots)
    exact = np.maximum(-2 * np.log1p(-np.array(levels)), base)
    raised = np.sqrt(base + erf(np.array(beyond) / 2) * (exact - base))
    return [float(root) for root in np.maximum.accumulate(raised)]


def mixed_roots(feasible: Feasible, roots: list[float], sign: int) -> list[float]:
    r"""Roots of the deviance for a limit (upper for sign 1) near bounds of *other* quantities.

    A bound of psi itself only makes its deviance smaller, but one of a nuisance parameter that is
    correlated with psi may make it larger: in a sample that would put the nuisance parameter beyond
    its bound, psi has to give way. With the truth at these bounds the deviance is, in coordinates
    in which the estimate is standard normal, the difference of two squared distances from a cone
    :math:`C`,

    .. math:: D = \min_{x \in C,\; g'x = 0} |z - x|^2 - \min_{x \in C} |z - x|^2,

    a mixture of chi-squared distributions (chi-bar-squared; Self and Liang, 1987) whose quantile is
    found by draws.
    """
    theta = feasible.model.theta
    try:
        scale, gradient = feasible.curvature, feasible.evaluation.jacobian(theta)[0]
    except (ImplicitDeltaError, LinAlgError):  # the log-likelihood ends with its constraints
        return roots
    if scale is None or not np.any(gradient):
        return roots
    g = np.asarray(scale.half_transpose(gradient))
    g = g / np.linalg.norm(g)
    rows = feasible.rows(theta)
    normals = np.asarray(scale.half_transpose(rows.normals[rows.gaps < NEAR].T)).T
    others = normals[np.any(normals, axis=1) & (abs(normals @ g) < OWN)]
    if not len(others):
        return roots
    deviance = np.sort(_deviances(g, others, sign))
    places = (DRAWS * ndtr(np.array(roots))).astype(int)
    found = np.sqrt(deviance[np.minimum(places, DRAWS - 1)])
    return [max(root, float(mixed)) for root, mixed in zip(roots, found, strict=True)]


def _deviances(g: Array, normals: Array, sign: int) -> Array:
    """Draw deviances of the true psi; zero where the estimate is on the other side of it."""
    basis = np.linalg.qr(np.vstack([g, normals]).T)[0]  # nothing else matters
    g, normals = g @ basis, normals @ basis
    level = normals - np.outer(normals @ g, g)
    draws = np.random.default_rng(0).standard_normal((DRAWS, g.size))
    free = _projected(normals, draws)
    held = _projected(level, draws - np.outer(draws @ g, g))
    # of a point and its projection onto a cone, the squared distance is the difference of squares
    deviance = np.sum(free**2, axis=1) - np.sum(held**2, axis=1)
    return np.where(sign * (free @ g) < 0, np.maximum(deviance, 0.0), 0.0)


def _projected(normals: Array, z: Array) -> Array:
    """Project points, (m, d), onto the cone of all x with normals @ x >= 0 (Moreau)."""
    if len(normals) == 1:
        beyond = np.minimum(z @ normals[0], 0.0) / (normals[0] @ normals[0])
        return np.asarray(z - np.outer(beyond, normals[0]))
    outside = np.flatnonzero(np.any(z @ normals.T < 0, axis=1))
    strength = np.array([nnls(-normals.T, z[k])[0] for k in outside])
    found = z.copy()
    if outside.size:
        found[outside] += strength @ normals
    return found
