"""A copy of a model with caches of its own, so that an answer leaves nothing behind."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from operator import is_
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


@cache
def _parts(kind: type) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass of the package; none of other types."""
    own = is_dataclass(kind) and kind.__module__.startswith(PACKAGE)
    return tuple(field.name for field in fields(kind)) if own else None


def _copied(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    """Copy caches and what refers to them; `known` has each object beside its copy."""
    kind: Any = type(value)
    names = _parts(kind)
    if names is None and kind is not tuple:
        return value
    if id(value) in known:
        return known[id(value)][1]
    if kind is LastCache or kind is Recent:
        found: Any = value.copied()
    elif names is not None:
        return _copied_fields(value, names, known)
    else:
        parts = tuple(_copied(part, known) for part in value)
        found = value if all(map(is_, parts, value)) else parts
    known[id(value)] = value, found
    return found


def _copied_fields(value: Any, names: tuple[str, ...], known: dict[int, tuple[Any, Any]]) -> Any:
    found, content = object.__new__(type(value)), vars(value)
    known[id(value)] = value, found  # beforehand: an objective refers to its rows, and they to it
    parts = {name: _copied(content[name], known) for name in names if name in content}
    if all(parts[name] is content[name] for name in parts):
        known[id(value)] = value, value
        return value
    found.__dict__.update(content | parts)
    return found
