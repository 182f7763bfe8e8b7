"""Climb without gradients, by comparing or modelling values."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from implicit_delta._core.types import Array
from implicit_delta.numerics.maximizers.base import Maximizer, Maximum, Objective
from implicit_delta.numerics.maximizers.scaled import Diverged, Scaled

RADIUS = 0.5  # first step in scaled coordinates: half a standard error
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
        How far, in scaled coordinates, the maximum may be; farther is taken for divergence.

    Examples
    --------
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

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        self.check(problem, start)
        scaled = Scaled(problem, start, self.max_distance)
        budget = self.max_evaluations or EVALUATIONS_PER_VARIABLE * start.size
        iterations, previous, converged = 0, -math.inf, False
        result: Any = None
        for _ in range(MOST_RUNS):
            # A collapsed simplex stops short of the maximum; a fresh one from there moves on.
            if scaled.best_rise - previous <= self.tolerance**2 + scaled.noise:
                break
            previous = scaled.best_rise if iterations else -math.inf
            options = self._options(scaled, budget - scaled.evaluations)
            result = _fall(scaled, "Nelder-Mead", options)
            if isinstance(result, Maximum):
                return result
            iterations += int(result.nit)
            # Running out of evaluations in a restart takes nothing away from the answer before.
            converged = converged or bool(result.success)
        return scaled.maximum(scaled.best, converged, str(result.message), iterations)

    def _options(self, scaled: Scaled, left: int) -> dict[str, Any]:
        d = scaled.best.size
        return {
            "initial_simplex": scaled.best + RADIUS * np.eye(d + 1, d, -1),
            "xatol": self.tolerance,
            "fatol": self.tolerance**2 + scaled.noise,
            "maxfev": max(left, 1),
            "maxiter": max(left, 1),
            "adaptive": d > 4,
        }


@dataclass(frozen=True, repr=False)
class Cobyqa(Maximizer):
    """Quadratic models in a trust region (COBYQA), for up to 60 variables.

    Finds a smooth maximum with far fewer evaluations than `nelder_mead`.

    Parameters
    ----------
    tolerance : float
        Radius of the trust region, in scaled coordinates, at which to stop.
    max_evaluations : int, optional
        By default 1000 per variable.
    max_distance : float
        How far, in scaled coordinates, the maximum may be; farther is taken for divergence.

    Examples
    --------
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2))
    >>> cobyqa.maximize(hill, np.zeros(2)).x.round(4)
    array([1., 1.])
    """

    tolerance: float = 1e-6
    max_evaluations: int | None = None
    max_distance: float = 1e3

    name: ClassVar[str] = "cobyqa"
    needs_gradient: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = 60

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        self.check(problem, start)
        scaled = Scaled(problem, start, self.max_distance)
        budget = self.max_evaluations or EVALUATIONS_PER_VARIABLE * start.size
        options = {
            "initial_tr_radius": max(RADIUS, self.tolerance),
            "final_tr_radius": self.tolerance,
            "maxfev": max(budget, 2 * start.size + 2),
        }
        result = _fall(scaled, "COBYQA", options)
        return result if isinstance(result, Maximum) else _report(scaled, result, int(result.nit))


nelder_mead = NelderMead()
cobyqa = Cobyqa()


def refine(scaled: Scaled, evaluations: int) -> Any:
    """Spend the evaluations on a small trust region around the best point."""
    options = {
        "initial_tr_radius": 0.1,
        "final_tr_radius": 1e-5,
        "maxfev": max(evaluations, 2 * scaled.start.size + 4),
    }
    return _fall(scaled, "COBYQA", options)


def _fall(scaled: Scaled, method: str, options: dict[str, Any]) -> Any:
    if not math.isfinite(scaled.offset):
        return scaled.lost()
    try:
        return minimize(
            lambda z: -scaled.finite_rise(z), scaled.best, method=method, options=options
        )
    except Diverged:
        return scaled.unbounded()


def _report(scaled: Scaled, result: Any, iterations: int) -> Maximum:
    return scaled.maximum(scaled.best, bool(result.success), str(result.message), iterations)
