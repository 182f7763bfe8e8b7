"""An objective in its scaled coordinates, made safe for line searches."""

import math

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.numerics.maximizers.base import Maximum, Objective

UNSCALED_REACH = 1e6  # how much farther to let x go when its natural unit is unknown
UNBELIEVABLE = 1e12  # times the value at the start: no log-likelihood rises so much
UNBOUNDED = "The objective looks unbounded: it still grows {distance:.1e} {unit} from the start."


class Diverged(Exception):
    """Raised inside an optimizer to leave it when the objective looks unbounded."""


class Scaled:
    """The rise of the objective above its start, as a function of z: x = start + H z.

    Counts evaluations and remembers the best point. Where the objective is not finite, it
    pretends to be in a bowl around the best point, somewhat below all that was seen: line searches
    and simplices back off, and no optimizer meets an infinity.
    """

    def __init__(self, problem: Objective, start: Array, max_distance: float) -> None:
        self.problem, self.start = problem, start
        stretch = 1.0 if problem.scale else UNSCALED_REACH * (1.0 + float(np.linalg.norm(start)))
        self.reach = max_distance * stretch
        self.offset = float(problem.value(start))
        self.ceiling = UNBELIEVABLE * (1.0 + abs(self.offset))
        self.evaluations = 1
        self.best, self.best_rise, self.worst_rise = np.zeros(start.size), 0.0, 0.0

    @property
    def noise(self) -> float:
        """The rounding error of a rise."""
        return 8 * float(np.finfo(float).eps) * (abs(self.offset) + abs(self.best_rise))

    def point(self, z: Array) -> Array:
        """Return x."""
        scale = self.problem.scale
        return np.asarray(self.start + (z if scale is None else scale.half(z)))

    def rise(self, z: Array) -> float:
        """Return the objective at z minus that at the start; -inf where it is not finite.

        Raises
        ------
        Diverged
            The objective still rises out of reach of the start, or beyond belief.
        """
        rise = float(self.problem.value(self.point(z))) - self.offset
        self.evaluations += 1
        if rise > self.best_rise and (rise > self.ceiling or np.linalg.norm(z) > self.reach):
            self.best, self.best_rise = z.copy(), rise
            raise Diverged
        if not math.isfinite(rise):
            return -math.inf
        if rise > self.best_rise:
            self.best, self.best_rise = z.copy(), rise
        self.worst_rise = min(self.worst_rise, rise)
        return rise

    def finite_rise(self, z: Array) -> float:
        """Return the rise, or the height of the bowl where it is not finite."""
        rise = self.rise(z)
        return rise if rise > -math.inf else self.worst_rise - 1.0

    def finite_rise_and_gradient(self, z: Array) -> tuple[float, Array]:
        """Return the rise and its gradient (d,), or those of the bowl."""
        rise = self.rise(z)
        gradient = self.gradient(z) if rise > -math.inf else np.full(z.size, np.nan)
        if np.isfinite(gradient).all():
            return rise, gradient
        depth, away = self.best_rise - self.worst_rise + 1.0, z - self.best
        return self.best_rise - depth, -2.0 * depth / max(float(away @ away), 1e-300) * away

    def gradient(self, z: Array) -> Array:
        """Return the gradient with respect to z, (d,)."""
        assert self.problem.gradient is not None
        gradient = np.asarray(self.problem.gradient(self.point(z)), dtype=float)
        scale = self.problem.scale
        return gradient if scale is None else scale.half_transpose(gradient)

    def curve(self, z: Array, v: Array) -> Array:
        """Return the curvature with respect to z times v, (d,)."""
        assert self.problem.curvature is not None
        scale, block = self.problem.scale, v[:, None]
        direction = block if scale is None else scale.half(block)
        image = np.asarray(self.problem.curvature(self.point(z), direction), dtype=float)
        return np.asarray(image if scale is None else scale.half_transpose(image))[:, 0]

    def maximum(
        self,
        z: Array,
        converged: bool,
        message: str,
        iterations: int,
        gradient_norm: float = math.nan,
    ) -> Maximum:
        """Report z as the place where the climb ended."""
        x = self.point(z)
        value = self.offset + self.best_rise if z is self.best else float(self.problem.value(x))
        return Maximum(
            x=x,
            value=value,
            iterations=iterations,
            evaluations=self.evaluations + (z is not self.best),
            converged=converged,
            gradient_norm=gradient_norm,
            message=message,
        )

    def unbounded(self) -> Maximum:
        """Report that the objective grows without end."""
        unit = "units" if self.problem.scale is None else "standard units"
        distance = float(np.linalg.norm(self.best))
        return self.maximum(self.best, False, UNBOUNDED.format(distance=distance, unit=unit), 0)

    def lost(self) -> Maximum:
        """Report that there is nowhere to begin."""
        return self.maximum(self.best, False, "The objective is not finite at the start.", 0)
