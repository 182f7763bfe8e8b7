"""Outputs of residuals: the Gauss-Newton curvature, whitened rows, and the noise variance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.arguments import Counter
from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.along import Along, RowsAlong
from implicit_delta.models.constraints import Chart
from implicit_delta.models.noise import Noise
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.rows import Whitened
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.loglik_rows import LoglikRows
    from implicit_delta.models.squares import GaussianResiduals


@dataclass(frozen=True, eq=False)
class ResidualOutputs:
    """One residual per row, and its derivatives, both over the standard deviation of the noise.

    Attributes
    ----------
    slopes : callable
        Rows u_i, (d,) to (n, d), of which the Gauss-Newton matrix is the weighted sum of u_i u_i'.
    residuals : callable
        (d,) to (n,).
    counter : Counter
    gaussian : GaussianResiduals or None
        The likelihood that they are of; None for several data sets together.
    chart : Chart or None
        Coordinates in which the parameters are given.
    cache : LastCache
    """

    slopes: Callable[[Array], Any]
    residuals: Callable[[Array], Any]
    counter: Counter
    gaussian: "GaussianResiduals | None" = None
    chart: Chart | None = None
    cache: LastCache = field(default_factory=LastCache)

    @property
    def is_linear(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return 1

    @property
    def pseudo(self) -> str:
        return ""

    @property
    def can_be_overdispersed(self) -> bool:
        return True

    @property
    def likelihood(self) -> Gaussian | None:
        return None if self.gaussian is None else self.gaussian.likelihood

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        rows = self._rows(theta)
        return np.asarray(rows.T @ (weights * (rows @ v).T).T)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        rows, residuals = self._rows(theta) @ v, self.residuals(theta)[:, None]
        self.counter.count += 1
        yield Whitened(rows[:, None, :], residuals, np.ones_like(residuals))

    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        return None

    def _rows(self, theta: Array) -> Array:
        if not self.cache.holds(theta, "rows"):
            self.counter.count += 1
        rows: Array = self.cache.get(theta.copy(), "rows", lambda: self.slopes(theta))
        return rows

    def without_cache(self) -> "ResidualOutputs":
        """Keep nothing that was computed so far."""
        return replace(self, cache=LastCache())

    def along(self, chart: Chart) -> "ResidualOutputs":
        """Take the coordinates of a chart."""
        return replace(
            self.without_cache(),
            slopes=RowsAlong(self.slopes, chart),
            residuals=Along(self.residuals, chart),
            chart=chart,
        )

    def with_likelihood(self, likelihood: Any) -> "LoglikRows":
        assert self.gaussian is not None
        rows = replace(self.gaussian, likelihood=likelihood).rows(self.counter)
        return rows if self.chart is None else rows.along(self.chart)

    def estimated_noise(self, theta: Array, weights: Weights, penalty: Penalty, rule: Any) -> Noise:
        """Estimate the variance; parameters that the chart leaves out are not counted."""
        assert self.gaussian is not None
        if self.gaussian.targets.any():  # drawn with a variance that is known
            return Noise(self.gaussian.likelihood.noise, np.inf)
        own = self.gaussian.problem
        problem = replace(own, weights=weights, l2=penalty.floor, variance=rule or own.variance)
        point = np.array(theta if self.chart is None else self.chart.point(theta))
        along = None if self.chart is None else np.linalg.qr(self.chart.slope(point))[0]
        return problem.noise(point, along)
