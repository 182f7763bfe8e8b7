"""Shares of the data sets of a combined model in the error of psi."""

from collections.abc import Mapping

import numpy as np

from implicit_delta._core.factored import Covariance, Factored, scaled
from implicit_delta._core.types import Array
from implicit_delta.estimate.combination import SOURCE
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.model_part import ModelPart
from implicit_delta.methods.base import Response
from implicit_delta.models.loglik import LoglikModel

ROUNDING = 1e-8  # of the variance of psi


def by_source(
    evaluation: Evaluation, response: Response, part: ModelPart, parts: Mapping[str, Covariance]
) -> Mapping[str, Covariance]:
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
    v, many = response.directions, response.basis
    split: dict[str, Covariance] = {}
    if not part.by_model and (part.rows is None or part.sandwich.clusters or part.sandwich.hac):
        return parts
    v = v if many is None else many
    for source in model.sources:
        single = source.rows.stop - source.rows.start == 1
        if part.by_model or single:
            split[source.name] = v.T @ model.information_of(model.theta, v, source.rows)
        elif many is None:
            split[source.name] = _of_rows(part, model, source.rows)
        else:
            return parts
    if part.by_model and model.penalized:
        split["penalty"] = v.T @ model.penalty_information(model.theta, v)
    if isinstance(response.covariance, Factored):
        left = response.covariance.left
        split = {name: Factored(left, (M + M.T) / 2) for name, M in split.items()}
    shares = {SOURCE + name: _without_rounding(V, part.covariance) for name, V in split.items()}
    if any(np.any(V.diagonal() < 0) for V in shares.values()):
        return parts  # a data set by itself may curve the other way
    return {**shares, **{name: V for name, V in parts.items() if name != "model"}}


def _without_rounding(V: Covariance, total: Covariance) -> Covariance:
    """Symmetrize; a variance that is nothing but rounding beside the total is zero."""
    V = (V + V.T) / 2 if isinstance(V, np.ndarray) else V
    none = abs(V.diagonal()) <= ROUNDING * total.diagonal()
    return scaled(V, 1.0 * ~none) if none.any() else V


def _of_rows(part: ModelPart, model: LoglikModel, rows: slice) -> Array:
    assert part.rows is not None
    masked = np.zeros_like(part.rows)
    masked[rows] = part.rows[rows]
    return part.sandwich.of_rows(model, masked)
