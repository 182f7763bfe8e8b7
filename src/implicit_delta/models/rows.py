"""Contract of a backend: a sum over rows as a function of the parameters."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from implicit_delta._core.types import Array


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


class Rows(Protocol):
    r"""Terms :math:`\ell_i(\theta)` of n observations, and sums of their derivatives.

    Immutable: no weights, no penalty, no cache. Every array is NumPy float64 and theta is one flat
    vector; a backend works in its own types inside. `testing.check_rows` checks an implementation.

    Attributes
    ----------
    n, d : int
        Numbers of observations and of parameters.
    symmetric : bool
        False for estimating equations: `score` is their sum and no gradient, `terms` raises, and
        the variance is always a sandwich.
    outputs : Outputs or None
        The outputs of each row and the likelihood of its target, if the backend has them.
    passes : int
        How many times all n rows have been visited so far.
    """

    @property
    def n(self) -> int: ...

    @property
    def d(self) -> int: ...

    @property
    def symmetric(self) -> bool: ...

    @property
    def outputs(self) -> "Outputs | None": ...

    @property
    def passes(self) -> int: ...

    def terms(self, theta: Array) -> Array:
        """Log-likelihood of each row, (n,)."""

    def score(self, theta: Array, weights: Array) -> Array:
        """Gradient of the weighted sum of the terms, (d,)."""

    def curvature(self, theta: Array, weights: Array, v: Array, transpose: bool = False) -> Array:
        """Minus the Hessian of that sum times v, (d,) or (d, k); its transpose if not symmetric."""

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        """Derivatives of the terms along the columns of v, (d, k): blocks of rows, (b, k)."""

    def sum_blocks(
        self,
        theta: Array,
        v: Array,
        reduce: Callable[..., Any],
        *row_arrays: Array,
        whitened: bool = False,
    ) -> Any:
        """Sum ``reduce(block, *arrays of its rows)`` over blocks, where the rows are stored.

        A block is that of `terms_along`, or with `whitened` a `Whitened` of the outputs. Only the
        sum leaves the process of the rows; `reduce` must be picklable.
        """


class Outputs(Protocol):
    """Outputs of each row (means, linear predictors, logits) and the likelihood of its target.

    Leverages, dispersion, draws in the tangent, parametric redraws and the evidence are functions
    of it (`models.outputs`). Rows of a log-likelihood function of the parameters have none.

    Attributes
    ----------
    is_linear : bool
        Whether the outputs are linear in the parameters.
    size : int
        Number of outputs of a row.
    likelihood : Likelihood
        Density of the targets given the outputs.
    """

    @property
    def is_linear(self) -> bool: ...

    @property
    def size(self) -> int: ...

    @property
    def likelihood(self) -> Any: ...

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        """Gauss-Newton matrix times v, (d,) or (d, k)."""

    def whitened(self, theta: Array, v: Array) -> Iterator[tuple[slice, Whitened]]:
        """Whitened rows with their derivatives along v, (d, k), in blocks; not weighted."""

    def noise(self, theta: Array, weights: Array, rng: np.random.Generator, count: int) -> Array:
        """Draw vectors with the Gauss-Newton matrix as covariance, (d, count)."""

    def redraw(self, theta: Array, weights: Array, rng: np.random.Generator) -> Rows:
        """Draw new targets from the likelihood at theta."""

    def with_likelihood(self, likelihood: Any) -> Rows:
        """Replace the likelihood of the targets."""

    def tangent(self, theta: Array) -> Rows:
        """Linearize the outputs around theta."""
