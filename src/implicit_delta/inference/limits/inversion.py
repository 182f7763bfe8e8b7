"""A generator that draws by inversion: antithetic, common to all parameters, and on record."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik, ndtri, pdtr, pdtrik

from implicit_delta.core.types import Array


class Inversion(np.random.Generator):
    """A generator whose draws are quantile functions of uniform numbers.

    With the same seed a draw is a monotone function of its mean, so that what is simulated at two
    parameters differs as little as it can (common random numbers); `mirrored` takes one less each
    uniform number (antithetic). Distributions that are not defined here are those of NumPy, with
    the same seed.

    Attributes
    ----------
    means : list of arrays
        Of all Poisson counts that were drawn, call by call.
    forced : array or None
        Values that Poisson counts are given in place of draws, in order.
    """

    def __init__(
        self, seed: Any, mirrored: bool = False, forced: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(np.random.PCG64(seed))
        self.mirrored, self.forced = mirrored, forced
        self.means: list[Array] = []

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw uniform numbers."""
        drawn = super().random(size, dtype, out)
        return 1 - drawn if self.mirrored and out is None else drawn

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draw between two ends."""
        return low + (np.asarray(high) - low) * self.random(_shape(size, low, high))

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw standard normal numbers."""
        if out is not None:
            return super().standard_normal(size, dtype, out)
        return ndtri(self.random(size)).astype(dtype)[()]

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw normal numbers."""
        return loc + np.asarray(scale) * self.standard_normal(_shape(size, loc, scale))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw exponential numbers."""
        return -np.asarray(scale) * np.log1p(-self.random(_shape(size, scale)))

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draw numbers of successes."""
        u = self.random(_shape(size, n, p))
        return _count(bdtrik(u, n, p), lambda k: bdtr(k, n, p), u)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        """Draw counts, or give those that are forced."""
        shape = _shape(size, lam)
        mean = np.broadcast_to(np.asarray(lam, dtype=np.float64), shape)
        if not np.all(mean >= 0):
            return super().poisson(lam, size)  # which says what is wrong
        place = sum(known.size for known in self.means)
        self.means.append(mean.ravel())
        if self.forced is not None:
            return self.forced[place : place + mean.size].reshape(shape)[()]
        u = self.random(shape)
        with np.errstate(all="ignore"):
            return _count(np.where(mean > 0, pdtrik(u, mean), 0), lambda k: pdtr(k, mean), u)


def _shape(size: Any, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, parameters))
    return (size,) if np.ndim(size) == 0 else tuple(size)


def _count(inverse: Any, distribution: Any, u: Any) -> Any:
    """Round the inverse of a distribution function of counts up, unless that is one too many."""
    above = np.ceil(inverse)
    below = np.maximum(above - 1, 0)
    return np.where(distribution(below) >= u, below, above).astype(np.int64)[()]
