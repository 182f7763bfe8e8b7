"""Run independent jobs in parallel, with a progress bar."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pickle import PicklingError, dumps
from typing import Any


def run_all(
    function: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
    n_jobs: int,
    done: Callable[[Any], object],
) -> list[Any]:
    """Call the function with each tuple of arguments; `done` gets each result, in order."""
    from joblib import delayed

    results: list[Any] = []
    sent: list[Any] = []

    def calls() -> Iterator[Any]:
        for job in jobs:
            sent[:] = [job]
            yield delayed(function)(*job)

    try:
        for result in _pool(n_jobs)(calls()):
            results.append(result)
            done(result)
    except PicklingError:
        _raise_reason((function, *sent))
        raise
    return results


def _pool(n_jobs: int) -> Any:
    """Give results one by one, or all at the end where a backend (that of Ray) cannot."""
    from joblib import Parallel

    try:
        return Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:
        return Parallel(n_jobs=n_jobs)


def _raise_reason(items: Any) -> None:
    """Raise our own error, if that is why something cannot be sent to another process."""
    for item in items:
        if isinstance(item, partial):
            _raise_reason((item.func, *item.args, *item.keywords.values()))
        elif isinstance(item, tuple):
            _raise_reason(item)
        else:
            with suppress(PicklingError, AttributeError, TypeError):
                dumps(item)
