"""Names of evaluations and labels of rows, as users and data frames give them."""

import hashlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_LISTED = 12  # names in a message


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


def named_digest(column: Any) -> str:
    """Return the name of a column of a data frame and a digest of its values; empty if unnamed."""
    if getattr(column, "ndim", 0) == 2 and hasattr(column, "columns") and column.shape[1] == 1:
        column = column.iloc[:, 0]
    name = getattr(column, "name", None)
    if not isinstance(name, str) or not hasattr(column, "index"):
        return ""
    try:
        values = np.sort(np.asarray(column, dtype=np.float64))  # whatever the order of the rows
    except (TypeError, ValueError):
        return ""
    return f"{name} {hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()}"


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
