"""L-BFGS: climb with gradients."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from implicit_delta.core.types import Array
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.objective import Maximum
from implicit_delta.optimize.scaled import ScaledObjective

ROUNDING_GRADIENT = 1e-4  # scaled gradient at which a stalled line search is put down to rounding
MEMORY = 20
MOST_GRADIENT_STEPS = 20


@dataclass(frozen=True, repr=False)
class LBFGS(Maximizer):
    """Limited-memory quasi-Newton (L-BFGS-B), for any d; with a good scale it needs few steps.

    Values of a log-likelihood are rounded at 1e-16 of their size, which stalls a line search at
    a gradient of about 1e-8 of the square root of that size. From there on, when there is a scale,
    steps along the gradient alone continue for as long as they help.

    Parameters
    ----------
    tolerance : float
        Largest entry of the scaled gradient at which to stop.
    max_iterations : int
        Steps.
    max_distance : float
        Largest distance of the maximum, in scaled coordinates; farther is taken for divergence.

    Examples
    --------
    >>> from implicit_delta.optimize import Objective
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2), lambda x: -2.0 * (x - 1.0))
    >>> lbfgs.maximize(hill, np.zeros(2)).x.round(6)
    array([1., 1.])
    """

    tolerance: float = 1e-7
    max_iterations: int = 500
    max_distance: float = 1e3

    name: ClassVar[str] = "lbfgs"
    needs_gradient: ClassVar[bool] = True

    def climb(self, scaled: ScaledObjective) -> Maximum:
        result = self._minimize(scaled)
        z, gradient = result.x, scaled.gradient(result.x)
        if scaled.problem.scale is not None:
            z, gradient = _follow_gradient(scaled, z, gradient, self.tolerance)
        norm = float(np.linalg.norm(gradient))
        converged = _largest(gradient) <= self.tolerance or norm <= ROUNDING_GRADIENT
        return scaled.maximum(z, converged, str(result.message), int(result.nit), norm)

    def _minimize(self, scaled: ScaledObjective) -> Any:
        def negative(z: Array) -> tuple[float, Array]:
            rise, gradient = scaled.finite_rise_and_gradient(z)
            return -rise, -gradient

        options = {
            "gtol": self.tolerance,
            "ftol": 0.0,
            "maxiter": self.max_iterations,
            "maxfun": 20 * self.max_iterations,
            "maxcor": MEMORY,
            "maxls": 50,
        }
        return minimize(negative, scaled.best, jac=True, method="L-BFGS-B", options=options)


lbfgs = LBFGS()


def _largest(gradient: Array) -> float:
    return float(np.abs(gradient).max(initial=0.0))


def _follow_gradient(
    scaled: ScaledObjective, z: Array, gradient: Array, tolerance: float
) -> tuple[Array, Array]:
    """Step along the gradient, which in scaled coordinates is nearly Newton's step."""
    for _ in range(MOST_GRADIENT_STEPS):
        norm = np.linalg.norm(gradient)
        if norm > ROUNDING_GRADIENT or _largest(gradient) <= tolerance:
            break
        ahead = z + gradient
        gradient_ahead = scaled.gradient(ahead)
        if not np.linalg.norm(gradient_ahead) < 0.9 * norm:
            break
        z, gradient = ahead, gradient_ahead
    return z, gradient
