"""Contrasts of two averages: difference, ratio, odds ratio, their logarithms, with derivatives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError


@dataclass(frozen=True)
class Contrast:
    """A function of two averages, high and low, with its partial derivatives.

    `sign` is how it is written between the two, `words` how it is told of ``{high}`` and ``{low}``,
    and `refuse` says which averages have none. `scale` is that of its intervals and tests: "log"
    for ratios, which are never negative and without effect at 1.
    """

    sign: str
    words: str
    value: Callable[[Array, Array], Array]
    partials: Callable[[Array, Array], tuple[Array, Array]]
    refuse: Callable[[Array], bool] = lambda average: False
    reason: str = ""
    scale: str = ""

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


def _lnoddsratio(high: Array, low: Array) -> Array:
    return np.asarray(logit(high) - logit(low))


def _lnoddsratio_partials(high: Array, low: Array) -> tuple[Array, Array]:
    return 1 / (high * (1 - high)), -1 / (low * (1 - low))


def _not_positive(average: Array) -> bool:
    return bool(np.any(average <= 0))


def _no_probability(average: Array) -> bool:
    return bool(np.any((average <= 0) | (average >= 1)))


POSITIVE = 'a ratio needs averages above zero. Use how="difference".'
PROBABILITY = (
    "odds are those of a probability between 0 and 1, of a logit or another model of a 0/1 "
    'outcome. Use how="ratio" for means of counts or amounts, or how="difference".'
)

DIVIDED, OF_ODDS = "{high}, divided by the same {low}", "odds of the {high}, divided by those {low}"

CONTRASTS = {
    "difference": Contrast("{} - {}", "{high}, minus the same {low}", _difference, _unit),
    "ratio": Contrast("{} / {}", DIVIDED, _ratio, _ratio_partials, _not_positive, POSITIVE, "log"),
    "lnratio": Contrast(
        "ln({} / {})",
        f"logarithm of a ratio: {DIVIDED}",
        _lnratio,
        _lnratio_partials,
        _not_positive,
        POSITIVE,
    ),
    "oddsratio": Contrast(
        "odds({}) / odds({})",
        OF_ODDS,
        _oddsratio,
        _oddsratio_partials,
        _no_probability,
        PROBABILITY,
        "log",
    ),
    "lnoddsratio": Contrast(
        "ln(odds({}) / odds({}))",
        f"logarithm of an odds ratio: {OF_ODDS}",
        _lnoddsratio,
        _lnoddsratio_partials,
        _no_probability,
        PROBABILITY,
    ),
}
