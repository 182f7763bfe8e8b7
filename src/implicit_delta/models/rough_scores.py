"""Scores by few differences, where a careful one takes many calls of the user's function."""

from typing import TYPE_CHECKING

from implicit_delta._core.types import Array
from implicit_delta.models.objective import objective_of
from implicit_delta.models.rows import LocalObjective, RoughRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def rough_score(model: "FittedModel", theta: Array) -> Array:
    """Gradient of L to about 1e-5 of a standard error where that is cheaper, (d,)."""
    rows = getattr(model, "rows", None)
    if isinstance(rows, RoughRows):
        return rows.rough_score(theta, model.weights.values) - model.penalty.score(theta)
    local = _local(model)
    return model.score(theta) if local is None else local.rough_score(theta)


def short_score(model: "FittedModel", theta: Array, like: "FittedModel") -> Array:
    """Gradient of L, (d,); if by differences, one over a small part of each unit of `like`."""
    local = _local(model)
    return (
        model.score(theta) if local is None else local.short_score(theta, objective_of(like).units)
    )


def _local(model: "FittedModel") -> LocalObjective | None:
    found: LocalObjective | None = getattr(model, "local", None)
    return found
