r"""Rows in the coordinates of a chart: one chain rule for all backends.

With theta = c(z) and C the slope of this parametrization, the score is :math:`C' s`, the curvature
:math:`C' A C - \sum_j s_j \nabla^2 c_j`, and the derivative of a term along v that along C v.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.parametrization import Parametrization
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.processes import Processes, processes_of
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.rows import (
    BatchedRows,
    LocalRows,
    MeasuredRows,
    NoisyOutputs,
    NormalizedRows,
    Outputs,
    RedrawableRows,
    Rows,
    ScaledRows,
    TangentRows,
    Whitened,
    units_of,
)
from implicit_delta.models.weights import Weights


@dataclass(frozen=True, eq=False)
class Restricted:
    """Rows in the coordinates of a chart."""

    rows: Rows
    chart: Parametrization

    def __post_init__(self) -> None:
        if not self.rows.symmetric:
            raise UnsupportedModelError(
                "Estimating equations take no constraints: write the restriction into them."
            )

    @property
    def n(self) -> int:
        return self.rows.n

    @property
    def d(self) -> int:
        return self.chart.size

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def outputs(self) -> Outputs | None:
        found = self.rows.outputs
        return None if found is None else RestrictedOutputs(found, self.chart)

    @property
    def passes(self) -> int:
        return self.rows.passes

    @property
    def processes(self) -> Processes:
        return processes_of(self)

    def at(self, theta: Array, weights: Weights) -> "Restricted":
        if not isinstance(self.rows, LocalRows):
            return self
        return Restricted(self.rows.at(self.chart.point(theta), weights), self.chart)

    def terms(self, theta: Array) -> Array:
        return self.rows.terms(self.chart.point(theta))

    def score(self, theta: Array, weights: Array) -> Array:
        point = self.chart.point(theta)
        return self.chart.pull(point, self.rows.score(point, weights))

    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        point = self.chart.point(theta)
        curved = self.rows.curvature(point, weights, self.chart.push(point, v))
        own = self.chart.pull(point, curved)
        if self.chart.linear:
            return own
        return own - self.chart.second_order(self.rows.score(point, weights), theta, v)

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        point = self.chart.point(theta)
        return self.rows.terms_along(point, self.chart.push(point, v))

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        point = self.chart.point(theta)
        return self.rows.sum_blocks(point, self.chart.push(point, v), reduce, *row_arrays)

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        if self.d > CHEAP_LIMIT and isinstance(self.rows, ScaledRows):
            point = self.chart.point(theta)
            return self.chart.coordinates(self.rows.units(point, weights, NO_PENALTY))
        one = np.eye(self.d)
        own = self.curvature(theta, weights.values, one)
        return units_of(own + penalty.curvature(theta, one))

    def tangent(self, theta: Array) -> "Restricted | None":
        point = self.chart.point(theta)
        found = self.rows.tangent(point) if isinstance(self.rows, TangentRows) else None
        return None if found is None else Restricted(found, self.chart)

    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "Restricted":
        if not isinstance(self.rows, RedrawableRows):
            raise cannot_draw("its rows have no `redraw`", self.n)
        return Restricted(self.rows.redraw(self.chart.point(theta), weights, rng), self.chart)

    def measured_again(
        self, theta: Array, weights: Weights, rng: np.random.Generator
    ) -> "Restricted":
        if not isinstance(self.rows, MeasuredRows):
            return self
        rows = self.rows.measured_again(self.chart.point(theta), weights, rng)
        return self if rows is self.rows else Restricted(rows, self.chart)

    def batch_score(self, theta: Array, weights: Array, rows: NDArray[np.integer[Any]]) -> Array:
        point = self.chart.point(theta)
        if isinstance(self.rows, BatchedRows):
            own = self.rows.batch_score(point, weights, rows)
        else:
            own = self.rows.score(point, weights * np.bincount(rows, minlength=self.n))
        return self.chart.pull(point, own)

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        if not isinstance(self.rows, NormalizedRows):
            return np.nan
        return self.rows.log_likelihood(self.chart.point(theta), weights)


@dataclass(frozen=True, eq=False)
class RestrictedOutputs:
    """Outputs in the coordinates of a chart."""

    whole: Outputs
    chart: Parametrization

    @property
    def is_linear(self) -> bool:
        return self.whole.is_linear and self.chart.linear

    @property
    def size(self) -> int:
        return self.whole.size

    @property
    def likelihood(self) -> Any:
        return self.whole.likelihood

    @property
    def pseudo(self) -> str:
        return self.whole.pseudo

    @property
    def can_be_overdispersed(self) -> bool:
        return self.whole.can_be_overdispersed

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        point = self.chart.point(theta)
        curved = self.whole.gauss_newton(point, weights, self.chart.push(point, v))
        return self.chart.pull(point, curved)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        point = self.chart.point(theta)
        return self.whole.whitened(point, self.chart.push(point, v))

    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        point = self.chart.point(theta)
        drawn = self.whole.noise(point, weights, rng, count)
        return None if drawn is None else self.chart.pull(point, drawn)

    def with_likelihood(self, likelihood: Any) -> Restricted:
        assert isinstance(self.whole, NoisyOutputs)
        return Restricted(self.whole.with_likelihood(likelihood), self.chart)

    def estimated_noise(self, theta: Array, weights: Weights, penalty: Penalty, rule: Any) -> Any:
        """Estimate the variance; what the chart determines does not count as parameters."""
        whole: Any = self.whole  # of a network: other outputs have coordinates of their own
        return whole.estimated_noise(self.chart.point(theta), weights, penalty, rule, self.chart)
