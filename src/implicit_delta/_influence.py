"""The influence of each training row, and the robust and clustered variances made of it."""

from typing import Any

import numpy as np

from implicit_delta._typing import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel


def influence_of(model: FittedModel, response: Response) -> Array:
    r"""Effect of one more copy of each observation on psi, to first order, (n, K).

    The derivative of the term of the observation along the response,
    :math:`s_i' A^{-1} g`: one directional derivative of all terms, never an n x d matrix.
    """
    if response.directions is None:
        raise UnsupportedModelError(
            f"{response.method.split('(')[0]} does not find the direction in which the parameters "
            "respond, which robust and clustered errors and influences are made of. Use "
            "`Infinitesimal` or `FiniteDifference`."
        )
    if model.n == 1:
        raise UnsupportedModelError(
            "Robust and clustered errors and influences need the log-likelihood of each "
            "observation, but the model has only one (its data are dependent)."
        )
    return model.terms_along(model.theta, response.directions)


def sandwich(influence: Array, weights: Array, clusters: Any = None) -> Array:
    r"""Robust covariance (HC0) :math:`\sum_i w_i f_i f_i'`, or sums within clusters, squared."""
    if clusters is None:
        return np.asarray((weights[:, None] * influence).T @ influence)
    labels = np.asarray(clusters)
    if labels.shape != weights.shape:
        raise ValueError(
            f"clusters has shape {labels.shape}, but there are {weights.size} observations: give "
            f"one label for each, shape ({weights.size},)."
        )
    groups, codes = np.unique(labels, return_inverse=True)
    if groups.size < 2:
        raise ValueError("There is only one cluster, so the variance between clusters is unknown.")
    sums = np.zeros((groups.size, influence.shape[1]))
    np.add.at(sums, codes, weights[:, None] * influence)
    return np.asarray(sums.T @ sums)
