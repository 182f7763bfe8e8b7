"""Conjugate gradients, stopped on bounds of b' A^-1 b."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.numerics.arrays import ratio, symmetric
from implicit_delta.numerics.solvers.base import Operator, Solution, Solver
from implicit_delta.numerics.solvers.descent import ROUNDING, Descent

MOST_ITERATIONS = 10_000
SAFETY = 0.1  # of the smallest Ritz value, when the smallest eigenvalue has to be guessed
BIAS = 0.3  # the error is about this part of its bound at the smallest Ritz value, in trials


@dataclass(frozen=True, repr=False)
class ConjugateGradient(Solver):
    r"""Conjugate gradients over all columns at once, each stopped on its own bounds.

    After k steps :math:`\sqrt{b' A^{-1} b}`, the standard error when A is an information matrix,
    lies between :math:`\sqrt{q}` and :math:`\sqrt{q + e}`, with

    .. math::
        q = \sum_{j<k} \gamma_j |r_j|^2, \qquad
        e = \min\Big(\gamma^\mu_k |r_k|^2, \frac{|r_k|^4}{\mu \, |p_k|^2}\Big),

    for step lengths :math:`\gamma`, residuals r, search directions p and any
    :math:`\mu` up to the smallest eigenvalue of A: the first is Gauss-Radau quadrature with a node
    at :math:`\mu` (Golub and Meurant), the second a simpler bound of it. A column stops when the
    two ends differ by ``rtol``; x itself is then accurate to about ``sqrt(2 * rtol)`` in the norm
    of A, so a smaller ``rtol`` is needed when x itself is used.

    Parameters
    ----------
    rtol : float
        Relative accuracy of :math:`\sqrt{b' A^{-1} b}`.
    max_iterations : int, optional
        By default 10 d, at least 1,000 and at most 10,000.
    preconditioner : callable, optional
        Applies a symmetric positive definite approximation of ``A^-1`` to a block (d, k).
    certify : bool
        Whether, when a ``floor`` is known, to go on until the guaranteed bounds agree to ``rtol``.
        Otherwise the estimated ones decide, and the guaranteed ones are reported.

    Notes
    -----
    With a ``floor`` and no preconditioner, :math:`\mu` is the floor and the upper end is a
    guarantee, rounding aside. Without, :math:`\mu` is a tenth of the smallest Ritz value (the
    smallest curvature within the directions searched), and the criterion must hold for a tenth of
    the iterations, at least three. This is an **estimate**: an isolated small eigenvalue whose
    direction hardly occurs in b is found late or not at all. When a later column reveals one, the
    reported ``residual`` of an earlier column grows accordingly, beyond ``rtol``.

    Examples
    --------
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> solution = conjugate_gradient(rtol=1e-6).solve(lambda v: A @ v, np.ones((3, 1)), floor=1.0)
    >>> solution.quadratic.round(6), solution.guaranteed
    (array([[1.75]]), True)
    """

    rtol: float = 1e-3
    max_iterations: int | None = None
    preconditioner: Operator | None = None
    certify: bool = True

    name: ClassVar[str] = "conjugate_gradient"

    def __post_init__(self) -> None:
        """Check the configuration."""
        if not 0 < self.rtol < 1:
            raise ValueError(f"rtol must be between 0 and 1, not {self.rtol!r}.")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, not {self.max_iterations!r}.")

    def solve(self, operator: Operator, b: Array, *, floor: float = 0.0) -> Solution:
        """Solve ``A x = b``; see `Solver.solve`."""
        known = floor if self.preconditioner is None else 0.0
        most = self.max_iterations or min(max(1_000, 10 * b.shape[0]), MOST_ITERATIONS)
        descent = Descent(operator, b, self.preconditioner)
        bounds = _Bounds(descent, known)
        while descent.active.size:
            if descent.iterations == most:
                raise _unfinished(self, bounds, descent.active, most)
            descent.step()
            bounds.advance()
            finished = bounds.agree(self.rtol, self.certify) | descent.at_rounding()
            descent.retire(finished)
        return _solution(descent, bounds, b)


conjugate_gradient = ConjugateGradient()


class _Bounds:
    """Bounds on b' A^-1 b for every column (K,), from the scalars of the iteration."""

    def __init__(self, descent: Descent, floor: float) -> None:
        self.descent, self.floor = descent, floor
        self.ritz = math.inf  # smallest over all columns, which share the matrix
        self.streak = np.zeros(descent.size.size, dtype=int)
        self.radau = np.full(descent.size.size, 1 / floor if floor > 0 else math.inf)

    def advance(self) -> None:
        """Update the Gauss-Radau weights after a step of the iteration.

        With mu close to the smallest eigenvalue the difference of nearly equal numbers may lose
        its sign to rounding; from there on only the simpler bound holds.
        """
        for column in self.descent.active[np.isfinite(self.radau[self.descent.active])]:
            gamma, delta = self.descent.lengths[column][-1], self.descent.ratios[column][-1]
            rest = self.radau[column] - gamma
            lost = not rest > 1e-8 * gamma
            self.radau[column] = math.inf if lost else rest / (self.floor * rest + delta)

    @property
    def guaranteed(self) -> bool:
        """Whether there is a floor that no curvature has contradicted."""
        return 0 < self.floor <= min(self.descent.smallest_curvature, self.ritz) * (1 + 1e-6)

    def agree(self, rtol: float, certify: bool) -> NDArray[np.bool_]:
        """Whether the bounds of each column agree, (K,)."""
        if certify and self.guaranteed:
            return self.gap(self.floor) <= rtol
        needed = max(3, self.descent.iterations // 10)
        promising = self.gap(self._current_mu()) <= rtol
        self._update_ritz(promising & ((self.streak == 0) | (self.streak >= needed - 1)))
        self.streak = np.where(self.gap(self._current_mu()) <= rtol, self.streak + 1, 0)
        return np.asarray(self.streak >= needed)

    def error(self, mu: float) -> Array:
        """Bound b' A^-1 b - lower, given a lower bound mu on the eigenvalues."""
        simple = self.descent.shrinkage * self.descent.size / mu
        if mu != self.floor:
            return np.asarray(simple)
        moving = self.descent.size > 0
        radau = np.multiply(self.radau, self.descent.size, out=np.zeros_like(simple), where=moving)
        return np.asarray(np.minimum(simple, radau))

    def gap(self, mu: float) -> Array:
        """Return ``sqrt(upper / lower) - 1``."""
        excess = ratio(self.error(mu), self.descent.lower)
        return np.asarray(excess / (1 + np.sqrt(1 + excess)))

    def estimated_mu(self) -> float:
        """Estimate a lower bound on the eigenvalues from the Ritz values of all columns."""
        self._update_ritz(self.streak >= 0)
        return self._current_mu()

    def _current_mu(self) -> float:
        return max(SAFETY * self.ritz, self.floor if self.guaranteed else 0.0)

    def _update_ritz(self, wanted: NDArray[np.bool_]) -> None:
        for column in np.flatnonzero(wanted):
            if self.descent.lengths[column]:
                lengths, ratios = self.descent.lengths[column], self.descent.ratios[column]
                self.ritz = min(self.ritz, _smallest_ritz(lengths, ratios))


def _smallest_ritz(lengths: list[float], ratios: list[float]) -> float:
    """Return the smallest eigenvalue of the Lanczos matrix that conjugate gradients imply."""
    inverse, ratio = 1.0 / np.array(lengths), np.array(ratios[:-1])
    diagonal = inverse.copy()
    diagonal[1:] += ratio * inverse[:-1]
    beside = np.sqrt(ratio) * inverse[:-1]
    smallest = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0]
    return max(float(smallest), ROUNDING * float(diagonal.max()))


