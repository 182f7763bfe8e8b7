"""Fitted copies of scikit-learn estimators with other coefficients b, plain or traced.

A copy shares with the original everything but its coefficients; the original is never changed.
"""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from implicit_delta.models.glm.network import ACTIVATIONS, Layers, cut_layers

FORWARD = "_forward_pass_fast"  # of perceptrons; one that lacks it has no tangent here


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


def tangent_copy(mlp: Any, widths: tuple[int, ...], b: Any, step: Any) -> Any:
    """Copy a perceptron whose outputs, before their activation, are linear in the step from b.

    `predict`, `predict_proba` and `score` all go through one method of scikit-learn's (`FORWARD`),
    which is replaced.
    """
    layers, steps = (list(cut_layers(part, widths)) for part in (b, step))
    other = perceptron_copy(mlp, widths, b + step)
    setattr(other, FORWARD, partial(_tangent_pass, copy(mlp), layers, steps))
    return other


def _tangent_pass(mlp: Any, layers: Layers, steps: Layers, X: Any, check_input: bool = True) -> Any:
    from sklearn.utils.validation import validate_data

    if check_input:
        X = validate_data(mlp, X, accept_sparse=["csr", "csc"], reset=False)
    act, first, _ = ACTIVATIONS[mlp.activation]
    value, slope = X, None
    for i, ((W, c), (V, u)) in enumerate(zip(layers, steps, strict=True)):
        moved = value @ V + u
        slope = moved if slope is None else moved + slope @ W
        value = value @ W + c
        if i < len(layers) - 1:
            value = act(value)
            slope = first(value) * slope
    return _activated(mlp, value + slope)


def _activated(mlp: Any, outputs: Any) -> Any:
    """Apply the activation of the outputs, by a perceptron of that one layer."""
    top, width = copy(mlp), outputs.shape[1]
    top.coefs_, top.intercepts_, top.n_layers_ = [np.eye(width)], [np.zeros(width)], 2
    return getattr(top, FORWARD)(outputs, check_input=False)


def pipeline_copy(pipeline: Any, copy_last: Callable[..., Any], *b: Any) -> Any:
    """Copy a pipeline with a copy of its last step."""
    other, (name, _) = copy(pipeline), pipeline.steps[-1]
    other.steps = [*pipeline.steps[:-1], (name, copy_last(*b))]
    return other
