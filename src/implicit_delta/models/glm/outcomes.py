"""Log-likelihood of each row as a function of its linear predictors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr, ndtr

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import TINY, Gaussian, Likelihood, Product, as_counts
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.draws import draw_tweedie
from implicit_delta.models.noise import check_noise
from implicit_delta.models.redraws import cannot_draw

KNOWN = (
    "If the errors of the data are known, give these: `from_residuals(lambda b: y - X @ b, b, "
    "sigma=..., variance=1.0)`."
)


class Outcome(ABC):
    """Terms with their derivatives in the linear predictors eta, (n, C)."""

    @abstractmethod
    def terms(self, eta: Array) -> Array:
        """Up to a constant, (n,) or (n, 1)."""

    @abstractmethod
    def slope(self, eta: Array) -> Array:
        """First derivative of the terms, (n, C)."""

    @abstractmethod
    def curvature(self, eta: Array, kind: Curvature) -> Product:
        """The function u to H u, as in `Likelihood`, with H the observed or expected information.

        That is minus the second derivative ("hessian"), or its expectation over y ("ggn").
        """

    @abstractmethod
    def redrawn(self, eta: Array, weights: Array, rng: np.random.Generator) -> Self:
        """Build the same outcome with drawn y; one that counts w times is the mean of w draws."""

    @abstractmethod
    def whitened(self, eta: Array) -> tuple[Product, Array, Array]:
        """The function u to S' u for a root of the expected information; residuals; spread."""

    @abstractmethod
    def rescaled(self, factor: float) -> Self:
        """Multiply the noise variance, or the dispersion."""


@dataclass(frozen=True, eq=False, repr=False)
class Canonical(Outcome):
    """One of the shared likelihoods and its targets; both kinds of information are the same.

    Attributes
    ----------
    likelihood : Likelihood
    y : array
    unit : (n, 1) array or float
        What the targets were divided by, the standard deviation of their noise up to a factor.
    """

    likelihood: Likelihood
    y: Any
    unit: Array | float = 1.0

    def terms(self, eta: Array) -> Array:
        return np.asarray(self.likelihood.terms(eta, self.y))

    def slope(self, eta: Array) -> Array:
        return np.asarray(self.likelihood.slope(eta, self.y))

    def curvature(self, eta: Array, kind: Curvature) -> Product:
        return self.likelihood.curvature(eta)

    def redrawn(self, eta: Array, weights: Array, rng: np.random.Generator) -> Self:
        return replace(self, y=self.likelihood.redraw(eta, self.y, rng, weights))

    def whitened(self, eta: Array) -> tuple[Product, Array, Array]:
        likelihood = self.likelihood
        spread = self.unit * likelihood.spread(eta)
        return likelihood.root(eta), likelihood.residual(eta, self.y), spread

    def rescaled(self, factor: float) -> Self:
        return replace(self, likelihood=rescaled(self.likelihood, factor))

    def __repr__(self) -> str:
        return repr(self.likelihood)


def rescaled(likelihood: Any, factor: float) -> Likelihood:
    """Multiply the variance of a Gaussian; no other likelihood here has a scale."""
    return Gaussian(likelihood.noise * factor)


def squared_error(y: Array, s2: float, mean_square: float) -> Canonical:
    """Gaussian outcome with the variance of a fit, which must have left residuals.

    The mean square of the outcome is weighted as the variance is.
    """
    if not s2 < np.inf:
        raise ValueError(f"The noise variance of the fit is {s2:g}: it left no degree of freedom.")
    check_noise(s2, mean_square, KNOWN)
    return Canonical(Gaussian(s2), y)


class OnePredictor(Outcome):
    """An outcome of one predictor that is no canonical likelihood; everything is (n, 1)."""

    def curvature(self, eta: Array, kind: Curvature) -> Product:
        information = self.expected(eta) if kind == "ggn" else self.observed(eta)
        return lambda u: information * u

    def whitened(self, eta: Array) -> tuple[Product, Array, Array]:
        root = np.sqrt(self.expected(eta))
        return lambda u: root * u, self.slope(eta) / (root + TINY), self.spread(eta)

    @abstractmethod
    def observed(self, eta: Array) -> Array:
        """Minus the second derivative of the terms."""

    @abstractmethod
    def expected(self, eta: Array) -> Array:
        """Its expectation over y, never negative."""

    @abstractmethod
    def spread(self, eta: Array) -> Array:
        """Standard deviation of y, up to a factor."""