def _solution(descent: Descent, bounds: _Bounds, b: Array) -> Solution:
    estimated = bounds.estimated_mu()
    mu = bounds.floor if bounds.guaranteed else estimated
    quadratic = (descent.x @ b).T
    quadratic[:, descent.order] += descent.x @ descent.residuals.T
    quadratic = symmetric(quadratic)
    remaining = BIAS * bounds.error(max(bounds.ritz, estimated))
    if bounds.guaranteed:
        remaining = np.minimum(remaining, bounds.error(mu) / 2)
    np.fill_diagonal(quadratic, descent.lower + remaining)
    seen = bounds.ritz if descent.preconditioner is None else descent.smallest_curvature
    return Solution(
        x=descent.x.T,
        quadratic=quadratic,
        residual=float(bounds.gap(mu).max(initial=0.0)),
        smallest_curvature=min(descent.smallest_curvature, seen) if descent.products else math.nan,
        products=descent.products,
        iterations=descent.iterations,
        lower=descent.lower,
        upper=descent.lower + bounds.error(mu),
        guaranteed=bounds.guaranteed,
    )


def _unfinished(
    solver: ConjugateGradient, bounds: _Bounds, active: NDArray[np.int_], most: int
) -> ConvergenceError:
    mu = bounds.estimated_mu()
    mu = bounds.floor if solver.certify and bounds.guaranteed else mu
    worst = active[np.argmax(bounds.gap(mu)[active])]
    low = math.sqrt(bounds.descent.lower[worst])
    high = math.sqrt(bounds.descent.lower[worst] + bounds.error(mu)[worst])
    return ConvergenceError.unfinished_solve(solver, most, int(worst), low, high)
