"""Bounds on b' A^-1 b while conjugate gradients run."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.rounding import EPS
from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.linalg.solvers.base import NEGLIGIBLE, UNSEEN
from implicit_delta.linalg.solvers.floor import CHANCE, INDISTINCT, Probe, Sight

FEWEST, PATIENCE = 30, 3  # steps of the probe, and for each of the columns, if these may do
ENOUGH = 0.3  # of the smallest Ritz value: a floor that hardly gains by further steps
# When the smallest eigenvalue has to be guessed: of the smallest Ritz value, a guess that further
# steps have to confirm; of that of the columns, one that needs none. (A space that is complete
# leaves rounding, and further steps would follow it along directions that are flat.)
SAFETY, SURE = 0.1, 1e-10
WITHIN = 0.999  # of rtol, for rounding
# Times the difference of two roundings of a product, which is about the square root of two times
# the error of one; errors that both have in common, of what the operator holds, are as large.
ROUNDED = 2.0


class Bounds:
    """Bounds on b' A^-1 b for every column (K,), from the scalars of the iteration."""

    def __init__(
        self, krylov: Krylov, rtol: float, certify: bool, floor: float, probe: Probe | None
    ) -> None:
        self.krylov, self.rtol, self.certify, self.floor = krylov, rtol, certify, floor
        self.probe, self.probing, self.sight = probe, probe is not None, Sight()
        self.ritz = self.probed = math.inf  # smallest over all columns, and of the probe
        K = krylov.solved
        self.lower, self.size = krylov.lower[:K], krylov.size[:K]
        self.streak = np.zeros(K, dtype=int)
        # By rounding of the operator: its error relative to the floor, of residuals, and of lower.
        self.relative, self.slip, self.blur = np.zeros((3, K))
        self.radau = np.full(K, 1 / floor if floor > 0 else math.inf)

    def step(self) -> None:
        """Take a step in all active columns and, in the same call of the operator, of the probe."""
        moved, probe = self.krylov.running, self.probe
        if probe is not None and self.probing:
            probe.watch()
        self.krylov.step()
        self._refuse_flat(moved)
        self._advance(moved)
        self._retire()
        if probe is not None and self.probing and probe.due(not self.krylov.running.size):
            self._look(probe)
            self._retire()

    @property
    def smallest(self) -> float:
        """The smallest Ritz value met."""
        return min(self.ritz, self.probed)

    @property
    def bounded(self) -> bool:
        """Whether there is a floor that no curvature has contradicted."""
        return 0 < self.floor <= min(self.krylov.smallest_curvature, self.smallest) * (1 + 1e-6)

    @property
    def tight(self) -> NDArray[np.bool_]:
        """Whether some number is within ``rtol`` of both bounds at the floor, (K,)."""
        return np.asarray(self.gap(self.floor) <= 2 * WITHIN * self.rtol)

    def pick(self, guess: Array) -> Array:
        """Return the number next to a guess of b' A^-1 b that is so, in terms of its root."""
        low, high = np.sqrt(self.lower), self._upper_root()
        margin = WITHIN * self.rtol * low
        near = np.clip(np.sqrt(guess), np.minimum(high - margin, low + margin), low + margin)
        return np.asarray(np.where(self.tight, near**2, guess))

    def distance(self, value: Array) -> Array:
        """Return how far the root of a value may be from that of b' A^-1 b, relative to it."""
        root, low = np.sqrt(value), np.sqrt(self.lower)
        return np.asarray(ratio(np.maximum(self._upper_root() - root, root - low), low))

    def _upper_root(self) -> Array:
        return np.asarray(np.sqrt(self.lower + self.error(self.floor)))

    @property
    def settled(self) -> bool:
        """Whether all columns are done, or were so until the probe found smaller curvatures."""
        active = self.krylov.running
        if self.probe is None or not all(self.krylov.lengths[column] for column in active):
            return not active.size
        self._update_ritz(active)
        return bool(np.all(self.gap(SAFETY * self.ritz)[active] <= self.rtol))

    @cached_property
    def flat_part(self) -> tuple[float, float]:
        """The largest part of b along flat directions, and its weight, once all is done."""
        if self.probe is None or not self.sight.flat:
            return 0.0, 0.0
        return self.probe.flat_part(self.lower)

    @property
    def probability(self) -> float:
        """With which ``error`` is a bound at the floor; no floor holds for flat directions."""
        if not self.bounded or self.flat_part[0] > UNSEEN or np.any(self.relative >= 1):
            return 0.0
        return 1.0 if self.probe is None else 1 - CHANCE

    @property
    def doubtful(self) -> bool:
        """Whether a direction may be missing of which the probe has an average share.

        Or a curvature was found below the floor that is known: then products are rounding.
        """
        if self.probe is None:
            return self.certify and self.floor > 0 and not self.probability
        if self.probability:
            return False
        mu = min(self.estimated_mu(), max(self.sight.likely, EPS))
        reasons = (
            self.krylov.running.size > 0,
            self.flat_part[1] > NEGLIGIBLE,
            self.probed < INDISTINCT * self.probe.noise,
            np.any(self.gap(mu) > self.rtol),
        )
        return any(reasons)

    def error(self, mu: float) -> Array:
        """Bound b' A^-1 b - lower, given a lower bound mu on the eigenvalues."""
        bound = np.asarray(self.krylov.shrinkage[: self.size.size] * self.size / mu)
        if mu == self.floor:
            moving = self.size > 0
            radau = np.multiply(self.radau, self.size, out=np.zeros_like(bound), where=moving)
            bound = np.minimum(bound, radau)
        if not self.slip.any():
            return bound
        # |r| in the norm of A^-1: that of the recurrence, and what it has slipped by.
        length = np.sqrt(ratio(bound, 1 - self.relative)) + self.slip / math.sqrt(mu)
        return np.asarray(length**2 + 2 * self.blur)

    def measure_rounding(self, b: Array) -> Array:
        """Let the rounding of the operator enter the bounds, from two more products with x; x'r.

        A product with x / 3, times 3, has the same exact value and is rounded otherwise. With |Ex|
        the error of one, 2 b'x - x'Ax, which is a bound for any x, is off by at most |x| |Ex|, and
        no curvature of A is smaller than mu - |E|, where E is about |Ex| / |x|.
        """
        krylov, x = self.krylov, self.krylov.x.astype(np.float64)
        images = np.asarray(krylov.operator(x.T), dtype=np.float64).T
        again = 3 * np.asarray(krylov.operator(x.T / 3), dtype=np.float64).T
        residuals = b.T - images
        error = ROUNDED * np.linalg.norm(again - images, axis=1)
        size = np.linalg.norm(x, axis=1)
        self.relative = np.minimum(ratio(error, self.floor * size), 1.0)
        self.blur = size * error
        self.slip = np.linalg.norm(residuals - krylov.residuals(), axis=1) + error
        self.lower[:] = np.einsum("kd,kd->k", x, b.T + residuals) - self.blur
        krylov.products += 2 * len(x)
        krylov.iterations += 2
        return np.asarray(x @ residuals.T)

    def gap(self, mu: float) -> Array:
        """Return ``sqrt(upper / lower) - 1``."""
        excess = ratio(self.error(mu), self.lower)
        return np.asarray(excess / (1 + np.sqrt(1 + excess)))

    def estimated_mu(self) -> float:
        """Estimate a lower bound on the eigenvalues from the Ritz values of all columns."""
        self._update_ritz(np.arange(self.streak.size))
        return self._current_mu()

    def _refuse_flat(self, moved: NDArray[np.int_]) -> None:
        """Raise if a column sees a direction whose curvature is the rounding of products.

        Some eigenvalue is at most ``b'b / b' A^-1 b``, the mean of all of them with the shares that
        they have in ``b' A^-1 b``, and so at most ``b'b / lower``.
        """
        if self.krylov.preconditioner is not None or not moved.size:
            return
        curvatures = self.krylov.first_size[moved] / self.lower[moved]
        rounding = self.probe.noise if self.probe is not None else 0.0
        if curvatures.min() <= max(self.krylov.flat * self.krylov.largest_curvature, rounding):
            raise self.krylov.flat_along(self.krylov.x[moved], curvatures)

    def _advance(self, moved: NDArray[np.int_]) -> None:
        """Update the Gauss-Radau weights after a step of the iteration.

        With mu close to the smallest eigenvalue the difference of nearly equal numbers may lose
        its sign to rounding; from there on only the simpler bound holds.
        """
        for column in moved[np.isfinite(self.radau[moved])]:
            gamma, delta = self.krylov.lengths[column][-1], self.krylov.ratios[column][-1]
            rest = self.radau[column] - gamma
            lost = not rest > 1e-8 * gamma
            self.radau[column] = math.inf if lost else rest / (self.floor * rest + delta)

    def _retire(self) -> None:
        probe = [] if self.probe is None else [not self.probing]
        self.krylov.retire(np.append(self._agree(), probe).astype(bool))

    def _agree(self) -> NDArray[np.bool_]:
        """Whether the bounds of each column agree, (K,)."""
        if self.certify and self.bounded:
            return self.tight
        needed = max(3, self.krylov.iterations // 10)
        moving = np.isin(np.arange(self.streak.size), self.krylov.running)
        promising = moving & (self.gap(self._current_mu()) <= self.rtol)
        fresh = promising & ((self.streak == 0) | (self.streak >= needed - 1) | self._sure())
        self._update_ritz(np.flatnonzero(fresh))
        self.streak = np.where(self.gap(self._current_mu()) <= self.rtol, self.streak + 1, 0)
        agreed = (self.streak >= needed) | (self.streak > 0) & self._sure()
        # The last steps of a probe may yet show small curvatures as flat: what is done waits.
        waiting = self.probing and self.probe is not None and self.probe.ending
        return np.asarray(agreed | (~moving & waiting))

    def _sure(self) -> NDArray[np.bool_]:
        return np.asarray(self.gap(SURE * self.ritz) <= self.rtol)

    def _look(self, probe: Probe) -> None:
        """Take over what the probe has seen, and end it if it can do no more."""
        self.sight = sight = probe.look()
        self.probed = max(sight.ritz, probe.noise)  # less is rounding, and has no end
        if sight.floor * self.rtol > probe.noise:
            self.floor = sight.floor
            self.probing = not np.all(self.tight) and sight.floor < ENOUGH * sight.ritz
        elif not self.krylov.running.size:
            most = max(FEWEST, PATIENCE * max(map(len, self.krylov.lengths[: self.size.size])))
            self.probing = sight.steps < most or probe.steps < FEWEST
        self.probing &= not probe.exhausted

    def _current_mu(self) -> float:
        return max(SAFETY * self.smallest, self.floor if self.bounded else 0.0)

    def _update_ritz(self, columns: NDArray[np.int_]) -> None:
        for column in columns:
            if self.krylov.lengths[column]:
                least = EPS / min(self.krylov.lengths[column])
                self.ritz = min(self.ritz, max(self.krylov.ritz(column), least))
