"""Variable metric (BFGS): climb with few gradients, and many fewer digits."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.objective import Maximum
from implicit_delta.optimize.scaled import ScaledObjective

ARMIJO = 1e-4
LONGEST, SHORTEST = 5.0, 0.1  # times the step before: as far as a parabola is believed
MOST_TRIALS = 12
FLAT = 1e-10  # cosine between a step and the change of the gradient that tells nothing
FAR = 1.0  # scaled unit: the longest first trial of a step, so that it stays on its hill


@dataclass(frozen=True, repr=False)
class VariableMetric(Maximizer):
    r"""BFGS with the whole matrix, from a first step of length one on: where gradients are dear.

    A gradient by differences costs 2 d values, so a step is sought along its line by parabolas
    through values alone. Stops at a decrement :math:`\sqrt{g' H g}` with the matrix H built so far,
    which is the distance to the maximum as far as that is known.

    Parameters
    ----------
    tolerance : float
        Decrement at which to stop.
    max_iterations : int
        Gradients.
    max_curvature : float
        Largest curvature of a maximum, in scaled coordinates; more is taken for a kink, at which
        the matrix shrinks and the gradient does not.
    max_distance : float
        Largest distance of the maximum, in scaled coordinates; farther is taken for divergence.

    Examples
    --------
    >>> from implicit_delta.optimize import Objective
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2), lambda x: -2.0 * (x - 1.0))
    >>> variable_metric.maximize(hill, np.zeros(2)).x.round(6)
    array([1., 1.])
    """

    tolerance: float = 1e-6
    max_iterations: int = 200
    max_curvature: float = 1e4
    max_distance: float = 1e3

    name: ClassVar[str] = "variable_metric"
    needs_gradient: ClassVar[bool] = True

    def climb(self, scaled: ScaledObjective) -> Maximum:
        z, rise, metric = scaled.best, 0.0, np.eye(scaled.start.size)
        gradient = scaled.gradient(z)
        message = "Too many steps."
        for iterations in range(self.max_iterations + 1):
            step = metric @ gradient
            slope = float(gradient @ step)
            if not math.isfinite(slope):
                message = "The gradient is not finite."
                break
            if slope <= self.tolerance**2:
                norm = float(np.linalg.norm(gradient))
                smooth = norm <= math.sqrt(self.max_curvature) * self.tolerance
                message = "The decrement is small." if smooth else "It ends at a kink."
                return scaled.maximum(z, smooth, message, iterations, norm)
            ahead = _searched(scaled, z, rise, step, slope)
            if ahead is None:
                norm = float(np.linalg.norm(gradient))
                message = "No higher point was found."
                return replace(scaled.maximum(z, False, message, iterations, norm), hidden=True)
            before, z, rise = (z, gradient), *ahead
            gradient = scaled.gradient(z)
            metric = _updated(metric, z - before[0], before[1] - gradient)
        return scaled.maximum(z, False, message, iterations, float(np.linalg.norm(gradient)))


variable_metric = VariableMetric()


def _searched(
    scaled: ScaledObjective, z: Array, rise: float, step: Array, slope: float
) -> tuple[Array, float] | None:
    """Go along a step to about its highest point, by parabolas through two values and the slope."""
    length = min(1.0, FAR / float(np.linalg.norm(step)))
    best: tuple[float, float] | None = None
    for _ in range(MOST_TRIALS):
        gain = scaled.rise(z + length * step) - rise
        if gain >= ARMIJO * length * slope - scaled.noise and (best is None or gain > best[1]):
            best = length, gain
        elif best is not None:
            break
        bend = 2 * (length * slope - gain) / length**2  # infinite where L is not defined
        peak = slope / bend if bend > 0 else math.inf
        ahead = min(max(peak, SHORTEST * length), LONGEST * length)
        if best is not None and length / 2 <= ahead <= 2 * length:
            break
        length = ahead
    return None if best is None else (z + best[0] * step, rise + best[1])


def _updated(metric: Array, step: Array, fall: Array) -> Array:
    """Update the inverse curvature by BFGS; a step along which the slope rises is left out."""
    along = float(step @ fall)
    if not along > FLAT * float(np.linalg.norm(step) * np.linalg.norm(fall)):
        return metric
    shrink = np.eye(step.size) - np.outer(step, fall) / along
    return np.asarray(shrink @ metric @ shrink.T + np.outer(step, step) / along)
