"""Groups of rows, over which a question averages."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.labels import places_in
from implicit_delta.core.types import Array
from implicit_delta.models.prediction import column_of, is_missing, names_of, variable_in

FEW = 6  # columns to group by: a longer list is one of labels
SMALLEST = 2  # rows of a group whose own sampling counts


@dataclass(frozen=True, eq=False)
class Grouping:
    """The group of each row, numbered in sorted order, and the names of the groups.

    Attributes
    ----------
    codes : (m,) array of int
    names : tuple of str
        Empty for one group of all rows.
    """

    codes: NDArray[np.intp]
    names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of groups."""
        return max(len(self.names), 1)

    def shares(self, weights: Array) -> Array:
        """Weight of each row in the mean of its group, (m,)."""
        return np.asarray(weights / self.sums(weights)[self.codes])

    def sums(self, rows: Array) -> Array:
        """Sum rows (m, ...) within groups: (G, ...)."""
        if not self.names:
            return np.asarray(rows.sum(axis=0, keepdims=True))
        sums = np.zeros((self.count, *rows.shape[1:]))
        np.add.at(sums, self.codes, rows)
        return sums


def grouping_of(by: Any, table: Any, rows: Any) -> Grouping:
    """Group the rows of a table by one of its columns, by several, or by given labels (m,).

    A Series is put in the order of the labels of the rows, if these are known.
    """
    m = len(table)
    if by is None:
        return Grouping(np.zeros(m, dtype=np.intp))
    if isinstance(by, str) or np.ndim(by) == 0:
        return _numbered([by], [_column(table, by)])
    if isinstance(by, list | tuple) and not len(by):
        raise ValueError("by= is empty: give at least one column, or leave it out for one average.")
    if isinstance(by, list | tuple) and _are_names(by, names_of(table), m):
        if len(set(by)) < len(by):
            raise ValueError(f"by={by!r} has a column twice. Name each once.")
        return _numbered(list(by), [_column(table, name) for name in by])
    return _numbered([_name(by)], [_given(by, rows, m)])


def told_groups(by: Any) -> str:
    """Tell in words what the groups are made by; empty for none."""
    if by is None:
        return ""
    if isinstance(by, str) or np.ndim(by) == 0:
        return f", by {by}"
    if isinstance(by, list | tuple) and len(by) < FEW and all(isinstance(x, str) for x in by):
        return f", by {' and '.join(by)}"
    return f", by {_name(by) or 'group'}"


def _name(by: Any) -> Any:
    """Name of a Series of labels, if it has one."""
    return getattr(by, "name", None) if hasattr(by, "index") else None


def _are_names(by: Any, names: list[Any], m: int) -> bool:
    """Whether a list has names of columns in it, one of which may be misspelled, and no labels."""
    possible = all(isinstance(name, str | int | np.integer) for name in by)
    return possible and (
        all(name in names for name in by)
        or (len(by) != m and all(isinstance(name, str) for name in by))
    )


def _column(table: Any, name: Any) -> Any:
    try:
        return np.asarray(column_of(table, variable_in(table, name)), dtype=object)
    except ValueError as error:
        raise ValueError(
            f"by={name!r}: {error} Labels of the rows from elsewhere are an array, `by=labels`."
        ) from None


def _given(labels: Any, rows: Any, m: int) -> Any:
    given = np.empty(len(labels), dtype=object)
    given[:] = list(labels)
    places = places_in(getattr(labels, "index", None), rows)
    if places is not None:
        if np.any(places < 0):
            raise ValueError(
                f"by= is labeled by its index, which lacks or repeats {int(np.sum(places < 0))} of "
                f"the {len(places)} rows. Give a column of the same data, or, if its order is that "
                "of the rows, `by.to_numpy()`."
            )
        given = given[places]
    if len(given) != m:
        raise ValueError(
            f"by= has {len(given)} labels for {m} rows. Give one for each row that the question "
            "averages over, or the name of a column of the data."
        )
    return given


def _numbered(names: list[Any], columns: list[Any]) -> Grouping:
    """Number the groups that occur, in the order of their labels."""
    for name, column in zip(names, columns, strict=True):
        missing = sum(map(is_missing, column))
        if missing:
            raise ValueError(
                f"by={'labels' if name is None else repr(name)} has {missing} missing label(s) in "
                f"{len(column)} rows. Fill them in, or leave these rows out with data=."
            )
    keys = list(zip(*columns, strict=True))
    groups = _sorted(set(keys))
    numbers = {key: number for number, key in enumerate(groups)}
    codes = np.array([numbers[key] for key in keys], dtype=np.intp)
    return Grouping(codes, tuple(_label(names, group) for group in groups))


def _sorted(groups: set[Any]) -> list[Any]:
    try:
        return sorted(groups)
    except TypeError:  # labels of several types
        return sorted(groups, key=str)


def _label(names: list[Any], group: tuple[Any, ...]) -> str:
    """Write the labels of one group: "a" of an array, "g=a, h=b" of columns."""
    pairs = zip(names, group, strict=True)
    return ", ".join(str(label) if name is None else f"{name}={label}" for name, label in pairs)
