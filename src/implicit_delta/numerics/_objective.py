"""What a maximizer is given and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from implicit_delta._typing import Array
from implicit_delta.numerics._named import Named


class Scale(Protocol):
    """A linear change of coordinates; `Factor` is one."""

    def half(self, z: Array) -> Array:
        """Return ``H z``."""

    def half_transpose(self, g: Array) -> Array:
        """Return ``H' g``."""


@dataclass(frozen=True)
class Objective:
    """A function of d variables to be maximized, with what is known about it.

    Parameters
    ----------
    value : callable
        (d,) to float. Not finite means "not allowed here".
    gradient : callable, optional
        (d,) to (d,).
    curvature : callable, optional
        ``curvature(x, v)`` is minus the Hessian at x (or a positive definite approximation of it)
        times the block v, (d, k) to (d, k).
    scale : Scale, optional
        Coordinates z with ``x = start + scale.half(z)`` in which the objective is close to
        ``-|z|^2 / 2``.
    """

    value: Callable[[Array], float]
    gradient: Callable[[Array], Array] | None = None
    curvature: Callable[[Array, Array], Array] | None = None
    scale: Scale | None = None


@dataclass(frozen=True)
class Maximum:
    """Where a maximizer stopped.

    Parameters
    ----------
    x : array (d,)
        The best point.
    value : float
        The objective there.
    iterations, evaluations : int
        Steps taken, and calls of ``value``.
    converged : bool
        Whether x is a maximum to the requested tolerance.
    gradient_norm : float
        Length of the gradient in the scaled coordinates; nan for gradient-free maximizers.
    message : str
        Why it stopped.
    """

    x: Array
    value: float
    iterations: int
    evaluations: int
    converged: bool
    gradient_norm: float
    message: str


class Maximizer(Named, ABC):
    """Climbs from a start to a nearby maximum. Final classes are frozen dataclasses."""

    needs_gradient: ClassVar[bool]
    max_dimension: ClassVar[int | None] = None

    @abstractmethod
    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start`` (d,); never raises for a failure to converge."""