@dataclass(frozen=True, eq=False)
class Probit(OnePredictor):
    """A 0/1 outcome y, (n,), with probability ``Phi(eta)``."""

    y: Array = field(repr=False)

    def terms(self, eta: Array) -> Array:
        return np.asarray(log_ndtr(self._sign * eta))

    def slope(self, eta: Array) -> Array:
        return self._sign * _inverse_mills(self._sign * eta)

    def observed(self, eta: Array) -> Array:
        z = self._sign * eta
        mills = _inverse_mills(z)
        return mills * (mills + z)

    def expected(self, eta: Array) -> Array:
        return _inverse_mills(eta) * _inverse_mills(-eta)

    def redrawn(self, eta: Array, weights: Array, rng: np.random.Generator) -> Self:
        if np.any(weights[weights > 0] != 1):  # the terms are not linear in y
            raise cannot_draw("a probit has no terms for means of several draws")
        return replace(self, y=(rng.random(self.y.shape) < ndtr(eta[:, 0])).astype(np.float64))

    def spread(self, eta: Array) -> Array:
        return np.asarray(np.exp((log_ndtr(eta) + log_ndtr(-eta)) / 2))

    def rescaled(self, factor: float) -> Self:
        return self

    @property
    def _sign(self) -> Array:
        return (2 * self.y - 1)[:, None]


def _inverse_mills(z: Array) -> Array:
    """Density over distribution function of the normal, also far in the tail."""
    return np.asarray(np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi))


class MeanVariance(OnePredictor):
    r"""An outcome known by its mean m(eta) and its variance V(m).

    The slope is :math:`(y - m)\, m' / V`, the expected information :math:`m'^2 / V` and the
    observed one :math:`(m'^2 - (y - m) (m'' - m'^2 V' / V)) / V`.
    """

    y: Array
    scale: float

    def slope(self, eta: Array) -> Array:
        mean = self.mean(eta)
        return (self.y - mean) * self.rise(eta, mean) * self.precision(mean)

    def observed(self, eta: Array) -> Array:
        mean = self.mean(eta)
        squared = self.rise(eta, mean) ** 2
        bend = self.turn(eta, mean) - squared * self.widening(mean)
        return (squared - (self.y - mean) * bend) * self.precision(mean)

    def expected(self, eta: Array) -> Array:
        mean = self.mean(eta)
        return np.asarray(self.rise(eta, mean) ** 2 * self.precision(mean))

    def spread(self, eta: Array) -> Array:
        return np.asarray(self.precision(self.mean(eta)) ** -0.5)

    def rescaled(self, factor: float) -> Self:
        return replace(self, scale=factor * self.scale)  # type: ignore[type-var]

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """Mean m."""

    @abstractmethod
    def rise(self, eta: Array, mean: Array) -> Array:
        """Derivative m' of the mean in eta."""

    @abstractmethod
    def turn(self, eta: Array, mean: Array) -> Array:
        """Second derivative m''."""

    @abstractmethod
    def precision(self, mean: Array) -> Array:
        """One over the variance V."""

    @abstractmethod
    def widening(self, mean: Array) -> Array:
        """Derivative of log V in the mean."""


@dataclass(frozen=True, eq=False)
class Tweedie(MeanVariance):
    r"""Half the negative deviance over the scale, for ``variance = scale * mean^power``.

    The terms are :math:`(y m^{1-p} / (1-p) - m^{2-p} / (2-p)) / \text{scale}`, with logarithms
    where an exponent is zero; the mean m is ``exp(eta)`` or ``eta``. Powers 0, 1 and 2 are the
    normal, Poisson and gamma distributions.
    """

    y: Array = field(repr=False)
    power: float
    log_link: bool
    scale: float = 1.0

    def terms(self, eta: Array) -> Array:
        mean, p = self.mean(eta), self.power
        return (self.y * _primitive(mean, -p) - _primitive(mean, 1 - p)) / self.scale

    def mean(self, eta: Array) -> Array:
        return np.exp(eta) if self.log_link else eta

    def rise(self, eta: Array, mean: Array) -> Array:
        return mean if self.log_link else np.ones_like(mean)

    def turn(self, eta: Array, mean: Array) -> Array:
        return mean if self.log_link else np.zeros_like(mean)

    def precision(self, mean: Array) -> Array:
        # mean^0 is one for a negative mean too, which the normal distribution may have.
        power = np.ones_like(mean) if self.power == 0 else mean**-self.power
        return power / self.scale

    def widening(self, mean: Array) -> Array:
        return np.zeros_like(mean) if self.power == 0 else self.power / mean

    def redrawn(self, eta: Array, weights: Array, rng: np.random.Generator) -> Self:
        dispersion = self.scale / as_counts(weights)[:, None]
        return replace(self, y=draw_tweedie(self.mean(eta), self.power, dispersion, rng))

    def pearson(self, eta: Array) -> Array:
        """Squared residuals over their variance."""
        mean = self.mean(eta)
        return np.asarray((self.y - mean) ** 2 * self.precision(mean))


def _primitive(x: Array, exponent: float) -> Array:
    """Integrate x^exponent."""
    return np.log(x) if exponent == -1 else np.asarray(x ** (exponent + 1) / (exponent + 1))
