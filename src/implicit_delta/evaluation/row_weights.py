"""Sampling error of a statistic, from weights of its rows and without another training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.average import Sampling
from implicit_delta.linalg.arrays import ratio

OfWeights: TypeAlias = Callable[[Array], Array]  # (m,) to (K,)

STEP = 0.25  # of a weight: a small step in the whole, and far beyond rounding in single precision
MOST_SLOPES = 2000  # rows or clusters: beyond, draws of the weights are cheaper
DRAWS = 400  # of the weights: a standard error to 4 %
SPLITS = 32  # of the rows into halves
APART = 0.9  # of the weights of a half: no row, class or group is ever without any
BENT = 0.25  # of the variance over weights of halves, that the derivative does not explain
SEED = 0


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows that are weighted together: codes (m,) from 0 to `count`, which is that of none."""

    codes: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, weight: Array, clusters: Clusters | None = None) -> "Groups":
        """Take clusters, or each row with a weight alone."""
        if clusters is not None:
            return cls(clusters.codes, clusters.count)
        present = weight > 0
        count = int(present.sum())
        return cls(np.where(present, np.cumsum(present) - 1, count), count)

    def halves(self) -> Array:
        """Factors of one half of the groups, many times, (S, G); the other half has 2 less them."""
        signs = np.where(np.arange(self.count) % 2, 1.0, -1.0)
        rng = np.random.default_rng(SEED)
        return np.array([1 + APART * rng.permutation(signs) for _ in range(SPLITS)])

    def spread(self, factors: Array) -> Array:
        """Give each row the factor of its group: (G,) to (m,)."""
        return np.append(factors, 1.0)[self.codes]


def sampling_of_statistic(
    function: OfWeights, weight: Array, clusters: Clusters | None
) -> tuple[Sampling, str, Array | None]:
    """Find the error from the sampling of rows or clusters, and name the way it was found.

    With the share of each row in it, (m, K), if these are independent and their slopes are known.
    """
    groups = Groups.of(weight, clusters)
    df = np.inf if clusters is None else groups.count - 1.0
    if groups.count <= MOST_SLOPES:
        slopes = slopes_in_weights(function, weight, groups)
        if _is_smooth(function, weight, groups, slopes):
            deviations = slopes - slopes.mean(axis=0)
            factor = groups.count / (groups.count - 1)
            shares = deviations if clusters is None else None
            V = factor * deviations.T @ deviations
            return Sampling(V, df), "infinitesimal jackknife", shares
    draws = _drawn(function, weight, groups)
    # Dirichlet weights of G groups give a mean (G - 1) / (G + 1) times its unbiased variance.
    factor = (groups.count + 1) / (groups.count - 1)
    covariance = factor * np.atleast_2d(np.cov(draws, rowvar=False))
    return Sampling(covariance, df), f"bootstrap of weights ({DRAWS} draws, seed {SEED})", None


def slopes_of_rows(function: OfWeights, weight: Array) -> Array:
    """Derivative of T in the weight of each row, times that weight, (m, K); zero without weight.

    These are influences of rows, so that a function which moves in steps is refused.
    """
    groups = Groups.of(weight)
    slopes = slopes_in_weights(function, weight, groups)
    if not _is_smooth(function, weight, groups, slopes):
        raise EvaluationError(
            "The statistic moves in steps when the weights of rows change, as a quantile does, or "
            "has kinks there, so that the influence of a training row on it is not known. Use "
            'sample="unknown", an upper bound, or rows that were held out.'
        )
    rows = np.zeros((weight.size, slopes.shape[1]))
    rows[weight > 0] = slopes
    return rows


def slopes_in_weights(function: OfWeights, weight: Array, groups: Groups) -> Array:
    """Derivative of T in a factor on the weights of each group, (G, K), by central differences."""

    def slope(g: int) -> Array:
        step = STEP * (groups.codes == g)
        ends = function(weight * (1 + step)), function(weight * (1 - step))
        return (ends[0] - ends[1]) / (2 * STEP)

    with progress("rows", total=groups.count, unit="row") as bar:
        slopes = []
        for g in range(groups.count):
            slopes.append(slope(g))
            bar.update()
    return np.array(slopes)


def _is_smooth(function: OfWeights, weight: Array, groups: Groups, slopes: Array) -> bool:
    """Whether the derivative holds for weights that change as much as sampling changes them.

    Between two halves of the rows the squares of a smooth T cancel. The cubes leave a share of the
    variance of order 1/G^2 that the derivative misses, with G rows; steps of a quantile leave one
    of order G^(-1/2), and its derivative is that of one gap between rows. The limit is 1/G, the
    order of what any jackknife leaves out, with the number of rows that carry T for G.
    """
    halves = groups.halves()
    ends = np.array([[function(weight * groups.spread(x)) for x in (f, 2 - f)] for f in halves])
    if not np.any(slopes) and not np.any(np.ptp(ends, axis=(0, 1))):
        _refuse_unweighted()
    line = (halves - 1) @ slopes
    rest = np.var(np.concatenate([ends[:, 0] - line, ends[:, 1] + line]), axis=0)
    bent = ratio(rest, np.var(ends, axis=(0, 1)))
    odd = (ends[:, 0] - ends[:, 1]) / 2
    missed = ratio(np.sum((odd - line) ** 2, axis=0), np.sum(odd**2, axis=0))
    squares = (slopes - slopes.mean(axis=0)) ** 2
    carried = ratio(np.sum(squares, axis=0) ** 2, np.sum(squares**2, axis=0))
    return bool(np.all((bent <= BENT) & (missed * carried <= 1)))


def _refuse_unweighted() -> NoReturn:
    raise EvaluationError(
        "function of the Statistic returns the same number whatever the weights of the rows are. "
        "Either it ignores its second argument, which must count the rows (pass it on as "
        "`sample_weight=weight`, or use `np.average(..., weights=weight)`), or no row differs from "
        "another, and there is no sampling error to estimate."
    )


def _drawn(function: OfWeights, weight: Array, groups: Groups) -> Array:
    """Evaluate at Dirichlet factors of the groups, (B, K)."""
    factors = np.random.default_rng(SEED).standard_exponential((DRAWS, groups.count))
    factors /= factors.mean(axis=1, keepdims=True)
    return np.array([function(weight * groups.spread(row)) for row in factors])
