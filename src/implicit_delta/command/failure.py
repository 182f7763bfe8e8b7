"""Failure of a command for a reason that its user can remove: one line, exit code 2."""

import difflib
from collections.abc import Collection, Iterable

MOST = 8  # names in a list


class Failure(Exception):
    """A text for the user, who sees no traceback."""


def one_line(text: object) -> str:
    """Put a text on one line, without characters that would steer a terminal."""
    line = " ".join(str(text).split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def listed(names: Iterable[object]) -> str:
    """Write names with commas, the first few of many."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return ", ".join(texts[:MOST]) + more


def meant(name: str, names: Collection[str]) -> str:
    """Suggest the names that resemble a wrong one, or list all."""
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(lower[key] for key in near)}?"
    return f"there is {listed(names)}" if names else "there is none"


def no_column(name: str, names: Collection[str]) -> Failure:
    """Refuse a column that the table does not have."""
    return Failure(f"There is no column {name!r}: {meant(name, names)}")
