"""Fitted models of statistics libraries, with log-likelihood and derivatives in closed form.

`from_statsmodels` and `from_sklearn` bring the likelihood, its maximum and the kind of object that
psi expects.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from implicit_delta._core.arguments import Counter, as_parameters, check_finite_terms
from implicit_delta._core.cache import LastCache
from implicit_delta._core.limits import CHEAP_LIMIT, DENSE_LIMIT
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Product
from implicit_delta.models.base import (
    NO_TANGENT,
    Curvature,
    FittedModel,
    RowNumbers,
    Whitened,
    cannot_draw,
    range_of,
)
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.evidence import evidence_of
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.penalty import NO_PENALTY, Penalty, Ridge
from implicit_delta.models.prediction import InCoordinates
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.tracing import trace

FORM_FROM = 10  # if at least every tenth column is needed, form all of them
LARGEST_BLOCK = 2**22  # numbers of the rows that are held at a time


class HostLikelihood(ABC):
    """Terms of n observations as a function of the D coefficients b of the host library."""

    linear: ClassVar[bool] = False  # whether they depend on b through linear predictors only

    @abstractmethod
    def terms(self, b: Array) -> Array:
        """Log-likelihood of each observation, (n,), up to a constant."""

    @abstractmethod
    def score(self, b: Array, weights: Array) -> Array:
        """Gradient of the weighted sum of the terms, (D,)."""

    @abstractmethod
    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """Minus the Hessian of that sum, or its Gauss-Newton part, times (D, k)."""

    @abstractmethod
    def terms_along(self, b: Array, v: Array) -> Array:
        """Derivative of each term along each column of (D, k): (n, k)."""

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> "HostLikelihood":
        """Build the same likelihood of targets drawn from it, each as often as its weight says."""
        raise cannot_draw(f"the distribution behind {self!r} is not known here", weights.size)

    def whitened(self, b: Array, v: Array) -> Iterator[Whitened]:
        """Go through the rows as `FittedModel.whitened` does, with (D, k) steps of b."""
        raise UnsupportedModelError(
            f"Leverage is that of the outputs of a row, and {self!r} has other parameters than "
            'those of its means. Use robust="HC1", robust="CR1" or `Bootstrap()`.'
        )

    def curvature_noise(
        self, b: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array:
        """Draw vectors with the Gauss-Newton matrix as covariance, (D, count); for networks."""
        raise UnsupportedModelError(NO_TANGENT)

    def touching(self, b: Array) -> "HostLikelihood":
        """Build the likelihood of outputs that are linear in the step from b; for networks."""
        raise UnsupportedModelError(NO_TANGENT)

    def __repr__(self) -> str:
        return type(self).__name__


class Watches(Protocol):
    """Looks for mistakes in psi while it is evaluated."""

    def call(self, psi: Psi, argument: Any, b: Array) -> Any:
        """Call psi with its argument, which is that of coefficients b, and watch."""

    def doubt_of(self, psi: Any) -> str:
        """Describe a mistake that can be read off psi, if there is one."""


@dataclass(frozen=True)
class Coordinates:
    """Map between theta and coefficients: ``b = origin + basis @ theta``, ``theta = b[kept]``.

    An overparametrized host, such as softmax with one column per class, has directions that leave
    the likelihood unchanged. They are left out here, and only here. By default theta is b.
    """

    origin: Array | float = 0.0
    basis: scipy.sparse.csr_array | None = None
    kept: NDArray[np.intp] | None = None

    @classmethod
    def fixing_sums(cls, b: Array, groups: NDArray[np.intp]) -> "Coordinates":
        """Hold the sum of each row of `groups`, (g, C) indices into b, where it is.

        Theta is b without the last of each group, which takes up the difference.
        """
        last, others = groups[:, -1], groups[:, :-1]
        identity = scipy.sparse.eye_array(b.size, format="lil")
        identity[np.repeat(last, others.shape[1]), others.ravel()] = -1.0
        origin = np.zeros(b.size)
        origin[last] = b[groups].sum(axis=1)
        kept = np.setdiff1d(np.arange(b.size), last)
        return cls(origin, identity.tocsc()[:, kept].tocsr(), kept)

    def push(self, v: Array) -> Array:
        """Map (d,) or (d, k) steps of theta to steps of b."""
        return v if self.basis is None else np.asarray(self.basis @ v)

    def pull(self, g: Array) -> Array:
        """Map (D,) or (D, k) gradients in b to gradients in theta."""
        return g if self.basis is None else np.asarray(self.basis.T @ g)

    def free(self, b: Any) -> Any:
        """Return theta, or its part of anything else that b has: all but the last of each group."""
        return b.copy() if self.kept is None else b[self.kept]

    def coefficients(self, theta: Array) -> Array:
        """Return b."""
        return self.origin + self.push(theta)

    def ridge(self, strength: Array, name: str = "") -> Ridge:
        """Return the ridge of these strengths, (D,), around b = 0."""
        return Ridge(strength, -self.origin, name, self.basis)


@dataclass(frozen=True, eq=False, repr=False)
class HostModel(FittedModel):
    r"""A host library's model at its maximum; made by `from_statsmodels` and `from_sklearn`.

    The penalty is a ridge on its coefficients. The Jacobian of psi is exact where psi can be
    traced, and by differences elsewhere.

    Attributes
    ----------
    likelihood : HostLikelihood
    coordinates : Coordinates
    to_host : callable
        Turns coefficients, plain or traced, into the object that psi expects.
    to_tangent : callable, optional
        Turns coefficients and a step of them into such an object whose outputs are linear in the
        step; for networks.
    watch : Watches, optional
        Looks for mistakes in psi while it is evaluated.
    notes : dict
        Further lines of `print(model)`.
    """

    likelihood: HostLikelihood
    theta: Array
    weights: Weights
    coordinates: Coordinates
    to_host: Callable[[Any], Any]
    to_tangent: Callable[[Array, Array], Any] | None = None
    names: tuple[str, ...] | None = None
    curvature: Curvature = "hessian"
    penalty: Penalty = NO_PENALTY
    notes: Mapping[str, str] = field(default_factory=dict)
    constraints: Constraints | None = None
    chart: Chart | None = None
    whole: FittedModel | None = None
    facts: Facts = NO_FACTS
    watch: Watches | None = None
    counter: Counter = field(default_factory=Counter)
    _last: LastCache = field(init=False, default_factory=LastCache)

    @property
    def claimed(self) -> Claimed | None:
        """The covariance of a robust fit; None if the fit has the inverse information."""
        return self.facts.host.covariance

    @property
    def bends(self) -> bool:  # type: ignore[override]
        return self.to_tangent is not None

    @property
    def units(self) -> Array:
        return self._units()

    def along(self, chart: Chart) -> "HostModel":
        """Leave out what linear constraints determine: coordinates that the host does not see."""
        assert chart.linear
        assert self.coordinates.basis is None
        z = chart.coordinates(self.theta)
        basis = chart.slope(self.theta)
        along = Coordinates(chart.point(z) - basis @ z, scipy.sparse.csr_array(basis))
        predictor, claimed = self.facts.host.predictor, self.facts.host.covariance
        facts = self.facts.with_training(before=None).with_host(
            predictor=predictor and InCoordinates(predictor, along),
            covariance=claimed and replace(claimed, covariance=chart.part(claimed.covariance)),
        )
        return replace(
            self,
            theta=z,
            coordinates=along,
            penalty=self.penalty.along(chart),
            facts=facts,
            names=self.names and tuple(self.names[j] for j in chart.free),
            chart=chart,
            whole=self,
        )

    @property
    def passes(self) -> int:
        return self.counter.count

    def terms(self, theta: Array) -> Array:
        self.counter.count += 1
        return self.likelihood.terms(self.coordinates.coefficients(theta))

    def objective(self, theta: Array) -> float:
        return float(self.weights.values @ self.terms(theta)) - self.penalty.value(theta)

    def score(self, theta: Array) -> Array:
        self.counter.count += 1
        return self._score(theta, self.weights.values)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        columns = v.size // self.d
        form = self.d <= DENSE_LIMIT and FORM_FROM * columns >= self.d
        if form or self._last.holds(theta, curvature):
            return self._matrix(theta, curvature) @ v
        return self._product(theta, v, curvature)

    def terms_along(self, theta: Array, v: Array) -> Array:
        self.counter.count += 1
        b = self.coordinates.coefficients(theta)
        return self.likelihood.terms_along(b, self.coordinates.push(v))

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        self.counter.count += 1
        b = self.coordinates.coefficients(theta)
        return self.likelihood.whitened(b, self.coordinates.push(v))

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        b = self.coordinates.coefficients(theta)
        host = self.to_host(b)
        return psi(host) if self.watch is None else self.watch.call(psi, host, b)

    def doubt_of(self, psi: Any) -> str:
        return "" if self.watch is None else self.watch.doubt_of(psi)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        """Move the coefficients: linear predictors are their own tangent."""
        if self.to_tangent is not None:
            step = self.coordinates.push(delta)
            return psi(self.to_tangent(self.coordinates.coefficients(theta), step))
        if self.likelihood.linear:
            return self.evaluate(psi, theta + delta)
        return super().evaluate_tangent(psi, theta, delta)

    def tangent(self) -> "HostModel":
        if self.to_tangent is None:
            return super().tangent()
        b, to_tangent = self.coordinates.coefficients(self.theta), self.to_tangent
        predictor = self.facts.host.predictor
        return replace(
            self,
            likelihood=self.likelihood.touching(b),
            to_host=partial(_moved_from, to_tangent, b),
            to_tangent=partial(_moved_from, to_tangent, b),
            facts=self.facts.with_host(predictor=predictor and predictor.tangent(self.theta)),
        )

    def tethered(self) -> "HostModel":
        if not self.bends:
            return super().tethered()
        tie = evidence_of(self)
        facts = self.facts.with_training(effective=tie.effective)
        held = self.penalty.stopped_early(tie.strength, facts.training.start)
        return self.with_penalty(held, curvature="ggn", facts=facts)

    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        if not self.bends:
            return None
        b = self.coordinates.coefficients(theta)
        drawn = self.likelihood.curvature_noise(b, self.weights.values, rng, count)
        self.counter.count += count
        ridges = (ridge.noise(rng, self.d, count) for ridge in self.penalty.ridges)
        return np.asarray(sum(ridges, self.coordinates.pull(drawn)))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        b = self.coordinates.coefficients(theta)
        traced = trace(lambda coefficients: psi(self.to_host(coefficients)), b)
        if traced is not None:
            traced = traced[0], self.coordinates.pull(traced[1].T).T

        def near(point: Array) -> Any:
            """Of a network by its tangent, which has the same derivative and no kinks (relu)."""
            if self.bends:
                return self.evaluate_tangent(psi, theta, point - theta)
            return self.evaluate(psi, point)

        return jacobian_of(near, theta, self._units(), traced)

    def reweighted(self, weights: Array) -> "HostModel":
        same = np.array_equal(weights, self.weights.values)
        facts = self.facts if same else self.facts.with_host(covariance=None)
        return replace(self, weights=self.weights.replaced(weights), facts=facts)

    def at(self, theta: Array) -> "HostModel":
        point = as_parameters(theta)
        return replace(self, theta=point, facts=self.facts.moved(point - self.theta))

    def redrawn(self, rng: np.random.Generator) -> "HostModel":
        b = self.coordinates.coefficients(self.theta)
        drawn = self.likelihood.redrawn(b, self.weights.values, rng)
        return replace(self, likelihood=drawn, facts=self.facts.with_host(covariance=None))

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        return self._score(theta, self.weights.of_batch(rows))

    def describe(self) -> dict[str, str]:
        ridges = [np.ravel(ridge.strength) for ridge in self.penalty.given.ridges]
        penalty = {"ridge": range_of(np.concatenate(ridges))} if self.penalty.given else {}
        under = {} if self.constraints is None else {"constraints": str(self.constraints)}
        return {"likelihood": repr(self.likelihood), **penalty, **self.notes, **under}

    def _score(self, theta: Array, weights: Array) -> Array:
        b = self.coordinates.coefficients(theta)
        own = self.coordinates.pull(self.likelihood.score(b, weights))
        return np.asarray(own - self.penalty.score(theta))

    def _matrix(self, theta: Array, curvature: Curvature) -> Array:
        """The curvature as a matrix, kept for the last theta."""
        matrix: Array = self._last.get(
            theta.copy(), curvature, lambda: self._product(theta, np.eye(self.d), curvature)
        )
        return matrix

    def _product(self, theta: Array, v: Array, curvature: Curvature) -> Array:
        self.counter.count += 1
        step = self.coordinates.push(v.reshape(self.d, -1))
        b = self.coordinates.coefficients(theta)
        product = self.likelihood.information(b, self.weights.values, step, curvature)
        pulled = self.coordinates.pull(product).reshape(v.shape)
        return np.asarray(pulled + self.penalty.curvature(theta, v))

    def _units(self) -> Array:
        """The standard error of each parameter, the others held fixed; a guess if d is large."""
        if self.d > CHEAP_LIMIT and not self._last.holds(self.theta, "hessian"):
            return 1e-2 * np.maximum(abs(self.theta), 0.1)
        size = abs(np.diag(self._matrix(self.theta, "hessian")))
        return np.asarray(1 / np.sqrt(np.maximum(size, 1e-12 * size.max() + 1e-300)))


def _moved_from(to_tangent: Callable[[Any, Any], Any], b: Array, *parts: Any) -> Any:
    """Object of the tangent at b whose coefficients are the sum of these parts."""
    return to_tangent(b, sum(parts) - b)


def blocks(n: int, numbers: int) -> Iterator[slice]:
    """Cut n rows into parts, of which each makes so many numbers per row."""
    size = max(1, LARGEST_BLOCK // numbers)
    return (slice(start, start + size) for start in range(0, n, size))


def root_matrices(product: Product, outputs: Array) -> Array:
    """Matrices S' of all rows, (n, C, C), of the function u to S' u for outputs (n, C)."""
    n, count = outputs.shape
    basis = np.broadcast_to(np.eye(count)[:, None, :], (count, n, count))
    return np.moveaxis(np.asarray(product(basis)), 0, -1)


def check_coefficients(b: Array, library: str) -> None:
    """Refuse a fit that failed."""
    if not np.all(np.isfinite(b)):
        raise UnsupportedModelError(
            f"The fitted coefficients are not finite: {b}. The fit in {library} failed; usual "
            "causes are missing values in the data and perfectly separated classes."
        )


def count_rows(likelihood: HostLikelihood, b: Array, library: str) -> int:
    """Return n if the terms at the fitted coefficients are finite; explain otherwise."""
    terms = likelihood.terms(b)
    opening = "The log-likelihood of observation {row} is {term} at the fitted coefficients"
    check_finite_terms(terms, opening, f"or a y or X other than that of the fit in {library}?")
    return terms.size
