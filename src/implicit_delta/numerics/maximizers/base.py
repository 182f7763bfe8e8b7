"""What a maximizer is given and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from implicit_delta._core.named import Named
from implicit_delta._core.types import Array


class Scale(Protocol):
    """A linear change of coordinates; `Factor` is one."""

    def half(self, z: Array) -> Array:
        """Return ``H z`` for (d,) or (d, k)."""

    def half_transpose(self, g: Array) -> Array:
        """Return ``H' g`` for (d,) or (d, k)."""


@dataclass(frozen=True)
class Objective:
    """A function of d variables to be maximized, with what is known about it.

    Parameters
    ----------
    value : callable
        (d,) to float. A value that is not finite means "not allowed here".
    gradient : callable, optional
        (d,) to (d,).
    curvature : callable, optional
        ``curvature(x, v)`` is minus the Hessian at x (or a positive definite approximation of it)
        times the block v, (d, k) to (d, k).
    scale : Scale, optional
        Coordinates z with ``x = start + scale.half(z)`` in which the objective is close to
        ``-|z|^2 / 2``. All tolerances are lengths in these coordinates.
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
        Whether x is a maximum, to the tolerance or to what rounding allows.
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
        """Maximize from ``start`` (d,).

        A failure to converge is told by ``converged`` and ``message``, not raised.

        Raises
        ------
        ValueError
            The problem lacks a derivative that the maximizer needs, or has too many variables.
        """

    def check(self, problem: Objective, start: Array) -> None:
        """Refuse a problem that this maximizer is not made for."""
        if self.needs_gradient and problem.gradient is None:
            raise ValueError(
                f"{self.name} needs a gradient, and the objective has none. Use one of the "
                "gradient-free maximizers: nelder_mead, cobyqa or bayesian_optimization."
            )
        if self.max_dimension is not None and start.size > self.max_dimension:
            raise ValueError(
                f"{self.name} without gradients is not reliable beyond {self.max_dimension} "
                f"variables, and there are {start.size}. Use cobyqa (up to 60 variables), or give "
                "a gradient and use lbfgs or newton_krylov."
            )
