"""Sums over blocks of derivatives of terms: functions that travel to where the rows are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.types import Array


@dataclass(frozen=True)
class Outer:
    """Outer products of influences, (b, k) to (k, k)."""

    def __call__(self, block: Array, counts: Array, factors: Array) -> Array:
        rows = factors[:, None] * block
        return np.asarray((counts[:, None] * rows).T @ rows)


@dataclass(frozen=True)
class SumsWithin:
    """Sums of influences within clusters, (b, k) to (G, k); rows without weight have none."""

    count: int

    def __call__(
        self, block: Array, counts: Array, factors: Array, codes: NDArray[np.intp]
    ) -> Array:
        sums = np.zeros((self.count + 1, block.shape[1]))  # the last for rows without weight
        np.add.at(sums, codes, (counts * factors)[:, None] * block)
        return sums[:-1]
