"""Likelihoods of statsmodels that are more than one linear predictor, or have another's family."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import Curvature
from implicit_delta.models.glm.model import Likelihood
from implicit_delta.models.glm.predictors import Response
from implicit_delta.models.loglik import LoglikModel


@dataclass(frozen=True, eq=False)
class Family(Response):
    r"""A generalized linear model's response: ``-deviance / 2 scale`` and its derivatives.

    With mean m(eta) and variance function V the slope is (y - m) m' / V(m) and the expected bend
    m'^2 / V(m), both times the prior weight and over the scale.

    Attributes
    ----------
    family : statsmodels.genmod.families.Family
    y : (n,) array
    prior : (n,) array
        Variance weights times binomial trials.
    scale : float
    """

    family: Any
    y: Array
    prior: Array
    scale: float

    def terms(self, eta: Array) -> Array:
        deviance = self.family.resid_dev(self.y, self.family.fitted(eta)) ** 2
        return np.asarray(-self.prior * deviance / (2 * self.scale))

    def slope(self, eta: Array) -> Array:
        mean, rise = self._mean_and_rise(eta)
        return np.asarray(self.prior * (self.y - mean) * rise / self._variance(mean))

    def bend(self, eta: Array) -> Array:
        mean, rise = self._mean_and_rise(eta)
        variance = self._variance(mean)
        turn = self.family.link.inverse_deriv2(eta)
        widening = self.scale * self.family.variance.deriv(mean) * rise**2 / variance
        excess = self.prior * (self.y - mean) * (turn - widening) / variance
        return np.asarray(self.expected_bend(eta) - excess)

    def expected_bend(self, eta: Array) -> Array:
        mean, rise = self._mean_and_rise(eta)
        return np.asarray(self.prior * rise**2 / self._variance(mean))

    def _mean_and_rise(self, eta: Array) -> tuple[Array, Array]:
        # Through the inverse link: the link's own derivative at the mean loses the sign of eta
        # where the link is not one-to-one (square root), and is clipped near the ends.
        return self.family.fitted(eta), self.family.link.inverse_deriv(eta)

    def _variance(self, mean: Array) -> Array:
        return np.asarray(self.scale * self.family.variance(mean))


class Rows(ABC):
    """Terms with their derivatives row by row."""

    @abstractmethod
    def terms(self, b: Array) -> Array:
        """Log-likelihood of each observation, (n,)."""

    @abstractmethod
    def scores(self, b: Array) -> Array:
        """Its derivatives, (n, D)."""

    @abstractmethod
    def hessian(self, b: Array, weights: Array) -> Array:
        """Hessian of the weighted sum, (D, D)."""


@dataclass(frozen=True, eq=False)
class RowWise(Likelihood):
    """A likelihood made of rows."""

    rows: Rows

    def terms(self, b: Array) -> Array:
        return self.rows.terms(b)

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray(weights @ self.rows.scores(b))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        _refuse_gauss_newton(curvature)
        return -self.rows.hessian(b, weights) @ v

    def terms_along(self, b: Array, v: Array) -> Array:
        return self.rows.scores(b) @ v


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Rows):
    """Counts with variance ``m + alpha m^2`` (NB2), ``log m = X b + offset``; alpha comes last."""

    X: Array
    y: Array
    offset: Array | float

    def terms(self, b: Array) -> Array:
        eta, alpha = self._split(b)
        y, size = self.y, 1 / alpha
        counting = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        tail = (y + size) * np.log1p(alpha * np.exp(eta))
        return np.asarray(counting + y * (np.log(alpha) + eta) - tail)

    def scores(self, b: Array) -> Array:
        eta, alpha = self._split(b)
        mean = np.exp(eta)
        slope = (self.y - mean) / (1 + alpha * mean)
        return np.column_stack([slope[:, None] * self.X, self._by_size(mean, alpha) / -(alpha**2)])

    def hessian(self, b: Array, weights: Array) -> Array:
        eta, alpha = self._split(b)
        mean, size = np.exp(eta), 1 / alpha
        spread = (1 + alpha * mean) ** 2
        p = self.X.shape[1]
        matrix = np.empty((p + 1, p + 1))
        matrix[:p, :p] = -(self.X.T * (weights * mean * (1 + alpha * self.y) / spread)) @ self.X
        matrix[p, :p] = matrix[:p, p] = -self.X.T @ (weights * mean * (self.y - mean) / spread)
        second = polygamma(1, self.y + size) - polygamma(1, size) + alpha - 1 / (size + mean)
        second += (self.y - mean) / (size + mean) ** 2
        own = 2 * size**3 * self._by_size(mean, alpha) + size**4 * second
        matrix[p, p] = weights @ own
        return matrix

    def _by_size(self, mean: Array, alpha: float) -> Array:
        """Derivative of the terms in 1 / alpha."""
        size = 1 / alpha
        counting = digamma(self.y + size) - digamma(size)
        gap = (self.y - mean) / (size + mean)
        return np.asarray(counting - np.log1p(alpha * mean) - gap)

    def _split(self, b: Array) -> tuple[Array, float]:
        return np.asarray(self.X @ b[:-1] + self.offset), float(b[-1])


@dataclass(frozen=True, eq=False)
class Ordered(Rows):
    """An ordered outcome: ``P(y <= j) = F(t_j - X b - offset)``.

    The coefficients are followed by the first threshold and the logarithms of the steps to the
    others, as `OrderedModel` has them. Derivatives are taken in the thresholds and carried over.
    """

    X: Array
    y: NDArray[np.intp]
    offset: Array | float
    levels: int
    distribution: Any

    def terms(self, b: Array) -> Array:
        low, high = self._bounds(b)
        return np.asarray(np.log(self._mass(low, high)))

    def scores(self, b: Array) -> Array:
        return self._threshold_scores(b) @ self._to_thresholds(b)

    def hessian(self, b: Array, weights: Array) -> Array:
        low, high = self._bounds(b)
        mass = self._mass(low, high)
        up, down = self._density(high) / mass, self._density(low) / mass
        inner = {
            (1, 1): self._slope(high) / mass - up**2,
            (0, 0): -self._slope(low) / mass - down**2,
            (1, 0): up * down,
        }
        change = self._to_thresholds(b)
        matrix = np.zeros((b.size, b.size))
        ends = {1: self._end(1), 0: self._end(0)}
        for (i, j), factor in inner.items():
            part = (ends[i].T * (weights * factor)) @ ends[j]
            matrix += part if i == j else part + part.T
        curved = change.T @ matrix @ change
        return np.asarray(curved + self._turning(b, weights @ self._threshold_scores(b)))

    def _threshold_scores(self, b: Array) -> Array:
        low, high = self._bounds(b)
        mass = self._mass(low, high)
        up, down = self._density(high) / mass, self._density(low) / mass
        return up[:, None] * self._end(1) - down[:, None] * self._end(0)

    def _end(self, upper: int) -> Array:
        """Derivative of each row's upper or lower bound in (b, t); the outermost do not move."""
        columns = np.arange(self.levels - 1)
        chosen = (self.y + upper - 1)[:, None] == columns
        finite = np.any(chosen, axis=1)
        return np.column_stack([-self.X * finite[:, None], chosen * 1.0])

    def _bounds(self, b: Array) -> tuple[Array, Array]:
        p = self.X.shape[1]
        inner = np.cumsum(np.concatenate([b[p : p + 1], np.exp(b[p + 1 :])]))
        thresholds = np.concatenate([[-np.inf], inner, [np.inf]])
        eta = self.X @ b[:p] + self.offset
        return thresholds[self.y] - eta, thresholds[self.y + 1] - eta

    def _to_thresholds(self, b: Array) -> Array:
        """Derivative of (b, t) in the parameters."""
        p = self.X.shape[1]
        change = np.eye(b.size)
        steps = np.concatenate([[1.0], np.exp(b[p + 1 :])])
        change[p:, p:] = np.tril(np.ones((steps.size, steps.size))) * steps
        return change

    def _turning(self, b: Array, gradient: Array) -> Array:
        """What the curvature of the thresholds themselves adds."""
        p = self.X.shape[1]
        later = np.cumsum(gradient[p:][::-1])[::-1]
        return np.diag(np.concatenate([np.zeros(p + 1), later[1:] * np.exp(b[p + 1 :])]))

    def _mass(self, low: Array, high: Array) -> Array:
        """Probability between the bounds, in whichever tail loses no digits."""
        cdf, sf = self.distribution.cdf, self.distribution.sf
        return np.asarray(np.where(low > 0, sf(low) - sf(high), cdf(high) - cdf(low)))

    def _density(self, z: Array) -> Array:
        inside = np.isfinite(z)
        return np.asarray(np.where(inside, self.distribution.pdf(np.where(inside, z, 0.0)), 0.0))

    def _slope(self, z: Array) -> Array:
        """Derivative of the density."""
        finite = np.where(np.isfinite(z), z, 0.0)
        if self.distribution.name == "norm":
            return np.asarray(-finite * self._density(z))
        if self.distribution.name == "logistic":
            return np.asarray(self._density(z) * (1 - 2 * self.distribution.cdf(finite)))
        raise UnsupportedModelError(
            f"OrderedModel with the distribution {self.distribution.name!r} has no known "
            "curvature here; use distr='probit' or 'logit', or "
            "`from_loglik(results.model.loglikeobs, theta=results.params)`."
        )


