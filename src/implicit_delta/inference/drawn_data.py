"""Rows of whatever a `fit` takes: frames, arrays, lists of rows, and tuples or dicts of these."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array
from implicit_delta.methods.replication import spread

Place: TypeAlias = tuple[Any, ...]  # keys that lead to a table inside the data
NUDGE = 2.0**-40  # of a label: another number to whoever groups, the same to whoever calculates
LARGEST = 2**20  # label that a nudge tells apart from its neighbors, also after many copies


@dataclass(frozen=True, eq=False, repr=False)
class DrawnData:
    """Data with the units that are drawn: its rows, or clusters of them.

    Attributes
    ----------
    data : object
        As the user gave it.
    n : int
        Its rows.
    clusters : Clusters or None
        Drawn whole.
    labels : (n,) array or None
        Of the clusters, as given.
    grouped : tuple of (place, column)
        Columns of the data that hold these labels. A cluster that is drawn twice is two clusters
        to a fit with effects of groups, so the copies get labels of their own.
    """

    data: Any
    n: int
    clusters: Clusters | None = None
    labels: Any = None
    grouped: tuple[tuple[Place, Any], ...] = ()

    @classmethod
    def of(cls, data: Any, clusters: Any = None) -> "DrawnData":
        """Count the rows and number the clusters."""
        n = _count_rows(data)
        if clusters is None:
            return cls(data, n)
        labels = _column_named(data, clusters) if isinstance(clusters, str) else clusters
        if isinstance(labels, tuple) and len(labels) == 2 and n != 2:
            raise ValueError(
                "clusters is a tuple of two groupings, and the bootstrap draws one kind of unit. "
                "Give the wider grouping; for groups by both columns `list(zip(a, b))`."
            )
        index = next((leaf.index for _, leaf in leaves(data) if hasattr(leaf, "iloc")), None)
        found = Clusters.of(labels, np.ones(n), index)
        values = np.asarray(labels) if hasattr(labels, "__array__") else labels
        return cls(data, n, found, values, tuple(_columns_equal(data, values)))

    @property
    def count(self) -> int:
        """The number of units."""
        return self.n if self.clusters is None else self.clusters.count

    def copied(self) -> Any:
        """Copy all of the data, so that nothing can change it."""
        return deepcopy(self.data)

    def drawn(self, rng: np.random.Generator) -> Any:
        """Draw as many units with replacement; copies of a row stand next to each other."""
        often = spread(np.ones(self.count), "resample", rng).astype(np.intp)
        if self.clusters is None:
            return self._at(np.repeat(np.arange(self.n), often))
        rows, copies = [], []
        members = self._members()
        for unit in np.flatnonzero(often):
            for copy in range(often[unit]):
                rows.append(members[unit])
                copies.append(np.full(len(members[unit]), copy))
        return self._at(np.concatenate(rows), np.concatenate(copies))

    def weights(self, rng: np.random.Generator) -> Array:
        """Draw smooth weights of the units, (n,), with mean one over these."""
        often = spread(np.ones(self.count), "bayesian", rng)
        return often if self.clusters is None else often[self.clusters.codes]

    def without(self, units: NDArray[np.intp]) -> Any:
        """Leave units out."""
        codes = np.arange(self.n) if self.clusters is None else self.clusters.codes
        return self._at(np.flatnonzero(~np.isin(codes, units)))

    def changed_in(self, copy: Any) -> bool:
        """Whether a copy is no longer the same."""
        return not _same(self.data, copy)

    def _members(self) -> list[NDArray[np.intp]]:
        assert self.clusters is not None
        order = np.argsort(self.clusters.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.clusters.codes, minlength=self.count))
        return np.split(order, ends[:-1])

    def _at(self, rows: NDArray[np.intp], copies: NDArray[np.intp] | None = None) -> Any:
        data = _mapped(self.data, lambda leaf, _: _take(leaf, rows))
        if copies is None or not self.grouped or not np.any(copies):
            return data
        labels = _relabeled(np.asarray(self.labels)[rows], copies)
        columns: dict[Place, list[Any]] = {}
        for place, column in self.grouped:
            columns.setdefault(place, []).append(column)
        return _mapped(data, lambda leaf, at: _with_labels(leaf, columns.get(at, []), labels))


def leaves(data: Any) -> Iterator[tuple[Place, Any]]:
    """Yield each table or column inside the data, with the keys that lead to it."""
    found: list[tuple[Place, Any]] = []
    _mapped(data, lambda leaf, place: found.append((place, leaf)))
    yield from found


def _mapped(data: Any, function: Callable[[Any, Place], Any], place: Place = ()) -> Any:
    """Rebuild the data with each table replaced; None stays."""
    if data is None and place:
        return None
    if isinstance(data, dict):
        return {key: _mapped(part, function, (*place, key)) for key, part in data.items()}
    if isinstance(data, tuple) or (isinstance(data, list) and _holds_tables(data)):
        parts = [_mapped(part, function, (*place, k)) for k, part in enumerate(data)]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return function(data, place)


def _holds_tables(parts: list[Any]) -> bool:
    return any(np.size(getattr(part, "shape", ())) > 0 for part in parts)


def _count_rows(data: Any) -> int:
    counts = {_described(place): _length(leaf, place) for place, leaf in leaves(data)}
    if not counts:
        raise ValueError("data is empty: give a data frame, an array, or a tuple or dict of these.")
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{place} has {n}" for place, n in counts.items())
        raise ValueError(
            f"The parts of data have different numbers of rows: {told}. A row is drawn in all of "
            "them at once; what is not sampled (settings, a validation set) belongs into `fit`."
        )
    return next(iter(counts.values()))


def _described(place: Place) -> str:
    return "data" + "".join(f"[{key!r}]" for key in place)


def _length(leaf: Any, place: Place) -> int:
    if isinstance(leaf, list):
        _check_is_rows(leaf, place)
        return len(leaf)
    shape = getattr(leaf, "shape", None)
    if isinstance(leaf, str | bytes) or shape is None or len(shape) == 0:
        raise TypeError(
            f"{_described(place)} is {type(leaf).__name__} and has no rows to draw. Give a data "
            "frame (collected, if it is lazy), an array or a list, or a tuple or dict of these; "
            "what is not sampled, such as a setting, belongs into `fit`."
        )
    return int(shape[0])


def _check_is_rows(leaf: list[Any], place: Place) -> None:
    """Refuse a list of a few long lists, which may be columns."""
    if leaf and isinstance(leaf[0], list) and len(leaf) < len(leaf[0]):
        raise TypeError(
            f"{_described(place)} is a list of {len(leaf)} lists of {len(leaf[0])}, which may be "
            "rows or columns. Give columns as a tuple of arrays, and rows as an array."
        )


def _take(leaf: Any, rows: NDArray[np.intp]) -> Any:
    if hasattr(leaf, "iloc"):
        return leaf.iloc[rows]
    if isinstance(leaf, list):
        return [leaf[row] for row in rows]
    if hasattr(leaf, "tocsr"):
        return leaf.tocsr()[rows]
    if hasattr(leaf, "column_names") and hasattr(leaf, "take"):  # of Arrow
        return leaf.take(rows)
    return leaf[rows]


def _same(one: Any, other: Any) -> bool:
    """Compare content, order and types; missing values are equal to each other."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "equals"):
        return bool(one.equals(other))
    if hasattr(one, "detach"):
        one, other = (tensor.detach().cpu().numpy() for tensor in (one, other))
    if isinstance(one, np.ndarray) and one.dtype.kind in "fiubcmM":
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and bool(np.array_equal(one, other, equal_nan=True))
    return _same_bytes(one, other)


