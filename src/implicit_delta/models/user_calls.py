"""Calls of a user's log-likelihood: their progress, and results that are cached."""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from implicit_delta.core.progress import calls_ahead
from implicit_delta.models.loglik_rows import LoglikRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def progress_for(model: "FittedModel", label: str, calls: int) -> AbstractContextManager[None]:
    """Announce this many calls of the user's function, if it is slow, while the context lasts."""
    rows = model.rows
    if not isinstance(rows, LoglikRows):
        return nullcontext()
    return calls_ahead(rows.counter, label, calls)


def isolated_cache(model: "FittedModel", empty: bool = True) -> AbstractContextManager[Any]:
    """Drop afterwards the terms that were cached meanwhile; start with an empty cache by default.

    A replicate then costs the same in a process of its own and in this one.
    """
    rows = model.rows
    if isinstance(rows, LoglikRows):
        return rows.cache.terms.isolated(empty)
    stack = ExitStack()
    for part in getattr(rows, "models", ()):  # of a sum
        stack.enter_context(isolated_cache(part, empty))
    return stack
