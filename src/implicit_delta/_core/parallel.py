"""Run independent jobs in parallel, with a progress bar."""

from collections.abc import Callable, Iterable
from typing import Any


def run_all(
    function: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
    n_jobs: int,
    done: Callable[[Any], object],
) -> list[Any]:
    """Call the function with each tuple of arguments; `done` gets each result, in order."""
    from joblib import Parallel, delayed

    results = []
    calls = (delayed(function)(*job) for job in jobs)
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
        results.append(result)
        done(result)
    return results
