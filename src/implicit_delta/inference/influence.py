"""The influence of each training row, and the robust and clustered variances made of it."""

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from implicit_delta._core.clusters import Clusters
from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel

Correction: TypeAlias = Literal["HC0", "HC1", "CR0", "CR1", "CR1S"]


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


def sandwich(influence: Array, weights: Array, clusters: Any = None, factor: float = 1.0) -> Array:
    r"""Robust covariance :math:`\sum_i w_i f_i f_i'`, or sums within clusters, squared.

    Parameters
    ----------
    influence : (n, K) array
        :math:`f_i`, of one copy of each observation.
    weights : (n,) array
        How often each counts.
    clusters : Clusters or (n,) array of labels, optional
    factor : float
        A small-sample correction, see `small_sample_factor`.
    """
    if clusters is None:
        return np.asarray(factor * (weights[:, None] * influence).T @ influence)
    groups = Clusters.of(clusters, weights)
    sums = np.zeros((groups.count + 1, influence.shape[1]))
    np.add.at(sums, groups.codes, weights[:, None] * influence)
    return np.asarray(factor * sums.T @ sums)


def small_sample_factor(
    model: FittedModel, robust: bool | Correction, clusters: "Clusters | None"
) -> float:
    r"""Return the factor by which small samples inflate a robust covariance.

    With n observations (the sum of the weights), d parameters and G clusters:

    ==============  ===========================================================
    HC0, CR0, True  1
    HC1             n / (n - d)
    CR1             G / (G - 1)
    CR1S            G / (G - 1) * (n - 1) / (n - d), as in Stata and statsmodels
    ==============  ===========================================================
    """
    if isinstance(robust, bool):
        return 1.0
    if robust not in get_args(Correction):
        raise ValueError(f"robust is True, False or one of {get_args(Correction)}, not {robust!r}.")
    if robust.startswith("CR") != (clusters is not None):
        raise ValueError(
            f"robust={robust!r} does not fit: HC0 and HC1 are for independent observations, CR0, "
            f"CR1 and CR1S for clusters, and clusters were {'not ' * (clusters is None)}given."
        )
    factor = 1.0
    if robust in ("CR1", "CR1S") and clusters is not None:
        factor = clusters.count / (clusters.count - 1)
    if robust in ("HC1", "CR1S"):
        n = float(model.weights.sum())
        if n <= model.d:
            raise ValueError(
                f"robust={robust!r} divides by n - d, but there are {n:g} observations and "
                f"{model.d} parameters. Use robust=True."
            )
        factor *= (n if robust == "HC1" else n - 1) / (n - model.d)
    return factor
