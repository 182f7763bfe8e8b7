"""Contract of a backend: a sum over rows as a function of the parameters."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array, Limits
from implicit_delta.models.constraints import Chart
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.linalg.solvers import Factor
    from implicit_delta.models.equation_rows import Root
    from implicit_delta.models.outer_products import OuterProducts


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

    Immutable: no weights, no penalty. Every array is NumPy float64 and theta is one flat vector; a
    backend works in its own types inside. `testing.check_model` checks an implementation.

    Attributes
    ----------
    n, d : int
        Numbers of observations and of parameters.
    symmetric : bool
        False if there is no objective, as in estimating equations: `score` is their sum and no
        gradient, `terms` raises, and the variance is always a sandwich.
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

    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        """Minus the Hessian of that sum times v, (d,) or (d, k)."""

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        """Derivatives of the terms along the columns of v, (d, k): blocks of rows, (b, k)."""

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        """Sum ``reduce(block, *arrays of its rows)`` over blocks, where the rows are stored.

        The blocks are those of `terms_along`. Only the sum leaves the process of the rows;
        `reduce` must be picklable. `sum_of_blocks` is an implementation.
        """


class Outputs(Protocol):
    """Outputs of each row (means, linear predictors, logits) and the likelihood of its target.

    Leverages, dispersion, draws in the tangent, parametric redraws and the evidence are functions
    of it. Rows of a log-likelihood function of the parameters have none.

    Attributes
    ----------
    is_linear : bool
        Whether the outputs are linear in the parameters.
    size : int
        Number of outputs of a row.
    likelihood : Likelihood or None
        Density of the targets given the outputs, if that is one of `implicit_delta.likelihoods`.
    pseudo : str
        Options with which the terms are not log-densities; empty if they are.
    can_be_overdispersed : bool
        Whether targets can vary more than the likelihood says (not if they are 0 or 1).
    """

    @property
    def is_linear(self) -> bool: ...

    @property
    def size(self) -> int: ...

    @property
    def likelihood(self) -> Any: ...

    @property
    def pseudo(self) -> str: ...

    @property
    def can_be_overdispersed(self) -> bool: ...

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        """Gauss-Newton matrix of the weighted rows times v, (d,) or (d, k)."""

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        """Whitened rows with their derivatives along v, (d, k), in order, not weighted."""

    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        """Draw vectors with the Gauss-Newton matrix as covariance, (d, count), if possible."""


# Capabilities that only some rows have. Functions of a model look for them with `isinstance`.


@runtime_checkable
class LocalRows(Protocol):
    """Rows that keep something which was computed at one theta, such as units of differences."""

    def at(self, theta: Array, weights: Weights) -> Rows:
        """Prepare for work around another theta, or with other weights."""


@runtime_checkable
class ClimbingRows(Protocol):
    """Rows that refuse derivatives which are uncertain; `LocalRows.at` ends a climb."""

    def for_climbing(self) -> Rows:
        """Allow derivatives that are uncertain, on the way to a maximum."""


@runtime_checkable
class ComposableRows(Protocol):
    """Rows of functions of theta, which can be composed with a chart; others are `Restricted`."""

    def along(self, chart: Chart) -> Rows:
        """Take the coordinates of the chart instead of theta."""


@runtime_checkable
class BoundedRows(Protocol):
    """Rows of functions that may end at a bound of the parameters."""

    def within(self, low: Array, high: Array) -> Rows:
        """Continue the functions beyond these bounds, (d,) and (d,), as differences need it."""


@runtime_checkable
class ScaledRows(Protocol):
    """Rows that have a way of their own to find the units of the parameters."""

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        """Standard error of each parameter, the others held fixed, (d,); or a guess of it."""


@runtime_checkable
class RedrawableRows(Protocol):
    """Rows of a known distribution."""

    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> Rows:
        """Draw new data from the model at theta."""


@runtime_checkable
class MeasuredRows(Protocol):
    """Rows with terms of what was measured once, which cannot be resampled."""

    def measured_again(self, theta: Array, weights: Weights, rng: np.random.Generator) -> Rows:
        """Draw new data for the terms that stand alone; the rows themselves if there are none."""


@runtime_checkable
class DifferencedRows(Protocol):
    """Rows of a user's function, with derivatives by differences of the objective as a whole.

    Steps are fractions of the standard errors at one place, and whether a difference is certain
    shows beside the curvature of the whole objective, the penalty included.

    Attributes
    ----------
    loglik : callable
        The log-likelihood of each row, (d,) to (n,).
    """

    @property
    def loglik(self) -> Callable[[Array], Any]: ...

    def around(self, theta: Array, weights: Weights, penalty: Penalty) -> "LocalObjective":
        """Make the objective, to be differentiated in the units of the parameters at theta."""

    def arrived(self) -> Rows:
        """Refuse derivatives that are uncertain; keep nothing that was computed on the way."""


class LocalObjective(Protocol):
    """An objective with its derivatives, in the units of the parameters at one place.

    Attributes
    ----------
    units : (d,) array
        Standard error of each parameter there, the others held fixed.
    outer_products : OuterProducts or None
        Curvature there in the metric of the score rows, where these tell it.
    """

    @property
    def units(self) -> Array: ...

    @property
    def outer_products(self) -> "OuterProducts | None": ...

    @property
    def carries_derivatives(self) -> bool:
        """Whether a fit ends where derivatives were taken, for the fitted model to carry them."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of the objective, beyond its rounding."""

    def uncertainty(self) -> tuple[float, float]:
        """Noise that differences for the curvature met, and the share that it leaves uncertain."""

    def objective(self, theta: Array) -> float:
        """Weighted sum of the terms less the penalty."""

    def score(self, theta: Array) -> Array:
        """Gradient of the objective, (d,)."""

    def weighted_score(self, theta: Array, weights: Array) -> Array:
        """Gradient of the objective with other weights, (n,), which alone may be flat."""

    def swift_score(self, theta: Array) -> Array:
        """Gradient for products that are checked later, (d,); NaN where there is none."""

    def rough_score(self, theta: Array) -> Array:
        """Gradient to about 1e-5 of a standard error, where that is cheaper."""

    @property
    def short_steps(self) -> Array:
        """Steps of single differences at theta, (d,), whose units and noise these tell."""

    def short_score(self, theta: Array, steps: Array) -> Array:
        """Gradient; if by differences, a single one over each of these steps."""

    def information(self, theta: Array, v: Array) -> Array:
        """Minus the Hessian of the objective times v, (d,) or (d, k)."""

    def information_of(self, theta: Array, v: Array, weights: Array) -> Array:
        """Minus the Hessian of the terms alone with other weights, times (d, k)."""

    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along the columns of v, (d, k) to (n, k)."""

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        """Sum a function of blocks of `terms_along`; see `Rows.sum_blocks`."""

    def metric(self, theta: Array) -> "Factor | None":
        """Factorize the sum of outer products of the score rows, where these are at hand."""

    def approached(self, limits: Limits) -> Array | None:
        """Find a theta close to the maximum within limits, where that can be had cheaply."""

    def check_saddle(self) -> None:
        """Raise if the objective has a saddle here, which a Gauss-Newton matrix hides."""


@runtime_checkable
class BatchedRows(Protocol):
    """Rows that can be visited in batches."""

    def batch_score(self, theta: Array, weights: Array, rows: NDArray[np.integer[Any]]) -> Array:
        """Gradient of the weighted sum of the terms of some rows alone, (d,)."""


@runtime_checkable
class TrainableRows(Protocol):
    """Rows of a network, which a stochastic optimizer can train on.

    Attributes
    ----------
    running_averages : bool
        Whether the network keeps averages over batches that belong to its last state.
    """

    @property
    def running_averages(self) -> bool: ...

    def ascend(
        self,
        theta: Array,
        weights: Array,
        penalty: Penalty,
        bonus: Callable[..., Array] | None,
        batches: Iterable[NDArray[np.integer[Any]]],
        optimizer: Any,
    ) -> Iterator[Array]:
        """Yield theta after each step of a training from theta; see `batches.ascend`."""


@runtime_checkable
class NormalizedRows(Protocol):
    """Rows whose log-likelihood is known with all its constants."""

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        """Log-likelihood with all its constants; NaN where these are not known."""


@runtime_checkable
class StoredRows(Protocol):
    """Rows that are stored elsewhere: what can be added up or chosen there does not travel."""

    def total(self, theta: Array, weights: Array) -> float:
        """Weighted sum of the terms; one of weight zero is left out, even minus infinity."""

    def rough_score(self, theta: Array, weights: Array) -> Array:
        """Gradient of the weighted sum of the terms to about 1e-5 of a standard error, (d,)."""

    def strongest(self, theta: Array, weights: Weights, v: Array, errors: Array, k: int) -> Any:
        """Find the k rows of largest influence; see `models.strongest`."""

    def resampled(
        self,
        weights: Weights,
        kind: str,
        rng: np.random.Generator,
        clusters: Clusters | None = None,
    ) -> tuple[Rows, Weights] | None:
        """Draw rows or clusters; None if they are few enough to be drawn in this process."""


@runtime_checkable
class RootRows(Protocol):
    """Estimating equations, whose weighted sum has a Jacobian in the place of a curvature."""

    def root(self, theta: Array, weights: Weights) -> "Root":
        """Covariance of theta, (d, d), and responses to gradients, at a root."""


@runtime_checkable
class TangentRows(Protocol):
    """Rows of a network whose outputs can be linearized, also inside of a function of the user."""

    def tangent(self, theta: Array) -> Rows | None:
        """Linearize the outputs around theta; None where they cannot be reached."""


@runtime_checkable
class FormedOutputs(Protocol):
    """Outputs that form a part of the Gauss-Newton matrix more cheaply than all of it."""

    def gauss_newton_part(self, theta: Array, weights: Array, columns: int) -> Array | None:
        """Form a matrix that is at most the Gauss-Newton matrix; None if not worth it.

        The products that make up for the rest are some ten for each of so many columns.
        """


@runtime_checkable
class RescaledOutputs(Protocol):
    """Outputs with a noise variance or dispersion, which another fit estimates anew."""

    def rescaled(self, factor: float) -> Rows:
        """Multiply the noise variance, or the dispersion."""


@runtime_checkable
class NoisyOutputs(Protocol):
    """Outputs with Gaussian noise whose variance may have been estimated."""

    @property
    def likelihood(self) -> Any: ...

    def with_likelihood(self, likelihood: Any) -> Rows:
        """Replace the likelihood of the targets."""

    def estimated_noise(self, theta: Array, weights: Weights, penalty: Penalty, rule: Any) -> Any:
        """Estimate the variance by a rule: "mle", "unbiased" or None for what suits."""


def sum_of_blocks(
    rows: Rows, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
) -> Any:
    """Implement `Rows.sum_blocks` for rows that are stored here."""
    total: Any = 0.0
    for span, block in rows.terms_along(theta, v):
        total = total + reduce(block, *(array[span] for array in row_arrays))
    return total


def units_of(curvature: Array) -> Array:
    """Standard error of each parameter, the others held fixed, from a curvature (d, d)."""
    size = abs(np.diag(curvature))
    return np.asarray(1 / np.sqrt(np.maximum(size, 1e-12 * size.max() + 1e-300)))
