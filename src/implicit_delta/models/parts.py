"""Parts of a model: parameters that are selected by name."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

Selector: TypeAlias = str | re.Pattern[str] | Callable[[str], bool]
Selection: TypeAlias = Selector | Iterable[Selector]

GLOB, REGULAR = set("*?["), set("*?[\\^$|()+{}")  # what makes a string a pattern of either kind
SHOWN = 8  # names in a message


def select(names: Sequence[str], selection: Any) -> set[str]:
    """Return the names that a selection takes; each of its items must take one.

    A string is a name, or the beginning of names up to a dot, ``"head"`` for ``head.weight``; with
    ``*``, ``?`` or ``[`` a pattern of whole names, ``"*.bias"``; else a regular expression that is
    searched for, if it has the signs of one. A function takes a name.
    """
    single = isinstance(selection, (str, re.Pattern)) or callable(selection)
    items = [selection] if single else _listed(selection)
    chosen: set[str] = set()
    for item in items:
        found = _matching(names, item)
        if not found:
            raise ValueError(_nothing(names, item))
        chosen |= found
    return chosen


def _listed(selection: Any) -> list[Any]:
    items = list(selection) if isinstance(selection, Iterable) else []
    if items and all(isinstance(item, (str, re.Pattern)) or callable(item) for item in items):
        return items
    raise TypeError(
        f'parameters is {selection!r:.60}; give the beginning of names such as "head", a pattern '
        'such as "*.bias", a list of these, or a function of a name.'
    )


def _matching(names: Sequence[str], item: Any) -> set[str]:
    if isinstance(item, re.Pattern):
        return {name for name in names if item.search(name)}
    if not isinstance(item, str):
        return {name for name in names if item(name)}
    prefix = item.removesuffix(".") + "."
    found = {name for name in names if name == item or name.startswith(prefix)}
    if not found and GLOB & set(item):
        found = {name for name in names if fnmatchcase(name, item)}
    if not found and REGULAR & set(item):
        found = {name for name in names if _searched(item, name)}
    return found


def _searched(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _nothing(names: Sequence[str], item: Any) -> str:
    """Explain that nothing matches, with near names."""
    what = item.pattern if isinstance(item, re.Pattern) else item
    if not isinstance(what, str):
        return f"parameters selects none of {len(names)} parameters: {_shown(names)}."
    beginnings = {name.rpartition(".")[0] for name in names} - {""}
    held = [name for name in names if what.lower() in name.lower()]
    near = held or get_close_matches(what, [*sorted(beginnings), *names], n=SHOWN, cutoff=0.5)
    hint = f"Near: {_shown(near)}." if near else f"There are {_shown(names)}."
    return f'parameters="{what}" matches none of {len(names)} parameters. {hint}'


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
