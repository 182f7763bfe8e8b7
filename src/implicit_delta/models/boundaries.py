"""Distance of a maximum from its constraints, in standard errors.

Close to a limit there is no normal approximation: half of all samples may end up at it. A limit
that holds the maximum by a lot is as good as an equality.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.constraints import Active, Constraints
from implicit_delta.models.coordinates import active_constraints
from implicit_delta.models.objective import objective_of

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

FITTED = 1e-6  # standard errors that a fit may leave
NEAR = 2.0  # standard errors: beyond, a 95 % interval does not reach the limit


@dataclass(frozen=True)
class Near:
    """A limit close by.

    Attributes
    ----------
    limit : str
        Spelled out, such as ``theta[1] >= 0``.
    distance : float
        In standard errors: of the maximum from the limit; or, of a limit that holds it, of where
        it would be otherwise.
    held : bool
    """

    limit: str
    distance: float
    held: bool

    def __str__(self) -> str:
        if self.held:
            return f"{self.limit}, beyond which it would lie by {self.distance:.2g} standard errors"
        away = self.distance if self.distance > FITTED else 0.0
        return f"{self.limit}, {away:.2g} standard errors away"


def near_limits(model: "FittedModel") -> list[Near]:
    """List the inequalities within two standard errors of a model that `free` has made."""
    return [near for near in _limits(model) if near.distance < NEAR]


def limit_distances(model: "FittedModel") -> list[Near]:
    """List all inequalities of a model that `free` has made."""
    return list(_limits(model))


def nearest_limit(model: "FittedModel") -> float:
    """Distance of the nearest inequality in standard errors; zero if one holds the maximum."""
    constraints, active = model.space.constraints, active_constraints(model)
    if constraints is None or active is None or constraints.equal.all():
        return np.inf
    if not constraints.equal[active.rows].all():
        return 0.0
    return min((near.distance for near in _beside(model, constraints, active)), default=np.inf)


def fixed_by_constraints(model: "FittedModel") -> bool:
    """Whether the active constraints leave no parameter free."""
    active = None if model.space.chart is not None else active_constraints(model)
    chart = None if active is None else active.chart(model.theta, objective_of(model).units)
    return chart is not None and not chart.free.size


def _limits(model: "FittedModel") -> Iterator[Near]:
    constraints, active = model.space.constraints, active_constraints(model)
    if constraints is not None and active is not None and not constraints.equal.all():
        yield from _beside(model, constraints, active)
        if model.space.whole is not None:
            yield from _held(model.space.whole, constraints, active)


def _beside(model: "FittedModel", constraints: Constraints, active: Active) -> Iterator[Near]:
    """Measure the distance from limits that are not reached."""
    theta = model.theta if model.space.chart is None else model.space.chart.point(model.theta)
    gradients = constraints.slope(theta)
    along = gradients if model.space.chart is None else gradients @ model.space.chart.slope(theta)
    errors = _errors(model.information(model.theta, np.eye(model.d), model.facts.curvature), along)
    value = constraints.value(theta)
    for row in np.setdiff1d(np.arange(value.size), active.rows):
        ends = (-1, value[row] - constraints.low[row]), (1, constraints.high[row] - value[row])
        for side, gap in ends:
            if np.isfinite(gap) and errors[row] > 0:
                yield Near(constraints.spelled(row, side), max(gap, 0.0) / errors[row], False)


def _held(whole: "FittedModel", constraints: Constraints, active: Active) -> Iterator[Near]:
    """Measure by how much limits hold the maximum: a score test of each."""
    try:
        information = whole.information(whole.theta, np.eye(whole.d), whole.facts.curvature)
    except UnsupportedModelError:  # the log-likelihood ends with the limit
        return
    gradients = constraints.slope(whole.theta)
    for row, side, multiplier in zip(active.rows, active.sides, active.multipliers, strict=True):
        if not constraints.equal[row]:
            chart = active.without(row).chart(whole.theta, objective_of(whole).units)
            basis = np.eye(whole.d) if chart is None else chart.slope(whole.theta)
            error = _errors(basis.T @ information @ basis, gradients[[row]] @ basis)[0]
            if np.isfinite(error):
                yield Near(constraints.spelled(row, side), abs(multiplier) * error, True)


def _errors(information: Array, gradients: Array) -> Array:
    """Standard errors of linear functions, (m,); NaN where the information has no inverse."""
    try:
        root = cho_factor(symmetric(information))
    except LinAlgError:
        return np.full(len(gradients), np.nan)
    return np.asarray(np.sqrt(np.sum(gradients.T * cho_solve(root, gradients.T), axis=0)))
