"""Run independent jobs in parallel, with a progress bar."""

from collections.abc import Callable, Iterable, Iterator
from pickle import PicklingError
from typing import Any

from joblib import Parallel, delayed
from joblib.externals import cloudpickle


def run_all(
    function: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
    n_jobs: int,
    done: Callable[[Any], object],
) -> list[Any]:
    """Call the function with each tuple of arguments; `done` gets each result, in order."""
    results: list[Any] = []
    sent: list[Any] = []

    def calls() -> Iterator[Any]:
        for job in jobs:
            sent[:] = [job]
            yield delayed(function)(*job)

    try:
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls()):
            results.append(result)
            done(result)
    except PicklingError:
        cloudpickle.dumps((function, sent))  # raises the reason itself
        raise
    return results
