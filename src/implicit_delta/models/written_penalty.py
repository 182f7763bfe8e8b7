"""A penalty function that a user has written in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.tracing import History, trace_terms
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
        traced = self.traced_score(theta) if self.model.rows.is_traced else None
        if traced is not None:
            return traced
        objective: Any = objective_of(self.model)  # of a function, as this penalty is
        return np.asarray(objective.gradient(self._term, theta))

    def traced_score(self, theta: Array) -> Array | None:
        """Gradient, (d,), of a trace that agrees with the function; None otherwise."""
        history = self._trace(theta)
        return None if history is None else history.jacobian()[0]

    def curvature(self, theta: Array, v: Array) -> Array:
        if self.model.rows.is_traced:
            history = self._trace(theta)
            if history is None:
                raise FloatingPointError("the penalty cannot be traced here")
            return history.hessian(np.ones(1), v.reshape(theta.size, -1).T).T.reshape(v.shape)
        units = objective_of(self.model).units
        return np.asarray(differentiate(self._term, theta, units, 2).value @ v)

    def _trace(self, theta: Array) -> History | None:
        history = trace_terms(lambda point: np.atleast_1d(self.function(point)), theta)
        same = history is not None and np.allclose(
            history.value, self.value(theta), rtol=1e-12, atol=0
        )
        return history if same else None

    def _term(self, theta: Array) -> Array:
        return np.array([self.value(theta)])


def penalty_of(function: Callable[[Array], Any] | None, l2: float) -> Penalty:
    """Make the penalty of a function and a ridge."""
    written = () if function is None else (WrittenPenalty(function),)
    return Penalty((Ridge(float(l2)),) if l2 else (), written)


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function, or of the type of a callable object."""
    return getattr(function, "__name__", type(function).__name__)
