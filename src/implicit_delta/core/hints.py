"""Keywords of other packages: a hint instead of a bare TypeError, or another spelling."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def hinting(**hints: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse these keywords of a function with a sentence on what to write instead."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in hints.keys() & kwargs.keys():
                raise TypeError(f"{function.__name__} has no {name}=: {hints[name]}")
            return function(*args, **kwargs)

        return call

    return around


def also(**spellings: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept another spelling of a keyword, ``also(names="name")``."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for other in spellings.keys() & kwargs.keys():
                if spellings[other] in kwargs:
                    raise TypeError(f"{other}= is {spellings[other]}=: give one of the two.")
                kwargs[spellings[other]] = kwargs.pop(other)
            return function(*args, **kwargs)

        return call

    return around
