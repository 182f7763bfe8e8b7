"""Log-likelihoods of statsmodels beyond the shared outcomes and linear predictors."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import as_counts, whole
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.draws import draw_tweedie
from implicit_delta.models.glm.likelihood import HostLikelihood
from implicit_delta.models.glm.outcomes import MeanVariance
from implicit_delta.models.loglik_objective import LoglikObjective
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.penalty import NO_PENALTY
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.weights import Weights

POWERS = {"Gaussian": 0.0, "Poisson": 1.0, "Gamma": 2.0, "InverseGaussian": 3.0}  # of the variance
DISCRETE = ("Binomial", "Poisson", "NegativeBinomial")


@dataclass(frozen=True, eq=False, repr=False)
class Family(MeanVariance):
    r"""A family of generalized linear models: ``-prior * deviance / 2 scale``.

    Attributes
    ----------
    family : statsmodels.genmod.families.Family
    y : (n, 1) array
    prior : (n, 1) array
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

    def mean(self, eta: Array) -> Array:
        return np.asarray(self.family.fitted(eta))

    def rise(self, eta: Array, mean: Array) -> Array:
        # Through the inverse link: the link's own derivative at the mean loses the sign of eta
        # where the link is not one-to-one (square root), and is clipped near the ends.
        return np.asarray(self.family.link.inverse_deriv(eta))

    def turn(self, eta: Array, mean: Array) -> Array:
        return np.asarray(self.family.link.inverse_deriv2(eta))

    def precision(self, mean: Array) -> Array:
        return np.asarray(self.prior / (self.scale * self.family.variance(mean)))

    def widening(self, mean: Array) -> Array:
        return np.asarray(self.family.variance.deriv(mean) / self.family.variance(mean))

    def redrawn(self, eta: Array, weights: Array, rng: np.random.Generator) -> Self:
        counts = as_counts(self.prior[:, 0] * weights)[:, None]
        return replace(self, y=self._drawn(self.mean(eta), counts, rng))

    def _drawn(self, mean: Array, counts: Array, rng: np.random.Generator) -> Array:
        """Means of so many draws: of trials, or of a dispersion that falls with their number."""
        name = type(self.family).__name__
        if self.scale != 1 and name in DISCRETE:
            raise cannot_draw(
                f"a {name} family with a scale of {self.scale:.3g} is a quasi-likelihood, which is "
                "no distribution"
            )
        if name == "Binomial":
            trials = np.broadcast_to(whole(counts), mean.shape)
            return np.asarray(rng.binomial(trials, mean) / trials)
        if name == "NegativeBinomial":
            size = counts / self.family.alpha
            return np.asarray(rng.negative_binomial(size, size / (size + counts * mean)) / counts)
        if name not in POWERS and name != "Tweedie":
            raise cannot_draw(f"the distribution of the {name} family is not known here")
        power = POWERS[name] if name in POWERS else float(self.family.variance.power)
        return draw_tweedie(mean, power, self.scale / counts, rng)

    def __repr__(self) -> str:
        link = type(self.family.link).__name__
        return f"{type(self.family).__name__} family, {link} link, scale {self.scale:.4g}"


class RowWise(HostLikelihood):
    """A likelihood with its derivatives row by row."""

    @abstractmethod
    def scores(self, b: Array) -> Array:
        """Derivatives of the terms, (n, D)."""

    @abstractmethod
    def hessian(self, b: Array, weights: Array) -> Array:
        """Hessian of the weighted sum, (D, D)."""

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray(weights @ self.scores(b))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        return -self.hessian(b, weights) @ v

    def terms_along(self, b: Array, v: Array) -> Array:
        return self.scores(b) @ v


@dataclass(frozen=True, eq=False, repr=False)
class NegativeBinomial(RowWise):
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

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> Self:
        eta, alpha = self._split(b)
        if np.any(weights[weights > 0] != 1):  # the terms are not linear in y
            raise cannot_draw("its terms are not those of means of several draws")
        y = rng.negative_binomial(1 / alpha, 1 / (1 + alpha * np.exp(eta)))
        return replace(self, y=y.astype(np.float64))

    def _by_size(self, mean: Array, alpha: float) -> Array:
        """Derivative of the terms in 1 / alpha."""
        size = 1 / alpha
        counting = digamma(self.y + size) - digamma(size)
        gap = (self.y - mean) / (size + mean)
        return np.asarray(counting - np.log1p(alpha * mean) - gap)

    def _split(self, b: Array) -> tuple[Array, float]:
        return np.asarray(self.X @ b[:-1] + self.offset), float(b[-1])


