"""A copy of a model with caches of its own, so that an answer leaves nothing behind."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from implicit_delta.core.cache import LastCache, Recent

P = ParamSpec("P")
R = TypeVar("R")
Value = TypeVar("Value")
PACKAGE = __name__.partition(".")[0]


def with_own_caches(value: Value) -> Value:
    """Copy what a model is made of as far as there are caches, with what these hold so far.

    The same question then costs the same, whatever the model was asked before: what an answer
    computes ends with it. Data, counters and everything else are shared.
    """
    copied: Value = _copied(value, {})
    return copied


def isolated(entry: Callable[P, R]) -> Callable[P, R]:
    """Let an entry point work on a copy of its first argument, a model, with caches of its own."""

    @wraps(entry)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if args:
            return entry(with_own_caches(args[0]), *args[1:], **kwargs)  # type: ignore[arg-type]
        return entry(*args, **kwargs)

    return call


def _copied(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    """Copy caches and what refers to them; `known` has each object beside its copy."""
    if id(value) in known:
        return known[id(value)][1]
    if isinstance(value, LastCache | Recent):
        found: Any = value.copied()
    elif isinstance(value, tuple) and type(value) is tuple:
        parts = tuple(_copied(part, known) for part in value)
        found = value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    elif is_dataclass(value) and type(value).__module__.startswith(PACKAGE):
        return _copied_fields(value, known)
    else:
        return value
    known[id(value)] = value, found
    return found


def _copied_fields(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    found = object.__new__(type(value))
    found.__dict__.update(value.__dict__)
    known[id(value)] = value, found  # beforehand: an objective refers to its rows, and they to it
    changed = False
    for field in fields(value):
        own = getattr(value, field.name, None)
        part = _copied(own, known)
        if part is not own:
            object.__setattr__(found, field.name, part)
            changed = True
    if not changed:
        known[id(value)] = value, value
    return known[id(value)][1]
