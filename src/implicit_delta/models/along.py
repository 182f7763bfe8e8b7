"""Functions of theta in the coordinates of a chart, and as terms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.constraints import Chart
from implicit_delta.models.traced_loglik import (
    is_traced,
    rows_along,
    weighted_hessian,
    weighted_rows,
)


@dataclass(frozen=True, eq=False)
class Along:
    """A function of all parameters, in the coordinates of a chart."""

    function: Callable[[Array], Any]
    chart: Chart

    def __call__(self, z: Array) -> Any:
        """Evaluate where the chart leads."""
        return self.function(self.chart.point(z))


@dataclass(frozen=True, eq=False)
class OneTerm:
    """A penalty as a function (d,) to (1,)."""

    penalty: Callable[[Array], Any]

    def __call__(self, theta: Array) -> Any:
        """Evaluate."""
        return np.atleast_1d(self.penalty(theta))


@dataclass(frozen=True, eq=False)
class RowsAlong:
    """Derivatives (n, d) of rows, in the coordinates of a chart: (n, k)."""

    function: Callable[[Array], Any]
    chart: Chart

    def __call__(self, z: Array) -> Array:
        """Apply the chain rule."""
        theta = self.chart.point(z)
        return np.asarray(np.asarray(self.function(theta), float) @ self.chart.slope(theta))

    @property
    def traced(self) -> bool:
        """Whether the derivatives are traced."""
        return is_traced(self.function)

    def weighted(self, z: Array, weights: Array) -> Array:
        """Weighted sum of the rows, (k,)."""
        theta = self.chart.point(z)
        return np.asarray(weighted_rows(self.function, theta, weights) @ self.chart.slope(theta))

    def along(self, z: Array, v: Array) -> Array:
        """Rows along directions (k,) or (k, m)."""
        theta = self.chart.point(z)
        return rows_along(self.function, theta, self.chart.slope(theta) @ v)

    def hessian(self, z: Array, weights: Array, v: Array) -> Array | None:
        """Multiply the Hessian of the weighted sum by (k, m); None where it is not traced."""
        theta = self.chart.point(z)
        found = weighted_hessian(self.function, theta, weights, self.chart.push(theta, v))
        if found is None:
            return None
        own = self.chart.pull(theta, found)
        if self.chart.linear:
            return own
        slope = weighted_rows(self.function, theta, weights)
        return np.asarray(own + self.chart.second_order(slope, z, v))
