"""Fitted copies of scikit-learn estimators with other coefficients b, plain or traced.

A copy shares with the original everything but its coefficients; the original is never changed.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from implicit_delta.models.glm.network import cut_layers


def linear_copy(estimator: Any, b: Any) -> Any:
    """Copy an estimator with one linear predictor: the coefficients, then the intercept."""
    other, shape = copy(estimator), np.shape(estimator.coef_)
    other.coef_ = b[: shape[-1]].reshape(shape)
    if estimator.fit_intercept:
        scalar = np.ndim(estimator.intercept_) == 0
        other.intercept_ = b[shape[-1]] if scalar else b[shape[-1] :]
    return other


def multinomial_copy(estimator: Any, b: Any) -> Any:
    """Copy an estimator with one linear predictor per class, each with its intercept last."""
    classes, width = np.shape(estimator.coef_)
    other, matrix = copy(estimator), b.reshape(classes, -1)
    other.coef_ = matrix[:, :width]
    if estimator.fit_intercept:
        other.intercept_ = matrix[:, width]
    return other


def perceptron_copy(mlp: Any, widths: tuple[int, ...], b: Any) -> Any:
    """Copy a perceptron, layer by layer: the weights, then the biases."""
    other = copy(mlp)
    other.coefs_, other.intercepts_ = map(list, zip(*cut_layers(b, widths), strict=True))
    return other


def pipeline_copy(pipeline: Any, copy_last: Callable[[Any], Any], b: Any) -> Any:
    """Copy a pipeline with a copy of its last step."""
    other, (name, _) = copy(pipeline), pipeline.steps[-1]
    other.steps = [*pipeline.steps[:-1], (name, copy_last(b))]
    return other
