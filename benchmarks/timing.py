"""Seconds of a call."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


def timed(function: Callable[[], T], repeats: int = 1) -> tuple[T, float]:
    """Return the result and the shortest of several runs, the one least disturbed."""
    seconds = []
    for _ in range(repeats):
        started = perf_counter()
        result = function()
        seconds.append(perf_counter() - started)
    return result, min(seconds)
