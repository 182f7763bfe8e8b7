"""Outputs of the rows of a model: an optional capability, and what follows from it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from implicit_delta._core.types import Array

if TYPE_CHECKING:
    from implicit_delta.models.base import FittedModel


class Whitened(NamedTuple):
    r"""Some rows with p outputs each, on a scale on which the model has noise of variance one.

    With J the Jacobian of a row's outputs and :math:`H = S S'` their curvature (the expected
    information): the derivatives :math:`U v = S' J v`, (b, p, k), and the residuals e with
    :math:`S e` the slope of the term, (b, p). So the Gauss-Newton matrix is the sum of
    :math:`U' U`, and the derivative of the term along v is :math:`(U v)' e`. The spread, (b, p),
    is the standard deviation of the targets themselves, up to a factor.
    """

    rows: Array
    residuals: Array
    spread: Array


class Outputs(Protocol):
    """Outputs of each row (means, linear predictors, logits) and the likelihood of its target.

    Gauss-Newton products, leverages, whitened residuals, dispersion, tangents, parametric
    redraws and the evidence follow from it. A model of a log-likelihood function of the
    parameters has none: `FittedModel.outputs` is then None.
    """

    @property
    def is_linear(self) -> bool:
        """Whether the outputs are linear in the parameters."""

    @property
    def size(self) -> int:
        """Number of outputs of a row."""

    @property
    def pseudo(self) -> str:
        """Options with which the terms are not log-densities; empty if they are."""

    @property
    def can_be_overdispersed(self) -> bool:
        """Whether targets can vary more than the likelihood says (not if they are 0 or 1)."""

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        """Whiten all rows, some at a time, with their derivatives along v (d, k); not weighted."""

    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        """Draw vectors with the Gauss-Newton matrix as covariance, (d, count), if possible."""

    def gauss_newton_part(self, theta: Array, columns: int) -> Array | None:
        """Form a cheaper matrix that is at most the Gauss-Newton matrix; None if not worth it."""

    def redraw(self, rng: np.random.Generator) -> "FittedModel":
        """Draw new targets from the model at its theta."""

    def tangent(self) -> "FittedModel":
        """Linearize the outputs around theta: a model of its own."""
