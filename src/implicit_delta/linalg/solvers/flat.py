"""Factorization of a matrix that is flat along some directions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.arrays import Operator, flat_along
from implicit_delta.linalg.solvers.base import NEGLIGIBLE, UNSEEN
from implicit_delta.linalg.solvers.factor import (
    FLAT,
    Factor,
    not_positive,
    try_to_factorize,
    unit_diagonal,
)

# All eigenvalues are those of the matrix scaled to a diagonal of one.
SMALL = 1e-3  # larger ones are regular, whatever the rounding
# A symmetry of the objective, such as a rotation between two factors of a product, bends its flat
# directions in proportion to what is left of the gradient: by 1e-6 after an ordinary training in
# double precision, by 1e-5 in single.
SADDLE = -1e-4
INDISTINCT = 10.0  # times the rounding, or the most negative eigenvalue: not told from zero
MOST_CHECKED = 16  # directions along which the rounding in products is measured


@dataclass(frozen=True)
class FlatFactor:
    """Factorization of a matrix whose flat directions have been given a curvature of one.

    Parameters
    ----------
    factor : Factor
        Of the matrix with that curvature added.
    absent : array (d,) of bool
        The parameters whose row is exactly zero.
    directions : array (d, m)
        The other flat directions: orthonormal eigenvectors of the scaled matrix.
    curvatures : array (m,)
        Their eigenvalues.
    error : float
        What an eigenvalue may be off by: the rounding in products, or the most negative one.

    Examples
    --------
    >>> A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    >>> flat = factorize_flat(A, lambda v: A @ v)
    >>> flat.count, flat.solve(np.array([[1.0], [1.0], [0.0]])).ravel().round(6)
    (2, array([0.5, 0.5, 0. ]))
    """

    factor: Factor
    absent: NDArray[np.bool_]
    directions: Array
    curvatures: Array
    error: float

    @property
    def count(self) -> int:
        """The number of flat directions."""
        return int(self.absent.sum()) + self.curvatures.size

    def solve(self, b: Array) -> Array:
        """Return ``A^+ b`` for (d, K), without its part along the flat directions."""
        scale = self.factor.scale[:, None]
        x = self.factor.solve(self._cut(scale * b) / scale)
        return np.asarray(scale * self._cut(x / scale))

    def half_transpose(self, b: Array) -> Array:
        """Return ``L^-1`` times the rest of b, (d, K): its squared lengths are ``b' A^+ b``."""
        scale = self.factor.scale[:, None]
        return self.factor.half_transpose(self._cut(scale * b) / scale)

    def half(self, z: Array) -> Array:
        """Return a root of ``A^+`` times z, (d, K)."""
        scale = self.factor.scale[:, None]
        return np.asarray(scale * self._cut(self.factor.half(z) / scale))

    def smallest_curvature(self) -> float:
        """Return the smallest ``v' A v / v' v`` over the flat directions."""
        steps = self.factor.scale[:, None] * self.directions
        curvatures = self.curvatures / np.einsum("dm,dm->m", steps, steps)
        return float(curvatures.min(initial=0.0 if self.absent.any() else np.inf))

    def rise(self, slope: Array, reach: Array) -> float:
        """Return how much a function with this slope, (d,), rises at most along them.

        Steps have the length over which a curvature of the diagonal makes a difference of one
        half, or that of ``reach``, (d,), for a parameter without any.
        """
        along = np.abs(self.directions.T @ (self.factor.scale * slope))
        return max(
            float(values.max(initial=0.0))
            for values in (along, self.absent * np.abs(slope * reach))
        )

    def seen(self, b: Array) -> NotAMaximumError | None:
        """Describe what a column of b, (d, K), notices of them; None if that is nothing."""
        needed = self.absent & np.any(b != 0, axis=1)
        if needed.any():
            return flat_along(needed.astype(float), 0.0)
        scaled = self.factor.scale[:, None] * b
        parts = self.directions.T @ scaled
        curvatures = np.maximum(np.abs(self.curvatures), self.error)
        weights = np.sum(parts**2 / curvatures[:, None], axis=0)
        long = np.linalg.norm(parts, axis=0) > UNSEEN * np.linalg.norm(scaled, axis=0)
        quadratic = np.sum(self.half_transpose(b) ** 2, axis=0)
        seen = np.flatnonzero(long & (weights > NEGLIGIBLE * quadratic))
        return self._error(parts[:, seen]) if seen.size else None

    def _error(self, parts: Array) -> NotAMaximumError:
        """Describe the flat directions that columns of b lie along: the first, and who moves."""
        moves = self.directions @ (parts / np.linalg.norm(parts, axis=0))
        part, direction = parts[:, 0], moves[:, 0]
        value = float(self.curvatures @ part**2 / (part @ part))
        step = self.factor.scale * direction
        curvature = value / float(step @ step)
        if value > -FLAT:
            return flat_along(step, curvature, np.abs(moves).max(axis=1))
        return NotAMaximumError.saddle(curvature)

    def _cut(self, scaled: Array) -> Array:
        return np.asarray(scaled - self.directions @ (self.directions.T @ scaled))


def stiffened(matrix: Array) -> Factor:
    """Factorize a symmetric matrix (d, d), with a curvature of one along flat directions.

    Raises
    ------
    NotAMaximumError
        The matrix has a negative eigenvalue.
    """
    return try_to_factorize(matrix) or factorize_flat(matrix, lambda v: matrix @ v).factor


def factorize_flat(matrix: Array, operator: Operator) -> FlatFactor:
    """Factorize a symmetric matrix (d, d) with flat directions.

    Raises
    ------
    NotAMaximumError
        The matrix has an eigenvalue that is not merely zero to working precision but negative.
    """
    absent = np.logical_not(matrix.any(axis=1))
    filled = matrix + np.diag(absent)
    scale, scaled = unit_diagonal(filled)
    values, vectors = eigh(scaled, subset_by_value=(-np.inf, SMALL), check_finite=False)
    lowest = float(values.min(initial=0.0))
    if lowest < SADDLE:
        raise not_positive(matrix)
    some = slice(MOST_CHECKED)
    noise = product_noise(operator, scale, vectors[:, some], vectors[:, some] * values[some])
    error = max(noise, -lowest)
    flat = values < max(FLAT, INDISTINCT * error)
    directions = vectors[:, flat]
    triangle = np.linalg.cholesky(scaled + directions @ directions.T)
    return FlatFactor(Factor(scale, triangle), absent, directions, values[flat], error)


def product_noise(operator: Operator, scale: Array, vectors: Array, images: Array) -> float:
    """Measure how far new products with the scaled matrix are from the images that it gave."""
    least = float(np.finfo(float).eps) * scale.size
    if not vectors.size:
        return least
    change = scale[:, None] * operator(scale[:, None] * vectors) - images
    return max(least, float(np.linalg.norm(change, axis=0).max()))
