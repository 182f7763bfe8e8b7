"""Seconds of a call."""

from collections.abc import Callable
from statistics import median
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


def medians(functions: dict[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each function, all called once in each round, under the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(timed(function)[1])
    return {name: median(times) for name, times in seconds.items()}
