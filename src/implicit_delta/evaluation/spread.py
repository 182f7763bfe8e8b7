"""Distribution of a variable in the training rows, which may count several times."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.model import FittedModel


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Weights (n,) of the training rows, and whether they are numbers of copies."""

    values: Array
    copies: bool = True

    @classmethod
    def of(cls, model: FittedModel, n: int) -> "RowWeights":
        """Take those of averages over n training rows; rows of groups count once."""
        counted = n == model.n and not model.facts.host.grouped
        copies = model.weights.kind != "sampling"
        return cls(model.weights.shares, copies) if counted else cls(np.ones(n))


def numbers(column: Any) -> Array:
    """Convert a column, (n,), with NaN where an entry is missing."""
    if hasattr(column, "to_numpy"):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(column, dtype=np.float64)


def mean_of(x: Array, weights: RowWeights) -> float:
    """Average the rows that are known."""
    x, w = _known(x, weights)
    return float(w @ x / w.sum())


def spread_of(x: Array, weights: RowWeights, kind: str) -> tuple[float, float]:
    """Two values of a variable by its distribution: "sd", "2sd", "iqr" or "minmax".

    Copies of a row count as rows of their own; weights of sampling have no unit.
    """
    if kind in ("sd", "2sd"):
        middle, half = mean_of(x, weights), _deviation(x, weights) / (2 if kind == "sd" else 1)
        return middle - half, middle + half
    low, high = quantiles(x, weights, np.array([0.25, 0.75] if kind == "iqr" else [0.0, 1.0]))
    return float(low), float(high)


def quantiles(x: Array, weights: RowWeights, levels: Array) -> Array:
    """Interpolate between order statistics as `numpy.percentile` does, with weights."""
    x, w = _known(x, weights)
    order = np.argsort(x, kind="stable")
    x, w = x[order], w[order]
    before = np.cumsum(w) - w
    if weights.copies:  # the first copy of a row and the last one
        places = np.column_stack([before, np.maximum(before, before + w - 1)]).ravel()
        return np.asarray(np.interp(levels * (w.sum() - 1), places, np.repeat(x, 2)))
    places = np.arange(x.size) * w + (x.size - 1) * before
    return np.asarray(np.interp(levels * places[-1], places, x))


def _deviation(x: Array, weights: RowWeights) -> float:
    x, w = _known(x, weights)
    rows = w.sum() if weights.copies else w.size
    variance = w @ (x - w @ x / w.sum()) ** 2 / w.sum()
    return float(np.sqrt(variance * rows / (rows - 1)))


def _known(x: Array, weights: RowWeights) -> tuple[Array, Array]:
    kept = np.isfinite(x) & (weights.values > 0)
    if not np.any(kept):
        raise ValueError("A column is missing in all training rows, and has no typical value.")
    return x[kept], weights.values[kept]
