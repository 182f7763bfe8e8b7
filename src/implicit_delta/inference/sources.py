"""Shares of the data sets of a combined model in the error of psi."""

from collections.abc import Mapping

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.estimate.combination import SOURCE
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.model_part import ModelPart
from implicit_delta.methods.base import Response
from implicit_delta.models.loglik import LoglikModel


def by_source(
    evaluation: Evaluation, response: Response, part: ModelPart, parts: Mapping[str, Array]
) -> Mapping[str, Array]:
    r"""Split the model's part of a budget by the data sets that it comes from.

    With :math:`A = \sum_k A_k` and directions :math:`v = A^{-1} g`, the variance
    :math:`g' A^{-1} g` is the sum of :math:`v' A_k v`: the variance of the score of data set k,
    carried over to psi. A robust one is the sum of its rows.
    """
    model = evaluation.fitted
    if not isinstance(model, LoglikModel) or not model.sources or response.directions is None:
        return parts
    if parts and "model" not in parts:
        return parts
    v = response.directions
    if part.by_model:
        split = {s.name: v.T @ model.information_of(model.theta, v, s.rows) for s in model.sources}
        if model.penalized:
            split["penalty"] = v.T @ model.penalty_information(model.theta, v)
    elif part.rows is not None and part.sandwich.clusters is None and part.sandwich.hac is None:
        split = {s.name: _of_rows(part, model, s.rows) for s in model.sources}
    else:
        return parts
    others = {name: V for name, V in parts.items() if name != "model"}
    return {**{SOURCE + name: (V + V.T) / 2 for name, V in split.items()}, **others}


def _of_rows(part: ModelPart, model: LoglikModel, rows: slice) -> Array:
    assert part.rows is not None
    masked = np.zeros_like(part.rows)
    masked[rows] = part.rows[rows]
    return part.sandwich.of_rows(model, masked)
