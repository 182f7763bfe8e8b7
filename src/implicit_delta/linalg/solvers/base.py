"""Abstract linear solver and its solution."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from implicit_delta.core.factored import Covariance
from implicit_delta.core.named import Named
from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import Operator

if TYPE_CHECKING:
    from implicit_delta.linalg.solvers.factor import Factor
    from implicit_delta.linalg.solvers.flat import FlatFactor

# A flat direction of A is no error if b has none of it: less than UNSEEN of its length, which is
# the error of a numerical derivative, or so little that the direction, with the curvature that
# rounding has left it, would add less than NEGLIGIBLE to b' A^-1 b.
UNSEEN, NEGLIGIBLE = 1e-9, 1e-3


@dataclass(frozen=True)
class Solution:
    """The solution of ``A x = b`` with bounds on its error.

    Parameters
    ----------
    x : array (d, K)
        One solution per column of ``b``.
    quadratic : array (K, K) or Factored
        ``b' A^-1 b``, symmetric; a product of factors of rank d where a direct solver is given
        more than 500 columns, and more than d.
    residual : float
        Largest relative error over the columns: ``|A x - b| / |b|`` in the norm of A^-1 for a
        direct solver, largest distance of ``sqrt(quadratic)`` from the roots of its bounds for an
        iterative one.
    smallest_curvature : float
        The smallest curvature ``v' A v / v' v`` found, never below the smallest eigenvalue of A.
    products : int
        The number of vectors that A was applied to.
    iterations : int
        The number of calls of the operator.
    lower, upper : array (K,)
        Bounds on the diagonal of ``quadratic`` (rounding errors aside).
    asymmetry : float
        ``max |A - A'| / max |A|``; nan when A was never formed.
    probability : float
        With which ``upper`` is a bound: 1 if it is one for certain, 0 if it is an estimate from the
        observed curvature.
    doubtful : bool
        Whether even a direction of which a random vector has its share may have been missed, or
        a curvature below the ``floor`` was found.
    by_part : bool
        Whether a part of A was factorized, and products with A made up for the rest.
    flat_directions : float
        The number of directions along which A is flat, none of which b has; an iterative solver
        knows it only roughly, and that there are some.
    flat : FlatFactor or None
        These directions, if the solver has found all of them and there are any.
    factor : Factor or None
        Of A, if it was made and there are none.
    """

    x: Array
    quadratic: Covariance
    residual: float
    smallest_curvature: float
    products: int
    iterations: int
    lower: Array
    upper: Array
    asymmetry: float = float("nan")
    probability: float = 1.0
    doubtful: bool = False
    by_part: bool = False
    flat_directions: float = 0
    flat: "FlatFactor | None" = None
    factor: "Factor | None" = None


class Solver(Named, ABC):
    """Solves ``A x = b`` for a symmetric positive definite A given as a function.

    Final classes are frozen dataclasses; their fields are the configuration.

    Attributes
    ----------
    uses_floor : bool
        Whether a ``floor`` is of use.
    """

    uses_floor: ClassVar[bool] = True

    @abstractmethod
    def solve(
        self, operator: Operator, b: Array, *, floor: float = 0.0, single: bool = False
    ) -> Solution:
        """Solve ``A x = b`` and return ``b' A^-1 b`` with it.

        Parameters
        ----------
        operator : callable
            Applies A to a block: (d, k) to (d, k), float64.
        b : array (d, K)
            Right-hand sides, one per column.
        floor : float
            A number known to be at most the smallest eigenvalue of A; 0 when nothing is known.
        single : bool
            Whether the operator works in single precision. Its rounding is then measured, and
            enters the bounds.

        Raises
        ------
        NotAMaximumError
            A is not positive definite, or singular to working precision.
        ConvergenceError
            The requested accuracy was not reached.
        """
