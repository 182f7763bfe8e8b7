"""The objective of a model with its derivatives, as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array, Limits
from implicit_delta.linalg.solvers import Factor
from implicit_delta.models.curvature import refuse_saddle
from implicit_delta.models.outer_products import OuterProducts
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.rows import LocalObjective, Rows, StoredRows, units_of
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def objective_of(model: "FittedModel") -> LocalObjective:
    """Combine rows, weights and penalty to the objective, differentiated in the units at theta."""
    around = getattr(model.rows, "around", None)  # a protocol takes longer than a small L
    if around is not None:
        return cast(LocalObjective, around(model.theta, model.weights, model.penalty))
    return RowObjective(model.theta, model.rows, model.weights, model.penalty)


def check_maximum(model: "FittedModel") -> None:
    """Raise at a saddle where the default is a Gauss-Newton matrix, which shows none."""
    if model.facts.curvature == "ggn" and not model.penalty.early_stop:
        objective_of(model).check_saddle()


@dataclass(frozen=True, eq=False)
class RowObjective:
    """The objective of rows that have derivatives of their own; see `LocalObjective`."""

    theta: Array
    rows: Rows
    weights: Weights
    penalty: Penalty

    @property
    def units(self) -> Array:
        units = getattr(self.rows, "units", None)  # of `ScaledRows`
        if units is not None:
            return np.asarray(units(self.theta, self.weights, self.penalty))
        return units_of(self.information(self.theta, np.eye(self.theta.size)))

    @property
    def outer_products(self) -> OuterProducts | None:
        return None

    @property
    def carries_derivatives(self) -> bool:
        return False

    @property
    def noise(self) -> float:
        return 0.0

    def uncertainty(self) -> tuple[float, float]:
        return 0.0, 0.0

    def objective(self, theta: Array) -> float:
        total = getattr(self.rows, "total", None)  # of `StoredRows`
        if total is None:
            return self.weights.total(self.rows.terms(theta)) - self.penalty.value(theta)
        return float(total(theta, self.weights.values) - self.penalty.value(theta))

    def score(self, theta: Array) -> Array:
        return self.weighted_score(theta, self.weights.values)

    def weighted_score(self, theta: Array, weights: Array) -> Array:
        return self.rows.score(theta, weights) - self.penalty.score(theta)

    def swift_score(self, theta: Array) -> Array:
        return self.score(theta)

    def rough_score(self, theta: Array) -> Array:
        if not isinstance(self.rows, StoredRows):
            return self.score(theta)
        return self.rows.rough_score(theta, self.weights.values) - self.penalty.score(theta)

    @property
    def short_steps(self) -> Array:
        return self.units  # no differences are taken

    def short_score(self, theta: Array, steps: Array) -> Array:
        return self.score(theta)

    def information(self, theta: Array, v: Array) -> Array:
        own = self.information_of(theta, v, self.weights.values)
        return own + self.penalty.curvature(theta, v) if self.penalty.parts else own

    def information_of(self, theta: Array, v: Array, weights: Array) -> Array:
        return self.rows.curvature(theta, weights, v)

    def terms_along(self, theta: Array, v: Array) -> Array:
        found = np.empty((self.rows.n, v.shape[1]))
        for span, block in self.rows.terms_along(theta, v):
            found[span] = block
        return found

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return self.rows.sum_blocks(theta, v, reduce, *row_arrays)

    def metric(self, theta: Array) -> Factor | None:
        return None

    def approached(self, limits: Limits) -> Array | None:
        return None

    def check_saddle(self) -> None:
        if not isinstance(self.rows, StoredRows):
            return
        v = np.diag(self.units)
        own = self.rows.curvature(self.theta, self.weights.values, v)
        refuse_saddle(v @ (own + self.penalty.curvature(self.theta, v)))
