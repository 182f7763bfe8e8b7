"""Training data as batches in a fixed order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from implicit_delta.models.jax.module import x64


@dataclass(frozen=True, eq=False)
class Batches:
    """All rows on the device, and how many of them to take at a time.

    The batches are as equal as they can be, so that functions are compiled for two sizes at most.
    """

    arrays: Any
    count: int
    batch_size: int

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each batch starts and ends."""
        pieces = -(-self.count // self.batch_size)
        size = -(-self.count // pieces)
        return [(start, min(start + size, self.count)) for start in range(0, self.count, size)]

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once."""
        return (self.slice(start, stop) for start, stop in self.bounds)

    def slice(self, start: int, stop: int) -> Any:
        """Make a batch of consecutive rows; all rows are not copied."""
        if (start, stop) == (0, self.count):
            return self.arrays
        return jax.tree_util.tree_map(
            lambda a: lax.dynamic_slice_in_dim(a, start, stop - start), self.arrays
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross process boundaries as NumPy: JAX would restore as float32 what is float64."""
        numbers = jax.tree_util.tree_map(np.asarray, self.arrays)
        return _restored, (numbers, self.count, self.batch_size)


def arrays_of(data: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Move data to JAX, floating point in the working type, and count the rows."""
    leaves, structure = jax.tree_util.tree_flatten(data)
    arrays = [_converted(leaf, dtype) for leaf in leaves]
    lengths = sorted({len(a) for a in arrays})
    if not lengths:
        raise ValueError("There are no arrays in data: give a tuple such as (X, y).")
    if len(lengths) > 1:
        raise ValueError(
            f"The arrays in data have different lengths, {lengths}: all must have one row per "
            "observation."
        )
    if lengths[0] == 0:
        raise ValueError("There are no rows in data.")
    return jax.tree_util.tree_unflatten(structure, arrays), lengths[0]


def _restored(numbers: Any, count: int, batch_size: int) -> Batches:
    with x64(True):  # which keeps every array in its type
        return Batches(jax.tree_util.tree_map(jnp.asarray, numbers), count, batch_size)


def _converted(leaf: Any, dtype: np.dtype[Any]) -> jax.Array:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if array.ndim == 0:
        raise TypeError(
            f"data contains {leaf!r:.40}, which is no array with a row per observation. Give a "
            "tuple of arrays (X, y); convert lists and data loaders with `numpy.asarray` first."
        )
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiubc":
        raise TypeError(
            f"data contains an array of {array.dtype}: convert it to numbers, for example "
            "categories to integers."
        )
    # Also a copy of NumPy arrays, which their owner may change.
    return jnp.array(array, dtype if jnp.issubdtype(array.dtype, jnp.floating) else None)
