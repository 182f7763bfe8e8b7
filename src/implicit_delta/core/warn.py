"""Warnings that point at the user's line, and a record of the last ones."""

import math
import sys
import warnings
from collections import deque
from threading import Event, get_ident, local
from time import perf_counter
from typing import Any

from implicit_delta.errors import ImplicitDeltaWarning

OURS = {"implicit_delta", "joblib"}  # joblib runs parts of the package
KNOWN = OURS | {"contextlib", "logging"}  # packages between ours
MOST_KEPT = 100  # more than one question ever issues

_record: deque[tuple[float, int, str]] = deque(maxlen=MOST_KEPT)  # time, thread, text
_following = Event()  # whether this process has models that another one tells about
_answer = local()  # the time when the last answer of a thread was begun


def begin_answer() -> float:
    """Begin an answer, within which `warn_once` does not repeat itself; return the time."""
    _answer.started = perf_counter()
    return float(_answer.started)


def warn_once(text: str, category: type[Warning]) -> None:
    """Warn unless the answer at hand has done so: psi is called many times."""
    if text not in warned_since(getattr(_answer, "started", math.inf)):
        warn(text, category)


def warn(text: str, category: type[Warning], finding: Any = None) -> None:
    """Warn at the first frame outside the package, however deep the call came from.

    The warning has the finding that it is about as an attribute.
    """
    if issubclass(category, ImplicitDeltaWarning):
        _record.append((perf_counter(), get_ident(), text))
    if not hushed():
        message = category(text)
        message.finding = finding  # type: ignore[attr-defined]
        warnings.warn(message, stacklevel=_depth())


def follow() -> None:
    """Leave it to another process to tell about models that follow."""
    _following.set()


def hushed() -> bool:
    """Whether the model at work, that of the innermost caller with one, is told about elsewhere."""
    frame = sys._getframe(1) if _following.is_set() else None
    while frame is not None and _package(frame.f_globals.get("__name__")) in KNOWN:
        known = frame.f_locals
        for name in ("model", "self"):
            if hasattr(type(known.get(name)), "information"):  # a fitted model
                rows = getattr(known[name], "rows", None)
                return not getattr(getattr(rows, "processes", None), "is_primary", True)
        frame = frame.f_back
    return False


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
