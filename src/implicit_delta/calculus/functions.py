"""Functions that are differentiated, their derivatives, and differences along one step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from implicit_delta.core.types import Array

Function: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Derivative:
    """Derivative, the estimated error of each of its entries, and the noise of the function.

    The error holds what the steps leave out and what noise adds.
    """

    value: Array
    error: Array
    noise: Array | float = 0.0

    def scaled(self, factors: Array | float) -> "Derivative":
        """Multiply the columns, or all entries."""
        sizes = np.abs(factors)
        return Derivative(self.value * np.asarray(factors), self.error * sizes, self.noise)


def moved(x: Array, j: int, h: float) -> Array:
    """Add h to one coordinate, with the same rounding as a step along an axis."""
    step = np.zeros_like(x)
    step[j] = h
    return x + step


def bend(f: Function, x: Array, center: Array, step: Array) -> float:
    """Second difference of the sum of f."""
    return float(np.sum(f(x + step) - 2 * center + f(x - step)))
