"""Training data as batches in a fixed order: tensors, datasets, data loaders."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as loading

from implicit_delta._core.cache import LastCache
from implicit_delta.errors import NotDeterministicWarning, UnsupportedModelError
from implicit_delta.models.base import RowNumbers

KEPT_BYTES = 2**30  # loaded batches that are kept rather than loaded again in every pass


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches in a fixed order, on the module's device, floating point in its type.

    Attributes
    ----------
    source : source of rows
        Rows by number, or (a stream) only from beginning to end.
    batch_size : int
        Rows in a batch; a stream decides itself.
    """

    source: "Rows | Stream"
    batch_size: int
    dtype: torch.dtype
    device: torch.device
    _kept: list[Any] = field(init=False, default_factory=list, repr=False)
    _taken: LastCache = field(init=False, default_factory=LastCache, repr=False)

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once; what fits into memory is not loaded a second time."""
        return iter(self._kept) if self._kept else self.loaded(keep=True)

    def loaded(self, keep: bool = False) -> Iterator[Any]:
        """Go through all rows once, loading them anew."""
        loaded: list[Any] = []
        for raw in self.source.batches(self.batch_size):
            batch = self._moved(raw)
            keep = keep and nbytes(batch) * (len(loaded) + 1) <= KEPT_BYTES
            if keep:
                loaded.append(batch)
            yield batch
        if keep:
            self._kept[:] = loaded

    def take(self, rows: RowNumbers) -> Any:
        """Make a batch of the rows with these numbers; once, if it is asked for repeatedly."""
        source = self.source
        if isinstance(source, Stream):
            raise UnsupportedModelError(
                "Minibatches of random rows need data with a length and an index: tensors, a "
                "Dataset or a DataLoader of one, not an iterable that can only be read in order."
            )
        return self._taken.get(rows, "batch", lambda: self._moved(source.take(rows)))

    def _moved(self, batch: Any) -> Any:
        def move(tensor: Tensor) -> Tensor:
            kind = self.dtype if tensor.is_floating_point() else tensor.dtype
            return tensor.to(device=self.device, dtype=kind)

        return map_tensors(move, batch)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that can be asked for by number."""

    count: int
    take: Callable[[RowNumbers], Any]
    slice: Callable[[int, int], Any]

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Go through the rows in order."""
        for start in range(0, self.count, batch_size):
            yield self.slice(start, min(start + batch_size, self.count))


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches that can only be read from beginning to end."""

    iterable: Iterable[Any]

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Go through the batches as they come."""
        return iter(self.iterable)


def rows_of(data: Any) -> Rows | Stream:
    """Find out what was given as data, and fix the order of its rows."""
    if isinstance(data, loading.DataLoader):
        return _from_loader(data)
    if isinstance(data, loading.IterableDataset):
        return Stream(loading.DataLoader(data, batch_size=256, generator=torch.Generator()))
    if isinstance(data, (tuple, list, Mapping)):
        return _from_tensors(map_arrays(data))
    if isinstance(data, loading.Dataset) or (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        return _from_dataset(data, loading.default_collate, range(len(data)))
    raise TypeError(
        f"data is a {type(data).__name__}; give a tuple of tensors (X, y), a torch Dataset or a "
        "torch DataLoader."
    )


def _from_tensors(tensors: Any) -> Rows:
    lengths = {len(t) for t in leaves(tensors)}
    if len(lengths) != 1:
        raise ValueError(
            f"The tensors in data have different lengths, {sorted(lengths)}: all must have one row "
            "per observation."
            if lengths
            else "There are no tensors in data: give a tuple such as (X, y)."
        )
    (count,) = lengths
    if count == 0:
        raise ValueError("There are no rows in data.")

    def take(rows: RowNumbers) -> Any:
        index = torch.as_tensor(np.asarray(rows))
        return map_tensors(lambda t: t[index.to(t.device)], tensors)

    return Rows(count, take, lambda a, b: map_tensors(lambda t: t[a:b], tensors))


def _from_dataset(dataset: Any, collate: Callable[[list[Any]], Any], order: Sequence[int]) -> Rows:
    if isinstance(dataset, loading.TensorDataset) and collate is loading.default_collate:
        index = slice(None) if isinstance(order, range) else torch.as_tensor(order)
        return _from_tensors(tuple(t[index] for t in dataset.tensors))
    numbers = list(order)
    if not numbers:
        raise ValueError("There are no rows in data.")

    def take(rows: Iterable[int]) -> Any:
        return collate([dataset[numbers[int(i)]] for i in rows])

    return Rows(len(numbers), take, lambda a, b: take(range(a, b)))


def _from_loader(loader: "loading.DataLoader[Any]") -> Rows | Stream:
    """Read the loader's dataset in order, with the loader's own way to make batches."""
    dataset: Any = loader.dataset
    if isinstance(dataset, loading.IterableDataset):
        return Stream(loader)
    if loader.batch_size is None and loader.batch_sampler is None:
        raise UnsupportedModelError(
            "The DataLoader does not batch (batch_size=None). Give its dataset, or a DataLoader "
            "that makes batches."
        )
    if loader.drop_last and isinstance(loader.batch_size, int):
        _warn_drop_last(len(dataset) % loader.batch_size, len(dataset))
    collate: Any = loader.collate_fn
    return _from_dataset(dataset, collate, _order(loader, dataset))


def _order(loader: "loading.DataLoader[Any]", dataset: Sized) -> Sequence[int]:
    sampler = loader.sampler
    if isinstance(sampler, loading.SubsetRandomSampler):
        return sorted(int(i) for i in sampler.indices)
    replacement = getattr(sampler, "replacement", False)
    if replacement or not isinstance(sampler, (loading.SequentialSampler, loading.RandomSampler)):
        raise UnsupportedModelError(
            f"The DataLoader chooses rows with {type(sampler).__name__}, so how often each row "
            "counts is not known. Give the dataset itself (or a `torch.utils.data.Subset`), with "
            "`weights=` if rows count differently."
        )
    return range(len(dataset))


def _warn_drop_last(dropped: int, count: int) -> None:
    if dropped:
        warnings.warn(
            f"The DataLoader drops the last {dropped} of {count} rows of every epoch "
            "(drop_last=True). Here every row of its dataset counts once, which is right if it "
            "was shuffled in training. If not, give a `torch.utils.data.Subset` of the rows that "
            "were used.",
            NotDeterministicWarning,
            stacklevel=5,
        )


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """Apply a function to every tensor in a batch made of dicts, tuples and lists."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        mapped = {key: map_tensors(function, value) for key, value in batch.items()}
        return type(batch)(mapped) if not isinstance(batch, dict) else mapped  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item) for item in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, item) for item in batch)
    return batch


def map_arrays(data: Any) -> Any:
    """Turn NumPy arrays in data into tensors."""
    if isinstance(data, Mapping):
        return {key: map_arrays(value) for key, value in data.items()}
    if isinstance(data, (tuple, list)):
        return tuple(map_arrays(item) for item in data)
    return torch.as_tensor(data)


def leaves(batch: Any) -> list[Tensor]:
    """All tensors in a batch."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, batch)
    return found


def nbytes(batch: Any) -> int:
    """Size of all tensors in a batch."""
    return sum(t.numel() * t.element_size() for t in leaves(batch))
