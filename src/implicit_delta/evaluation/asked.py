"""A question bound to a predictor: contrasts of averages of predictions, as a function of theta."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.contrasts import Contrast
from implicit_delta.evaluation.groups import Grouping
from implicit_delta.evaluation.scenarios import Side
from implicit_delta.models.prediction import tangent_of

LARGEST = 2**24  # numbers of the weights of rows that are held at a time


@dataclass(frozen=True, eq=False)
class Asked:
    """Psi of a question, (d,) to (K,): a contrast of weighted means, or a row by itself.

    Attributes
    ----------
    sides : list
        One or two sums of predictions.
    grouping : Grouping or None
        None: every row by itself.
    weights : (m,) array
        Of the rows in their averages.
    outcomes : (O,) array of int or None
        Outcomes that are asked for, of predictions with several.
    contrast : Contrast
    picked : int or None
        The one of the K evaluations that is left.
    """

    sides: list[Side]
    grouping: Grouping | None
    weights: Array
    outcomes: NDArray[np.intp] | None
    contrast: Contrast
    picked: int | None = None
    _last: LastCache = field(init=False, default_factory=LastCache, repr=False)

    def value(self, theta: Array) -> Array:
        return self.weighed(theta, self.weights)

    def weighed(self, theta: Array, weights: Array) -> Array:
        """Evaluate with other weights of the rows, (K,)."""
        if weights is self.weights:
            return self.of_means(self._side_means(theta))
        return self.of_means([self._means(self._rows(side, theta), weights) for side in self.sides])

    def size(self, theta: Array) -> Array:
        """Means of the absolute values of the rows of the first side, (K,)."""
        return self._one(self._means(abs(self._rows(self.sides[0], theta)), self.weights))

    def jacobian(self, theta: Array) -> Array:
        slopes = self._side_slopes(theta)
        if len(slopes) == 1:
            return self._one(slopes[0])
        means = self._side_means(theta)
        partials = self.contrast.partials(*means)
        parts = [p[:, None] * s for p, s in zip(partials, slopes, strict=True)]
        return self._one(np.sum(parts, axis=0))

    def bends(self, theta: Array, steps: Array) -> Array | None:
        """Second differences along steps (S, d), to second order: (S, K), if known."""
        if self.grouping is None or self.outcomes is not None:
            return None
        means = self._side_means(theta)
        slopes = [slope @ steps.T for slope in self._side_slopes(theta)]
        bends = [self._bends(side, theta, steps) for side in self.sides]
        total = []
        for k in range(len(steps)):
            ends: Any = 0.0
            for sign in (1.0, -1.0):
                moved = [
                    a + sign * slope[:, k] + bend[:, k] / 2
                    for a, slope, bend in zip(means, slopes, bends, strict=True)
                    if bend is not None
                ]
                if len(moved) < len(means):
                    return None
                ends = ends + self._contrasted(moved)
            total.append(self._one(ends - 2 * self._contrasted(means)))
        return np.array(total)

    def component(self, k: int) -> "Asked":
        return replace(self, picked=k)

    def in_tangent(self, theta: Array) -> "Asked":
        """Ask the tangent of the model at theta."""
        sides = [[(tangent_of(p, theta), factor) for p, factor in side] for side in self.sides]
        return replace(self, sides=sides)

    def units(self, theta: Array) -> Array:
        r"""Pseudo-units of the rows, (m, K), whose weighted mean is psi.

        Psi plus the derivative of psi in the weight of a row: with the share :math:`s_g` of a
        group, :math:`\psi + \sum_k \partial_k (p_{ki} - a_{kg}) / s_g` for the rows of the group.
        """
        assert self.grouping is not None
        rows = [self._rows(side, theta) for side in self.sides]
        means = [self._means(each, self.weights) for each in rows]
        psi, m = self._contrasted(means), len(self.weights)
        ones = np.ones_like(means[0])
        partials = (ones,) if len(rows) == 1 else self.contrast.partials(*means)
        shape = (self.grouping.count, -1)
        moves: Any = 0.0
        for partial, each, mean in zip(partials, rows, means, strict=True):
            own = each.reshape(m, -1) - mean.reshape(shape)[self.grouping.codes]
            moves = moves + partial.reshape(shape)[self.grouping.codes] * own
        share = self.grouping.sums(self.weights) / self.weights.sum()
        units = np.repeat(psi[None], m, axis=0).reshape(m, *psi.reshape(shape).shape)
        units[np.arange(m), self.grouping.codes] += moves / share[self.grouping.codes][:, None]
        return units.reshape(m, -1)

    @cached_property
    def _shares(self) -> Array:
        assert self.grouping is not None
        return self.grouping.shares(self.weights)

    def _side_means(self, theta: Array) -> list[Array]:
        """Means of the sides, (K,) each; those of the last theta are kept."""

        def make() -> list[Array]:
            return [self._means(self._rows(side, theta), self.weights) for side in self.sides]

        kept: list[Array] = self._last.get(theta.copy(), "means", make)
        return kept

    def _side_slopes(self, theta: Array) -> list[Array]:
        """Derivatives of these, (K, d) each."""

        def make() -> list[Array]:
            return [self._slopes(side, theta) for side in self.sides]

        kept: list[Array] = self._last.get(theta.copy(), "slopes", make)
        return kept

    def _rows(self, side: Side, theta: Array) -> Array:
        """Predictions of the rows, (m,) or (m, O)."""
        total: Any = 0.0
        for prediction, factor in side:
            value = prediction.value(theta)
            value = value if self.outcomes is None else value[:, self.outcomes]
            total = total + (value.T * factor).T
        if not np.all(np.isfinite(total)):
            raise EvaluationError(
                "Predictions are NaN or infinite for some rows. Check the data for missing values, "
                "and values far outside of those of the fit."
            )
        return np.asarray(total)

    def _means(self, rows: Array, weights: Array) -> Array:
        if self.grouping is None:
            return rows.ravel()
        shares = self._shares if weights is self.weights else self.grouping.shares(weights)
        if not self.grouping.names:
            return np.atleast_1d(shares @ rows)
        return self.grouping.sums((rows.T * shares).T).ravel()

    def of_means(self, means: list[Array]) -> Array:
        """Contrast the means of the sides, (K,) each."""
        return self._one(self._contrasted(means))

    def _contrasted(self, means: list[Array]) -> Array:
        if len(means) == 1:
            return means[0]
        self.contrast.check(*means)
        return self.contrast.value(*means)

    def _slopes(self, side: Side, theta: Array) -> Array:
        """Derivatives of the means of one side, (K, d)."""
        if self.grouping is None:
            return self._slopes_of_rows(side, theta)
        return np.concatenate(
            [self._pulled(side, theta, weights) for weights in self._blocks(self.grouping)]
        )

    def _blocks(self, grouping: Grouping) -> Iterator[Array]:
        """Weights of the rows in the means of some groups at a time, (g, m)."""
        shares, m = self._shares, len(self.weights)
        size = max(1, LARGEST // m)
        for start in range(0, grouping.count, size):
            numbers = np.arange(start, min(start + size, grouping.count))
            yield np.where(grouping.codes == numbers[:, None], shares, 0.0)

    def _pulled(self, side: Side, theta: Array, weights: Array) -> Array:
        """Differentiate sums with weights (g, m): (g, d), or (g * O, d) with outcomes."""
        total: Any = 0.0
        for prediction, factor in side:
            own = weights * factor
            if self.outcomes is not None:
                own = self._by_outcome(own, prediction.value(theta).shape[1])
            total = total + prediction.slope(theta, own)
        return np.asarray(total)

    def _bends(self, side: Side, theta: Array, steps: Array) -> Array | None:
        """Second derivatives of the means of one side along steps: (K, S)."""
        assert self.grouping is not None
        found = []
        for weights in self._blocks(self.grouping):
            parts = [p.bends(theta, weights * factor, steps) for p, factor in side]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            found.append(np.sum(known, axis=0))
        return np.concatenate(found)

    def _by_outcome(self, weights: Array, count: int) -> Array:
        """Give each group one row of weights (m, C) for each outcome: (g * O, m, C)."""
        assert self.outcomes is not None
        chosen = np.eye(count)[self.outcomes]
        return (weights[:, None, :, None] * chosen[:, None, :]).reshape(-1, weights.shape[1], count)

    def _slopes_of_rows(self, side: Side, theta: Array) -> Array:
        ((prediction, _),) = side
        slopes = prediction.slope(theta, None)
        if self.outcomes is not None:
            slopes = slopes[:, self.outcomes]
        return slopes.reshape(-1, slopes.shape[-1])

    def _one(self, values: Array) -> Array:
        return values if self.picked is None else values[self.picked : self.picked + 1]
