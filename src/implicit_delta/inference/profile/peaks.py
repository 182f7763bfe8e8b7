"""Peaks of a function of one variable that may have kinks, jumps and poles."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LOOKS, BEYOND = 41, 4.0  # values looked at on [0, 4]
CLOSER = (1e-1, 1e-3, 1e-5)  # distances from a peak over which a pole keeps growing
GROWS = 0.8  # growth over one of these relative to that over the one before: 1 for a logarithm
ROUNDING = 1e-2  # growth that is no rounding error
GOLDEN, SECTIONS = (5**0.5 - 1) / 2, 45  # a width of 4e-10


@dataclass(frozen=True)
class Peak:
    """The highest point of a function on [0, 1].

    Attributes
    ----------
    x : float
    diverges : bool
        Whether the function grows without bounds toward x.
    """

    x: float
    diverges: bool


def peak_of(f: Callable[[float], float]) -> Peak | None:
    """Find a peak, a kink, a plateau, a jump or a pole of f on [0, 1]; None if f only rises.

    `f` is NaN where it is not defined, finite at 0, and changes by about one over unit length.
    """

    def height(x: float) -> float:
        found = f(x)
        return found if found == found else -np.inf

    looks = np.linspace(0, BEYOND, LOOKS)
    heights = [height(x) for x in looks]
    best = int(np.argmax(heights))
    if looks[best] > 1:
        return None
    x = golden_section(height, looks[max(best - 1, 0)], looks[best + 1])
    x = x if height(x) > heights[best] else float(looks[best])
    far, near, nearest = (height(x - step) for step in CLOSER)
    return Peak(x, near > far and nearest - near > max(GROWS * (near - far), ROUNDING))


def golden_section(height: Callable[[float], float], low: float, high: float) -> float:
    """Maximize on an interval without the help of parabolas, which a pole or a jump misleads."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    heights = height(left), height(right)
    for _ in range(SECTIONS):
        if heights[0] >= heights[1]:
            high, right = right, left
            left = high - GOLDEN * (high - low)
            heights = height(left), heights[0]
        else:
            low, left = left, right
            right = low + GOLDEN * (high - low)
            heights = heights[1], height(right)
    return float(left if heights[0] >= heights[1] else right)
