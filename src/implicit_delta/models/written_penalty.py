"""A penalty function that a user has written in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.calculus.derivatives import second_differences
from implicit_delta.calculus.tracing import trace
from implicit_delta.core.types import Array
from implicit_delta.models.objective import objective_of
from implicit_delta.models.penalty import Penalty, Ridge


@dataclass(frozen=True, eq=False)
class WrittenPenalty:
    """A penalty function: traced with the terms of a model, or by differences in its units."""

    function: Callable[[Array], Any]
    model: Any = None

    def of_model(self, model: Any) -> "WrittenPenalty":
        return replace(self, model=model)

    @property
    def name(self) -> str:
        return name_of(self.function)

    def value(self, theta: Array) -> float:
        return float(self.function(theta.copy()))

    def score(self, theta: Array) -> Array:
        traced = trace(self.function, theta) if self.model.rows.is_traced else None
        if traced is not None and np.all(np.isfinite(traced[1])):
            return np.asarray(traced[1][0])
        objective: Any = objective_of(self.model)  # of a function, as this penalty is
        return np.asarray(objective.gradient(self._term, theta))

    def traced_score(self, theta: Array) -> Array | None:
        """Gradient, (d,), of a trace that agrees with the function; None otherwise."""
        traced = trace(self.function, theta)
        if traced is None or not np.allclose(traced[0], self.value(theta), rtol=1e-12, atol=0):
            return None
        return np.asarray(traced[1][0])

    def curvature(self, theta: Array, v: Array) -> Array:
        units = objective_of(self.model).units
        bilinear = second_differences(self._term, theta, np.diag(units)).value
        return np.asarray(bilinear / np.outer(units, units) @ v)

    def _term(self, theta: Array) -> Array:
        return np.array([self.value(theta)])


def penalty_of(function: Callable[[Array], Any] | None, l2: float) -> Penalty:
    """Make the penalty of a function and a ridge."""
    written = () if function is None else (WrittenPenalty(function),)
    return Penalty((Ridge(float(l2)),) if l2 else (), written)


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function, or of the type of a callable object."""
    return getattr(function, "__name__", type(function).__name__)
