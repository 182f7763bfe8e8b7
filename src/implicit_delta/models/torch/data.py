"""Training data as batches in a fixed order: tensors, datasets, data loaders."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as loading

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import NotDeterministicWarning, UnsupportedModelError
from implicit_delta.models.batches import RowNumbers
from implicit_delta.models.module_checks import NO_ROWS, check_lengths, is_batches
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.terms import SupervisedTerms
from implicit_delta.models.torch.wrappers import usable

KEPT_BYTES = 2**30  # loaded batches that are kept rather than loaded again in every pass


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches in a fixed order, on the module's device, floating point in its type.

    A stream has batches of its own size.
    """

    source: "Rows | Stream"
    batch_size: int
    dtype: torch.dtype
    device: torch.device
    _loaded: list[Any] = field(init=False, default_factory=list, repr=False)
    _taken: LastCache = field(init=False, default_factory=LastCache, repr=False)

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once; what fits into memory is loaded once."""
        return iter(self._loaded) if self._loaded else self.load(keep=True)

    def load(self, keep: bool = False) -> Iterator[Any]:
        """Go through all rows once, loading them anew."""
        loaded: list[Any] = []
        for raw in self.source.batches(self.batch_size):
            batch = self._moved(raw)
            size = sum(t.numel() * t.element_size() for t in leaves(batch))
            keep = keep and size * (len(loaded) + 1) <= KEPT_BYTES
            if keep:
                loaded.append(batch)
            yield batch
        if keep:
            self._loaded[:] = loaded

    def split(self, most: int, sizes: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
        for batch, rows in zip(self, sizes, strict=True):
            if rows <= most or not can_be_cut(batch, rows):
                yield batch, rows
                continue
            for start in range(0, rows, most):
                yield cut(batch, start, start + most), min(most, rows - start)

    def take(self, rows: RowNumbers) -> Any:
        return self._taken.get(rows, "batch", lambda: self._moved(self.source.take(rows)))

    def with_targets(self, targets: Array, terms: SupervisedTerms) -> "Batches":
        return replace(self, source=self.source.with_targets(torch.as_tensor(targets), terms))

    def _moved(self, batch: Any) -> Any:
        def move(tensor: Tensor) -> Tensor:
            kind = self.dtype if tensor.is_floating_point() else tensor.dtype
            return usable(tensor.to(device=self.device, dtype=kind))

        return map_tensors(move, batch)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what was loaded."""
        return Batches, (self.source, self.batch_size, self.dtype, self.device)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that can be taken by their numbers."""

    count: int
    take: Callable[[Any], Any]

    def with_targets(self, targets: Tensor, terms: SupervisedTerms) -> "Rows":
        """Replace the targets."""
        return Rows(self.count, partial(_take_with, self.take, targets, terms))

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Go through the rows in order."""
        for start in range(0, self.count, batch_size):
            yield self.take(range(start, min(start + batch_size, self.count)))


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches that can only be read from beginning to end."""

    iterable: Iterable[Any]

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Go through the batches as they come."""
        return iter(self.iterable)

    def with_targets(self, targets: Tensor, terms: SupervisedTerms) -> Rows:
        """Refuse: rows have no numbers."""
        raise cannot_draw("its data can only be read in order, and targets are drawn by row")

    def take(self, rows: RowNumbers) -> Any:
        """Refuse: rows have no numbers."""
        raise UnsupportedModelError(
            "Minibatches of random rows need data with a length and an index: tensors, a "
            "Dataset or a DataLoader of one, or a list of batches that can be joined to one; not "
            "an iterable that can only be read in order."
        )


