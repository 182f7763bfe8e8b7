"""Moments of rows that live apart: joined, they are those of all rows."""

from typing import NamedTuple

import numpy as np

from implicit_delta.core.types import Array

MOST_COLUMNS = 500  # whose products are 2 MB; of more the rows themselves are smaller


class Moments(NamedTuple):
    """Sums of rows (m, K): their number and mean, products of deviations, and range.

    `flat` tells whether each row is a number, and no array of K; products of very many columns are
    left out, (0, 0).
    """

    rows: int
    mean: Array
    products: Array
    low: Array
    high: Array
    flat: bool

    @classmethod
    def of(cls, rows: Array) -> "Moments":
        """Add up rows, (m,) or (m, K)."""
        values = rows[:, None] if rows.ndim == 1 else rows
        mean = values.sum(axis=0) / max(len(rows), 1)
        away = values - mean
        products = away.T @ away if mean.size <= MOST_COLUMNS else np.zeros((0, 0))
        low, high = values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)
        return cls(len(rows), mean, products, low, high, rows.ndim == 1)

    def joined(self, other: "Moments") -> "Moments":
        """Join two sets of rows (Chan, Golub and LeVeque, 1979)."""
        if (self.flat, self.mean.size) != (other.flat, other.mean.size):
            raise ValueError(
                "h(model, part) must return one value per row of the part, (m,) or (m, K) with the "
                f"same K for all: it returned {self.mean.size} and {other.mean.size} columns."
            )
        if not self.rows or not other.rows:
            return self if self.rows else other
        count, gap = self.rows + other.rows, other.mean - self.mean
        return Moments(
            count,
            self.mean + gap * (other.rows / count),
            self.products + other.products + _between(self, gap, other.rows),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.flat,
        )


def _between(own: Moments, gap: Array, others: int) -> Array:
    """Products of the deviations of two means from that of all."""
    if own.products.size == 0:
        return own.products
    return np.asarray(np.outer(gap, gap) * (own.rows * others / (own.rows + others)))
