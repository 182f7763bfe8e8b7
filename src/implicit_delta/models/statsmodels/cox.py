"""Cox's partial likelihood as terms of rows, whose derivatives are the score residuals."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.likelihood import HostLikelihood

Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Cox(HostLikelihood):
    r"""Right-censored, possibly late-entering rows in strata, with Breslow's baseline plugged in.

    With jumps :math:`\lambda_j(b) = d_j / S_j(b)` of the baseline hazard, S_j the sum of
    :math:`e^{x_i b}` over the risk set, the term of row i is its log-likelihood

    .. math:: \delta_i (x_i b + \log \lambda_{j(i)}(b)) - e^{x_i b} \sum_{t_j \le T_i} \lambda_j(b)

    These sum to the partial likelihood up to a constant, and the derivative of each is its score
    residual (Lin and Wei 1989), which robust errors are made of.
    """

    X: Array
    offset: Array | float
    strata: tuple["Stratum", ...]

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
        return cls(X, offset, tuple(strata))

    def terms(self, b: Array) -> Array:
        terms = np.zeros(len(self.X))
        for part, _, eta, m in self._parts(b):
            jumps = -part.by_time(np.log(m.total)[:, None])[:, 0] / part.steps
            own = part.which >= 0
            found = -m.risk * part.while_at_risk((1 / m.total)[:, None])[:, 0]
            found[own] += eta[own] - eta.max() + jumps[part.which[own]]
            terms[part.rows] = found
        return terms

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray(weights @ self._residuals(b))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        matrix = np.zeros((b.size, b.size))
        for part, X, _, m in self._parts(b):
            w = weights[part.rows]
            events = (part.by_event(w[:, None])[:, 0] / part.steps)[part.at]
            expected = part.at_steps((w * m.risk)[:, None])[:, 0] / m.total
            excess = events - expected  # zero where all weights are one
            sums = part.while_at_risk(
                np.column_stack([np.ones(m.total.size), excess, m.mean]) / m.total[:, None]
            )
            crossed = (sums[:, 2:].T * (w * m.risk)) @ X
            matrix += (X.T * (m.risk * (w * sums[:, 0] + sums[:, 1]))) @ X
            matrix += (m.mean.T * (expected - excess)) @ m.mean - crossed - crossed.T
        return matrix @ v

    def terms_along(self, b: Array, v: Array) -> Array:
        return self._residuals(b) @ v

    def _residuals(self, b: Array) -> Array:
        """Score residuals, (n, D)."""
        rows = np.zeros_like(self.X)
        for part, X, _, m in self._parts(b):
            own = part.which >= 0
            sums = part.while_at_risk(
                np.column_stack([np.ones(m.total.size), m.mean]) / m.total[:, None]
            )
            found = m.risk[:, None] * (sums[:, 1:] - sums[:, :1] * X)
            centers = part.by_time(m.mean) / part.steps[:, None]
            found[own] += X[own] - centers[part.which[own]]
            rows[part.rows] = found
        return rows

    def _parts(self, b: Array) -> "list[tuple[Stratum, Array, Array, RiskSets]]":
        eta = self.X @ b + self.offset
        cut = [(part, self.X[part.rows], eta[part.rows]) for part in self.strata]
        return [(part, X, own, part.risk_sets(X, own)) for part, X, own in cut]

    def __repr__(self) -> str:
        return "PHReg"


class RiskSets(NamedTuple):
    """Relative risk of each row (n,), up to a factor; its total (m,) and mean (m, D) at events."""

    risk: Array
    total: Array
    mean: Array


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
    steps: Array  # at each event time

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

    def risk_sets(self, X: Array, eta: Array) -> RiskSets:
        """Sum over those at risk at each step."""
        risk = np.exp(eta - np.max(eta))
        sums = self.at_steps(risk[:, None] * np.column_stack([np.ones(len(X)), X]))
        return RiskSets(risk, sums[:, 0], sums[:, 1:] / sums[:, :1])

    def at_steps(self, values: Array) -> Array:
        """Sum rows (n, k) over the risk set of each step, (m, k)."""
        there = self._until(values, self.last) - self._until(values, self.first)
        return there[self.at] - self.share[:, None] * self.by_event(values)[self.at]

    def while_at_risk(self, values: Array) -> Array:
        """Sum values of the steps (m, k) over those at which each row is at risk, (n, k)."""
        through = np.vstack([np.zeros(values.shape[1]), np.cumsum(self.by_time(values), axis=0)])
        sums = through[self.last] - through[self.first]
        own = self.which >= 0
        sums[own] -= self.by_time(self.share[:, None] * values)[self.which[own]]
        return np.asarray(sums)

    def by_time(self, values: Array) -> Array:
        """Sum values of the steps at each event time."""
        return _summed(values, self.at, self.steps.size)

    def by_event(self, values: Array) -> Array:
        """Sum rows with an event at each event time."""
        own = self.which >= 0
        return _summed(values[own], self.which[own], self.steps.size)

    def _until(self, values: Array, ends: Numbers) -> Array:
        """Sum rows that end after each event time; from the last, where few are left."""
        sums = _summed(values, ends, self.steps.size + 1)
        return np.asarray(np.cumsum(sums[::-1], axis=0)[::-1][1:])


def _summed(values: Array, places: Numbers, count: int) -> Array:
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, places, values)
    return sums
