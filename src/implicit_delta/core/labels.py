"""Names of evaluations and labels of rows, as users and data frames give them."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array

MOST_LISTED = 12  # names in a message
LARGEST_NUMBER = 2.0**53  # whole numbers up to here are exact as floats
HASHED = -(2.0**60)  # codes of other labels lie below, 256 apart: exact, and no number of a row
APART = 256.0


def as_names(names: Any) -> tuple[str, ...]:
    """Turn a lone name, or names in order, into strings."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, bytes | set | frozenset) or not isinstance(names, Iterable):
        raise TypeError(
            f"names is a {type(names).__name__}: give a string, or a list of strings with one for "
            "each evaluation, in their order."
        )
    return tuple(map(str, names))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Number names that are empty or were there before.

    Examples
    --------
    >>> distinct(["a", "", "a", "b"])
    ('a', '[1]', 'a (2)', 'b')
    """
    seen: dict[str, int] = {}
    return tuple(_fresh(name or f"[{k}]", seen) for k, name in enumerate(names))


def _fresh(name: str, seen: dict[str, int]) -> str:
    label = name
    while label in seen:
        seen[name] += 1
        label = f"{name} ({seen[name]})"
    seen[label] = 1
    return label


def places_in(index: Any, rows: Any) -> NDArray[np.intp] | None:
    """Find each row of a model by its label in an index, with -1 for those that are not there.

    None if the index has nothing to say: it is that of the rows, counts 0, 1, 2, ... or has labels
    of another kind. An index that repeats labels finds none of the repeated ones.
    """
    if callable(index) or index is None or rows is None:  # a list has a method of that name
        return None
    found, own = list(index), list(rows)
    if found == own:
        return None
    known = len(set(own).intersection(found))
    counted = found == list(range(len(own))) and known < len(set(own))
    if len(found) == len(own) and (counted or not known):
        return None
    places = {label: place for place, label in enumerate(found)}
    repeated = {label for place, label in enumerate(found) if places[label] != place}
    return np.array([-1 if label in repeated else places.get(label, -1) for label in own])


@dataclass(frozen=True, eq=False)
class NamedColumn:
    """A column of numbers with the name that it has in a data frame; empty if it has none."""

    name: str = ""
    values: Array | None = None

    @classmethod
    def of(cls, column: Any) -> "NamedColumn":
        """Read a column of a data frame; what has no name or no numbers is an empty one."""
        if getattr(column, "ndim", 0) == 2 and hasattr(column, "columns") and column.shape[1] == 1:
            column = column.iloc[:, 0]
        name = getattr(column, "name", None)
        if not isinstance(name, str) or not hasattr(column, "index"):
            return cls()
        try:
            values = np.array(column, dtype=np.float64)
        except (TypeError, ValueError):
            return cls()
        values.setflags(write=False)
        return cls(name, values)

    @cached_property
    def digest(self) -> str:
        """Name and digest of the values, whatever their order; empty without a name."""
        if self.values is None:
            return ""
        content = np.sort(self.values).tobytes()
        return f"{self.name} {hashlib.blake2b(content, digest_size=8).hexdigest()}"


UNNAMED = NamedColumn()


def label_codes(index: Any) -> Array | None:
    """Turn an index of rows into numbers: whole numbers into themselves, others into hashes."""
    if index is None:
        return None
    labels = np.asarray(index)
    if labels.ndim != 1:
        return None
    if labels.dtype.kind == "O" and all(isinstance(label, int | np.integer) for label in labels):
        labels = labels.astype(np.float64)
    if labels.dtype.kind in "iuf":
        numbers = labels.astype(np.float64)
        if np.all(np.isfinite(numbers)) and np.all(np.abs(numbers) < LARGEST_NUMBER):
            return numbers
    pandas = sys.modules.get("pandas")  # an index that is not of numbers is one of pandas
    mixed = labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels)
    hashes = (
        np.array([_hash(label) for label in labels.tolist()], dtype=np.uint64)
        if pandas is None or mixed
        else pandas.util.hash_array(labels)
    )
    return np.asarray(HASHED - APART * (hashes >> np.uint64(12)).astype(np.float64))


def _hash(label: Any) -> int:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(label, str):  # as among strings alone
        return int(pandas.util.hash_array(np.array([label], dtype=object))[0])
    digest = hashlib.blake2b(repr(label).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def near_match(name: str, known: Sequence[str]) -> str:
    """List what is known beside a name that is not, and the one that was meant, if one is close.

    Examples
    --------
    >>> near_match("Mu", ["S", "mu"])
    "there are S, mu. Did you mean 'mu'?"
    """
    listed = ", ".join(known[:MOST_LISTED]) + (", ..." if len(known) > MOST_LISTED else "")
    lower = {label.lower(): label for label in known}
    close = get_close_matches(name.lower(), list(lower), n=1)
    return f"there are {listed}." + (f" Did you mean {lower[close[0]]!r}?" if close else "")
