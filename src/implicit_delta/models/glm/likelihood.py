"""Contract of a likelihood in closed form: what `from_statsmodels` and `from_sklearn` bring."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Product
from implicit_delta.models.facts import Curvature
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.rows import Whitened

LARGEST_BLOCK = 2**22  # numbers of the rows that are held at a time


class HostLikelihood(ABC):
    """Terms of n observations as a function of the D coefficients b of the host library."""

    @abstractmethod
    def terms(self, b: Array) -> Array:
        """Log-likelihood of each observation, (n,), up to a constant."""

    @abstractmethod
    def score(self, b: Array, weights: Array) -> Array:
        """Gradient of the weighted sum of the terms, (D,)."""

    @abstractmethod
    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """Minus the Hessian of that sum, or of outputs its Gauss-Newton part, times (D, k)."""

    @abstractmethod
    def terms_along(self, b: Array, v: Array) -> Array:
        """Derivative of each term along each column of (D, k): (n, k)."""

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> "HostLikelihood":
        """Build the same likelihood of targets drawn from it, each as often as its weight says."""
        raise cannot_draw(f"the distribution behind {self!r} is not known here", weights.size)

    def __repr__(self) -> str:
        return type(self).__name__


class OutputLikelihood(HostLikelihood):
    """Likelihood of the outputs of each row: linear predictors, or the outputs of a network."""

    linear: ClassVar[bool]  # whether the outputs are linear in b

    @abstractmethod
    def size(self, d: int) -> int:
        """Number of outputs of a row, with d coefficients."""

    @property
    @abstractmethod
    def density(self) -> Any:
        """The density of the targets, if it is one of `implicit_delta.likelihoods`."""

    @abstractmethod
    def whitened(self, b: Array, v: Array) -> Iterator[Whitened]:
        """Whitened rows with their derivatives along (D, k), as `Outputs.whitened` has them."""

    @abstractmethod
    def rescaled(self, factor: float) -> Self:
        """Multiply the noise variance, or the dispersion."""


def blocks(n: int, numbers: int) -> Iterator[slice]:
    """Cut n rows into parts, of which each makes so many numbers per row."""
    size = max(1, LARGEST_BLOCK // numbers)
    return (slice(start, start + size) for start in range(0, n, size))


def root_matrices(product: Product, outputs: Array) -> Array:
    """Matrices S' of all rows, (n, C, C), of the function u to S' u for outputs (n, C)."""
    n, count = outputs.shape
    basis = np.broadcast_to(np.eye(count)[:, None, :], (count, n, count))
    return np.moveaxis(np.asarray(product(basis)), 0, -1)
