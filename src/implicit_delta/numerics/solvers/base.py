"""Abstract linear solver and its solution."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicit_delta._core.named import Named
from implicit_delta._core.types import Array
from implicit_delta.errors import NotAMaximumError

Operator = Callable[[Array], Array]


@dataclass(frozen=True)
class Solution:
    """The solution of ``A x = b`` with bounds on its error.

    Parameters
    ----------
    x : array (d, K)
        One solution per column of ``b``.
    quadratic : array (K, K)
        ``b' A^-1 b``, symmetric.
    residual : float
        Largest relative error over the columns: ``|A x - b| / |b|`` for a direct solver,
        ``(sqrt(upper) - sqrt(lower)) / sqrt(lower)`` for an iterative one.
    smallest_curvature : float
        The smallest curvature ``v' A v / v' v`` found, never below the smallest eigenvalue of A.
    products : int
        The number of vectors that A was applied to.
    iterations : int
        The number of calls of the operator.
    lower, upper : array (K,)
        Bounds on the diagonal of ``quadratic`` (rounding errors aside).
    guaranteed : bool
        Whether ``upper`` is a bound, rather than an estimate from the observed curvature.
    asymmetry : float
        ``max |A - A'| / max |A|``; nan when A was never formed.
    """

    x: Array
    quadratic: Array
    residual: float
    smallest_curvature: float
    products: int
    iterations: int
    lower: Array
    upper: Array
    guaranteed: bool = True
    asymmetry: float = float("nan")


class Solver(Named, ABC):
    """Solves ``A x = b`` for a symmetric positive definite A given as a function.

    Final classes are frozen dataclasses; their fields are the configuration.
    """

    @abstractmethod
    def solve(self, operator: Operator, b: Array, *, floor: float = 0.0) -> Solution:
        """Solve ``A x = b`` and return ``b' A^-1 b`` with it.

        Parameters
        ----------
        operator : callable
            Applies A to a block: (d, k) to (d, k), float64.
        b : array (d, K)
            Right-hand sides, one per column.
        floor : float
            A number known to be at most the smallest eigenvalue of A; 0 when nothing is known.

        Raises
        ------
        NotAMaximumError
            A is not positive definite, or singular to working precision.
        ConvergenceError
            The requested accuracy was not reached.
        """


def check_finite(values: Array) -> None:
    """Raise NotAMaximumError if the matrix or a product with it is not finite."""
    if not np.isfinite(values).all():
        raise NotAMaximumError.not_finite()
