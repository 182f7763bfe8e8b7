"""Solve with a matrix of which the greater part has been formed.

With ``A >= P`` and x near ``A^-1 b``, r the residual of x,

    2 b'x - x'Ax  <=  b' A^-1 b  <=  2 b'x - x'Ax + r' P^-1 r,

and conjugate gradients preconditioned by P take the more steps the more of A is missing in P.
"""

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import Operator, ratio, symmetric
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.linalg.solvers.base import Solution
from implicit_delta.linalg.solvers.factor import Factor, try_to_factorize

GOAL, ACCURATE = 1e-10, 1e-9  # of the error of x, in the norm of A: steps end, and the result holds
# Weak ridges take 40 steps on the satellite data. For one column in 20 of the matrix a product is
# spent: if that does not do, forming it takes a fifth longer than it would have.
MOST_STEPS, COLUMNS = 24, 20


def solve_with_part(operator: Operator, b: Array, part: Array) -> Solution | None:
    """Solve ``A x = b`` to nine digits by means of a part P of A, symmetric, with A - P >= 0.

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
