"""Conjugate gradients, stopped on bounds of b' A^-1 b."""

import math
import traceback
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.budget import check_budget
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    NotAMaximumError,
    between,
)
from implicit_delta.linalg.arrays import Operator, symmetric
from implicit_delta.linalg.krylov import MEMORY, Krylov, room
from implicit_delta.linalg.solvers.base import Solution, Solver
from implicit_delta.linalg.solvers.bounds import Bounds
from implicit_delta.linalg.solvers.floor import Probe, random_vector

MOST_ITERATIONS = 10_000
FORETOLD_EVERY = 10  # iterations
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
    at :math:`\mu` (Golub and Meurant), the second a simpler bound of it. A column stops when some
    number is within ``rtol`` of both ends; x itself is then accurate to about ``2 * sqrt(rtol)`` in
    the norm of A, so a smaller ``rtol`` is needed when x itself is used.

    Parameters
    ----------
    rtol : float
        Relative accuracy of :math:`\sqrt{b' A^{-1} b}`.
    max_iterations : int, optional
        By default 10 d, at least 1,000 and at most 10,000.
    preconditioner : callable, optional
        Applies a symmetric positive definite approximation of ``A^-1`` to a block (d, k).
    budget : int, optional
        Most products with A, of one vector each: for an information matrix, passes over the data.
    certify : bool
        Whether to go on until bounds that hold agree to ``rtol``. Otherwise estimated ones decide;
        if a ``floor`` is known, those that hold are reported.
    memory : int
        Most bytes of residuals that are kept, so that rounding does not let directions come back
        that were searched before. Where not all fit, the first are kept; 0 keeps none.

    Notes
    -----
    With a ``floor`` and no preconditioner, :math:`\mu` is the floor and the upper end is a
    guarantee, rounding aside. Without, a random vector is iterated beside the columns of b, in the
    same calls of the operator. It has a part of every eigenvector, so that it finds the isolated
    small eigenvalue whose direction hardly occurs in b, and gives a :math:`\mu` that holds with
    **probability 0.999** (`Probe`). For a single column that takes about twice the calls and three
    times the products; it is left out if it is expected to take more.

    What is left is an **estimate** (``probability`` is 0): :math:`\mu` is a tenth of the smallest
    Ritz value, the smallest curvature within all directions searched, and the criterion must hold
    for a tenth of the iterations, at least three.

    Examples
    --------
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> solution = conjugate_gradient(rtol=1e-6).solve(lambda v: A @ v, np.ones((3, 1)), floor=1.0)
    >>> solution.quadratic.round(6), solution.probability
    (array([[1.75]]), 1.0)
    """

    rtol: float = 1e-3
    max_iterations: int | None = None
    preconditioner: Operator | None = None
    certify: bool = True
    budget: int | None = None
    memory: int = MEMORY

    name: ClassVar[str] = "conjugate_gradient"

    def __post_init__(self) -> None:
        """Check the configuration."""
        if not 0 < self.rtol < 1:
            raise ValueError(f"rtol must be between 0 and 1, not {self.rtol!r}.")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, not {self.max_iterations!r}.")
        if self.memory < 0:
            raise ValueError(f"memory must be a number of bytes, not {self.memory!r}.")
        check_budget(self.budget)

    def solve(
        self, operator: Operator, b: Array, *, floor: float = 0.0, single: bool = False
    ) -> Solution:
        """Solve ``A x = b``; see `Solver.solve`."""
        try:
            bounds = self._iterated(operator, b, floor)
        except ImplicitDeltaError as error:  # as long as it lives, so would all vectors
            traceback.clear_frames(error.__traceback__)
            raise
        guess, left = _guess(bounds), bounds.krylov.residual_products()
        if single and bounds.bounded:
            left = bounds.measure_rounding(b)
        return _solution(bounds, b, guess, left)

    def _iterated(self, operator: Operator, b: Array, floor: float) -> Bounds:
        """Iterate until the bounds agree."""
        known = floor if self.preconditioner is None else 0.0
        most = self.max_iterations or min(max(1_000, 10 * b.shape[0]), MOST_ITERATIONS)
        unbounded = self.certify and not known and self.preconditioner is None and b.any()
        kept = room(self.memory, b.shape[0], b.shape[1] + unbounded, b.dtype)
        start = random_vector(b.shape[0]) if unbounded else None
        krylov = Krylov(operator, b, start, preconditioner=self.preconditioner, kept=kept)
        probe = Probe(krylov, b) if unbounded else None
        bounds = Bounds(krylov, self.rtol, self.certify, known, probe)
        budget = math.inf if self.budget is None else self.budget
        with progress("conjugate gradients", total=self.budget, unit="product") as bar:
            while krylov.active.size and krylov.iterations < most:
                before = krylov.products
                if before + krylov.active.size > budget:
                    break
                try:
                    bounds.step()
                except NotAMaximumError:
                    if not bounds.settled:
                        raise
                    break
                _show(bar, bounds, krylov.products - before)
        if not bounds.settled:
            raise _unfinished(self, bounds, krylov.running, most)
        return bounds


conjugate_gradient = ConjugateGradient()


def _guess(bounds: Bounds) -> Array:
    """Estimate b' A^-1 b, (K,), between its bounds."""
    remaining = BIAS * bounds.error(max(bounds.smallest, bounds.estimated_mu()))
    if not bounds.bounded:
        return np.asarray(bounds.lower + remaining)
    remaining = np.minimum(remaining, bounds.error(bounds.floor) / 2)
    return bounds.pick(bounds.lower + remaining)


