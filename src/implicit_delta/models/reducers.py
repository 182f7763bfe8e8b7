"""Sums over blocks of derivatives of terms: functions that travel to where the rows are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array

Piece = tuple[NDArray[np.intp], Array]  # codes, (g,), and sums, (g, k)


@dataclass(frozen=True)
class Outer:
    """Outer products of influences, (b, k) to (k, k)."""

    def __call__(self, block: Array, counts: Array, factors: Array) -> Array:
        rows = factors[:, None] * block
        return np.asarray((counts[:, None] * rows).T @ rows)


@dataclass(frozen=True)
class SumsWithin:
    """Sums of influences within clusters, (b, k) to `ClusterSums`.

    Codes from `count` on are those of rows without weight, which have none.
    """

    count: int

    def __call__(
        self, block: Array, counts: Array, factors: Array, codes: NDArray[np.intp]
    ) -> "ClusterSums":
        kept = codes < self.count
        rows = (counts * factors)[kept, None] * block[kept]
        return ClusterSums((_added([(codes[kept], rows)]),))


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums by cluster, of those that some rows have: what travels grows with these alone.

    A cluster may be in several pieces; they are added up when there are as many rows in the others
    as in the first.
    """

    pieces: tuple[Piece, ...]

    def __add__(self, other: "ClusterSums") -> "ClusterSums":
        pieces = (*self.pieces, *other.pieces)
        first, *rest = (codes.size for codes, _ in pieces)
        return ClusterSums(pieces if sum(rest) < first else (_added(pieces),))

    def __radd__(self, zero: Any) -> "ClusterSums":
        return self

    @property
    def nbytes(self) -> int:
        return sum(codes.nbytes + sums.nbytes for codes, sums in self.pieces)

    def outer(self) -> Array:
        """Sum of the outer products of the clusters' sums, (k, k)."""
        _, sums = _added(self.pieces)
        return np.asarray(sums.T @ sums)


def _added(pieces: "list[Piece] | tuple[Piece, ...]") -> Piece:
    """Add up the rows of each code."""
    codes, places = np.unique(np.concatenate([own for own, _ in pieces]), return_inverse=True)
    sums = np.zeros((codes.size, pieces[0][1].shape[1]))
    np.add.at(sums, places, np.concatenate([rows for _, rows in pieces]))
    return codes, sums


def scatter_of(rows: Array, counts: Array, clusters: Clusters | None = None) -> Array:
    """Sum outer products of rows (n, k), or of their sums within clusters, to (k, k)."""
    if clusters is None:
        return np.asarray((counts[:, None] * rows).T @ rows)
    sums = clusters.sums(counts[:, None] * rows)
    return np.asarray(sums.T @ sums)
