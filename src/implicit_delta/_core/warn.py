"""Warnings that point at the user's line, and a record of the last ones."""

import math
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident, local
from time import perf_counter

from implicit_delta.errors import ImplicitDeltaWarning

OURS = {"implicit_delta", "joblib"}  # joblib runs parts of the package
MOST_KEPT = 100  # more than one question ever issues

_record: deque[tuple[float, int, str]] = deque(maxlen=MOST_KEPT)  # time, thread, text
_answer = local()  # the time when the last answer of a thread was begun


def begin_answer(follows: bool = False) -> float:
    """Begin an answer, within which `warn_once` does not repeat itself; return the time.

    Of several processes that work on it the first tells what is to be told, and others follow.
    """
    _answer.started = perf_counter()
    hush(follows)
    return float(_answer.started)


def hush(follows: bool) -> None:
    """Tell nothing from now on, in a process that follows."""
    _answer.hushed = follows


def hushed() -> bool:
    """Whether another process tells what is to be told."""
    return getattr(_answer, "hushed", False)


@contextmanager
def heard() -> Iterator[None]:
    """Tell what this process alone knows, even if it follows."""
    before = hushed()
    hush(False)
    try:
        yield
    finally:
        hush(before)


def warn_once(text: str, category: type[Warning]) -> None:
    """Warn unless the answer at hand has done so: psi is called many times."""
    if text not in warned_since(getattr(_answer, "started", math.inf)):
        warn(text, category)


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the first frame outside the package, however deep the call came from."""
    if issubclass(category, ImplicitDeltaWarning):
        _record.append((perf_counter(), get_ident(), text))
    if not hushed():
        warnings.warn(text, category, stacklevel=_depth())


def warn_of_model(owner: object, text: str, category: type[Warning]) -> None:
    """Warn the first time only of what an owner's function is like; it is recorded every time."""
    counter = getattr(owner, "counter", None)
    told: set[str] = getattr(counter, "told", set())
    if text not in told:
        told.add(text)
        warn(text, category)
    else:
        _record.append((perf_counter(), get_ident(), text))


def warned_since(started: float) -> tuple[str, ...]:
    """Return the warnings of this thread since a time of `perf_counter`, each once."""
    own = get_ident()
    found = (text for time, thread, text in tuple(_record) if time >= started and thread == own)
    return tuple(dict.fromkeys(found))


def _depth() -> int:
    """Count the frames from `warn` to the user's."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame.f_globals.get("__name__")) in OURS:
        frame, depth = frame.f_back, depth + 1
    return depth


def _package(module: object) -> str:
    return str(module).partition(".")[0]
