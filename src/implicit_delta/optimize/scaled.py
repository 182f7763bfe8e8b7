"""Objective in scaled coordinates, finite everywhere for the sake of line searches."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.optimize.objective import Maximum, Objective

UNSCALED_REACH = 1e6  # times max_distance where there is no scale: the unit of x is unknown
LARGEST_RISE = 1e12  # times the value at the start; more is taken for divergence

_Linear: TypeAlias = Callable[[Array], Array]


class UnboundedObjective(Exception):
    """Raised inside an optimizer to leave it when the objective looks unbounded."""


class ScaledObjective:
    """Rise of an objective above its start, as a function of z: x = start + H z.

    Counts evaluations and keeps the best point. Values that are not finite are replaced by those
    of a bowl around the best point, somewhat below all finite ones, so that line searches and
    simplices back off.
    """

    def __init__(self, problem: Objective, start: Array, max_distance: float) -> None:
        self.problem, self.start = problem, start
        scale = problem.scale
        self._half: _Linear = scale.half if scale else np.asarray
        self._half_transpose: _Linear = scale.half_transpose if scale else np.asarray
        stretch = 1.0 if scale else UNSCALED_REACH * (1.0 + float(np.linalg.norm(start)))
        self.reach = max_distance * stretch
        self.offset = float(problem.value(start))
        self.ceiling = LARGEST_RISE * (1.0 + abs(self.offset))
        self.evaluations = 1
        self.best, self.best_rise, self.worst_rise = np.zeros(start.size), 0.0, 0.0

    @property
    def noise(self) -> float:
        """The rounding error of a rise, or four standard deviations of its noise."""
        return self.problem.error_of(abs(self.offset) + abs(self.best_rise))

    def point(self, z: Array) -> Array:
        """Return x."""
        return np.asarray(self.start + self._half(z))

    def rise(self, z: Array) -> float:
        """Return the objective at z minus that at the start; -inf where it is not finite.

        Raises
        ------
        UnboundedObjective
            The objective still rises farther than ``reach`` from the start, or above ``ceiling``.
        """
        rise = float(self.problem.value(self.point(z))) - self.offset
        self.evaluations += 1
        if rise > self.best_rise:
            self.best, self.best_rise = z.copy(), rise
            if rise > self.ceiling or np.linalg.norm(z) > self.reach:
                raise UnboundedObjective
        if not math.isfinite(rise):
            return -math.inf
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
        gradient = self.problem.gradient(self.point(z))
        return self._half_transpose(np.asarray(gradient, dtype=float))

    def curve(self, z: Array, v: Array) -> Array:
        """Return the curvature with respect to z times a block v, (d, k)."""
        assert self.problem.curvature is not None
        image = self.problem.curvature(self.point(z), self._half(v))
        return self._half_transpose(np.asarray(image, dtype=float))

    def done(self, z: Array, step: Array) -> bool:
        """Whether the problem itself takes z for its end."""
        return self.problem.done is not None and self.problem.done(self.point(z), self._half(step))

    def maximum(
        self,
        z: Array,
        converged: bool,
        message: str,
        iterations: int = 0,
        gradient_norm: float = math.nan,
    ) -> Maximum:
        """Return the result of a climb that ended at z."""
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
        """Return the best point as the result of a climb without end."""
        unit = "units" if self.problem.scale is None else "standard units"
        distance = f"{np.linalg.norm(self.best):.1e} {unit}"
        message = f"The objective looks unbounded: it still grows {distance} from the start."
        return self.maximum(self.best, False, message)
