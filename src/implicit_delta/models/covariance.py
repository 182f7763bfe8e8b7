"""Covariance of the parameters of a model that has no objective."""

from typing import Any

from implicit_delta.core.types import Array
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.rows import RootRows


def parameter_covariance(model: Any) -> Array:
    """Return the covariance that came with the estimates, or the sandwich of equations, (d, d)."""
    claimed: Claimed | None = model.facts.host.covariance
    if claimed is not None:
        return claimed.covariance
    assert isinstance(model.rows, RootRows)
    return model.rows.root(model.theta, model.weights).covariance
