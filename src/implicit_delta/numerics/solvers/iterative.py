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
from implicit_delta.numerics.solvers.probe import CHANCE, INDISTINCT, Probe, Sight

MOST_ITERATIONS = 10_000
FEWEST, PATIENCE = 30, 3  # steps of the probe, and for each of the columns, if these may do
ENOUGH = 0.3  # of the smallest Ritz value: a floor that hardly gains by further steps
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
        Whether to go on until bounds that hold agree to ``rtol``. Otherwise estimated ones decide;
        if a ``floor`` is known, those that hold are reported.

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
        unbounded = self.certify and not known and self.preconditioner is None
        probe = Probe(b, descent.type) if unbounded and descent.active.size else None
        bounds = _Bounds(descent, self.rtol, self.certify, known, probe)
        while (descent.active.size or bounds.probing) and descent.iterations < most:
            bounds.step()
        if not bounds.settled:
            raise _unfinished(self, bounds, descent.active, most)
        return _solution(bounds, b)


conjugate_gradient = ConjugateGradient()


class _Bounds:
    """Bounds on b' A^-1 b for every column (K,), from the scalars of the iteration."""

    def __init__(
        self, descent: Descent, rtol: float, certify: bool, floor: float, probe: Probe | None
    ) -> None:
        self.descent, self.rtol, self.certify, self.floor = descent, rtol, certify, floor
        self.probe, self.probing, self.sight = probe, probe is not None, Sight()
        self.ritz = self.probed = math.inf  # smallest over all columns, and of the probe
        self.streak = np.zeros(descent.size.size, dtype=int)
        self.radau = np.full(descent.size.size, 1 / floor if floor > 0 else math.inf)

    def step(self) -> None:
        """Take a step in all active columns and, in the same call of the operator, of the probe."""
        descent, probe = self.descent, self.probe
        if probe is None or not self.probing:
            descent.step()
        elif descent.active.size:
            descent.step(lambda block: probe.ride(descent.operator, block))
        else:
            probe.ride(descent.operator, np.empty((probe.vector.size, 0), dtype=descent.type))
            descent.iterations += 1
        descent.products += self.probing
        self._advance()
        self._retire()
        if probe is not None and self.probing and probe.due(not descent.active.size):
            self._look(probe)
            self._retire()

    @property
    def smallest(self) -> float:
        """The smallest Ritz value met."""
        return min(self.ritz, self.probed)

    @property
    def bounded(self) -> bool:
        """Whether there is a floor that no curvature has contradicted."""
        return 0 < self.floor <= min(self.descent.smallest_curvature, self.smallest) * (1 + 1e-6)

    @property
    def settled(self) -> bool:
        """Whether all columns are done, or would be if the probe had found nothing."""
        active = self.descent.active
        alone = self.probe is not None and self.gap(SAFETY * self.ritz)[active] <= self.rtol
        return bool(np.all(alone)) or not active.size

    @property
    def doubtful(self) -> bool:
        """Whether a direction may be missing of which the probe has an average share."""
        if self.probe is None:
            return False
        if self.sight.flat and self.probe.finds_flat_part(self.descent.lower):
            return True
        mu = min(self.estimated_mu(), max(self.sight.likely, ROUNDING))
        unsure = INDISTINCT * self.probe.noise > self.probed or np.any(self.gap(mu) > self.rtol)
        return bool(unsure) and not self.bounded

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

    def _advance(self) -> None:
        """Update the Gauss-Radau weights after a step of the iteration.

        With mu close to the smallest eigenvalue the difference of nearly equal numbers may lose
        its sign to rounding; from there on only the simpler bound holds.
        """
        for column in self.descent.active[np.isfinite(self.radau[self.descent.active])]:
            gamma, delta = self.descent.lengths[column][-1], self.descent.ratios[column][-1]
            rest = self.radau[column] - gamma
            lost = not rest > 1e-8 * gamma
            self.radau[column] = math.inf if lost else rest / (self.floor * rest + delta)

    def _retire(self) -> None:
        self.descent.retire(self._agree() | self.descent.at_rounding())

    def _agree(self) -> NDArray[np.bool_]:
        """Whether the bounds of each column agree, (K,)."""
        if self.certify and self.bounded:
            return np.asarray(self.gap(self.floor) <= self.rtol)
        needed = max(3, self.descent.iterations // 10)
        moving = np.isin(np.arange(self.streak.size), self.descent.active)
        promising = moving & (self.gap(self._current_mu()) <= self.rtol)
        self._update_ritz(promising & ((self.streak == 0) | (self.streak >= needed - 1)))
        self.streak = np.where(self.gap(self._current_mu()) <= self.rtol, self.streak + 1, 0)
        return np.asarray(self.streak >= needed)

    def _look(self, probe: Probe) -> None:
        """Take over what the probe has seen, and end it if it can do no more."""
        self.sight = sight = probe.look()
        self.probed = max(sight.ritz, probe.noise)  # less is rounding, and has no end
        if sight.floor * self.rtol > probe.noise:
            self.floor = sight.floor
            agreed = bool(np.all(self.gap(sight.floor) <= self.rtol))
            self.probing = not agreed and sight.floor < ENOUGH * sight.ritz
        elif not self.descent.active.size:
            most = max(FEWEST, PATIENCE * max(map(len, self.descent.lengths)))
            self.probing = sight.steps < most or len(probe.diagonal) < FEWEST

    def _current_mu(self) -> float:
        return max(SAFETY * self.smallest, self.floor if self.bounded else 0.0)

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


def _solution(bounds: _Bounds, b: Array) -> Solution:
    descent, probe = bounds.descent, bounds.probe
    estimated = bounds.estimated_mu()
    mu = bounds.floor if bounds.bounded else estimated
    residual = float(bounds.gap(mu).max(initial=0.0)) + (probe.noise / mu if probe else 0.0)
    quadratic = (descent.x @ b).T
    quadratic[:, descent.order] += descent.x @ descent.residuals.T
    quadratic = symmetric(quadratic)
    remaining = BIAS * bounds.error(max(bounds.smallest, estimated))
    if bounds.bounded:
        remaining = np.minimum(remaining, bounds.error(mu) / 2)
    np.fill_diagonal(quadratic, descent.lower + remaining)
    seen = bounds.smallest if descent.preconditioner is None else descent.smallest_curvature
    return Solution(
        x=descent.x.T,
        quadratic=quadratic,
        residual=residual,
        smallest_curvature=min(descent.smallest_curvature, seen) if descent.products else math.nan,
        products=descent.products,
        iterations=descent.iterations,
        lower=descent.lower,
        upper=descent.lower + bounds.error(mu),
        guaranteed=bounds.bounded and probe is None,
        probability=(1 - CHANCE if probe else 1.0) if bounds.bounded else 0.0,
        doubtful=bounds.doubtful,
        flat_directions=round(bounds.sight.flat),
    )


def _unfinished(
    solver: ConjugateGradient, bounds: _Bounds, active: NDArray[np.int_], most: int
) -> ConvergenceError:
    mu = bounds.estimated_mu()
    mu = bounds.floor if solver.certify and bounds.bounded else mu
    worst = active[np.argmax(bounds.gap(mu)[active])]
    low = math.sqrt(bounds.descent.lower[worst])
    high = math.sqrt(bounds.descent.lower[worst] + bounds.error(mu)[worst])
    return ConvergenceError.unfinished_solve(solver, most, int(worst), low, high)