def _solution(bounds: Bounds, b: Array, diagonal: Array, left: Array) -> Solution:
    krylov, probe = bounds.krylov, bounds.probe
    mu = bounds.floor if bounds.bounded else bounds.estimated_mu()
    gap = bounds.gap(mu)
    quadratic = symmetric((krylov.x @ b).T + left)
    if bounds.bounded:
        diagonal = bounds.pick(diagonal)
        gap = bounds.distance(diagonal)
    np.fill_diagonal(quadratic, diagonal)
    residual = float(gap.max(initial=0.0)) + (probe.noise / mu if probe else 0.0)
    seen = bounds.smallest if krylov.preconditioner is None else krylov.smallest_curvature
    return Solution(
        x=krylov.x.T,
        quadratic=quadratic,
        residual=residual,
        smallest_curvature=min(krylov.smallest_curvature, seen) if krylov.products else math.nan,
        products=krylov.products,
        iterations=krylov.iterations,
        lower=bounds.lower,
        upper=bounds.lower + bounds.error(mu),
        probability=bounds.probability,
        doubtful=bounds.doubtful,
        flat_directions=round(bounds.sight.flat),
    )


def _show(bar: Any, bounds: Bounds, products: int) -> None:
    """Advance the bar, and foretell the products from the pace at which the bounds close."""
    bar.update(products)
    if bar.disable or bounds.krylov.iterations % FORETOLD_EVERY:
        return
    gap = float(bounds.gap(bounds.estimated_mu()).max(initial=0.0))
    if bounds.rtol < gap < 1:
        bar.total = math.ceil(bounds.krylov.products * math.log(bounds.rtol) / math.log(gap))
        bar.refresh()


def _unfinished(
    solver: ConjugateGradient, bounds: Bounds, active: NDArray[np.int_], most: int
) -> ConvergenceError:
    mu = bounds.estimated_mu()
    mu = bounds.floor if solver.certify and bounds.bounded else mu
    worst = int(active[np.argmax(bounds.gap(mu)[active])])
    low = math.sqrt(bounds.lower[worst])
    high = math.sqrt(bounds.lower[worst] + bounds.error(mu)[worst])
    if bounds.krylov.iterations < most and solver.budget is not None:
        known = between(worst, low, high)
        return ConvergenceError.over_budget(solver.budget, bounds.krylov.products + 1, known)
    return ConvergenceError.unfinished_solve(solver, most, worst, low, high)
