"""Weights of a bootstrap, drawn where the rows are: from a seed and the number of each row."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray
from scipy import special

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.weights import Weights

GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea and Flood, 2014): its step, and its mixing
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
COUNTED = special.pdtr(np.arange(30), 1.0)  # of a Poisson count with mean 1, up to 1 - 1e-32
SMALLEST = 2.0**-54  # half a step of the uniform numbers, where these are 0

Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Draw:
    """Numbers of times that rows or clusters are drawn: independent counts, or smooth weights.

    Multinomial counts given their sum are Poisson counts, and Dirichlet weights are those of gamma
    variables. With very many rows their sum hardly varies, and what is drawn for a row depends on
    its number alone.

    Attributes
    ----------
    kind : {"resample", "bayesian"}
    seed : int
        From 0 to 2^64 - 1.
    """

    kind: str
    seed: int

    def often(self, numbers: Numbers, own: Array) -> Array:
        """Draw for what has these numbers, (n,), where each is there so often itself, (n,)."""
        u = uniform(self.seed, numbers)
        found = _counts(u, own) if self.kind == "resample" else _gammas(u, own)
        return np.where(own > 0, found, 0.0)

    def reweighted(self, weights: Array, own: Array, numbers: Numbers) -> Array:
        """Weights (n,) of drawn rows that are so many observations, (n,)."""
        return np.asarray(weights * ratio(self.often(numbers, own), own))

    def of_rows(self, weights: Weights) -> Array:
        """Weights (n,) of all rows."""
        return self.reweighted(weights.values, weights.counts, np.arange(weights.values.size))

    def by_clusters(self, weights: Array, codes: Numbers) -> Array:
        """Weights (n,) of the rows of drawn clusters."""
        return np.asarray(weights * self.often(codes, np.ones(codes.size)))


class Drawn(NDArrayOperatorsMixin):
    """Weights (n,) that shards have drawn: an array in this process only where one is needed."""

    def __init__(self, n: int, make: Callable[[], Array]) -> None:
        self.size, self.shape, self._make = n, (n,), make

    @cached_property
    def _values(self) -> Array:
        return self._make()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._values, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        known = (own._values if isinstance(own, Drawn) else own for own in inputs)
        return getattr(ufunc, method)(*known, **options)

    def __getitem__(self, rows: Any) -> Any:
        return self._values[rows]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._values, name)


def uniform(seed: int, numbers: Numbers) -> Array:
    """Hash numbers to [0, 1): the terms of SplitMix64 with these numbers."""
    z = np.asarray(numbers).astype(np.uint64) * np.uint64(GOLDEN)  # modulo 2^64
    z += np.uint64((seed + GOLDEN) % 2**64)
    for shift, factor in MIXING:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((z >> np.uint64(11)) * 2.0**-53)


def _counts(u: Array, own: Array) -> Array:
    """Invert the Poisson distribution: the first count whose probability reaches u."""
    found = np.searchsorted(COUNTED, u).astype(np.float64)
    other = (own != 1) & (own > 0)
    if np.any(other):
        p, mean = np.maximum(u[other], SMALLEST), own[other]
        most = np.ceil(special.pdtrik(p, mean))
        less = np.maximum(most - 1, 0.0)
        found[other] = np.where(special.pdtr(less, mean) >= p, less, most)  # rounding
    return found


def _gammas(u: Array, own: Array) -> Array:
    """Invert the gamma distribution, which is exponential for one observation."""
    found = -np.log1p(-u)
    other = (own != 1) & (own > 0)
    found[other] = special.gammaincinv(own[other], u[other])
    return found
