"""Cox's partial likelihood, with the score residual of each row."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import Curvature
from implicit_delta.models.glm.model import HostLikelihood
from implicit_delta.numerics.arrays import ratio

Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Cox(HostLikelihood):
    r"""The partial likelihood of right-censored, possibly late-entering rows in strata.

    The term of an event is its linear predictor less the log of the risk set's sum; rows without an
    event have the term zero. Since a row is in the risk sets of others, its influence is not the
    derivative of its own term but its score residual (Lin and Wei 1989), the integral of
    :math:`x_i - \bar x(t)` over its martingale: `terms_along` returns these. They sum to the score.
    A weight counts in the risk sets too, so weights are part of the terms.
    """

    separable: ClassVar[bool] = False

    X: Array
    offset: Array | float
    strata: tuple["Stratum", ...]
    weights: Array

    @classmethod
    def of(cls, model: Any) -> "Cox":
        """Read a PHReg."""
        X = np.asarray(model.exog, dtype=np.float64)
        time, status = np.asarray(model.endog, dtype=np.float64), np.asarray(model.status) != 0
        n = len(time)
        entry = np.full(n, -np.inf) if model.entry is None else np.asarray(model.entry)
        labels = np.zeros(n) if model.strata is None else np.asarray(model.strata)
        _, codes = np.unique(labels, return_inverse=True)
        groups = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
        efron = model.ties == "efron"
        strata = [
            Stratum.of(rows, time[rows], entry[rows], status[rows], efron)
            for rows in groups
            if np.any(status[rows])
        ]
        offset = 0.0 if model.offset is None else np.asarray(model.offset, dtype=np.float64)
        return cls(X, offset, tuple(strata), np.ones(n))

    def reweighted(self, weights: Array) -> Self:
        return replace(self, weights=weights)

    def terms(self, b: Array) -> Array:
        terms = np.zeros(len(self.X))
        eta = self.X @ b + self.offset
        for part, moments in self._moments(b, self.weights):
            own = part.which >= 0
            log = part.mean_of_steps(moments.log_total)
            terms[part.rows[own]] = eta[part.rows[own]] - log[part.which[own]]
        return terms

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray(weights @ self._residuals(b, weights))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        if curvature == "ggn":
            raise UnsupportedModelError(
                'This likelihood has no Gauss-Newton curvature; use curvature="hessian".'
            )
        matrix = np.zeros((b.size, b.size))
        risk = np.exp(self.X @ b + self.offset)
        for part, moments in self._moments(b, weights):
            X = self.X[part.rows]
            hazard, _ = part.at_risk(moments)
            matrix += (X.T * (weights[part.rows] * risk[part.rows] * hazard)) @ X
            matrix -= (moments.mean.T * moments.weight) @ moments.mean
        return matrix @ v

    def terms_along(self, b: Array, v: Array) -> Array:
        return self._residuals(b, self.weights) @ v

    def _residuals(self, b: Array, weights: Array) -> Array:
        """Score residuals, (n, D)."""
        rows = np.zeros_like(self.X)
        risk = np.exp(self.X @ b + self.offset)
        for part, moments in self._moments(b, weights):
            X, own = self.X[part.rows], part.which >= 0
            hazard, shifted = part.at_risk(moments)
            found = risk[part.rows][:, None] * (shifted - hazard[:, None] * X)
            found[own] += X[own] - part.mean_of_steps(moments.mean)[part.which[own]]
            rows[part.rows] = found
        return rows

    def _moments(self, b: Array, weights: Array) -> "list[tuple[Stratum, Moments]]":
        eta = self.X @ b + self.offset
        return [(s, s.moments(self.X[s.rows], eta[s.rows], weights[s.rows])) for s in self.strata]

    def __repr__(self) -> str:
        return "PHReg"


class Moments(NamedTuple):
    """Of the risk set at each of m events: weight (m,), log of the sum, mean (m, D), hazard."""

    weight: Array
    log_total: Array
    mean: Array
    hazard: Array


@dataclass(frozen=True, eq=False)
class Stratum:
    """Rows that share their risk sets.

    Tied events are steps one after the other: at step k of d a share k / d of each tied row has
    left the risk set (Efron), or none (Breslow).
    """

    rows: Numbers
    first: Numbers  # of the event times at which a row is at risk,
    last: Numbers  # and the one after the last
    which: Numbers  # event time of a row with an event, -1 without
    at: Numbers  # event time of each step
    share: Array
    steps: Array = field(repr=False)  # at each event time

    @classmethod
    def of(cls, rows: Numbers, time: Array, entry: Array, status: Any, efron: bool) -> "Stratum":
        """Number the event times."""
        times, counts = np.unique(time[status], return_counts=True)
        at = np.repeat(np.arange(times.size), counts)
        passed = np.arange(at.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(
            rows=rows,
            first=np.searchsorted(times, entry),  # as in statsmodels, an entry at an event sees it
            last=np.searchsorted(times, time, side="right"),
            which=np.where(status, np.searchsorted(times, time), -1),
            at=at,
            share=passed / counts[at] if efron else np.zeros(at.size),
            steps=counts.astype(np.float64),
        )

    def moments(self, X: Array, eta: Array, weights: Array) -> Moments:
        """Sum over the risk set of each step."""
        top = float(np.max(eta))
        own = (weights * np.exp(eta - top))[:, None] * np.column_stack([np.ones(len(X)), X])
        tied = self._by_event(own)
        sums = self._over_risk_sets(own)[self.at] - self.share[:, None] * tied[self.at]
        weight = (self._by_event(weights[:, None])[:, 0] / self.steps)[self.at]
        there = weight > 0
        total = np.where(there, sums[:, 0], 1.0)
        return Moments(
            weight,
            np.log(total) + top,
            ratio(sums[:, 1:], np.where(there, sums[:, 0], 0.0)[:, None]),
            weight / total * np.exp(-top),
        )

    def at_risk(self, moments: Moments) -> tuple[Array, Array]:
        """Sum the hazard, and the hazard times the mean, while each row is at risk."""
        both = moments.hazard[:, None] * np.column_stack([np.ones(self.at.size), moments.mean])
        through = np.vstack([np.zeros(both.shape[1]), np.cumsum(self._by_time(both), axis=0)])
        sums = through[self.last] - through[self.first]
        own = self.which >= 0
        sums[own] -= self._by_time(self.share[:, None] * both)[self.which[own]]
        return sums[:, 0], sums[:, 1:]

    def mean_of_steps(self, values: Array) -> Array:
        """Average values of the steps over those of one event time."""
        columns = values.reshape(self.at.size, -1)
        means = self._by_time(columns) / self.steps[:, None]
        return means.reshape(self.steps.size, *values.shape[1:])

    def _by_time(self, values: Array) -> Array:
        sums = np.zeros((self.steps.size, values.shape[1]))
        np.add.at(sums, self.at, values)
        return sums

    def _by_event(self, values: Array) -> Array:
        """Sum rows with an event at each event time."""
        sums, own = np.zeros((self.steps.size, values.shape[1])), self.which >= 0
        np.add.at(sums, self.which[own], values[own])
        return sums

    def _over_risk_sets(self, values: Array) -> Array:
        """Sum rows that are at risk at each event time; from the end, where few are left."""
        return self._still_there(values, self.last) - self._still_there(values, self.first)

    def _still_there(self, values: Array, until: Numbers) -> Array:
        sums = np.zeros((self.steps.size + 1, values.shape[1]))
        np.add.at(sums, until, values)
        return np.cumsum(sums[::-1], axis=0)[::-1][1:]
