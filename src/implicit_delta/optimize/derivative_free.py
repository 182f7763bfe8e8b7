"""Nelder-Mead: climb without gradients."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.objective import Maximum
from implicit_delta.optimize.scaled import ScaledObjective

RADIUS = 0.5  # first step in scaled coordinates
EVALUATIONS_PER_VARIABLE = 1000
MOST_RUNS = 5


@dataclass(frozen=True, repr=False)
class NelderMead(Maximizer):
    """The simplex method, restarted from its answer until that no longer helps (at least once).

    For up to 20 variables; makes no use of smoothness, so kinks and small jumps do no harm.

    Parameters
    ----------
    tolerance : float
        Size of the simplex, in scaled coordinates, at which to stop.
    max_evaluations : int, optional
        Of all runs together; by default 1000 per variable.
    max_distance : float
        Largest distance of the maximum, in scaled coordinates; farther is taken for divergence.

    Examples
    --------
    >>> from implicit_delta.optimize import Objective
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2))
    >>> nelder_mead.maximize(hill, np.zeros(2)).x.round(4)
    array([1., 1.])
    """

    tolerance: float = 1e-6
    max_evaluations: int | None = None
    max_distance: float = 1e3

    name: ClassVar[str] = "nelder_mead"
    needs_gradient: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = 20

    def climb(self, scaled: ScaledObjective) -> Maximum:
        budget = self.max_evaluations or EVALUATIONS_PER_VARIABLE * scaled.start.size
        iterations, previous, converged = 0, -math.inf, False
        result: Any = None
        for _ in range(MOST_RUNS):
            # A collapsed simplex stops short of the maximum; a fresh one from there moves on.
            if scaled.best_rise - previous <= self.tolerance**2 + scaled.noise:
                break
            previous = scaled.best_rise if iterations else -math.inf
            options = self._options(scaled, budget - scaled.evaluations)
            result = minimize(
                lambda z: -scaled.finite_rise(z), scaled.best, method="Nelder-Mead", options=options
            )
            iterations += int(result.nit)
            # Running out of evaluations in a restart takes nothing away from the answer before.
            converged = converged or bool(result.success)
        return scaled.maximum(scaled.best, converged, str(result.message), iterations)

    def _options(self, scaled: ScaledObjective, left: int) -> dict[str, Any]:
        d = scaled.best.size
        return {
            "initial_simplex": scaled.best + RADIUS * np.eye(d + 1, d, -1),
            "xatol": self.tolerance,
            "fatol": self.tolerance**2 + scaled.noise,
            "maxfev": max(left, 1),
            "maxiter": max(left, 1),
            "adaptive": d > 4,
        }


nelder_mead = NelderMead()
