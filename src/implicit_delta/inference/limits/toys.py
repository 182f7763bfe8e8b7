"""Tail probabilities of the statistic of a limit, by data that are enumerated or simulated."""

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

LEFT_OUT = 1e-9  # probability of each tail of a count whose values are listed
REST = 1e-8  # of a tail probability, that values which are not looked at may add to it
FEWER = 4  # times data without a signal: their probability is larger, its relative error smaller
SAME = 1e-6  # of a deviance, or of 1: by how much fits to equal data differ


class Tail(NamedTuple):
    """Probability of a statistic at least as large as the one observed, and its error."""

    value: float
    error: float


def drawn_from(model: FittedModel, theta: Array, rng: np.random.Generator) -> FittedModel:
    """Draw data from the model at other parameters."""
    return redraw(model.at(theta), rng)


def poisson_means(model: FittedModel, theta: Array) -> tuple[Array, bool]:
    """Means of the Poisson counts that are drawn, and whether nothing else is random."""
    drawn_from(model, theta, first := Inversion(0))
    means = np.concatenate([np.zeros(0), *first.means])
    second = Inversion(0, forced=np.ceil(means).astype(np.int64))
    before = second.bit_generator.state
    try:
        drawn_from(model, theta, second)
    except UnsupportedModelError:  # another number of events than rows
        return means, False
    same = np.array_equal(np.concatenate([np.zeros(0), *second.means]), means)
    return means, bool(means.size) and same and second.bit_generator.state == before


def likely_counts(means: Array, most: int) -> NDArray[np.int64] | None:
    """List values (., m) of counts that are likely with some of the means (k, m), if few."""
    last = np.ceil(pdtrik(1 - LEFT_OUT, np.maximum(means, LEFT_OUT))).max(axis=0) + 1
    if np.prod(last) > 20 * most:
        return None
    axes = np.meshgrid(*map(np.arange, last), indexing="ij")
    values = np.stack(axes, axis=-1).reshape(-1, last.size).astype(np.int64)
    return values if np.sum(chances(values, means).max(axis=0) > LEFT_OUT) <= most else None


def chances(values: NDArray[np.int64], means: Array) -> Array:
    """Probabilities (k, .) of values of counts with each of the means."""
    rows = means[:, None, :]
    return np.asarray(np.exp((xlogy(values, rows) - rows - gammaln(values + 1)).sum(axis=2)))


@dataclass(frozen=True, eq=False)
class Toys:
    """Data from the model, and how often their statistic is as large as the one observed.

    Where Poisson counts are all that is random, and have at most `number` likely values together,
    probabilities are sums over values. Otherwise `number` data sets are drawn in antithetic pairs,
    at all parameters from the same random numbers.
    """

    statistic: Statistic
    number: int
    seed: int
    fits: dict[bytes, Fit] = field(default_factory=dict)  # free ones, to values in a sum

    def values(self, truths: list[Fit]) -> tuple[NDArray[np.int64] | None, Array]:
        """Values to add up, if that is possible, and the means of counts."""
        found = [poisson_means(self.statistic.model, truth.theta) for truth in truths]
        if not all(alone for _, alone in found):
            return None, np.zeros(0)
        means = np.array([mean for mean, _ in found])
        return likely_counts(means, self.number), means

    def tails(self, psi: float, observed: float, truths: list[Fit]) -> list[Tail]:
        """Probabilities at a fit where psi has this value, which comes first, and at another."""
        at, (values, means) = truths[0].theta, self.values(truths)
        if values is not None:
            return self._summed(psi, observed, at, values, means)
        numbers = (self.number, self.number // FEWER)
        drawn = zip(truths, numbers, strict=False)
        return [self._drawn(psi, observed, at, truth.theta, count) for truth, count in drawn]

    def _summed(
        self, psi: float, observed: float, at: Array, values: NDArray[np.int64], means: Array
    ) -> list[Tail]:
        p = chances(values, means)
        order = np.argsort(-p.max(axis=0), kind="stable")
        total, rest = np.zeros(len(p)), p.sum(axis=1)
        for k in order:
            if np.all(rest <= REST * total):
                break
            data = drawn_from(self.statistic.model, at, Inversion(0, forced=values[k]))
            key = values[k].tobytes()
            if key not in self.fits:
                self.fits[key] = self.statistic.free(data, at)
            rest = rest - p[:, k]
            total = total + p[:, k] * self._exceeds(psi, observed, at, data, self.fits[key])
        return [Tail(float(probability), 0.0) for probability in total]

    def _drawn(self, psi: float, observed: float, at: Array, truth: Array, number: int) -> Tail:
        pairs = np.zeros(max(number // 2, 2))
        for k in range(2 * pairs.size):
            rng = Inversion([self.seed, k // 2], mirrored=bool(k % 2))
            data = drawn_from(self.statistic.model, truth, rng)
            free = self.statistic.free(data, at)
            pairs[k // 2] += self._exceeds(psi, observed, at, data, free) / 2
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


def effective_events(near: Array, far: Array) -> float:
    r"""Count the events that decide between two vectors of means.

    With :math:`c_i` the relative change of a mean it is
    :math:`(\sum c_i^2 \nu_i)^2 / \sum c_i^4 \nu_i`: the mean itself of a single count.
    """
    change = np.where(far > 0, far - near, 0) / np.where(far > 0, far, 1)
    strong = change**2 @ far
    return float(strong**2 / (change**4 @ far)) if strong > 0 else 0.0
