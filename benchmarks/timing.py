"""Benchmark cases: CPU seconds of a call beside a reference, or a count.

A module of this folder registers its rows by a function ``cases()`` that yields `Case` objects;
``python -m benchmarks`` measures them and prints them beside ``results.json``. Preparations
(data, fits) belong into ``cases()``, before the ``yield``; what is timed belongs into ``ours``
and ``hand``, which take no arguments::

    def cases():
        problem = Problem(n=2000, d=300)
        yield Case("own score, d = 300", aim=10, ours=problem.by_infer, hand=problem.by_hand)
        yield Case("own score, passes", aim=700, ours=problem.passes, unit="passes")
"""

from collections.abc import Callable
from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter, process_time
from typing import TypeVar

T = TypeVar("T")
ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Parameters
    ----------
    name : str
        Unique among all modules; the key in ``results.json``.
    aim : float
        Largest number that is good enough.
    ours : callable
        What is measured. Without `hand` it returns the number itself (products, passes, vectors).
    hand : callable or None
        The reference; the number is then the CPU time of `ours` over that of `hand`.
    unit : str
        Unit of the number, for the table.
    before : float or None
        The number before the work that the aim belongs to, for the record.
    rounds : int
        Each round runs `ours` and `hand` once, so that both see the same load.
    """

    name: str
    aim: float
    ours: Callable[[], object]
    hand: Callable[[], object] | None = None
    unit: str = "x by hand"
    before: float | None = None
    rounds: int = ROUNDS


@dataclass(frozen=True)
class Measured:
    """A case's number; with a reference also the median CPU seconds of both."""

    case: Case
    value: float
    ours: float | None = None
    hand: float | None = None


def measure(case: Case) -> Measured:
    """Measure a case: the count that it returns, or a ratio of medians over interleaved rounds."""
    if case.hand is None:
        return Measured(case, float(case.ours()))  # type: ignore[arg-type]
    case.ours(), case.hand()  # caches, buffers and lazy imports
    times = medians({"ours": case.ours, "hand": case.hand}, case.rounds, cpu_seconds)
    return Measured(case, times["ours"] / times["hand"], times["ours"], times["hand"])


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def timed(
    function: Callable[[], T], repeats: int = 1, clock: Callable[[], float] = perf_counter
) -> tuple[T, float]:
    """Return the result and the shortest of several runs, the one least disturbed."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        result = function()
        seconds.append(clock() - started)
    return result, min(seconds)


def medians(
    functions: dict[str, Callable[[], object]],
    rounds: int = 15,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:
    """Median seconds of each function, all called once in each round, under the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(timed(function, clock=clock)[1])
    return {name: median(times) for name, times in seconds.items()}