@dataclass(frozen=True, eq=False)
class OneTerm(Likelihood):
    """A likelihood that is no sum over independent rows: all of it is one observation."""

    loglik: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    hessian: Callable[[Array], Array]

    def terms(self, b: Array) -> Array:
        return np.array([self.loglik(b)], dtype=np.float64)

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray(weights[0] * self.gradient(b))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        _refuse_gauss_newton(curvature)
        return np.asarray(-weights[0] * self.hessian(b) @ v)

    def terms_along(self, b: Array, v: Array) -> Array:
        return np.asarray(self.gradient(b))[None, :] @ v


@dataclass(frozen=True, eq=False)
class Numerical(Likelihood):
    """Any log-likelihood, differentiated numerically in steps of a standard error."""

    loglik: Callable[[Array], Any]
    anchor: Array
    _models: dict[bytes, LoglikModel] = field(init=False, default_factory=dict, repr=False)

    def terms(self, b: Array) -> Array:
        return np.atleast_1d(np.asarray(self.loglik(b), dtype=np.float64))

    def score(self, b: Array, weights: Array) -> Array:
        return self._model(weights).score(b)

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        return self._model(weights).information(b, v, curvature)

    def terms_along(self, b: Array, v: Array) -> Array:
        known = next(iter(self._models.values()), None)
        return (known or self._model(np.ones(self.terms(b).size))).terms_along(b, v)

    def _model(self, weights: Array) -> LoglikModel:
        """The same log-likelihood with these weights; its units are found only once."""
        key = weights.tobytes()
        if key not in self._models:
            self._models.clear()
            self._models[key] = LoglikModel(self.terms, self.anchor, weights)
        return self._models[key]


def _refuse_gauss_newton(curvature: Curvature) -> None:
    if curvature == "ggn":
        raise UnsupportedModelError(
            'This likelihood has no Gauss-Newton curvature; use curvature="hessian".'
        )
