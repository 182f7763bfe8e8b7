"""Objectives, their scales and their maxima: the input and the result of a maximizer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from implicit_delta.core.types import Array


class LinearScale(Protocol):
    """A linear change of coordinates; `Factor` is one."""

    def half(self, z: Array) -> Array:
        """Return ``H z`` for (d,) or (d, k)."""

    def half_transpose(self, g: Array) -> Array:
        """Return ``H' g`` for (d,) or (d, k)."""


@dataclass(frozen=True, eq=False)
class Squares:
    """Residuals whose sum of squares is to be least.

    Parameters
    ----------
    residuals : callable
        (d,) to (n,).
    jacobian : callable
        (d,) to their derivatives, (n, d), and the length of the error of each column, (d,).
    noise : float, optional
        Their standard deviation, if it is known.
    """

    residuals: Callable[[Array], Array]
    jacobian: Callable[[Array], tuple[Array, Array]]
    noise: float | None = None


def _no_value(x: Array) -> float:
    raise ValueError("the objective has no value")


@dataclass(frozen=True)
class Objective:
    """A function of d variables to be maximized, with its known derivatives and scale.

    Parameters
    ----------
    value : callable, optional
        (d,) to float. A value that is not finite means "not allowed here".
    gradient : callable, optional
        (d,) to (d,).
    curvature : callable, optional
        ``curvature(x, v)`` is minus the Hessian at x (or a positive definite approximation of it)
        times the block v, (d, k) to (d, k).
    scale : LinearScale, optional
        Coordinates z with ``x = start + scale.half(z)`` in which the objective is close to
        ``-|z|^2 / 2``. All tolerances are lengths in these coordinates.
    done : callable, optional
        ``done(x, step)`` tells whether x will do, given the step that would be taken from it;
        only `newton_krylov` asks.
    residuals : Squares, optional
        Where the value is minus half of a sum of squares; it needs nothing else.
    noise : float
        Standard errors from a maximum within which gradients are lost in noise.
    value_noise : float
        Standard deviation of the noise of the value, beyond its rounding.
    """

    value: Callable[[Array], float] = _no_value
    gradient: Callable[[Array], Array] | None = None
    curvature: Callable[[Array, Array], Array] | None = None
    scale: LinearScale | None = None
    done: Callable[[Array, Array], bool] | None = None
    residuals: Squares | None = None
    noise: float = 0.0
    value_noise: float = 0.0

    def error_of(self, value: float) -> float:
        """Rounding error of a value, and four standard deviations of its noise."""
        return 8 * float(np.finfo(float).eps) * abs(value) + 4 * self.value_noise


@dataclass(frozen=True)
class Maximum:
    """The point where a maximizer stopped.

    Parameters
    ----------
    x : array (d,)
        The best point.
    value : float
        The objective there; nan where the last step needed no value.
    iterations, evaluations : int
        Steps taken, and calls of ``value``.
    converged : bool
        Whether x is a maximum, to the tolerance or to what rounding allows.
    gradient_norm : float
        Length of the gradient in the scaled coordinates; nan for gradient-free maximizers.
    message : str
        Reason for stopping.
    distance : float
        Standard errors that are left, where that is known.
    hidden : bool
        Whether it ended where rounding or noise hides any step.
    """

    x: Array
    value: float
    iterations: int = 0
    evaluations: int = 0
    converged: bool = False
    gradient_norm: float = math.nan
    message: str = ""
    distance: float = math.nan
    hidden: bool = False
