"""Shares of the data sets of a combined model in the error of psi."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from implicit_delta.core.factored import Covariance, Factored, scaled
from implicit_delta.core.types import Array
from implicit_delta.estimate.combination import SOURCE
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import TotalError
from implicit_delta.inference.model_part import ModelPart
from implicit_delta.methods.base import Response
from implicit_delta.models.model import FittedModel
from implicit_delta.models.sources import information_of

ROUNDING = 1e-8  # of the variance of psi


def by_source(
    evaluation: Evaluation, response: Response, part: ModelPart, total: TotalError
) -> Mapping[str, Covariance]:
    r"""Split the model's part of a budget by the data sets that it comes from.

    With :math:`A = \sum_k A_k` and directions :math:`v = A^{-1} g`, the variance
    :math:`g' A^{-1} g` is the sum of :math:`v' A_k v`: the variance of the score of data set k,
    carried over to psi. A robust one is the sum of its rows. Where standard errors add instead of
    variances (a sample of unknown relation), the model's part stays whole.
    """
    model, parts = evaluation.fitted, total.parts
    if model is None or not model.facts.sources or response.directions is None:
        return parts
    if (parts and "model" not in parts) or total.errors_add:
        return parts
    split: dict[str, Covariance] = {}
    if not part.by_model and (part.rows is None or part.sandwich.clusters or part.sandwich.hac):
        return parts
    for source in model.facts.sources:
        if part.by_model or source.single:
            own = partial(information_of, model, model.theta, rows=source.rows)
            split[source.name] = _along(response, own)
        else:
            split[source.name] = _of_rows(part, model, source.rows)
    if part.by_model and model.penalty.given:
        split["penalty"] = _along(response, partial(model.penalty.given.curvature, model.theta))
    shares = {SOURCE + name: _without_rounding(V, part.covariance) for name, V in split.items()}
    if any(np.any(V.diagonal() < 0) for V in shares.values()):
        return parts  # a data set by itself may curve the other way
    return {**shares, **{name: V for name, V in parts.items() if name != "model"}}


def _without_rounding(V: Covariance, total: Covariance) -> Covariance:
    """Symmetrize; a variance that is nothing but rounding beside the total is zero."""
    V = (V + V.T) / 2 if isinstance(V, np.ndarray) else V
    none = abs(V.diagonal()) <= ROUNDING * total.diagonal()
    return scaled(V, np.where(none, 0.0, 1.0)) if none.any() else V


def _along(response: Response, information: Callable[[Array], Array]) -> Covariance:
    """Return v' A_k v along the directions, or along the basis of very many."""
    v, V = response.directions, response.covariance
    if isinstance(V, Factored) and response.basis is not None:
        middle = response.basis.T @ information(response.basis)
        return Factored(V.left, (middle + middle.T) / 2)
    assert v is not None
    return np.asarray(v.T @ information(v))


def _of_rows(part: ModelPart, model: FittedModel, rows: slice) -> Covariance:
    assert part.rows is not None
    masked = np.zeros_like(part.rows)
    masked[rows] = part.rows[rows]
    return part.sandwich.of_rows(model, masked)
