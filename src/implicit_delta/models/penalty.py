"""Penalty of an objective: ridges, and functions of the parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from implicit_delta._core.types import Array


@dataclass(frozen=True, eq=False)
class Ridge:
    r"""Half of the sum of :math:`s_j (\theta_j - c_j)^2`.

    Attributes
    ----------
    strength : float or (d,) array
        Not negative.
    center : float or (d,) array
        Where it is zero: the start, for a training that stopped early.
    name : str
        Where it comes from, for messages, if a user may not know of it.
    """

    strength: float | Array
    center: float | Array = 0.0
    name: str = ""

    def value(self, theta: Array) -> float:
        return float(np.sum(self.strength * (theta - self.center) ** 2)) / 2

    def score(self, theta: Array) -> Array:
        return np.asarray(self.strength * (theta - self.center))

    def curvature(self, theta: Array, v: Array) -> Array:
        return np.asarray((self.strength * v.T).T)


class PenaltyFunction(Protocol):
    """A penalty that a user has written, or a host library: with its derivatives."""

    name: str

    def value(self, theta: Array) -> float: ...
    def score(self, theta: Array) -> Array: ...
    def curvature(self, theta: Array, v: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class Penalty:
    """What the objective subtracts from the log-likelihood; empty by default.

    Attributes
    ----------
    ridges : tuple of Ridge
    functions : tuple of PenaltyFunction
    by_rows : bool
        Whether it grows with the rows, as beside a mean loss: those of parts of the data add up.
    """

    ridges: tuple[Ridge, ...] = ()
    functions: tuple[PenaltyFunction, ...] = ()
    by_rows: bool = False

    def __bool__(self) -> bool:
        return bool(self.functions) or any(np.any(ridge.strength) for ridge in self.ridges)

    @property
    def floor(self) -> float:
        """Lower bound of the curvature along any direction, as far as ridges tell."""
        return float(np.min(sum((np.asarray(r.strength) for r in self.ridges), np.zeros(()))))

    @property
    def parts(self) -> tuple[Ridge | PenaltyFunction, ...]:
        """Ridges and functions."""
        return (*self.ridges, *self.functions)

    def value(self, theta: Array) -> float:
        return sum(part.value(theta) for part in self.parts)

    def score(self, theta: Array) -> Array:
        """Gradient, (d,): what `FittedModel.score` subtracts."""
        return self._sum(lambda part: part.score(theta), np.zeros_like(theta))

    def curvature(self, theta: Array, v: Array) -> Array:
        """Hessian times v, (d,) or (d, k)."""
        return self._sum(lambda part: part.curvature(theta, v), np.zeros_like(v))

    def _sum(self, ask: Callable[[Ridge | PenaltyFunction], Array], zero: Array) -> Array:
        return np.asarray(sum(map(ask, self.parts), zero))
