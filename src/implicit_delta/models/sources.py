"""Data sets that are fitted together, and the curvature that each contributes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.objective import objective_of

ONE = 1e-9  # of the largest eigenvalue: what is left is rounding


@dataclass(frozen=True)
class Source:
    """A data set of a combined model.

    Attributes
    ----------
    name : str
    rows : slice
        Its rows among all.
    is_named : bool
        Whether a user has given the name.
    is_scaled : bool
        Whether its noise variance was estimated.
    """

    name: str
    rows: slice
    is_named: bool = False
    is_scaled: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one term, such as a measurement."""
        return bool(self.rows.stop - self.rows.start == 1)


def strata_of(model: Any) -> tuple[slice, ...]:
    """Rows that were sampled together: all, or those of each of several data sets."""
    return tuple(source.rows for source in model.facts.sources) or (slice(0, model.n),)


def without_measurements(model: Any) -> Any:
    """Give sources of one term no weight: how far it is from the fit says nothing of its error."""
    single = [source.rows for source in model.facts.sources if source.single]
    if not single:
        return model
    values = np.array(model.weights.values)
    for rows in single:
        values[rows] = 0.0
    return replace(model, weights=replace(model.weights, values=values))


def information_of(model: Any, theta: Array, v: Array, rows: slice) -> Array:
    """Minus the Hessian of the terms of some rows, without penalties, times (d, k)."""
    weights = np.zeros_like(model.weights.values)
    weights[rows] = model.weights.values[rows]
    if model.facts.curvature == "ggn":
        return np.asarray(model.rows.outputs.gauss_newton(theta, weights, v))
    return np.asarray(objective_of(model).information_of(theta, v, weights))


def with_stated_errors(model: Any, directions: Array, influences: Array) -> Array:
    """Give the row of a measurement the influence, (n, K), of the error that it states.

    Its distance from the fit, of which influences are made, says nothing of its error; the sign of
    that is kept, so that answers of one model agree on it.
    """
    for source in model.facts.sources:
        if not source.single:
            continue
        own = directions.T @ information_of(model, model.theta, directions, source.rows)
        values, vectors = np.linalg.eigh((own + own.T) / 2)
        if values[-1] > 0 and values[:-1].sum() <= ONE * values[-1]:  # of one parameter
            row = vectors[:, -1] * np.sqrt(values[-1])
            influences[source.rows] = row * (np.sign(row @ influences[source.rows.start]) or 1.0)
    return influences


def measurement_variance(model: Any, theta: Array, v: Array) -> Array | None:
    """Variance, (K, K), of the sources of one term, along (d, K); None without any."""
    single = [source.rows for source in model.facts.sources if source.single]
    if not single:
        return None
    own = [v.T @ information_of(model, theta, v, rows) for rows in single]
    return np.asarray(sum(own[1:], own[0]))
