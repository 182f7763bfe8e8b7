"""Responses whose variance is a power of their mean: normal, Poisson, gamma, Tweedie."""

from dataclasses import dataclass

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.models.glm.predictors import Response


@dataclass(frozen=True, eq=False)
class Tweedie(Response):
    r"""Half the negative deviance over the scale, for ``variance = scale * mean^power``.

    The terms are :math:`(y m^{1-p} / (1-p) - m^{2-p} / (2-p)) / \text{scale}`, with logarithms
    where an exponent is zero; the mean m is ``exp(eta)`` or ``eta``.
    """

    y: Array
    power: float
    log_link: bool
    scale: float

    def terms(self, eta: Array) -> Array:
        mean, p = self._mean(eta), self.power
        return (self.y * _primitive(mean, -p) - _primitive(mean, 1 - p)) / self.scale

    def slope(self, eta: Array) -> Array:
        mean = self._mean(eta)
        return (self.y - mean) * self._rise(mean) / self._variance(mean)

    def bend(self, eta: Array) -> Array:
        mean = self._mean(eta)
        rise, variance = self._rise(mean), self._variance(mean)
        turn = rise if self.log_link else 0.0  # second derivative of the mean in eta
        widening = self.power * rise**2 / mean
        return np.asarray(self.expected_bend(eta) - (self.y - mean) * (turn - widening) / variance)

    def expected_bend(self, eta: Array) -> Array:
        mean = self._mean(eta)
        return self._rise(mean) ** 2 / self._variance(mean)

    def pearson(self, eta: Array) -> Array:
        """Squared residuals over their variance, (n,)."""
        mean = self._mean(eta)
        return (self.y - mean) ** 2 / self._variance(mean)

    def _mean(self, eta: Array) -> Array:
        return np.exp(eta) if self.log_link else eta

    def _rise(self, mean: Array) -> Array:
        return mean if self.log_link else np.ones_like(mean)

    def _variance(self, mean: Array) -> Array:
        # mean^0 is one for a negative mean too, which the normal distribution may have.
        return self.scale * (np.ones_like(mean) if self.power == 0 else mean**self.power)


def _primitive(x: Array, exponent: float) -> Array:
    """Integrate x^exponent."""
    return np.log(x) if exponent == -1 else np.asarray(x ** (exponent + 1) / (exponent + 1))
