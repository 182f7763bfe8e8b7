"""A generator that draws by inversion: antithetic, common to all parameters, and on record."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, pdtr, pdtrik

from implicit_delta.core.types import Array


class Inversion(np.random.Generator):
    """A generator whose normal numbers and Poisson counts are quantiles of uniform numbers.

    With the same seed these are monotone functions of their means, so that data simulated at two
    parameters differ as little as they can; `mirrored` takes one less each uniform number. Poisson
    counts are given the values in `forced`, in order, if there are any; their means, call by call,
    are kept in `means`. Other distributions are NumPy's.
    """

    def __init__(
        self, seed: Any, mirrored: bool = False, forced: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(np.random.PCG64(seed))
        self.mirrored, self.forced = mirrored, forced
        self.means: list[Array] = []

    def random(self, size: Any = None, *options: Any, **named: Any) -> Any:
        """Draw uniform numbers."""
        drawn = super().random(size, *options, **named)
        return 1 - drawn if self.mirrored else drawn

    def standard_normal(self, size: Any = None, *options: Any, **named: Any) -> Any:
        """Draw standard normal numbers."""
        return ndtri(self.random(size))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw normal numbers."""
        shape = np.broadcast_shapes(np.shape(loc), np.shape(scale)) if size is None else size
        return loc + np.asarray(scale) * ndtri(self.random(shape))

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        """Draw counts, or give those that are forced."""
        mean = np.broadcast_to(np.asarray(lam, float), np.shape(lam) if size is None else size)
        if not np.all(mean >= 0):
            return super().poisson(lam, size)  # which says what is wrong
        place = sum(known.size for known in self.means)
        self.means.append(mean.ravel())
        if self.forced is not None:
            return self.forced[place : place + mean.size].reshape(mean.shape)[()]
        u = self.random(mean.shape)
        above = np.ceil(np.where(mean > 0, pdtrik(u, np.maximum(mean, 1e-300)), 0))
        below = np.maximum(above - 1, 0)  # inverses are rounded
        return np.where(pdtr(below, mean) >= u, below, above).astype(np.int64)[()]
