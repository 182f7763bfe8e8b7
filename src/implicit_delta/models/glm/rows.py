"""Rows of a fit of statsmodels or scikit-learn: a likelihood in closed form."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.units import sizes
from implicit_delta.core.arguments import Counter, check_finite_terms
from implicit_delta.core.cache import LastCache
from implicit_delta.core.limits import CHEAP_LIMIT, DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.likelihood import HostLikelihood, OutputLikelihood
from implicit_delta.models.glm.network import Network
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.rows import Whitened, sum_of_blocks, units_of
from implicit_delta.models.weights import Weights

NO_OUTPUTS = (
    "Leverage and the Gauss-Newton curvature are those of the outputs of a row, and {} has other "
    'parameters than those of its means. Use curvature="hessian", and robust="HC1", robust="CR1" '
    "or `Bootstrap()`."
)
FORM_FROM = 10  # if at least every tenth column is needed, form all of them


@dataclass(frozen=True, eq=False)
class HostRows:
    """A likelihood in closed form as rows, with the curvature at the last theta as a matrix.

    Attributes
    ----------
    likelihood : HostLikelihood
    n, d : int
    hides_outputs : bool
        Whether the outputs are not used: those of a network that psi gets without a tangent.
    """

    likelihood: HostLikelihood
    n: int
    d: int
    hides_outputs: bool = False
    counter: Counter = field(default_factory=Counter)
    cache: LastCache = field(default_factory=LastCache)

    symmetric = True

    @property
    def outputs(self) -> "HostOutputs | None":
        known = isinstance(self.likelihood, OutputLikelihood) and not self.hides_outputs
        return HostOutputs(self, self.likelihood) if known else None  # type: ignore[arg-type]

    @property
    def passes(self) -> int:
        return self.counter.count

    def terms(self, theta: Array) -> Array:
        self.counter.count += 1
        return self.likelihood.terms(theta)

    def score(self, theta: Array, weights: Array) -> Array:
        self.counter.count += 1
        return self.likelihood.score(theta, weights)

    def batch_score(self, theta: Array, weights: Array, rows: NDArray[np.integer[Any]]) -> Array:
        return self.likelihood.score(theta, weights * np.bincount(rows, minlength=self.n))

    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        return self.information(theta, weights, v, "hessian")

    def information(self, theta: Array, weights: Array, v: Array, kind: Curvature) -> Array:
        """Minus the Hessian, or its Gauss-Newton part, times v: (d,) or (d, k)."""
        form = self.d <= DENSE_LIMIT and FORM_FROM * (v.size // self.d) >= self.d
        if form or self.cache.holds((theta, weights), kind):
            return self._matrix(theta, weights, kind) @ v
        return self._product(theta, weights, v, kind)

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        self.counter.count += 1
        yield slice(0, self.n), self.likelihood.terms_along(theta, v)

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return sum_of_blocks(self, theta, v, reduce, *row_arrays)

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        """From the curvature; a guess if d is large."""
        known = self.cache.holds((theta, weights.values), "hessian")
        if self.d > CHEAP_LIMIT and not known:
            return 1e-2 * sizes(theta)
        own = self._matrix(theta, weights.values, "hessian")
        return units_of(own + penalty.curvature(theta, np.eye(self.d)))

    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "HostRows":
        return self._of(self.likelihood.redrawn(theta, weights.values, rng))

    def tangent(self, theta: Array) -> "HostRows | None":
        network = self.likelihood
        return self._of(network.touching(theta)) if isinstance(network, Network) else None

    def _of(self, likelihood: HostLikelihood) -> "HostRows":
        return replace(self, likelihood=likelihood, cache=LastCache())

    def _matrix(self, theta: Array, weights: Array, kind: Curvature) -> Array:
        matrix: Array = self.cache.get(
            (theta.copy(), weights),
            kind,
            lambda: self._product(theta, weights, np.eye(self.d), kind),
        )
        return matrix

    def _product(self, theta: Array, weights: Array, v: Array, kind: Curvature) -> Array:
        self.counter.count += 1
        columns = v.reshape(self.d, -1)
        return self.likelihood.information(theta, weights, columns, kind).reshape(v.shape)


@dataclass(frozen=True, eq=False, repr=False)
class HostOutputs:
    """Linear predictors, or the outputs of a network."""

    rows: HostRows
    host: OutputLikelihood

    pseudo = ""
    can_be_overdispersed = True

    @property
    def is_linear(self) -> bool:
        return self.host.linear

    @property
    def size(self) -> int:
        return self.host.size(self.rows.d)

    @property
    def likelihood(self) -> Any:
        return self.host.density

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        return self.rows.information(theta, weights, v, "ggn")

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        self.rows.counter.count += 1
        return self.host.whitened(theta, v)

    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        if not isinstance(self.host, Network):
            return None
        self.rows.counter.count += count
        return self.host.curvature_noise(theta, weights, rng, count)

    def rescaled(self, factor: float) -> HostRows:
        return replace(self.rows, likelihood=self.host.rescaled(factor), cache=LastCache())

    def __repr__(self) -> str:
        return repr(self.host)


def check_coefficients(b: Array, library: str) -> None:
    """Refuse a fit that failed."""
    if not np.all(np.isfinite(b)):
        raise UnsupportedModelError(
            f"The fitted coefficients are not finite: {b}. The fit in {library} failed; usual "
            "causes are missing values in the data and perfectly separated classes."
        )


def host_rows(
    likelihood: HostLikelihood, b: Array, library: str, hides_outputs: bool = False
) -> HostRows:
    """Make rows of a likelihood; explain if the terms at the fitted coefficients are not finite."""
    terms = likelihood.terms(b)
    opening = "The log-likelihood of observation {row} is {term} at the fitted coefficients"
    check_finite_terms(terms, opening, f"or a y or X other than that of the fit in {library}?")
    return HostRows(likelihood, terms.size, b.size, hides_outputs)
