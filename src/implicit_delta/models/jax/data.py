"""Training data as batches in a fixed order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.batches import RowNumbers
from implicit_delta.models.jax.module import x64
from implicit_delta.models.module_checks import check_lengths, is_batches
from implicit_delta.models.terms import SupervisedTerms

KEPT_BYTES = 2**30  # of data that are converted once for all, and not batch by batch


@dataclass(frozen=True, eq=False)
class Batches:
    """All rows on the device, in batches of at most `batch_size`, floating point in one type.

    The batches are as equal as they can be, so that functions are compiled for two sizes at most.
    """

    arrays: Any
    count: int
    batch_size: int
    dtype: Any

    @property
    def shapes(self) -> Any:
        """Shapes and types of all rows as one batch."""
        return jax.eval_shape(self.typed, self.arrays)

    def typed(self, batch: Any) -> Any:
        """Convert a batch: large data are kept in the type in which they were given."""

        def convert(array: Any) -> Any:
            if array.dtype == self.dtype or not jnp.issubdtype(array.dtype, jnp.floating):
                return array
            with x64(self.dtype == np.float64):
                return array.astype(self.dtype)

        return jax.tree_util.tree_map(convert, batch)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The start and the end of each batch."""
        pieces = -(-self.count // self.batch_size)
        size = -(-self.count // pieces)
        return [(start, min(start + size, self.count)) for start in range(0, self.count, size)]

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once."""
        return (self.slice(start, stop) for start, stop in self.bounds)

    def slice(self, start: int, stop: int) -> Any:
        """Make a batch of consecutive rows; all rows are not copied."""
        if (start, stop) == (0, self.count):
            return self.typed(self.arrays)
        return self.typed(
            jax.tree_util.tree_map(
                lambda a: lax.dynamic_slice_in_dim(a, start, stop - start), self.arrays
            )
        )

    def split(self, most: int, sizes: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
        for start, stop in replace(self, batch_size=most).bounds:
            yield self.slice(start, stop), stop - start

    def take(self, rows: RowNumbers) -> Any:
        return self.typed(jax.tree_util.tree_map(lambda a: a[rows], self.arrays))

    def with_targets(self, targets: Array, terms: SupervisedTerms) -> "Batches":
        """Replace the targets, in their type if that can hold them: nothing is compiled anew."""
        kind = terms.targets(self.arrays).dtype
        exact = np.array_equal(targets, targets.astype(kind))
        drawn = jnp.asarray(targets, kind if exact else None)
        return replace(self, arrays=terms.retargeted(self.arrays, drawn))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as NumPy: JAX would restore float64 as float32."""
        numbers = jax.tree_util.tree_map(np.asarray, self.arrays)
        return _restored, (numbers, self.count, self.batch_size, self.dtype)


def arrays_of(data: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Move data to JAX, floating point in the working type, and count the rows."""
    leaves, structure = jax.tree_util.tree_flatten(_joined(data) if is_batches(data) else data)
    refuse_explicit(leaves, "data")
    numbers = sum(int(np.prod(np.shape(leaf))) for leaf in leaves)
    kind = dtype if numbers * dtype.itemsize <= KEPT_BYTES else None
    arrays = [_converted(leaf, kind) for leaf in leaves]
    count = check_lengths(map(len, arrays), "arrays")
    return jax.tree_util.tree_unflatten(structure, arrays), count


def refuse_explicit(leaves: list[Any], what: str) -> None:
    """Refuse arrays on a mesh with explicit axes, whose types change with every operation."""
    for leaf in leaves:
        mesh: Any = getattr(getattr(leaf, "sharding", None), "mesh", None)
        axes = zip(mesh.axis_names, mesh.axis_types or (), strict=False) if mesh else ()
        explicit = [str(name) for name, kind in axes if "explicit" in str(kind).lower()]
        if explicit:
            sizes = tuple(mesh.shape[name] for name in mesh.axis_names)
            raise UnsupportedModelError(
                f"{what} is sharded over a mesh with the explicit axis {explicit[0]!r}, where the "
                "sharding is part of the type of an array and batches of some rows have none. Put "
                "it on a mesh of automatic axes: `mesh = jax.make_mesh("
                f"{sizes}, {mesh.axis_names}, axis_types=(jax.sharding.AxisType.Auto,) * "
                f"{len(sizes)})` and `jax.device_put(x, jax.sharding.NamedSharding(mesh, "
                f"jax.sharding.PartitionSpec({explicit[0]!r})))`. It stays sharded."
            )


def _joined(batches: list[Any]) -> Any:
    """Join a list of batches to one."""
    try:
        return jax.tree_util.tree_map(lambda *parts: np.concatenate(parts), *batches)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"data is a list, taken as batches, and these cannot be joined: {error} Give batches "
            "of one structure whose arrays differ in the number of rows only (pad sequences to "
            "one length), or arrays as a tuple (X, y)."
        ) from error


def _restored(numbers: Any, count: int, batch_size: int, dtype: Any) -> Batches:
    with x64(True):  # which keeps every array in its type
        return Batches(jax.tree_util.tree_map(jnp.asarray, numbers), count, batch_size, dtype)


def _converted(leaf: Any, dtype: np.dtype[Any] | None) -> jax.Array:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if array.ndim == 0:
        raise TypeError(
            f"data contains {leaf!r:.40}, which is not an array with a row per observation. Give a "
            "tuple of arrays (X, y); convert lists and data loaders with `numpy.asarray` first."
        )
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiubc":
        raise TypeError(
            f"data contains an array of {array.dtype}: convert it to numbers, for example "
            "categories to integers."
        )
    # Also a copy of NumPy arrays, which their owner may change.
    return jnp.array(array, dtype if jnp.issubdtype(array.dtype, jnp.floating) else None)
