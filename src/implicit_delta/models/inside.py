"""Log-likelihoods that end at a bound: continued beyond it, as far as differences need.

With no event `poisson.logpmf(0, r)` has its maximum at r = 0, is NaN for any smaller r, and falls
like a line for larger ones. What is inside of the bound tells its derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.calculus.tracing.traced import Traced
from implicit_delta.core.types import Array

CONTINUE = (5.0, -10.0, 10.0, -5.0, 1.0)  # a polynomial of degree 4, one step back
BEYOND = 1e-6  # of a step: what is not defined there ends at the bound itself
HAIRS = (1e-100, 1e-50), (4, 64)  # inside of a bound at zero; of another one, in its last digits
STABLE = 1e-6  # change of a term between the two that has a limit


@dataclass(frozen=True, eq=False)
class Inside:
    """A function (d,) to (n,) whose entries that end at a bound are continued beyond it.

    Entries that are NaN at the bound itself, such as 0 log 0, are their limits from inside.
    """

    function: Callable[[Array], Any]
    low: Array
    high: Array

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def keywords(self) -> dict[str, Any]:
        """Bound arguments of the function, if it is a partial one."""
        return self.function.keywords  # type: ignore[attr-defined,no-any-return]

    def __call__(self, theta: Array) -> Any:
        """Evaluate, and mend what is not finite at or beyond a bound."""
        inside = np.all(theta > self.low) and np.all(theta < self.high)
        if inside or isinstance(theta, Traced):  # a trace that is not finite is none
            return self.function(theta)
        point = np.array(theta)  # the function may change its argument
        with np.errstate(all="ignore"):
            found = self._beyond(theta)
            ends = ~np.isfinite(found)
            if found.ndim != 1 or not ends.any():
                return found
            edge = np.clip(point, self.low, self.high)
            mended = self._limit(point) if np.array_equal(edge, point) else self._past(point, edge)
        return np.where(ends & np.isfinite(mended), mended, found)

    def _beyond(self, theta: Array) -> Array:
        """Evaluate where the function may not be defined: NaN if it raises there."""
        edge = np.clip(theta, self.low, self.high)
        try:
            return np.asarray(self.function(theta.copy()))
        except (ArithmeticError, ValueError):
            if np.array_equal(edge, theta):
                raise
            return np.full(np.shape(self.function(edge)), np.nan)

    def _limit(self, edge: Array) -> Array:
        """Entries a hair inside, if a wider hair says the same; -infinity is what it is."""
        at, near, wide = (self._at(point) for point in (edge, *self._hairs(edge)))
        same = abs(near - wide) <= STABLE * np.maximum(1.0, abs(near))
        return np.where(np.isnan(at) & same, near, np.nan)

    def _past(self, point: Array, edge: Array) -> Array:
        outward = point - edge
        beyond, first = self._at(edge + BEYOND * outward), np.asarray(self(edge.copy()))
        rows = [first, *(self._at(edge - k * outward) for k in range(1, len(CONTINUE)))]
        mended = sum(c * row for c, row in zip(CONTINUE, rows, strict=True))
        return np.where(np.isfinite(beyond), np.nan, mended)

    def _hairs(self, edge: Array) -> list[Array]:
        inward = (edge <= self.low) * 1.0 - (edge >= self.high)
        sizes = zip(*HAIRS, strict=True)
        return [edge + inward * np.where(edge == 0, z, k * np.spacing(abs(edge))) for z, k in sizes]

    def _at(self, point: Array) -> Array:
        return np.array(self._beyond(point), dtype=np.float64)
