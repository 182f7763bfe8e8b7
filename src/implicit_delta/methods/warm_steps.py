"""Quasi-Newton steps from the maximum of one objective to that of another close to it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.optimize import LinearScale

MOST_STEPS = 12  # more, and it is not close by: line searches do better
SHRINKS = 0.7  # length of the gradient after a step; a step on a parabola leaves nothing
TOLERANCE = 1e-7  # length of the scaled gradient, after which one step is left; as in `lbfgs`
FORETOLD = 1e-8  # scaled gradient after a step that needs no proof
ROUNDING = 1e-4  # scaled gradient at which steps that no longer help are put down to rounding
FAST = 0.1  # share of the gradient that a step close to a maximum leaves
FORMED = 300  # parameters up to which a product is faster than a triangular solve

Metric: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class WarmSteps:
    """Whole steps in coordinates that are close to natural, corrected by BFGS on the way.

    No values, no line search: every step has to shrink the gradient, or there is no result and
    something with more care has to climb. The last step is the one that is known, from how much
    the one before has shrunk the gradient, to end at one below `FORETOLD`.

    Attributes
    ----------
    start : (d,) array
    forth, back : callable
        From natural coordinates to those of the objective, and of a gradient the other way.
    """

    start: Array
    forth: Callable[[Array], Array]
    back: Callable[[Array], Array]

    @classmethod
    def of(cls, start: Array, scale: LinearScale) -> "WarmSteps":
        """Form the matrix of the coordinates unless it is large."""
        if start.size > FORMED:
            return cls(start, scale.half, scale.half_transpose)
        half = scale.half(np.eye(start.size))
        return cls(start, half.dot, half.T.dot)

    def maximum(
        self, slope: Callable[[Array], Array], first: Array, metric: Metric | None = None
    ) -> tuple[Array, bool] | None:
        """Step to where the slope vanishes, (d,), given the one at the start; whether it is a top.

        Where an objective has no maximum and levels off like an exponential, Newton steps shrink
        the gradient by a factor of e each, and these ones less: by `FAST` it shrinks at a top.

        The metric applies the inverse curvature in natural coordinates, if that is known better
        than to be close to one.
        """
        z, gradient, before = np.zeros(self.start.size), self.back(first), np.inf
        pairs: list[tuple[Array, Array, float]] = []
        for _ in range(MOST_STEPS):
            size = math.sqrt(gradient @ gradient)
            step = _stepped(pairs, gradient, metric)
            foretold = size * size / before if size < ROUNDING else np.inf
            if size <= TOLERANCE or foretold <= FORETOLD:
                return self.point(z + step), size < FAST * before < np.inf
            ahead = self.back(slope(self.point(z + step)))
            if not math.sqrt(ahead @ ahead) < SHRINKS * size:  # or it is not a number
                return (self.point(z), False) if size < ROUNDING else None
            fall = gradient - ahead
            along = float(step @ fall)
            if not along > 0:
                return None
            pairs.append((step, fall, along))
            z, gradient, before = z + step, ahead, size
        return None

    def point(self, z: Array) -> Array:
        """Return theta, (d,)."""
        return np.asarray(self.start + self.forth(z))


def _stepped(
    pairs: list[tuple[Array, Array, float]], gradient: Array, metric: Metric | None
) -> Array:
    """Apply the inverse curvature by the two loops of L-BFGS; it begins as the metric."""
    step, shares = gradient.copy(), []
    for move, fall, along in reversed(pairs):
        shares.append(float(move @ step) / along)
        step -= shares[-1] * fall
    step = step if metric is None else metric(step)
    for (move, fall, along), share in zip(pairs, reversed(shares), strict=True):
        step += (share - float(fall @ step) / along) * move
    return step
