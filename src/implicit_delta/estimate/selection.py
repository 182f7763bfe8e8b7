"""Selection of evaluations by name, number, slice, list or mask."""

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.estimate.expressions import NoSuchEvaluation, unknown


def selected(key: Any, names: tuple[str, ...]) -> int | NDArray[np.intp]:
    """Find what a key selects: one number for one evaluation, an array for several."""
    if isinstance(key, str):
        return _place(key, names)
    if isinstance(key, slice):
        ends = slice(_end(key.start, names), _end(key.stop, names), key.step)
        return _some(np.arange(len(names))[ends], key)
    if isinstance(key, tuple):
        raise TypeError(
            f"est[{', '.join(map(repr, key))}]: evaluations have one axis. For several of them "
            f"give a list, est[{list(key)!r}]."
        )
    listed = np.asarray(key, dtype=object) if isinstance(key, list) else np.asarray(key)
    if listed.ndim == 1:
        return _several(listed, names, key)
    if listed.ndim == 0 and listed.dtype.kind != "b" and not isinstance(key, float | bytes):
        return _place(listed[()], names)
    raise TypeError(f"est[{key!r:.60}]: give a name, a number, a slice or a list of them.")


def _several(listed: NDArray[Any], names: tuple[str, ...], key: Any) -> NDArray[np.intp]:
    masked = bool(listed.size) and all(isinstance(entry, bool | np.bool_) for entry in listed)
    if masked and listed.size != len(names):
        raise ValueError(
            f"A mask of {listed.size} for {len(names)} evaluations: give one for each."
        )
    if masked:
        return _some(np.flatnonzero(listed.astype(bool)), key)
    return _some(np.array([_place(entry, names) for entry in listed], dtype=np.intp), key)


def _some(places: NDArray[np.intp], key: Any) -> NDArray[np.intp]:
    if not places.size:
        raise ValueError(
            f"est[{key!r:.60}] selects no evaluation, and an estimate has one or more."
        )
    return places


def _end(part: Any, names: tuple[str, ...]) -> Any:
    if isinstance(part, str):
        raise TypeError(f"Slices go by number: {part!r} is number {_place(part, names)}.")
    return part


def _place(entry: Any, names: tuple[str, ...]) -> int:
    if isinstance(entry, str):
        if entry not in names:
            raise unknown(entry, names)
        return names.index(entry)
    if isinstance(entry, bool | np.bool_ | float):
        raise TypeError(f"{entry!r} is neither a name nor a number of an evaluation.")
    number = operator.index(entry)
    if not -len(names) <= number < len(names):
        raise NoSuchEvaluation(f"There is no evaluation {number}: there are {len(names)}, from 0.")
    return number % len(names)
