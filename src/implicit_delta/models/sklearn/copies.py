"""Fitted copies of scikit-learn estimators with other coefficients, plain or traced.

A copy shares with the original everything but its coefficients; the original is never changed.
"""

from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np


def linear_copies(estimator: Any) -> Callable[[Any], Any]:
    """One linear predictor: the coefficients, then the intercept."""
    shape = np.shape(estimator.coef_)
    scalar = np.ndim(estimator.intercept_) == 0

    def speak(b: Any) -> Any:
        other, width = copy(estimator), shape[-1]
        other.coef_ = b[:width].reshape(shape)
        if estimator.fit_intercept:
            other.intercept_ = b[width] if scalar else b[width:]
        return other

    return speak


def multinomial_copies(estimator: Any) -> Callable[[Any], Any]:
    """One linear predictor per class, each with its intercept last."""
    classes, width = np.shape(estimator.coef_)

    def speak(b: Any) -> Any:
        other, matrix = copy(estimator), b.reshape(classes, -1)
        other.coef_ = matrix[:, :width]
        if estimator.fit_intercept:
            other.intercept_ = matrix[:, width]
        return other

    return speak


def perceptron_copies(mlp: Any, widths: tuple[int, ...]) -> Callable[[Any], Any]:
    """Layer by layer: the weights, then the biases."""

    def speak(b: Any) -> Any:
        other, start = copy(mlp), 0
        other.coefs_, other.intercepts_ = [], []
        for inputs, outputs in pairwise(widths):
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            other.coefs_.append(b[start:middle].reshape(inputs, outputs))
            other.intercepts_.append(b[middle:end])
            start = end
        return other

    return speak
