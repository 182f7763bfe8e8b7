"""Replicates of a bootstrap whose weights are drawn where the rows are stored."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.models.rows import StoredRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def resampled(
    model: "FittedModel", kind: str, rng: np.random.Generator, clusters: Clusters | None = None
) -> "FittedModel | None":
    """Draw weights where the rows are stored; None if they are drawn in this process."""
    if not isinstance(model.rows, StoredRows):
        return None
    found = model.rows.resampled(model.weights, kind, rng, clusters)
    return None if found is None else replace(model, rows=found[0], weights=found[1])
