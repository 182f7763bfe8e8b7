"""Parameters as a function of fewer coordinates: charts of constraints, and linear maps."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.models.penalty import Ridge


class Parametrization(Protocol):
    """All parameters theta = c(z), (d,), as a function of k coordinates z.

    Attributes
    ----------
    size : int
        Number of coordinates.
    linear : bool
        Whether c is linear, up to a constant.
    """

    @property
    def size(self) -> int: ...

    @property
    def linear(self) -> bool: ...

    def point(self, z: Array) -> Array:
        """Parameters at some coordinates, (d,)."""

    def coordinates(self, theta: Array) -> Array:
        """Coordinates of some parameters, (k,)."""

    def push(self, theta: Array, v: Array) -> Array:
        """Map steps of the coordinates, (k,) or (k, m), to steps of theta."""

    def pull(self, theta: Array, g: Array) -> Array:
        """Map gradients in theta, (d,) or (d, m), to gradients in the coordinates."""

    def second_order(self, gradient: Array, z: Array, v: Array) -> Array:
        r"""Sum :math:`g_j \nabla^2 c_j(z) v` over all parameters, for v of (k,) or (k, m)."""


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Coefficients ``b = origin + basis @ theta``, with ``theta = b[kept]``.

    An overparametrized host library, such as softmax with one column per class, has directions
    that leave the likelihood unchanged. They are left out here, and only here.
    """

    origin: Array
    basis: scipy.sparse.csr_array
    kept: NDArray[np.intp]

    linear = True

    @classmethod
    def fixing_sums(cls, b: Array, groups: NDArray[np.intp]) -> "LinearMap":
        """Hold the sum of each row of `groups`, (g, C) indices into b, where it is.

        Theta is b without the last of each group, which takes up the difference.
        """
        last, others = groups[:, -1], groups[:, :-1]
        identity = scipy.sparse.eye_array(b.size, format="lil")
        identity[np.repeat(last, others.shape[1]), others.ravel()] = -1.0
        origin = np.zeros(b.size)
        origin[last] = b[groups].sum(axis=1)
        kept = np.setdiff1d(np.arange(b.size), last)
        return cls(origin, identity.tocsc()[:, kept].tocsr(), kept)

    @classmethod
    def selecting(cls, places: NDArray[np.intp], size: int) -> "LinearMap":
        """Take the entries at these places of a longer vector, which it has each once."""
        each = np.arange(places.size)
        ones = (np.ones(places.size), (each, places))
        basis = scipy.sparse.csr_array(ones, shape=(places.size, size))
        return cls(np.zeros(places.size), basis, places)

    @property
    def size(self) -> int:
        return int(self.basis.shape[1])

    def point(self, z: Array) -> Array:
        return np.asarray(self.origin + self.basis @ z)

    def coordinates(self, theta: Array) -> Array:
        return theta[self.kept]

    def push(self, theta: Array, v: Array) -> Array:
        return np.asarray(self.basis @ v)

    def pull(self, theta: Array, g: Array) -> Array:
        return np.asarray(self.basis.T @ g)

    def second_order(self, gradient: Array, z: Array, v: Array) -> Array:
        return np.zeros_like(v)

    def ridge(self, ridge: Ridge) -> Ridge:
        """Write a ridge on b as one on theta."""
        if ridge.basis is None:
            return Ridge(ridge.strength, ridge.center - self.origin, ridge.name, self.basis)
        center = ridge.center - ridge.basis @ self.origin
        return Ridge(ridge.strength, center, ridge.name, ridge.basis @ self.basis)


@dataclass(frozen=True, eq=False)
class Held:
    """Some parameters alone, as coordinates; the others are where a point has them.

    Attributes
    ----------
    around : (d,) array
        The point.
    free : (k,) array of int
        Places of the coordinates.
    """

    around: Array
    free: NDArray[np.intp]

    linear = fixes = True

    @property
    def size(self) -> int:
        return self.free.size

    def point(self, z: Array) -> Array:
        theta = np.array(self.around)
        theta[self.free] = z
        return theta

    def coordinates(self, theta: Array) -> Array:
        return theta[self.free]

    def part(self, covariance: Array) -> Array:
        """Take the part of a covariance of all parameters that is of the free ones, (k, k)."""
        return covariance[np.ix_(self.free, self.free)]

    def slope(self, theta: Array) -> Array:
        return self.push(theta, np.eye(self.size))

    def push(self, theta: Array, v: Array) -> Array:
        moved = np.zeros((self.around.size, *v.shape[1:]))
        moved[self.free] = v
        return moved

    def pull(self, theta: Array, g: Array) -> Array:
        return g[self.free]

    def second_order(self, gradient: Array, z: Array, v: Array) -> Array:
        return np.zeros_like(v)
