"""Maxima of many objectives close to that of a fit, with what they share."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import lapack

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.warm_steps import Metric, WarmSteps
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of

MOST_NUMBERS = 10**7  # slopes and bends of rows that are held
BEND_STEP = 2.0**-7  # of a standard error: the bends are a metric, and need two digits
SHORT_ENOUGH = 1e-6  # of a standard error, as much as slopes themselves are uncertain by
NOT_THERE = (ImplicitDeltaError, ArithmeticError, ValueError)  # L need not be defined everywhere


@dataclass(frozen=True, eq=False)
class Nearby:
    """Warm steps to the maxima of replicates.

    Attributes
    ----------
    steps : WarmSteps
    model : FittedModel
        With whose steps differences are taken.
    short : bool
        Whether a single difference over a short step is as good as a slope of more care.
    score : (d,) array
        Slope of the objective at the start.
    rows : (n, d) array or None
        Slopes of the terms at the start: replicates that differ in their weights have these too.
    bends : (n, d (d + 1) / 2) array or None
        Curvatures of the terms there, in natural coordinates: the lower triangles.
    """

    steps: WarmSteps
    model: FittedModel
    short: bool
    score: Array
    rows: Array | None = None
    bends: Array | None = None

    @classmethod
    def of(cls, model: FittedModel, ascent: Ascent, replicates: int, shared: bool) -> "Nearby":
        """Look at the fit itself: its rows, if they are shared, and short differences.

        Rows cost a pass or more for each parameter, and bends for each pair of them, so there are
        to be fewer of these than replicates.
        """
        assert ascent.scale is not None
        theta, score, d = np.asarray(model.theta), model.score(model.theta), model.d
        local = objective_of(model)
        off = local.short_score(theta, local.short_steps) - score
        short = bool(np.linalg.norm(ascent.scale.half_transpose(off)) < SHORT_ENOUGH)
        found = cls(WarmSteps.of(theta, ascent.scale), model, short, score)
        if not shared or d > replicates or model.n * d > MOST_NUMBERS:
            return found
        rows = _rows(model)
        if rows is None:
            return found
        few = d**2 <= replicates and model.n * d**2 <= MOST_NUMBERS
        bends = _bends(model, rows, ascent.scale.half(np.eye(d))) if few else None
        return replace(found, rows=rows, bends=bends)

    def first(self, replicate: FittedModel) -> Array:
        """Slope of a replicate at the start, (d,)."""
        if self.rows is None:
            return replicate.score(self.steps.start)
        change = replicate.weights.values - self.model.weights.values
        return np.asarray(self.score + change @ self.rows)

    def maximum(self, replicate: FittedModel) -> tuple[Array, bool] | None:
        """Step to the maximum of a replicate, (d,), if it is close by; whether that is certain."""
        slope: Callable[[Array], Array] = replicate.score
        if self.short:
            steps = objective_of(self.model).short_steps
            slope = partial(objective_of(replicate).short_score, steps=steps)
        with contextlib.suppress(*NOT_THERE), np.errstate(all="ignore"):
            return self.steps.maximum(slope, self.first(replicate), self._metric(replicate))
        return None

    def one_step(self, replicate: FittedModel) -> Array:
        """Take one Newton step towards the maximum of a replicate, (d,)."""
        ahead, metric = self.steps.back(self.first(replicate)), self._metric(replicate)
        return self.steps.point(ahead if metric is None else metric(ahead))

    def _metric(self, replicate: FittedModel) -> Metric | None:
        """Inverse curvature of a replicate at the start, in natural coordinates."""
        if self.bends is None:
            return None
        matrix = np.eye(self.steps.start.size)
        matrix[np.tril_indices_from(matrix)] += (
            replicate.weights.values - self.model.weights.values
        ) @ self.bends
        triangle, failed = lapack.dpotrf(matrix, lower=1)
        return None if failed else lambda step: lapack.dpotrs(triangle, step, lower=1)[0]


def _rows(model: FittedModel) -> Array | None:
    """Slope of each term, (n, d), unless it has none of its own."""
    with contextlib.suppress(*NOT_THERE):
        rows = model.terms_along(model.theta, np.eye(model.d))
        return rows if np.isfinite(rows).all() else None
    return None


def _bends(model: FittedModel, rows: Array, half: Array) -> Array | None:
    """Minus the second derivatives of each term, by one difference of its slopes."""
    with contextlib.suppress(*NOT_THERE), np.errstate(all="ignore"):
        center = rows @ half
        ahead = [model.terms_along(model.theta + BEND_STEP * u, half) for u in half.T]
        falls = [(center - slopes)[:, : j + 1] for j, slopes in enumerate(ahead)]
        bends = np.hstack(falls) / BEND_STEP
        return bends if np.isfinite(bends).all() else None
    return None
