"""The likelihood-ratio statistic of one side: fits with psi free and with psi at a value."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.models.constrained_fit import scaled
from implicit_delta.models.constraints import box
from implicit_delta.models.fixed import without_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of

HUGE = 1e300  # stands for an objective that is not defined
STEPS = {"ftol": 1e-9, "maxiter": 100}  # of log-likelihood; a deviance that decides is of size 1
REACHED = 1e-6  # of `length`: psi is at its value
STEP = 1e-6  # standard errors: slopes to as much, and a deviance to its square
INSIDE = 1e-6  # of the way from a bound to the estimate


class Fit(NamedTuple):
    """The maximum of an objective, where it is (d,), and psi there."""

    value: float
    theta: Array
    psi: float


NOWHERE = Fit(-np.inf, np.zeros(0), np.nan)


@dataclass(frozen=True, eq=False)
class Statistic:
    r"""The deviance of a value of psi from the maximum, zero where the maximum lies beyond it.

    For upper limits :math:`q_\psi = 2 (L(\hat\theta) - L(\hat\theta_\psi))` if
    :math:`\hat\psi < \psi`, within the constraints: the :math:`\tilde q_\mu` of Cowan, Cranmer,
    Gross and Vitells (2011, eq. 16), where these say that psi is not negative.

    Attributes
    ----------
    model : FittedModel
    psi : callable
        (d,) to float, infinite where psi is not defined.
    sign : {1, -1}
        Of upper and of lower limits.
    length : float
        A unit of psi: the distance from the estimate to the limit of the likelihood.
    units : (d,) array
        Of the parameters.
    ends : (2, d) array
        Bounds of the parameters.
    rows : sequence of dict
        Other constraints, for scipy.
    """

    model: FittedModel
    psi: Callable[[Array], float]
    sign: int
    length: float
    units: Array
    ends: Array
    rows: Sequence[dict[str, Any]] = ()

    @classmethod
    def of(cls, model: FittedModel, psi: Any, sign: int, length: float) -> "Statistic":
        """Bind psi to a model."""
        evaluation = Evaluation.of(without_constraints(model), psi)
        center, constraints = np.array(model.theta), model.space.constraints
        slope = abs(model.score(center))  # of a log-likelihood that is a line the only unit
        units = 1 / np.maximum(1 / objective_of(model).units, slope)
        ends, rows = np.array([[-np.inf], [np.inf]]) * np.ones(center.size), []
        if constraints is not None:
            ends = np.array(box(constraints, center))
            several = np.count_nonzero(constraints.slope(center), axis=1) > 1
            if several.any() or not constraints.linear.all():
                rows = scaled(constraints, center, units)

        def value(theta: Array) -> float:
            with np.errstate(all="ignore"):
                try:
                    return float(evaluation(theta)[0])
                except EvaluationError:  # as a logarithm at its end
                    near = float(evaluation(theta + INSIDE * (center - theta))[0])
                    return math.copysign(math.inf, near - float(evaluation(center)[0]))

        return cls(model, value, sign, length, units, ends, rows)

    def free(self, data: FittedModel, start: Array) -> Fit:
        """Maximize the objective of some data within the constraints."""
        return self._climbed(data, start, self.ends, self.rows)

    def at(self, psi: float, data: FittedModel, start: Array) -> Fit:
        """Maximize where psi has a value; `NOWHERE` if it never has."""

        def gap(x: Array) -> float:
            return (self.psi(x * self.units) - psi) / self.length

        x = start / self.units
        if start.size == 1 and abs(gap(x)) <= REACHED:  # nothing is left to fit
            return Fit(objective_of(data).objective(start), start, self.psi(start))
        row = {"type": "eq", "fun": gap, "jac": lambda x: _slope(gap, x, self.ends[1] / self.units)}
        found = self._climbed(data, start, self.ends, [*self.rows, row])
        return found if abs(found.psi - psi) <= REACHED * self.length else NOWHERE

    def farthest(self, sign: int) -> Fit | None:
        """Fit at the bound where psi is the smallest (largest), if there is one: all along it.

        Of several bounds, as of the factors of a product, it is the one of the likeliest fit.
        """
        fits, center = [], np.array(self.model.theta)
        for side, row in zip((-1, 1), self.ends, strict=True):
            for j in np.flatnonzero(np.isfinite(row) & (self.ends[0] < self.ends[1])):
                there, ends = center.copy(), self.ends.copy()
                there[j] = ends[0, j] = ends[1, j] = row[j]
                inside = there - side * self.units * (np.arange(there.size) == j)
                value, inner = self.psi(there), self.psi(np.clip(inside, *self.ends))
                moved = [np.clip(there + step, *ends) for step in np.diag(self.units)]
                if sign * (value - inner) > 0 and all(self.psi(x) == value for x in moved):
                    fits.append(self._climbed(self.model, there, ends, self.rows))
        return max(fits, key=lambda fit: (sign * fit.psi, fit.value), default=None)

    def deviance(self, psi: float, free: Fit, at: Fit) -> float:
        """Deviance of psi on its side, from two fits."""
        return 0.0 if self.sign * (free.psi - psi) >= 0 else max(2 * (free.value - at.value), 0.0)

    def _climbed(
        self, data: FittedModel, start: Array, ends: Array, rows: Sequence[dict[str, Any]]
    ) -> Fit:
        """Climb by sequential quadratic programming, in natural units."""
        objective, (low, high) = objective_of(data).objective, ends / self.units

        def fall(x: Array) -> float:
            value = -objective(x * self.units)
            return value if np.isfinite(value) else HUGE

        with np.errstate(all="ignore"):
            first, limits = np.clip(start / self.units, low, high), np.transpose([low, high])
            options: Any = {"bounds": limits, "constraints": rows, "options": STEPS}
            options["jac"] = lambda x: _slope(fall, x, high)
            x = np.clip(minimize(fall, first, method="SLSQP", **options).x, low, high)
            return Fit(-fall(x), x * self.units, self.psi(x * self.units))


def _slope(function: Callable[[Array], float], x: Array, high: Array) -> Array:
    """Differences in natural units, within bounds; SciPy's take longer than a small likelihood."""
    steps, value = np.where(x + STEP > high, -STEP, STEP), function(x)
    return np.array([function(x + step) - value for step in np.diag(steps)]) / steps
