"""Rows of largest influence, found where the rows are stored."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.models.redraws import influences_of
from implicit_delta.models.rows import StoredRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


class Strongest(NamedTuple):
    """Rows of largest influence: their numbers (k,), influences (k, K), and labels if any."""

    row: NDArray[np.intp]
    influence: Array
    label: tuple[str, ...] | None


def strongest(model: "FittedModel", theta: Array, v: Array, errors: Array, k: int) -> Strongest:
    """Find the k rows of largest influence along v, (d, K), in standard errors, (K,)."""
    rows, index = model.rows, model.facts.host.labels
    if isinstance(rows, StoredRows):
        found: Strongest = rows.strongest(theta, model.weights, v, errors, k)
        return found if index is None else found._replace(label=_labels(index, found.row))
    influences = influences_of(model, theta, v)
    order = by_size(influences, errors)[:k]
    counted = index is None or np.array_equal(np.asarray(index), np.arange(model.n))
    return Strongest(order, influences[order], None if counted else _labels(index, order))


def by_size(rows: Array, errors: Array) -> NDArray[np.intp]:
    """Order rows by their largest influence in standard errors, the strongest first."""
    scaled = np.abs(rows) / np.where(errors > 0, errors, 1.0)
    return np.argsort(-scaled.max(axis=1), kind="stable")


def _labels(index: Any, order: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(str(label) for label in np.asarray(index)[order])