def _same_bytes(one: Any, other: Any) -> bool:
    """Compare what is pickled, where that is the same for a copy."""
    import joblib

    own = joblib.hash(one)
    return bool(own == joblib.hash(other) or own != joblib.hash(deepcopy(one)))


def _column_named(data: Any, name: str) -> Any:
    known: list[Any] = []
    for place, leaf in leaves(data):
        if place and place[-1] == name:
            return leaf
        columns = list(getattr(leaf, "columns", []))
        if name in columns:
            return leaf[name]
        known += [*columns, *(key for key in place[-1:] if isinstance(key, str))]
    raise ValueError(
        f"clusters={name!r} is no column of the data, which has {known!r:.200}. Give the name of a "
        "column, or one label for each row."
    )


def _columns_equal(data: Any, labels: Any) -> Iterator[tuple[Place, Any]]:
    """Find the columns that hold these labels: by name in frames, None for a column by itself."""
    for place, leaf in leaves(data):
        if hasattr(leaf, "columns"):
            names = [name for name in leaf.columns if _equal(leaf[name], labels)]
            yield from ((place, name) for name in names)
        elif np.ndim(leaf) == 1 and _equal(leaf, labels):
            yield place, None


def _equal(column: Any, labels: Any) -> bool:
    if np.ndim(column) != 1:  # names that are there twice give a frame
        return False
    return bool(np.array_equal(np.asarray(column), np.asarray(labels)))


def _relabeled(labels: NDArray[Any], copies: NDArray[np.intp]) -> NDArray[Any]:
    """Give each further copy of a cluster a label of its own.

    A number is nudged, so that a fit that calculates with it (a year) sees the same one.
    """
    if labels.dtype.kind in "iuf" and np.max(abs(labels)) < LARGEST:
        return np.where(labels == 0, copies * NUDGE, labels * (1 + copies * NUDGE))
    pairs = zip(labels.tolist(), copies.tolist(), strict=True)
    told = [f"{label} ({copy + 1})" if copy else label for label, copy in pairs]
    if labels.dtype.kind in "US":
        return np.array(told)
    mixed = np.empty(len(told), dtype=object)
    mixed[:] = told
    return mixed


def _with_labels(leaf: Any, columns: list[Any], labels: NDArray[Any]) -> Any:
    if not columns:
        return leaf
    if columns == [None]:
        return _like(leaf, labels)
    new = {name: _like(leaf[name], labels) for name in columns}
    if hasattr(leaf, "with_columns"):
        return leaf.with_columns(**new)
    labeled = leaf.copy()
    for name, column in new.items():  # names may be numbers, which `assign` does not take
        labeled[name] = column
    return labeled


def _like(column: Any, labels: NDArray[Any]) -> Any:
    """Make a column of the same library; categories stay categories."""
    if isinstance(column, list):
        return labels.tolist()
    if hasattr(column, "iloc"):
        made = type(column)(labels, index=column.index, name=column.name)
        return made.astype("category") if str(column.dtype) == "category" else made
    if hasattr(column, "to_arrow"):  # of polars
        return type(column)(column.name, labels.tolist())
    return labels
