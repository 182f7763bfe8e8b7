"""Covariance of very many evaluations in the rank that it has: K x r numbers instead of K x K."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError

MANY = 500  # evaluations: the matrix of fewer is as cheap as its factors
MOST_BYTES = 2e9  # of a K x K matrix that is made: K up to 15 800
IN_PARTS = (
    "Standard errors, intervals and simultaneous bands need no such matrix. For covariances take "
    "some of the evaluations, `est[:1000].covariance`, or combine them, `est.contrast(C)`."
)
DROPPED = 1e-12  # of the largest eigenvalue: one that is more negative is no rounding


@dataclass(frozen=True, eq=False)
class Factored:
    """The covariance ``left @ middle @ left.T`` of K evaluations, which is made when asked for.

    Attributes
    ----------
    left : (K, r) array
    middle : (r, r) array or None
        Symmetric; None stands for the identity, so that the covariance is positive semi-definite.

    Examples
    --------
    >>> V = Factored(np.array([[1.0, 0.0], [2.0, 1.0]]))
    >>> V.diagonal(), V.array()
    (array([1., 5.]), array([[1., 2.],
           [2., 5.]]))
    """

    left: Array
    middle: Array | None = None

    __array_ufunc__ = None  # so that arrays leave sums to it

    def __post_init__(self) -> None:
        r = self.left.shape[1]
        if self.middle is not None and self.middle.shape != (r, r):
            raise ValueError(f"factors of shapes {self.left.shape} and {self.middle.shape}")

    def __len__(self) -> int:
        return len(self.left)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return len(self.left), len(self.left)

    @property
    def inner(self) -> Array:
        """The middle, (r, r)."""
        return np.eye(self.left.shape[1]) if self.middle is None else self.middle

    @cached_property
    def _diagonal(self) -> Array:
        image = self.left if self.middle is None else self.left @ self.middle
        return np.asarray(np.einsum("kr,kr->k", image, self.left))

    def diagonal(self) -> Array:
        """Return the variances, (K,)."""
        return self._diagonal

    def array(self) -> Array:
        """Make the matrix, unless it is too large."""
        check_bytes(len(self.left), IN_PARTS)
        image = self.left if self.middle is None else self.left @ self.middle
        V = image @ self.left.T
        return np.asarray(V if self.middle is None else (V + V.T) / 2)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array().astype(np.float64 if dtype is None else dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        return self.array()[key]

    def __matmul__(self, v: Array) -> Array:
        return np.asarray(self.left @ (self.inner @ (self.left.T @ v)))

    def rows(self, places: NDArray[Any]) -> Array:
        """Make some rows of the matrix."""
        return np.asarray(self.left[places] @ self.inner @ self.left.T)

    @property
    def T(self) -> Factored:
        """The same: it is symmetric."""
        return self

    def __add__(self, other: Any) -> Covariance:
        if isinstance(other, Factored):
            if other.left is self.left:
                return Factored(self.left, self.inner + other.inner)
            left = np.hstack([self.left, other.left])
            if self.middle is None and other.middle is None:
                return Factored(left)
            return Factored(left, _blocks([self.inner, other.inner]))
        if np.ndim(other) == 0 and other == 0:
            return self
        total: Array = self.array() + other
        return total

    __radd__ = __add__

    def __mul__(self, number: float) -> Factored:
        if self.middle is None and number >= 0:
            return Factored(np.sqrt(number) * self.left)
        return Factored(self.left, number * self.inner)

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Factored:
        return self * (1 / number)

    def __sub__(self, other: Any) -> Covariance:
        found: Covariance = self + (-1.0) * other
        return found

    def scaled(self, units: Array) -> Factored:
        """Multiply row and column k by the k-th of some numbers, (K,)."""
        return Factored(units[:, None] * self.left, self.middle)

    def taken(self, places: NDArray[Any]) -> Factored:
        """Take some of the evaluations, by number or by a mask."""
        return Factored(self.left[places], self.middle)

    def spectrum(self) -> tuple[Array, Array]:
        """Return the eigenvalues that rank allows, ascending, and the vectors, (K, r)."""
        basis, triangle = np.linalg.qr(self.left)
        inner = triangle @ self.inner @ triangle.T
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        return values, basis @ vectors

    def positive(self) -> tuple[Factored, int]:
        """Drop negative eigenvalues, and count them."""
        if self.middle is None or np.linalg.eigvalsh(self.middle)[0] >= 0:
            return self, 0
        values, vectors = self.spectrum()
        negative = int(np.sum(values < -DROPPED * max(values[-1], 0.0)))
        return (
            Factored(vectors * np.sqrt(np.maximum(values, 0.0))) if negative else self
        ), negative


Covariance: TypeAlias = Array | Factored


def quadratic(left: Array, middle: Array | None = None) -> Covariance:
    """Return ``left @ middle @ left.T``, factored where that is smaller than the matrix."""
    found = Factored(left, middle)
    return found if len(left) > max(MANY, left.shape[1]) else found.array()


def check_bytes(K: int, advice: str) -> None:
    """Refuse to make a K x K matrix that is too large."""
    if 8.0 * K * K > MOST_BYTES:
        raise ImplicitDeltaError(
            f"The covariance matrix of {K} evaluations would take {8e-9 * K * K:.3g} GB, and up to "
            f"{1e-9 * MOST_BYTES:.3g} GB are made. {advice}"
        )


def settled(V: Covariance) -> Covariance:
    """Make the matrix of few evaluations, or of those whose factors are as large."""
    return quadratic(V.left, V.middle) if isinstance(V, Factored) else V


def scaled(V: Covariance, units: Array) -> Covariance:
    """Multiply row and column k of a covariance by the k-th of some numbers, (K,)."""
    return V.scaled(units) if isinstance(V, Factored) else V * np.outer(units, units)


def block_diagonal(blocks: list[Covariance]) -> Covariance:
    """Put covariances of what is independent side by side."""
    if not any(isinstance(V, Factored) for V in blocks):
        return _blocks(blocks)
    pairs = [(V.left, V.inner) if isinstance(V, Factored) else (np.eye(len(V)), V) for V in blocks]
    return Factored(*(_blocks(side) for side in zip(*pairs, strict=True)))


def equal(V: Covariance, W: Covariance) -> bool:
    """Whether two covariances are the same numbers."""
    if isinstance(V, Factored) and isinstance(W, Factored):
        return np.array_equal(V.left, W.left) and np.array_equal(V.inner, W.inner)
    return V.shape == W.shape and np.array_equal(np.asarray(V), np.asarray(W))


def _blocks(matrices: Any) -> Array:
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*matrices))
