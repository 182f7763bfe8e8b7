"""Effective sample size and split R-hat of draws from Markov chains, one after the other."""

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.numerics.arrays import ratio


def effective_sizes(series: Array) -> Array:
    r"""Return how many independent draws have means as certain as those of series (S, K): (K,).

    :math:`S / (1 + 2 \sum_t \rho_t)`, with the sum over pairs of autocorrelations as long as these
    are positive, and not increasing (Geyer 1992, initial monotone sequence). Chains that differ in
    their means are correlated over their whole length, and count as few.
    """
    return np.array([_effective_size(column) for column in series.T])


def _effective_size(column: Array) -> float:
    S = column.size
    away = column - column.mean()
    spectrum = abs(np.fft.rfft(away, 2 * S)) ** 2  # with zeros, so that the end meets no start
    products = np.fft.irfft(spectrum, 2 * S)[: S - S % 2]
    pairs = (ratio(products, products[0])).reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: ends[0] if ends.size else None])
    return float(S / max(2 * kept.sum() - 1, 1 / S))


def split_rhat(series: Array, blocks: int) -> Array:
    """Compare the means of equal blocks of series (S, K) with the spread within: (K,), 1 if alike.

    Gelman and Rubin's potential scale reduction, where each block stands for a chain.
    """
    size = len(series) // blocks
    parts = series[: size * blocks].reshape(blocks, size, -1)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    # Blocks that never move have no spread within: infinitely far apart, unless they are equal.
    apart = ratio(between, within, otherwise=np.inf)
    return np.asarray(np.sqrt((size - 1) / size + np.where(between > 0, apart, 1 / size)))
