"""Direct solver: form the matrix and factorize it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from implicit_delta.core.factored import MANY, Covariance, Factored
from implicit_delta.core.rounding import EPS
from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.arrays import Operator, ratio, symmetric
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.linalg.solvers.base import Solution, Solver
from implicit_delta.linalg.solvers.factor import Factor, try_to_factorize, unit_diagonal
from implicit_delta.linalg.solvers.flat import (
    INDISTINCT,
    FlatFactor,
    factorize_flat,
    product_noise,
)

Gram = Callable[[Array], Array | None]

SHIFT = 100.0  # roundings times d: sums over rows are off by some
IDENTITY = 0.01  # of a variance
SUSPICIOUS = 1e-5  # a smallest eigenvalue that rounding in single precision may have made
GOAL, ACCURATE = 1e-10, 1e-9  # of the error of x, in the norm of A: steps end, and the result holds
# Weak ridges take 40 steps on the satellite data. For one column in 20 of the matrix a product is
# spent: if that does not do, forming it takes a fifth longer than it would have.
MOST_STEPS, COLUMNS = 24, 20


@dataclass(frozen=True, repr=False)
class Cholesky(Solver):
    """Form A, scale it to a unit diagonal, factorize, solve, refine once: d products.

    Exact to rounding, and the only solver that finds every flat direction. One that b has no part
    of is left out, so that the result is ``b' A^+ b``, with the pseudo-inverse. Holds three d x d
    matrices at its peak, so it is meant for d up to some thousands.

    Parameters
    ----------
    block_size : int
        Columns of A per call of the operator.

    Examples
    --------
    >>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> cholesky.solve(lambda v: A @ v, np.eye(2)).quadratic.round(6)
    array([[ 0.666667, -0.333333],
           [-0.333333,  0.666667]])
    """

    block_size: int = 256

    name: ClassVar[str] = "cholesky"
    uses_floor: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the configuration."""
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {self.block_size!r}.")

    def solve(
        self,
        operator: Operator,
        b: Array,
        *,
        floor: float = 0.0,
        single: bool = False,
        part: Array | None = None,
        gram: Gram | None = None,
    ) -> Solution:
        """Solve ``A x = b``; see `Solver.solve`. ``floor`` and ``single`` have no effect.

        With most of A in `part`, a matrix (d, d) that is at most A, A itself is formed only where
        that leaves doubt in the ninth digit. Where b has a part along directions that look flat,
        `gram` shows whether they are: T to T' A T for T (d, d), from rows of which A is the sum of
        squares, and which have digits that A itself has lost.
        """
        solution = None if part is None else solve_with_part(operator, b, part)
        return self._solve_formed(operator, b, gram) if solution is None else solution

    def _solve_formed(self, operator: Operator, b: Array, gram: Gram | None) -> Solution:
        formed = _form(operator, b.shape[0], self.block_size)
        matrix = symmetric(formed)
        asymmetry = ratio(2 * _largest(formed - matrix), _largest(matrix))
        del formed
        factor, remainder = _factor(matrix, operator), np.zeros_like(b)
        seen = factor.seen(b) if isinstance(factor, FlatFactor) else None
        if seen is not None:
            factor = _from_rows(matrix, gram, seen)
        x = factor.solve(b)
        if seen is None:
            x += factor.solve(b - matrix @ x)
            remainder = b - matrix @ x
        quadratic = _quadratic(factor, b, x, remainder)
        flat = factor if isinstance(factor, FlatFactor) else None
        return Solution(
            x=x,
            quadratic=quadratic,
            residual=_left(factor, remainder, b),
            smallest_curvature=factor.smallest_curvature(),
            products=b.shape[0],
            iterations=-(-b.shape[0] // self.block_size),
            lower=quadratic.diagonal().copy(),
            upper=quadratic.diagonal().copy(),
            asymmetry=float(asymmetry),
            flat_directions=0 if flat is None else flat.count,
            flat=flat,
            factor=factor if isinstance(factor, Factor) else None,
        )


cholesky = Cholesky()


def _quadratic(factor: Factor | FlatFactor, b: Array, x: Array, remainder: Array) -> Covariance:
    """Multiply out ``b' A^-1 b``; that of many columns stays a product of two factors."""
    if b.shape[1] > max(MANY, b.shape[0]):
        return Factored(factor.half_transpose(b).T)
    # Up to r' A^-1 r, which is of second order in the error of x.
    return symmetric(b.T @ x + x.T @ remainder)


def _left(factor: Factor | FlatFactor, remainder: Array, b: Array) -> float:
    """Relate a remainder to b in the norm of A^-1, which has no units."""
    left, whole = (np.linalg.norm(factor.half_transpose(v), axis=0) for v in (remainder, b))
    return _largest(ratio(left, whole))


def _from_rows(matrix: Array, gram: Gram | None, seen: NotAMaximumError) -> Factor:
    """Factorize anew by Cholesky QR with a shift (Fukaya et al. 2020); raise if that is flat, too.

    With T the inverse root of A and a shift, T' A T has a condition number that is smaller by the
    shift over the diagonal, and the next T is that of A. Of T' A T made of rows the rounding is the
    square root of that in A. Where the next T does not make it the identity there are no digits.
    """
    if gram is None or not np.diag(matrix).all():
        raise seen
    scale, scaled = unit_diagonal(matrix)
    shift = SHIFT * len(scale) * EPS - 2 * min(0.0, float(np.linalg.eigvalsh(scaled)[0]))
    identity = np.eye(len(scale))
    found, triangle = identity + scaled, np.asarray(identity)
    try:
        triangle = np.asarray(np.linalg.cholesky(scaled + shift * identity))
        for _ in range(2):
            formed = gram(Factor(scale, triangle).half(identity))
            if formed is None:
                raise seen
            found = symmetric(formed)
            triangle = np.asarray(triangle @ np.linalg.cholesky(found))
    except np.linalg.LinAlgError:
        raise seen from None
    if not np.linalg.norm(found - identity, 2) < IDENTITY:
        raise seen
    return Factor(scale, triangle)


def _factor(matrix: Array, operator: Operator) -> Factor | FlatFactor:
    factor = try_to_factorize(matrix)
    if factor is None or (factor.margin < SUSPICIOUS and _drowned(factor, operator)):
        return factorize_flat(matrix, operator)
    return factor


def _drowned(factor: Factor, operator: Operator) -> bool:
    """Whether the smallest eigenvalue of the scaled matrix may be rounding; one product."""
    direction = factor.weakest()[:, None]
    image = factor.triangle @ (factor.triangle.T @ direction)
    noise = product_noise(operator, factor.scale, direction, image)
    return INDISTINCT * noise > float(np.linalg.norm(image))


def _form(operator: Operator, d: int, block_size: int) -> Array:
    matrix = np.empty((d, d))
    for first in range(0, d, block_size):
        columns = slice(first, min(first + block_size, d))
        matrix[:, columns] = operator(np.eye(d, columns.stop - first, -first))
    return matrix


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def solve_with_part(operator: Operator, b: Array, part: Array) -> Solution | None:
    """Solve ``A x = b`` to nine digits by means of a part P of A, symmetric, with A - P >= 0.

    With r the residual of x, ``2 b'x - x'Ax <= b' A^-1 b <= 2 b'x - x'Ax + r' P^-1 r``,
    and conjugate gradients preconditioned by P take the more steps the more of A is missing in P.
    None if P is not positive definite, or so far from A that the matrix had better be formed.
    """
    factor = try_to_factorize(part)
    if factor is None:
        return None
    krylov = _descend(operator, b, factor)
    x = krylov.x.T
    remainder = b - operator(x)
    quadratic = symmetric(b.T @ x + x.T @ remainder)
    lower = np.diag(quadratic).copy()
    missing = np.sum(factor.half_transpose(remainder) ** 2, axis=0)
    upper = lower + missing
    # The steps end at a share of b' P^-1 b: of a part with little of A that is no accuracy.
    if not np.all(np.maximum(missing, GOAL**2 * krylov.first_size) <= ACCURATE**2 * upper):
        return None
    weak = factor.weak_directions()
    lengths = ratio(np.linalg.norm(remainder, axis=0), np.linalg.norm(b, axis=0))
    return Solution(
        x=x,
        quadratic=quadratic,
        residual=float(np.max(lengths)),
        smallest_curvature=float(np.linalg.eigvalsh(symmetric(weak.T @ operator(weak)))[0]),
        products=krylov.products + b.shape[1] + weak.shape[1],
        iterations=krylov.iterations + 2,
        lower=lower,
        upper=upper,
        by_part=True,
    )


def _descend(operator: Operator, b: Array, factor: Factor) -> Krylov:
    """Precondition by the part, until what is left of ``b' A^-1 b`` is small for each column."""
    krylov = Krylov(operator, b, preconditioner=factor.solve)
    most = max(MOST_STEPS, b.shape[0] // (COLUMNS * b.shape[1]))
    while krylov.active.size and krylov.iterations < most:
        krylov.step()
        krylov.retire(krylov.size <= GOAL**2 * krylov.first_size)
    return krylov
