"""Curvature of the log-likelihood in the outputs of each row, by eigenvalues.

Of a classifier that is sure of most rows, nearly all of them are next to nothing.
"""

from dataclasses import dataclass

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Likelihood

# Of the sum of all eigenvalues, for one evaluation. On the satellite data (36-50-6, l2 = 1) a tenth
# of the directions has the rest, and what is left out takes a dozen products to make up for.
NEGLIGIBLE = 0.02
PADDED = 128  # directions are filled up with zeros: JAX compiles for few numbers of them


@dataclass(frozen=True)
class OutputCurvature:
    r"""Eigenvalues (b, C) and eigenvectors (b, C, C) of :math:`w_i H_i`."""

    values: Array
    vectors: Array

    @classmethod
    def of(
        cls, likelihood: Likelihood, outputs: Array, targets: Array, weights: Array
    ) -> "OutputCurvature":
        """Decompose the curvature of b rows in NumPy: the likelihoods are the same there."""
        rows, count = len(outputs), outputs[0].size
        basis = np.eye(count).reshape(count, 1, *outputs.shape[1:])
        curved = likelihood.curvature(outputs)(np.broadcast_to(basis, (count, *outputs.shape)))
        curved = np.reshape(curved * likelihood.mass(outputs, targets), (count, rows, count))
        values, vectors = np.linalg.eigh(weights[:, None, None] * np.moveaxis(curved, 0, -1))
        return cls(values, vectors)

    def above(self, cut: float) -> tuple[Array, Array]:
        """Rows (m,) and root directions (m, C) of larger eigenvalues; zeros fill them up."""
        rows, columns = np.nonzero(self.values > cut)
        roots = np.sqrt(self.values[rows, columns])[:, None] * self.vectors[rows, :, columns]
        missing = -len(rows) % PADDED
        return np.pad(rows, (0, missing)), np.pad(roots, ((0, missing), (0, 0)))


def negligible_below(values: Array, columns: int) -> float:
    """Return the largest eigenvalue such that those up to it have a negligible sum.

    The less is left out the more columns there are to make up for it.
    """
    ascending = np.sort(np.maximum(values, 0.0), axis=None)
    allowed = NEGLIGIBLE / columns * ascending.sum()
    count = np.searchsorted(np.cumsum(ascending), allowed, side="right")
    return float(ascending[count - 1]) if count else 0.0
