"""Progress of a profile: the passes over the data that it has made."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from implicit_delta.core.progress import progress
from implicit_delta.models.model import FittedModel


@dataclass
class _Ticks:
    bar: Any
    seen: int


CURRENT: ContextVar[_Ticks | None] = ContextVar("profile", default=None)


@contextmanager
def profiling(model: FittedModel, label: str) -> Iterator[None]:
    """Open a bar that counts passes; `tick` moves it."""
    with progress(label, unit="pass") as bar:
        token = CURRENT.set(_Ticks(bar, model.rows.passes))
        try:
            yield
        finally:
            CURRENT.reset(token)


def tick(model: FittedModel) -> None:
    """Count the passes since the last call."""
    ticks = CURRENT.get()
    if ticks is not None and model.rows.passes > ticks.seen:
        ticks.bar.update(model.rows.passes - ticks.seen)
        ticks.seen = model.rows.passes
