"""Cholesky factorization of a positive definite matrix, to solve many times."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, eigh, lapack, solve_triangular

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.arrays import check_finite, flat_along

FLAT = 1e-10  # eigenvalues of the unit-diagonal matrix below this are taken for zero
NORM_SLACK = 10.0  # LAPACK's estimate of a condition number is rarely off by more than 3
RITZ_VECTORS, RITZ_STEPS = 4, 8


@dataclass(frozen=True)
class Factor:
    """The factorization ``S A S = L L'``, with S diagonal so that ``S A S`` has a unit diagonal.

    The scaling makes the result independent of the units of the parameters.

    Parameters
    ----------
    scale : array (d,)
        The diagonal of S: one over the square root of the diagonal of A.
    triangle : array (d, d)
        L, lower triangular.
    margin : float
        About the smallest eigenvalue of ``S A S``, from below.

    Examples
    --------
    >>> factor = factorize(np.array([[4.0, 0.0], [0.0, 25.0]]))
    >>> factor.solve(np.array([4.0, 50.0]))
    array([1., 2.])
    >>> factor.half(np.eye(2)) @ factor.half(np.eye(2)).T
    array([[0.25, 0.  ],
           [0.  , 0.04]])
    """

    scale: Array
    triangle: Array
    margin: float = 1.0

    def solve(self, b: Array) -> Array:
        """Return ``A^-1 b`` for (d,) or (d, K)."""
        scale = _rows(self.scale, b)
        return np.asarray(scale * cho_solve((self.triangle, True), scale * b, check_finite=False))

    def multiply(self, v: Array) -> Array:
        """Return ``A v`` for (d,)."""
        return np.asarray(self.triangle @ (self.triangle.T @ (v / self.scale)) / self.scale)

    def half(self, z: Array) -> Array:
        """Return ``S L^-T z``: its covariance is ``A^-1`` when that of z is the identity."""
        x = solve_triangular(self.triangle, z, lower=True, trans="T", check_finite=False)
        return np.asarray(_rows(self.scale, z) * x)

    def half_transpose(self, g: Array) -> Array:
        """Return ``L^-1 S g``: its squared length is ``g' A^-1 g``."""
        scaled = _rows(self.scale, g) * g
        return np.asarray(solve_triangular(self.triangle, scaled, lower=True, check_finite=False))

    def weakest(self) -> Array:
        """Approximate the eigenvector of the smallest eigenvalue of ``S A S``, (d,)."""
        vector = np.random.default_rng(0).standard_normal(self.scale.size)
        for _ in range(RITZ_STEPS):
            vector = cho_solve((self.triangle, True), vector, check_finite=False)
            vector /= np.linalg.norm(vector)
        return vector

    def weak_directions(self) -> Array:
        """Orthonormal directions of little curvature, (d, 4), by inverse subspace iteration."""
        d = self.scale.size
        if d <= RITZ_VECTORS:
            return np.eye(d)  # which span all of them
        basis = np.random.default_rng(0).standard_normal((d, min(d, RITZ_VECTORS)))
        for _ in range(RITZ_STEPS):
            basis, _ = np.linalg.qr(self.solve(basis))
        return basis

    def smallest_curvature(self) -> float:
        """Approximate the smallest eigenvalue of A, from above."""
        basis = self.weak_directions()
        return float(1.0 / np.linalg.eigvalsh(basis.T @ self.solve(basis))[-1])


def factorize(matrix: Array) -> Factor:
    """Factorize a symmetric positive definite matrix (d, d).

    Raises
    ------
    NotAMaximumError
        The matrix has a negative eigenvalue, or one that is zero to working precision: below
        1e-10 once its diagonal is scaled to one. The exception carries the ``curvature``.
    """
    factor = try_to_factorize(matrix)
    if factor is None:
        raise not_positive(matrix)
    return factor


def try_to_factorize(matrix: Array) -> Factor | None:
    """Factorize like `factorize`; None if the matrix is not positive definite."""
    check_finite(matrix)
    scale, scaled = unit_diagonal(matrix)
    norm = np.abs(scaled).sum(axis=0).max(initial=0.0)
    failed = np.diag(matrix).min(initial=1.0) <= 0
    if not failed:
        triangle, failed = lapack.dpotrf(scaled.T, lower=1, clean=1, overwrite_a=1)
    if failed:
        return None
    margin = float(lapack.dpocon(triangle, norm, uplo="L")[0]) * norm
    if margin < NORM_SLACK * FLAT and _smallest_eigenpair(unit_diagonal(matrix)[1])[0] < FLAT:
        return None
    return Factor(scale, triangle, margin)


def unit_diagonal(matrix: Array) -> tuple[Array, Array]:
    """Scale a matrix to a diagonal of one (or minus one, or zero): the scale, and the result."""
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal == 0, 1.0, np.abs(diagonal)))
    return scale, scale[:, None] * matrix * scale


def not_positive(matrix: Array) -> NotAMaximumError:
    """Describe the direction of smallest curvature."""
    scale, scaled = unit_diagonal(matrix)
    value, direction = _smallest_eigenpair(scaled)
    if value > -FLAT:
        step = scale * direction
        return flat_along(step, value / float(step @ step), np.abs(direction))
    step = scale * direction
    smallest, _ = _smallest_eigenpair(matrix)
    # In badly scaled units eigh cannot resolve the smallest eigenvalue; the step is still a proof.
    resolved = smallest < -matrix.shape[0] * np.finfo(float).eps * np.abs(matrix).max()
    return NotAMaximumError.saddle(smallest if resolved else value / float(step @ step))


def _smallest_eigenpair(matrix: Array) -> tuple[float, Array]:
    values, vectors = eigh(matrix, subset_by_index=[0, 0], check_finite=False)
    return float(values[0]), vectors[:, 0]


def _rows(scale: Array, block: Array) -> Array:
    return scale if block.ndim == 1 else scale[:, None]
