"""Scores by few differences, where a careful one takes many calls of the user's function."""

from functools import singledispatch

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.models.base import FittedModel
from implicit_delta.models.loglik_model import LoglikModel
from implicit_delta.models.rows import RoughRows
from implicit_delta.numerics.derivatives import SHORT_STEP, rough_slopes, summed_differences


@singledispatch
def rough_score(model: FittedModel, theta: Array) -> Array:
    """Gradient of L to about 1e-5 of a standard error where that is cheaper, (d,)."""
    rows = getattr(model, "rows", None)
    if isinstance(rows, RoughRows):
        return rows.rough_score(theta, model.weights.values) - model.penalty.score(theta)
    return model.score(theta)


@rough_score.register
def _(model: LoglikModel, theta: Array) -> Array:
    if model.row_scores is not None:
        return model.score(theta)
    slopes, _ = rough_slopes(model.parts, theta, model.units)
    return slopes if np.all(np.isfinite(slopes)) else model.score(theta)


def short_score(model: FittedModel, theta: Array, like: FittedModel) -> Array:
    """Gradient of L, (d,); if by differences, one over a small part of each unit of `like`."""
    if not isinstance(model, LoglikModel) or model.row_scores is not None:
        return model.score(theta)
    return summed_differences(model.parts, theta, SHORT_STEP * like.units)
