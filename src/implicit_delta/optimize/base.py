"""Abstract maximizer."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from implicit_delta.core.named import Named
from implicit_delta.core.types import Array
from implicit_delta.optimize.objective import Maximum, Objective
from implicit_delta.optimize.scaled import ScaledObjective, UnboundedObjective


class Maximizer(Named, ABC):
    """Climbs from a start to a nearby maximum. Final classes are frozen dataclasses.

    Attributes
    ----------
    needs_gradient, needs_curvature : bool
    max_dimension : int or None
        Largest number of variables accepted.
    max_distance : float
        Largest distance of the maximum in scaled coordinates; farther is taken for divergence.
    """

    needs_gradient: ClassVar[bool]
    needs_curvature: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = None
    max_distance: float = math.inf

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start`` (d,).

        A failure to converge is reported in ``converged`` and ``message``, not raised.

        Raises
        ------
        ValueError
            The problem lacks a derivative that the maximizer needs, or has too many variables.
        """
        self._check(problem, start.size)
        scaled = ScaledObjective(problem, start, self.max_distance)
        if not math.isfinite(scaled.offset):
            return scaled.maximum(scaled.best, False, "The objective is not finite at the start.")
        try:
            return self.climb(scaled)
        except UnboundedObjective:
            return scaled.unbounded()

    @abstractmethod
    def climb(self, scaled: ScaledObjective) -> Maximum:
        """Climb from z = 0, where the objective is finite."""

    def _check(self, problem: Objective, d: int) -> None:
        if self.needs_gradient and problem.gradient is None:
            raise ValueError(
                f"{self.name} needs a gradient, and the objective has none. Use "
                "nelder_mead, or a function such as `scipy.optimize.minimize`."
            )
        if self.needs_curvature and problem.curvature is None:
            raise ValueError(f"{self.name} needs a curvature; without one, use lbfgs.")
        if self.max_dimension is not None and d > self.max_dimension:
            raise ValueError(
                f"{self.name} without gradients is not reliable beyond {self.max_dimension} "
                f"variables, and there are {d}. Give a gradient and use lbfgs or newton_krylov."
            )