def source_of(data: Any) -> Rows | Stream:
    """Dispatch on what was given as data, and fix the order of its rows."""
    if isinstance(data, loading.DataLoader):
        return _from_loader(data)
    if isinstance(data, loading.IterableDataset):
        return Stream(loading.DataLoader(data, batch_size=256, generator=torch.Generator()))
    if is_batches(data):
        return _from_batches(data)
    if isinstance(data, (tuple, list, Mapping)):
        return _from_tensors(map_arrays(data))
    if isinstance(data, loading.Dataset) or (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        return _from_dataset(data, loading.default_collate, range(len(data)))
    raise TypeError(
        f"data is a {type(data).__name__}; give a tuple of tensors (X, y), a torch Dataset, a "
        "torch DataLoader or a list of batches."
    )


def _take_with(
    take: Callable[[Any], Any], targets: Tensor, terms: SupervisedTerms, rows: Any
) -> Any:
    """Take rows with other targets."""
    index = torch.as_tensor(np.asarray(rows))
    return terms.retargeted(take(rows), targets[index])


def _from_batches(batches: list[Any]) -> Rows | Stream:
    """Join batches that fit together to one, whose rows have numbers; keep others as they are."""
    converted = [map_tensors(torch.as_tensor, batch, (Tensor, np.ndarray)) for batch in batches]
    tensors = [list(leaves(batch)) for batch in converted]
    numbers = [i for b in batches if isinstance(b, (tuple, list)) for i in b if np.isscalar(i)]
    if numbers or not all(tensors) or any(t.ndim == 0 for batch in tensors for t in batch):
        raise TypeError(
            "data is a list whose items hold no tensors with a row per observation. A list is "
            "taken as batches: give a list of examples as a torch Dataset or DataLoader, and "
            "arrays as a tuple (X, y)."
        )
    one_layout = all(_layout(batch) == _layout(converted[0]) for batch in converted)
    if not one_layout or not all(can_be_cut(b, len(next(leaves(b)))) for b in converted):
        return Stream(converted)
    joined = iter([torch.cat(parts) for parts in zip(*tensors, strict=True)])
    return _from_tensors(map_tensors(lambda _: next(joined), converted[0]))


def _from_tensors(tensors: Any) -> Rows:
    count = check_lengths(map(len, leaves(tensors)), "tensors")
    return Rows(count, partial(_take_tensors, tensors))


def _take_tensors(tensors: Any, rows: Any) -> Any:
    if isinstance(rows, range):
        return cut(tensors, rows.start, rows.stop)
    index = torch.as_tensor(np.asarray(rows))
    return map_tensors(lambda t: t[index.to(t.device)], tensors)


def _from_dataset(dataset: Any, collate: Callable[[list[Any]], Any], order: Sequence[int]) -> Rows:
    if isinstance(dataset, loading.TensorDataset) and collate is loading.default_collate:
        index = slice(None) if isinstance(order, range) else torch.as_tensor(order)
        return _from_tensors(tuple(t[index] for t in dataset.tensors))
    if not order:
        raise ValueError(NO_ROWS)
    return Rows(len(order), partial(_take_examples, dataset, collate, order))


def _take_examples(dataset: Any, collate: Any, order: Sequence[int], rows: Any) -> Any:
    return collate([dataset[order[int(i)]] for i in rows])


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
    dropped = len(dataset) % loader.batch_size if loader.drop_last and loader.batch_size else 0
    if dropped:
        warn(
            f"The DataLoader drops the last {dropped} of {len(dataset)} rows of every epoch "
            "(drop_last=True). Here every row of its dataset counts once, which is right if it "
            "was shuffled in training. If not, give a `torch.utils.data.Subset` of the rows that "
            "were used.",
            NotDeterministicWarning,
        )
    collate: Any = loader.collate_fn
    return _from_dataset(dataset, collate, _order(loader, dataset))


def _order(loader: "loading.DataLoader[Any]", dataset: Sized) -> Sequence[int]:
    sampler = loader.sampler
    if isinstance(sampler, loading.SubsetRandomSampler):
        return sorted(int(i) for i in sampler.indices)
    replacement = getattr(sampler, "replacement", False)
    if isinstance(sampler, loading.DistributedSampler):
        raise UnsupportedModelError(
            "The DataLoader chooses rows with DistributedSampler, one rank's share of them. For "
            "the rows of all ranks give `group=torch.distributed.group.WORLD` to `from_torch` on "
            "every rank; without ranks give the dataset itself."
        )
    if replacement or not isinstance(sampler, (loading.SequentialSampler, loading.RandomSampler)):
        raise UnsupportedModelError(
            f"The DataLoader chooses rows with {type(sampler).__name__}, so how often each row "
            "counts is not known. Give the dataset itself (or a `torch.utils.data.Subset`), with "
            "`weights=` if rows count differently."
        )
    return range(len(dataset))


def map_tensors(function: Callable[[Any], Any], batch: Any, kinds: Any = Tensor) -> Any:
    """Apply a function to every tensor in a batch made of dicts, tuples, lists and objects."""
    if isinstance(batch, kinds):
        return function(batch)
    if isinstance(batch, Mapping):
        mapped = {key: map_tensors(function, value, kinds) for key, value in batch.items()}
        return type(batch)(mapped) if not isinstance(batch, dict) else mapped  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item, kinds) for item in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, item, kinds) for item in batch)
    if attributes := _attributes(batch, kinds):
        batch = copy.copy(batch)
        for name, value in attributes.items():
            object.__setattr__(batch, name, function(value))  # also of a frozen dataclass
    return batch


def _attributes(batch: Any, kinds: Any = Tensor) -> dict[str, Any]:
    """Tensors that an object of the user's holds, by name."""
    held = {} if isinstance(batch, type) else getattr(batch, "__dict__", {})
    return {name: value for name, value in held.items() if isinstance(value, kinds)}


def cut(batch: Any, start: int, stop: int) -> Any:
    """Slice every tensor in a batch."""
    return map_tensors(lambda t: t[start:stop], batch)


def map_arrays(data: Any) -> Any:
    """Turn arrays and tables of numbers in data into tensors."""
    if isinstance(data, Mapping):
        return {key: map_arrays(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(map_arrays, data))
    if isinstance(data, (tuple, list)):
        return tuple(map_arrays(item) for item in data)
    if isinstance(data, Tensor):
        return data
    array = np.asarray(data)
    if array.ndim == 0:
        raise TypeError(
            f"data contains {data!r:.40}, which is not an array with a row per observation. Give a "
            "tuple of arrays (X, y); convert lists with `numpy.asarray` first."
        )
    if array.dtype.kind not in "fiubc":
        raise TypeError(
            f"data contains an array of {array.dtype}: convert it to numbers, for example "
            "categories to integers."
        )
    # torch takes no other byte order, and warns of arrays that it could not write to.
    array = array.astype(array.dtype.newbyteorder("="), copy=not array.flags.writeable)
    return torch.as_tensor(array)


def leaves(batch: Any) -> Iterator[Tensor]:
    """Go through all tensors in a batch."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (Mapping, tuple, list)):
        for item in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves(item)
    else:
        yield from _attributes(batch).values()


def can_be_cut(batch: Any, rows: int) -> bool:
    """Whether all tensors in a batch have this many rows."""
    return all(t.ndim > 0 and len(t) == rows for t in leaves(batch))


def _layout(batch: Any) -> Any:
    """Structure of a batch, with the type of its tensors and the shape of their rows."""
    if isinstance(batch, Tensor):
        return batch.dtype, batch.shape[1:]
    if isinstance(batch, (tuple, list)):
        return type(batch), [_layout(item) for item in batch]
    parts = dict(batch) if isinstance(batch, Mapping) else _attributes(batch)
    if parts:
        return type(batch), {name: _layout(item) for name, item in parts.items()}
    return batch  # strings or numbers, which are not joined
