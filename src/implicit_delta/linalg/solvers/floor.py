"""Lower bound on the eigenvalues of a matrix, from the recurrence of a random vector."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio
from implicit_delta.linalg.krylov import Krylov

CHANCE = 1e-3  # that a floor is wrong, over random starts
LEAST = CHANCE * math.sqrt(math.pi / 2)  # |N(0, 1)| is below this with that probability
FLAT = 1e-13  # of the largest Ritz value: rounding
INDISTINCT = 10.0  # times the most negative Ritz value: positive ones below may be errors as well
FIRST_LOOK, LOOK_SOON, LOOK_LATER = 10, 1.02, 1.1  # steps, and times as many as at the last look
BISECTIONS = 20
ENDING = 1e-6  # of the largest entry: what is left of z


@dataclass(frozen=True)
class Sight:
    """The spectrum of A, as far as some steps have shown it.

    Parameters
    ----------
    ritz : float
        The smallest Ritz value that is not flat.
    floor : float
        Below all eigenvalues that are not flat, with probability 0.999; 0 if that is not known.
    likely : float
        The same for eigenvectors of which the start has at least an average share.
    steps : float
        Steps after which a floor is expected, at the present rate.
    flat : float
        About the number of flat directions; 0 if there is no flat Ritz value.
    """

    ritz: float = math.inf
    floor: float = 0.0
    likely: float = 0.0
    steps: float = math.inf
    flat: float = 0.0


class Probe:
    r"""Lanczos process from a standard normal z, which contains every eigenvector of A.

    With :math:`p_j` the orthonormal polynomials of the recurrence, no eigenvalue x has more than
    :math:`1 / \sum_j p_j(x)^2` of the squared length of z (Christoffel). The smallest one has
    :math:`(z'v)^2 / |z|^2`, where :math:`z'v` is standard normal, so with probability 0.999 it
    lies where

    .. math:: \sum_{j \le k} p_j(x)^2 \le |z|^2 / \eta^2, \qquad \eta = 0.00125.

    Below the smallest Ritz value the sum falls with x; a bisection finds where that begins. The
    probability is over z alone, for any A and at all k at once. It is the argument of Kuczynski
    and Wozniakowski (1992) with the polynomials found in place of the worst possible ones.

    A Ritz value of zero, to working precision, is set apart: the floor is then below all other
    eigenvalues, and the part of z along these flat directions shows whether b has any.
    """

    def __init__(self, krylov: Krylov, b: Array) -> None:
        self.krylov, self.column, self.b = krylov, krylov.solved, b
        self.size = float(krylov.first_size[self.column])
        self.shares: list[Array] = []  # of each vector in each column of b
        self._next_look, self._idle = FIRST_LOOK, False

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return len(self.krylov.lengths[self.column])

    @property
    def noise(self) -> float:
        """The rounding in products."""
        return float(self.krylov.noise[self.column])

    @property
    def exhausted(self) -> bool:
        """Whether z has no further eigenvectors."""
        return bool(self.krylov.ended[self.column])

    @property
    def ending(self) -> bool:
        """Whether z has hardly any further eigenvectors."""
        last = self.krylov.tridiagonal(self.column)[1][-1]
        return bool(last <= ENDING * self.krylov.largest[self.column])

    def watch(self) -> None:
        """Note the newest vector, before a step, by its share in each column of b."""
        if not self.exhausted:
            self.shares.append(self.b.T @ self.krylov.vector(self.column))

    def due(self, idle: bool) -> bool:
        """Whether it is time to look: after some more steps, or once nothing else is to do."""
        due = self.exhausted or self.steps >= self._next_look or (idle and not self._idle)
        self._idle = idle
        return due

    def look(self) -> Sight:
        """Find out what the recurrence says of the spectrum."""
        count, limit = self.steps, self._limit()
        flat, first = 0.0, 0
        if self._ritz(0) <= limit:
            values, vectors = self._below(limit)
            flat, first = max(1.0, self.size * float(vectors[0] @ vectors[0])), values.size
        ritz = self._ritz(first) if first < count else math.inf
        low, most = 2 * limit if flat else 0.0, self.size / LEAST**2
        steps = count * math.log(most) / math.log(max(self._sum(low, most), 1 + 1e-6))
        self._next_look = math.ceil(min(max(steps, LOOK_SOON * count), LOOK_LATER * count))
        floor, likely = self._floor(low, ritz, most), self._floor(low, ritz, self.size)
        return Sight(ritz, floor, likely, steps, flat)

    def flat_part(self, quadratic: Array) -> tuple[float, float]:
        """Return the largest part of a column of b along the flat directions, and its weight.

        The part is relative to the length of the column, and its weight to ``b' A^-1 b``, (K,).
        One random flat direction stands for all: on average it has an equal share of each.
        """
        values, vectors = self._below(self._limit())
        if not values.size:
            return 0.0, 0.0
        vectors[1::2] *= -1  # the vectors of the recurrence are residuals, of alternating sign
        mix = vectors @ vectors[0]
        count = max(1.0, self.size * float(mix @ mix))
        squares = count * (mix @ np.array(self.shares[: self.steps])) ** 2 / (mix @ mix)
        lengths = np.einsum("dk,dk->k", self.b, self.b, dtype=np.float64)
        weights = squares / max(abs(values[0]), FLAT * self._ritz(-1), self.noise)
        part = math.sqrt(np.max(ratio(squares, lengths)))
        return part, float(np.max(ratio(weights, quadratic)))

    def _limit(self) -> float:
        """Return the largest Ritz value that counts as flat.

        Among all there are, one of the size of rounding may have either sign.
        """
        error = max(-self._ritz(0), self.noise if self.exhausted else 0.0)
        return max(FLAT * self._ritz(-1), INDISTINCT * error)

    def _below(self, limit: float) -> tuple[Array, Array]:
        """Return Ritz values up to a limit, ascending, and their coordinates as columns."""
        diagonal, beside = self.krylov.tridiagonal(self.column)
        picked = {"select": "v", "select_range": (-math.inf, limit)}
        values, vectors = eigh_tridiagonal(diagonal, beside[:-1], **picked)
        return values, vectors

    def _ritz(self, k: int) -> float:
        return self.krylov.ritz(self.column, k)

    def _floor(self, low: float, high: float, most: float) -> float:
        """Find the largest x up to ``high`` that is no eigenvalue; 0 if ``low`` may be one."""
        if not low < high < math.inf or self._sum(low, most) < most:
            return 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._sum(middle, most) < most else (middle, high)
        return low

    def _sum(self, x: float, most: float) -> float:
        """Sum the squared polynomials at x, up to ``most``."""
        before, p, last, total = 0.0, 1.0, 0.0, 1.0
        for along, size in zip(*self.krylov.tridiagonal(self.column), strict=True):
            if size == 0:
                return most
            before, p, last = p, ((x - along) * p - last * before) / size, size
            total += p * p
            if total >= most:
                return most
        return total


def random_vector(d: int) -> Array:
    """Draw the start of a probe, (d, 1), the same at every call."""
    return np.random.default_rng(0).standard_normal((d, 1))
