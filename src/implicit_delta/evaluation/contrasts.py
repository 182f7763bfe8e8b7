"""Contrasts of two averages: difference, ratio, log ratio, odds ratio, with derivatives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError


@dataclass(frozen=True)
class Contrast:
    """A function of two averages, high and low, with its partial derivatives.

    `sign` is how it is written between the two, and `refuse` says which averages have none.
    """

    sign: str
    value: Callable[[Array, Array], Array]
    partials: Callable[[Array, Array], tuple[Array, Array]]
    refuse: Callable[[Array], bool] = lambda average: False
    reason: str = ""

    def check(self, high: Array, low: Array) -> None:
        """Refuse averages that the contrast is not defined for."""
        for average in (high, low):
            if self.refuse(average):
                worst = average[np.argmax([self.refuse(one) for one in average])]
                raise EvaluationError(f"An average prediction is {worst:.4g}: {self.reason}")


def _difference(high: Array, low: Array) -> Array:
    return high - low


def _unit(high: Array, low: Array) -> tuple[Array, Array]:
    return np.ones_like(high), -np.ones_like(low)


def _ratio(high: Array, low: Array) -> Array:
    return high / low


def _ratio_partials(high: Array, low: Array) -> tuple[Array, Array]:
    return 1 / low, -high / low**2


def _lnratio(high: Array, low: Array) -> Array:
    return np.asarray(np.log(high) - np.log(low))


def _lnratio_partials(high: Array, low: Array) -> tuple[Array, Array]:
    return 1 / high, -1 / low


def _oddsratio(high: Array, low: Array) -> Array:
    return high / (1 - high) / (low / (1 - low))


def _oddsratio_partials(high: Array, low: Array) -> tuple[Array, Array]:
    value = _oddsratio(high, low)
    return value / (high * (1 - high)), -value / (low * (1 - low))


def _not_positive(average: Array) -> bool:
    return bool(np.any(average <= 0))


def _no_probability(average: Array) -> bool:
    return bool(np.any((average <= 0) | (average >= 1)))


POSITIVE = 'a ratio needs averages above zero. Use how="difference".'
PROBABILITY = (
    "odds are those of a probability between 0 and 1, of a logit or another model of a 0/1 "
    'outcome. Use how="ratio" for means of counts or amounts, or how="difference".'
)

CONTRASTS = {
    "difference": Contrast("{} - {}", _difference, _unit),
    "ratio": Contrast("{} / {}", _ratio, _ratio_partials, _not_positive, POSITIVE),
    "lnratio": Contrast("ln({} / {})", _lnratio, _lnratio_partials, _not_positive, POSITIVE),
    "oddsratio": Contrast(
        "odds({}) / odds({})", _oddsratio, _oddsratio_partials, _no_probability, PROBABILITY
    ),
}