@dataclass(frozen=True, eq=False, repr=False)
class Ordered(RowWise):
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
        return np.asarray(np.log(self._mass(*self._bounds(b))))

    def scores(self, b: Array) -> Array:
        _, up, down = self._rates(*self._bounds(b))
        rows = up[:, None] * self._end(1) - down[:, None] * self._end(0)
        return rows @ self._to_thresholds(b)

    def hessian(self, b: Array, weights: Array) -> Array:
        low, high = self._bounds(b)
        mass, up, down = self._rates(low, high)
        upper, lower = self._end(1), self._end(0)
        mixed = (upper.T * (weights * up * down)) @ lower
        matrix = mixed + mixed.T
        matrix += (upper.T * (weights * (self._slope(high) / mass - up**2))) @ upper
        matrix -= (lower.T * (weights * (self._slope(low) / mass + down**2))) @ lower
        gradient = (weights * up) @ upper - (weights * down) @ lower
        change = self._to_thresholds(b)
        return np.asarray(change.T @ matrix @ change + self._turning(b, gradient))

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> Self:
        if np.any(weights[weights > 0] != 1):
            raise cannot_draw("its terms are not those of means of several draws")
        p = self.X.shape[1]
        inner = np.cumsum(np.concatenate([b[p : p + 1], np.exp(b[p + 1 :])]))
        eta = np.broadcast_to(self.X @ b[:p] + self.offset, self.y.shape)
        latent = eta + self.distribution.rvs(size=self.y.size, random_state=rng)
        return replace(self, y=np.searchsorted(inner, latent))

    def _rates(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Probability of each row, and the densities at its upper and lower bound over it."""
        mass = self._mass(low, high)
        return mass, self._density(high) / mass, self._density(low) / mass

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
        """Curvature of the thresholds themselves, in their parameters."""
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


@dataclass(frozen=True, eq=False, repr=False)
class Numerical(HostLikelihood):
    """A model's method `loglikeobs` or `loglike`, differentiated in steps of a standard error."""

    model: Any
    method: str
    anchor: Array
    name: str = ""
    cache: LastCache = field(default_factory=LastCache)

    def terms(self, b: Array) -> Array:
        values = np.atleast_1d(np.asarray(getattr(self.model, self.method)(b), dtype=np.float64))
        return np.full(values.shape, -np.inf) if _outside(self.model, b) else values

    def score(self, b: Array, weights: Array) -> Array:
        return self._objective(weights).score(b)

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        return self._objective(weights).information(b, v)

    def terms_along(self, b: Array, v: Array) -> Array:
        known = self.cache.key  # weights only set the length of the steps: any will do
        weights = np.ones(self.terms(b).size) if known is None else known
        return self._objective(weights).terms_along(b, v)

    def __repr__(self) -> str:
        return f"{self.name or type(self.model).__name__}, differentiated numerically"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Unpickled, NegativeBinomial takes log alpha for alpha until it is fitted again.
        if hasattr(self.model, "_transparams"):
            self.model._transparams = False

    def _objective(self, weights: Array) -> LoglikObjective:
        """The same log-likelihood with these weights; its units are found only once."""
        rows = LoglikRows(self.terms, weights.size, self.anchor.size)
        found: LoglikObjective = self.cache.get(
            weights, "objective", lambda: rows.around(self.anchor, Weights(weights), NO_PENALTY)
        )
        return found


def _outside(model: Any, b: Array) -> bool:
    """Whether the parameters of a state-space model are none: no variance, or not stationary.

    Its likelihood is zero or anything there.
    """
    if not hasattr(model, "ssm"):
        return False
    try:
        with np.errstate(all="ignore"):
            back = model.transform_params(model.untransform_params(np.asarray(b)))
    except (ValueError, np.linalg.LinAlgError):
        return True
    return not np.allclose(back, b, rtol=1e-6, atol=1e-8)
