"""Solve by forming the matrix and factorizing it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.numerics.solvers.base import Operator, Solution, Solver
from implicit_delta.numerics.solvers.factor import factorize


@dataclass(frozen=True, repr=False)
class Cholesky(Solver):
    """Form A, scale it to a unit diagonal, factorize, solve, refine once: d products.

    Exact to rounding, and the only solver that notices every flat direction. Holds three d x d
    matrices at its peak, so it is meant for d up to some thousands.

    Parameters
    ----------
    block_size : int
        How many columns of A are asked for at a time.

    Examples
    --------
    >>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> cholesky.solve(lambda v: A @ v, np.eye(2)).quadratic.round(6)
    array([[ 0.666667, -0.333333],
           [-0.333333,  0.666667]])
    """

    block_size: int = 256

    name: ClassVar[str] = "cholesky"

    def __post_init__(self) -> None:
        """Check the configuration."""
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {self.block_size!r}.")

    def solve(self, operator: Operator, b: Array, *, floor: float = 0.0) -> Solution:
        """Solve ``A x = b``; see `Solver.solve`. A ``floor`` has no effect."""
        formed = _form(operator, b.shape[0], self.block_size)
        matrix = 0.5 * (formed + formed.T)
        asymmetry = _ratio(np.abs(formed - matrix).max(initial=0.0) * 2, np.abs(matrix))
        del formed
        factor = factorize(matrix)
        x = factor.solve(b)
        x += factor.solve(b - matrix @ x)
        remainder = b - matrix @ x
        quadratic = _quadratic(b, x, remainder)
        return Solution(
            x=x,
            quadratic=quadratic,
            residual=_relative(remainder, b),
            smallest_curvature=factor.smallest_curvature(),
            products=b.shape[0],
            iterations=-(-b.shape[0] // self.block_size),
            lower=np.diag(quadratic).copy(),
            upper=np.diag(quadratic).copy(),
            asymmetry=asymmetry,
        )


cholesky = Cholesky()


def _form(operator: Operator, d: int, block_size: int) -> Array:
    matrix = np.empty((d, d))
    for first in range(0, d, block_size):
        columns = slice(first, min(first + block_size, d))
        matrix[:, columns] = operator(np.eye(d, columns.stop - first, -first))
    return matrix


def _quadratic(b: Array, x: Array, remainder: Array) -> Array:
    """Return b' A^-1 b up to r' A^-1 r, which is of second order in the error of x."""
    quadratic = b.T @ x + x.T @ remainder
    return np.asarray(0.5 * (quadratic + quadratic.T))


def _relative(remainder: Array, b: Array) -> float:
    sizes = np.linalg.norm(b, axis=0)
    errors = np.linalg.norm(remainder, axis=0)
    return float(np.divide(errors, sizes, out=np.zeros_like(sizes), where=sizes > 0).max(initial=0))


def _ratio(largest_difference: float, sizes: Array) -> float:
    largest = sizes.max(initial=0.0)
    return float(largest_difference / largest) if largest > 0 else 0.0
