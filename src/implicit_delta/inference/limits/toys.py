"""Tail probabilities of the statistic of a limit, by data that are enumerated or simulated."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtrik, xlogy

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.inference.limits.inversion import Inversion
from implicit_delta.inference.limits.statistic import Fit, Statistic
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.redraws import redraw

LEFT_OUT = 1e-30, 1e-9  # probability of the low and the high counts that a sum leaves out; the
# low ones decide, by a ratio of probabilities, where there are far fewer than the background alone
FEWER = 4  # times data without a signal: their probability is larger, and its relative error small
SAME = 1e-6  # of a deviance, or of 1: by how much fits to equal data differ

CANNOT = (
    "method={method!r} draws data from the model, and this one cannot. Use "
    '`method="likelihood"` or `method="cls"`, which are asymptotic; or a model that can draw: '
    "`from_loglik(..., simulate=lambda theta, rng: ...)`, `from_residuals` with a known "
    "`variance=`, a GLM of `from_statsmodels` or `from_sklearn`, or a likelihood such as "
    "`Poisson()` with `from_torch` and `from_jax`."
)


class Tail(NamedTuple):
    """Probability of a statistic that is at least as large as the one observed, and its error."""

    value: float
    error: float


class Counts(NamedTuple):
    """Means of the Poisson counts that are drawn, and whether nothing else is random."""

    means: Array
    alone: bool

    @classmethod
    def of(cls, model: FittedModel, theta: Array) -> "Counts":
        """Draw once, and once more with counts that are given."""
        first = Inversion(0)
        drawn_from(model, theta, first)
        if not first.means:
            return cls(np.zeros(0), False)
        means = np.concatenate(first.means)
        second = Inversion(0, forced=np.ceil(means).astype(np.int64))
        before = second.bit_generator.state
        try:
            drawn_from(model, theta, second)
        except UnsupportedModelError:  # too many events for this number of rows
            return cls(means, False)
        again = np.concatenate(second.means)
        alone = again.shape == means.shape and np.array_equal(again, means)
        return cls(means, alone and second.bit_generator.state == before)


def drawn_from(model: FittedModel, theta: Array, rng: np.random.Generator) -> FittedModel:
    """Draw data from the model at other parameters."""
    return redraw(model.at(theta), rng)


@dataclass(frozen=True, eq=False)
class Toys:
    """Data from the model, and how often their statistic is as large as the one observed.

    Where Poisson counts are all that is random, and they have no more likely values together than
    twice the number of data sets to draw, the probabilities are sums over all these values.
    Otherwise data are drawn in antithetic pairs, at all parameters from the same random numbers.

    Attributes
    ----------
    statistic : Statistic
    number : int
        Of data sets to draw.
    seed : int
    fits : dict
        Free fits to counts that were enumerated.
    """

    statistic: Statistic
    number: int
    seed: int
    fits: dict[bytes, Fit] = field(default_factory=dict)

    def tails(self, psi: float, observed: float, truths: Sequence[Fit]) -> list[Tail]:
        """Probabilities at a fit where psi has this value, which comes first, and at others."""
        at, model = truths[0].theta, self.statistic.model
        counts = [Counts.of(model, truth.theta) for truth in truths]
        if all(count.alone for count in counts):
            means = np.array([count.means for count in counts])
            values = likely_counts(means, 2 * self.number)
            if values is not None:
                return self._summed(psi, observed, at, values, means)
        numbers = (self.number, self.number // FEWER)
        drawn = zip(truths, numbers, strict=False)
        return [self._drawn(psi, observed, at, truth.theta, count) for truth, count in drawn]

    def _summed(
        self, psi: float, observed: float, at: Array, values: NDArray[np.int64], means: Array
    ) -> list[Tail]:
        rows = means[:, None, :]
        chances = np.exp((xlogy(values, rows) - rows - gammaln(values + 1)).sum(axis=2))
        matter = chances.max(axis=0) > LEFT_OUT[0]
        extreme = np.array([self._is_extreme(psi, observed, at, v) for v in values[matter]])
        return [Tail(float(p @ extreme), 0.0) for p in chances[:, matter]]

    def _is_extreme(self, psi: float, observed: float, at: Array, v: NDArray[np.int64]) -> bool:
        data = drawn_from(self.statistic.model, at, Inversion(0, forced=v))
        key = v.tobytes()
        if key not in self.fits:
            self.fits[key] = self.statistic.free(data, at)
        return self._exceeds(psi, observed, at, data, self.fits[key])

    def _drawn(self, psi: float, observed: float, at: Array, truth: Array, number: int) -> Tail:
        pairs = np.zeros(max(number // 2, 2))
        for k in range(pairs.size):
            for mirrored in (False, True):
                rng = Inversion([self.seed, k], mirrored)
                data = drawn_from(self.statistic.model, truth, rng)
                free = self.statistic.free(data, at)
                pairs[k] += self._exceeds(psi, observed, at, data, free) / 2
        return Tail(float(pairs.mean()), float(pairs.std(ddof=1) / np.sqrt(pairs.size)))

    def _exceeds(
        self, psi: float, observed: float, at: Array, data: FittedModel, free: Fit
    ) -> bool:
        """Whether a statistic is as large as observed; psi is fitted only where that decides."""
        least = observed - SAME * (1 + observed)
        if self.statistic.sign * (free.psi - psi) >= 0:
            return least <= 0
        if 2 * (free.value - objective_of(data).objective(at)) < least:
            return False
        return self.statistic.deviance(psi, free, self.statistic.at(psi, data, at)) >= least


def likely_counts(means: Array, most: int) -> NDArray[np.int64] | None:
    """All values of counts that are likely under one of some means, (., m), if they are few."""
    with np.errstate(all="ignore"):
        low, high = (
            np.where(means > 0, pdtrik(p, means), 0) for p in (LEFT_OUT[0], 1 - LEFT_OUT[1])
        )
    first = np.floor(np.nan_to_num(low).min(axis=0))
    last = np.ceil(high.max(axis=0)) + 1
    if np.prod(last - first + 1) > most:
        return None
    axes = [np.arange(a, b + 1, dtype=np.int64) for a, b in zip(first, last, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def effective_events(near: Array, far: Array) -> float:
    r"""Count the events that decide between two vectors of means.

    With :math:`c_i` the relative change of a mean it is
    :math:`(\sum c_i^2 \nu_i)^2 / \sum c_i^4 \nu_i`: the mean itself of a single count.
    """
    change = np.where(far > 0, far - near, 0) / np.where(far > 0, far, 1)
    strong = change**2 @ far
    return float(strong**2 / (change**4 @ far)) if strong > 0 else 0.0
