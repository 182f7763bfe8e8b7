"""Arithmetic of estimates with each other, which takes a join, and with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.estimate.algebra import apply, join, mapped
from implicit_delta.estimate.combination import combination_names, grouped
from implicit_delta.estimate.maps import diagonal, identity, stacked

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


def plus(a: Estimate, b: Any, sign: float = 1.0) -> Any:
    """Add an estimate or numbers, or subtract them."""
    if _is_estimate(b):
        return _sum(a, b, sign)
    number = _numbers(b, a)
    if number is None:
        return NotImplemented
    rows, shift = _spread(a, number.shape), sign * number
    names = _numbered(a, shift, lambda name, c: f"{name} {'-' if c < 0 else '+'} {abs(c):.6g}")
    return mapped(a, rows, a.value + shift, names)


def times(a: Estimate, b: Any) -> Any:
    """Multiply by an estimate or by numbers."""
    if _is_estimate(b):
        return _apply(a, b, np.multiply, "*")
    number = _numbers(b, a)
    if number is None:
        return NotImplemented
    rows = _scaled(a, number)
    return mapped(a, rows, a.value * number, combination_names(rows, a.names))


def over(a: Estimate, b: Any) -> Any:
    """Divide by an estimate or by numbers."""
    if _is_estimate(b):
        return _apply(a, b, np.divide, "/")
    number = _numbers(b, a)
    if number is None:
        return NotImplemented
    if np.any(number == 0):
        raise ValueError(f"{a.names[0]!r} is divided by zero.")
    return times(a, 1.0 / number)


def under(a: Estimate, b: Any) -> Any:
    """Divide numbers by an estimate."""
    number = _numbers(b, a)
    if number is None:
        return NotImplemented
    _spread(a, number.shape)
    names = _numbered(a, number, lambda name, c: f"{c:.6g} / {grouped(name)}")
    return apply(a, lambda v: number / v, names)


def _is_estimate(b: Any) -> bool:
    return hasattr(b, "errors_add") and hasattr(b, "lineage")


def _sum(a: Estimate, b: Estimate, sign: float) -> Estimate:
    value = a.value + sign * _broadcast(a, b)
    both = join(a, b)
    rows = stacked([_spread(a, np.shape(value)), sign * _spread(b, np.shape(value))], axis=1)
    return mapped(both, rows, value, combination_names(rows, both.names))


def _apply(a: Estimate, b: Estimate, operation: Callable[..., Any], symbol: str) -> Estimate:
    """Multiply or divide entry by entry, by the delta method."""
    _broadcast(a, b)
    both, K = join(a, b), len(a.names)
    scalar = isinstance(a.value, float) and isinstance(b.value, float)
    if symbol == "/" and np.any(np.atleast_1d(b.value) == 0):
        raise ValueError(f"{b.names[0]!r} has the value 0, and nothing can be divided by it.")

    def result(v: Any) -> Any:
        return operation(v[0], v[1]) if scalar else operation(v[:K], v[K:])

    count = max(K, len(b.names))
    firsts, seconds = (np.resize(part, count) for part in (both.names[:K], both.names[K:]))
    names = [f"{grouped(x)} {symbol} {grouped(y)}" for x, y in zip(firsts, seconds, strict=True)]
    return apply(both, result, names)


def _broadcast(a: Estimate, b: Estimate) -> Any:
    """Return the values of b, if there is one for each of a, or only one of either."""
    if len(a.names) != len(b.names) and 1 not in (len(a.names), len(b.names)):
        raise ValueError(
            f"{len(a.names)} and {len(b.names)} evaluations do not pair: take one of them, as in "
            f"a[{a.names[0]!r}], or use `join(a, b).contrast(...)`."
        )
    _check_order(b.names, a.names)
    return b.value


def _check_order(labels: Iterable[Any], names: tuple[str, ...]) -> None:
    """Refuse the same names in another order: entries pair by their place."""
    found = tuple(map(str, labels))
    if found != names and sorted(found) == sorted(names):
        raise ValueError(
            f"The same names in another order, {found[:5]} for {names[:5]}, and arithmetic goes by "
            "place. Put them in one order: `a - b[list(a.names)]`."
        )


def _scaled(a: Estimate, number: Array) -> Any:
    """Multiply each evaluation by a number, or one by several."""
    rows, factors = _spread(a, number.shape), np.atleast_1d(number)
    if len(a.names) == 1:
        return factors[:, None] * rows
    return diagonal(np.broadcast_to(factors, len(a.names)))


def _spread(a: Estimate, shape: tuple[int, ...]) -> Any:
    """Repeat one evaluation for several results, (q, K)."""
    K, count = len(a.names), shape[0] if shape else 1
    if K == 1:
        return np.ones((count, 1))
    if shape and count not in (1, K):
        raise ValueError(f"{count} numbers for {K} evaluations: give one, or one for each.")
    return identity(K)


def _numbers(b: Any, a: Estimate) -> Array | None:
    """Return numbers, () or (K,), or None if that is not what they are."""
    if isinstance(b, str | bytes | dict | set) or b is None:
        return None
    if hasattr(b, "index") and hasattr(b, "to_numpy"):
        _check_order(b.index, a.names)
    number = np.asarray(b)
    if number.dtype.kind not in "fiub":
        return None
    if number.ndim > 1 or number.size == 0 or not np.all(np.isfinite(number)):
        raise ValueError(f"Arithmetic takes finite numbers, one or one for each, not {b!r:.60}.")
    return number.astype(np.float64)


def _numbered(a: Estimate, number: Array, spell: Callable[[str, float], str]) -> list[str]:
    count = max(len(a.names), number.size)
    pairs = zip(np.resize(a.names, count), np.resize(number, count), strict=True)
    return [spell(str(name), float(c)) if c or number.ndim else str(name) for name, c in pairs]
