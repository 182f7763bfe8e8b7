"""Newton's method with conjugate gradients: climb with gradients and curvature."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.objective import Maximum
from implicit_delta.optimize.scaled import ScaledObjective

NEARBY = 1e-4  # decrement below which the full step needs no proof: values cannot resolve it
ARMIJO = 1e-4
LOOSEST, TIGHTEST = 0.1, 1e-6  # relative error of the squared decrement, far and near
MOST_HALVINGS, MOST_DOUBLINGS = 50, 30
PATIENCE = 3


@dataclass(frozen=True, repr=False)
class NewtonKrylov(Maximizer):
    r"""Newton's method, each step by conjugate gradients on the curvature (scaled coordinates).

    Stops when the Newton decrement :math:`\sqrt{g' A^{-1} g}`, the distance to the maximum in the
    norm of A, is below the tolerance. Where the curvature has the wrong sign it follows the
    direction found so far as long as it climbs.

    Parameters
    ----------
    tolerance : float
        Newton decrement at which to stop.
    max_iterations : int
        Newton steps.
    max_products : int
        Products with the curvature per step.
    max_distance : float
        Largest distance of the maximum, in scaled coordinates; farther is taken for divergence.

    Examples
    --------
    >>> from implicit_delta.optimize import Objective
    >>> hill = Objective(
    ...     lambda x: -np.sum(x**4 + x**2),
    ...     lambda x: -4 * x**3 - 2 * x,
    ...     lambda x, v: (12 * x**2 + 2)[:, None] * v,
    ... )
    >>> found = newton_krylov.maximize(hill, np.array([3.0, -1.0]))
    >>> bool(abs(found.x).max() < 1e-9), found.converged
    (True, True)
    """

    tolerance: float = 1e-9
    max_iterations: int = 50
    max_products: int = 250
    max_distance: float = 1e3

    name: ClassVar[str] = "newton_krylov"
    needs_gradient: ClassVar[bool] = True
    needs_curvature: ClassVar[bool] = True

    def climb(self, scaled: ScaledObjective) -> Maximum:
        here = closest = _Iterate.at(scaled, scaled.best, 0.0, self.max_products)
        stalled = 0
        for iterations in range(self.max_iterations + 1):
            if here.decrement <= self.tolerance and here.complete:
                return here.maximum(scaled, True, "The Newton decrement is small.", iterations)
            if scaled.done(here.z, here.direction):
                return here.maximum(scaled, True, "It will do.", iterations)
            if stalled == PATIENCE:
                return closest.maximum(scaled, True, "Rounding allows no more.", iterations)
            ahead = _line_search(scaled, here) if math.isfinite(here.slope) else None
            if ahead is None:
                nearby = closest.decrement <= NEARBY
                return closest.maximum(scaled, nearby, "No higher point was found.", iterations)
            here = _Iterate.at(scaled, *ahead, self.max_products)
            closer = closest.decrement > NEARBY or here.decrement < closest.decrement
            closest, stalled = (here, 0) if closer else (closest, stalled + 1)
        return closest.maximum(scaled, False, "Too few steps were allowed.", iterations)


newton_krylov = NewtonKrylov()


@dataclass(frozen=True)
class _Iterate:
    """A point of the climb, with the Newton step from it.

    ``complete``: the step solves Newton's equation. ``upward``: the objective curves upward along
    it or close to it.
    """

    z: Array
    rise: float
    gradient: Array
    direction: Array
    complete: bool
    upward: bool

    @classmethod
    def at(cls, scaled: ScaledObjective, z: Array, rise: float, most: int) -> "_Iterate":
        gradient = scaled.gradient(z)
        return cls(z, rise, gradient, *_newton_direction(scaled, z, gradient, most))

    @property
    def slope(self) -> float:
        return float(self.gradient @ self.direction)

    @property
    def decrement(self) -> float:
        return math.inf if self.upward else math.sqrt(self.slope)

    def maximum(
        self, scaled: ScaledObjective, converged: bool, message: str, iterations: int
    ) -> Maximum:
        norm = float(np.linalg.norm(self.gradient))
        return scaled.maximum(self.z, converged, message, iterations, norm)


def _newton_direction(
    scaled: ScaledObjective, z: Array, gradient: Array, most: int
) -> tuple[Array, bool, bool]:
    """Solve A p = g by conjugate gradients, as far as pays: p, whether solved, whether upward.

    Stops by the gain in g' p, the squared decrement (Nash & Sofer 1990), rather than by the
    residual, which is blind to directions of little curvature.
    """
    step, gains = gradient, 0.0
    try:
        krylov = Krylov(lambda v: scaled.curve(z, v), gradient[:, None], flat=0.0)
        while krylov.active.size and krylov.iterations < most:
            krylov.step()
            step, gain = krylov.x[0], krylov.lower[0] - gains
            gains += gain
            if krylov.iterations * gain <= min(LOOSEST, max(math.sqrt(gains), TIGHTEST)) * gains:
                return step, True, False
    except NotAMaximumError:
        return step, False, True
    return krylov.x[0], not krylov.active.size, False


def _line_search(scaled: ScaledObjective, here: _Iterate) -> tuple[Array, float] | None:
    """Halve the step until it climbs enough; where the objective curves upward, double it."""
    length = 1.0
    for _ in range(MOST_HALVINGS):
        z = here.z + length * here.direction
        rise = scaled.rise(z)
        enough = here.rise + ARMIJO * length * here.slope - scaled.noise
        if rise >= enough or (here.decrement <= NEARBY and rise > -math.inf):
            return _double(scaled, here, length, z, rise) if here.upward else (z, rise)
        length /= 2
    return None


def _double(
    scaled: ScaledObjective, here: _Iterate, length: float, z: Array, rise: float
) -> tuple[Array, float]:
    for _ in range(MOST_DOUBLINGS):
        length *= 2
        farther = here.z + length * here.direction
        higher = scaled.rise(farther)
        if not higher > rise:
            break
        z, rise = farther, higher
    return z, rise
