"""Orthonormal vectors that are kept to stay orthogonal to, as far as they fit in memory."""

from typing import Any

import numpy as np

from implicit_delta.core.types import Array

MEMORY = 2**28  # bytes of all vectors kept, by default
TOGETHER = 16  # rows allocated at a time
FEWEST = 8  # vectors that save as much as they cost


class Basis:
    """The first vectors of a Krylov space, as rows.

    Rounding brings back the eigenvectors that are found first, those of the largest eigenvalues,
    and each of them costs steps anew. It is these that the first vectors span: 20 of them saved
    nine in ten of the steps that all together saved, on networks in either precision.
    """

    def __init__(self, most: int, d: int, kind: Any) -> None:
        self.most, self.shape, self.kind = min(most, d), (min(most, d, TOGETHER), d), kind
        self.count, self.blocks = 0, list[Array]()

    def append(self, vector: Array, size: float) -> None:
        """Keep a vector of this length, if there is room."""
        if self.count == self.most or not size > 0:
            return
        block, row = divmod(self.count, TOGETHER)
        if row == 0:
            self.blocks.append(np.empty(self.shape, dtype=self.kind))
        np.divide(vector, size, out=self.blocks[block][row], casting="same_kind")
        self.count += 1

    def clean(self, vector: Array) -> None:
        """Take out of a vector, in place, what it has of those that are kept."""
        for k, block in enumerate(self.blocks):
            rows = block[: self.count - k * TOGETHER]
            vector -= (rows @ vector) @ rows


def room(memory: int, d: int, K: int, kind: Any) -> int:
    """Vectors of d numbers for each of K bases; none if there would be few of them."""
    most = int(memory // (np.dtype(kind).itemsize * max(1, d * K)))
    return most if most >= min(FEWEST, d) else 0
