"""Pullbacks of NumPy's functions of whole arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.numerics.tracing.traced import (
    FUNCTIONS,
    PLAIN,
    Pullback,
    Traced,
    depending_on,
    scaled,
    sum_to,
    unwrap,
    value_of,
)

Rule = TypeVar("Rule", bound=Callable[..., Any])

PLAIN.update({np.shape, np.ndim, np.size, np.argmax, np.argmin, np.argsort, np.iscomplexobj})
PLAIN.update({np.zeros_like, np.ones_like})


def rule_of(function: Any) -> Callable[[Rule], Rule]:
    """Register the rule of a function."""

    def enter(rule: Rule) -> Rule:
        FUNCTIONS[function] = rule
        return rule

    return enter


@rule_of(np.matmul)
def _matmul(a: Any, b: Any) -> Traced:
    left, right = np.asarray(value_of(a)), np.asarray(value_of(b))
    if not (1 <= left.ndim <= 2 and 1 <= right.ndim <= 2):
        raise TypeError("only products of vectors and matrices are traced")
    return depending_on(
        left @ right,
        (a, b),
        (lambda g: _pull_left(g, right), lambda g: _pull_right(g, left, right.ndim)),
    )


def _pull_left(g: Array, right: Array) -> Array:
    return g[..., None] * right if right.ndim == 1 else g @ right.T


def _pull_right(g: Array, left: Array, ndim: int) -> Array:
    if left.ndim == 1:
        return g[:, None] * left if ndim == 1 else left[:, None] * g[:, None]
    return g @ left if ndim == 1 else np.asarray(left.T @ g)


@rule_of(np.dot)
def _dot(a: Any, b: Any) -> Any:
    scalars = np.ndim(value_of(a)) == 0 or np.ndim(value_of(b)) == 0
    return a * b if scalars else _matmul(a, b)


@rule_of(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@rule_of("getitem")
def _getitem(x: Traced, key: Any) -> Traced:
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(part, Traced) for part in parts):
        raise TypeError("a traced array is not an index")
    basic = all(part is None or part is ... or isinstance(part, int | slice) for part in parts)
    shape = x.shape

    def pull(g: Array) -> Array:
        full = np.zeros((len(g), *shape))
        if basic:
            full[(slice(None), *parts)] = g
        else:  # an entry may have been picked more than once
            np.add.at(np.moveaxis(full, 0, -1), key, np.moveaxis(g, 0, -1))
        return full

    return depending_on(x.node.value[key], (x,), (pull,))


@rule_of(np.sum)
def _sum(x: Traced, axis: Any = None, *, keepdims: bool = False) -> Traced:
    axes = tuple(range(x.ndim)) if axis is None else np.atleast_1d(axis) % max(x.ndim, 1)
    kept = [1 if i in axes else s for i, s in enumerate(x.shape)]
    shape = x.shape
    return depending_on(
        x.node.value.sum(axis=tuple(axes), keepdims=keepdims),
        (x,),
        (lambda g: np.broadcast_to(g.reshape(len(g), *kept), (len(g), *shape)),),
    )


@rule_of(np.mean)
def _mean(x: Traced, axis: Any = None, *, keepdims: bool = False) -> Any:
    total = _sum(x, axis, keepdims=keepdims)
    return total / (x.size // total.size)


@rule_of(np.average)
def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return np.mean(a, axis)
    if np.shape(weights) != np.shape(a):
        raise TypeError("only weights of the shape of the values are traced")
    return np.sum(a * weights, axis) / np.sum(weights, axis)


@rule_of(np.var)
def _var(x: Traced, axis: Any = None, *, ddof: int = 0) -> Any:
    squares = _sum((x - _mean(x, axis, keepdims=True)) ** 2, axis)
    return squares / (x.size // squares.size - ddof)


@rule_of(np.std)
def _std(x: Traced, axis: Any = None, *, ddof: int = 0) -> Any:
    return np.sqrt(_var(x, axis, ddof=ddof))


def _extreme(arg: Any, x: Traced, axis: int | None = None) -> Traced:
    """Pick the extreme entries; where two tie, the first one's derivative is taken."""
    if axis is None:
        return _getitem(_reshape(x, -1), int(arg(x.node.value)))
    order = [*(i for i in range(x.ndim) if i != axis % x.ndim), axis % x.ndim]
    moved = _transpose(x, order)
    flat = _reshape(moved, (-1, moved.shape[-1]))
    picked = _getitem(flat, (np.arange(len(flat)), arg(flat.node.value, axis=1)))
    return _reshape(picked, moved.shape[:-1])


FUNCTIONS[np.max] = partial(_extreme, np.argmax)
FUNCTIONS[np.min] = partial(_extreme, np.argmin)


@rule_of(np.cumsum)
def _cumsum(x: Traced, axis: int | None = None) -> Traced:
    x, axis = (_reshape(x, -1), 0) if axis is None else (x, axis)
    at = axis % x.ndim + 1
    pull: Pullback = lambda g: np.flip(np.cumsum(np.flip(g, at), at), at)  # noqa: E731
    return depending_on(np.cumsum(x.node.value, axis), (x,), (pull,))


@rule_of(np.diff)
def _diff(x: Traced) -> Any:
    if x.ndim != 1:
        raise TypeError("only differences of vectors are traced")
    return x[1:] - x[:-1]


@rule_of(np.reshape)
def _reshape(x: Traced, shape: Any, order: str = "C") -> Traced:
    if order == "F":
        backwards = tuple(reversed(shape)) if isinstance(shape, tuple | list) else shape
        return _transpose(_reshape(_transpose(x), backwards))
    old = x.shape
    return depending_on(x.node.value.reshape(shape), (x,), (lambda g: g.reshape(len(g), *old),))


@rule_of(np.ravel)
def _ravel(x: Traced, order: str = "C") -> Traced:
    return _reshape(x, -1, order)


def _reshape_by(function: Any, x: Traced, *args: Any, **kwargs: Any) -> Traced:
    return _reshape(x, function(x.node.value, *args, **kwargs).shape)


for _function in (np.squeeze, np.expand_dims, np.atleast_1d):
    FUNCTIONS[_function] = partial(_reshape_by, _function)


@rule_of(np.transpose)
def _transpose(x: Traced, axes: Any = None) -> Traced:
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    back = (0, *(int(i) + 1 for i in np.argsort(order)))
    return depending_on(x.node.value.transpose(order), (x,), (lambda g: g.transpose(back),))


@rule_of(np.broadcast_to)
def _broadcast_to(x: Traced, shape: Any) -> Traced:
    old = x.shape
    return depending_on(np.broadcast_to(x.node.value, shape), (x,), (lambda g: sum_to(g, old),))


@rule_of(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Traced:
    parts = [unwrap(array) for array in arrays]
    values = [np.asarray(value_of(part)) for part in parts]
    at = axis % values[0].ndim
    ends = np.cumsum([value.shape[at] for value in values])
    places = [slice(e - value.shape[at], e) for e, value in zip(ends, values, strict=True)]
    pulls = [_slicing((slice(None),) * (at + 1) + (place,)) for place in places]
    return depending_on(np.concatenate(values, at), parts, pulls)


def _slicing(place: tuple[slice, ...]) -> Pullback:
    return lambda g: g[place]


@rule_of(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> Traced:
    return _concatenate([np.expand_dims(unwrap(array), axis) for array in arrays], axis)


@rule_of(np.hstack)
def _hstack(arrays: Sequence[Any]) -> Traced:
    parts = [np.atleast_1d(unwrap(array)) for array in arrays]
    return _concatenate(parts, 0 if parts[0].ndim == 1 else 1)


def _stack_matrices(axis: int, arrays: Sequence[Any]) -> Traced:
    return _concatenate([_as_matrix(array, axis) for array in arrays], axis)


def _as_matrix(array: Any, axis: int) -> Any:
    part = np.atleast_1d(unwrap(array))
    return np.expand_dims(part, axis) if part.ndim == 1 else part


FUNCTIONS[np.vstack] = partial(_stack_matrices, 0)
FUNCTIONS[np.column_stack] = partial(_stack_matrices, 1)


@rule_of(np.append)
def _append(array: Any, values: Any, axis: int | None = None) -> Traced:
    if axis is None:
        return _concatenate([np.ravel(array), np.ravel(values)])
    return _concatenate([array, values], axis)


@rule_of(np.where)
def _where(condition: Any, a: Any, b: Any) -> Traced:
    chosen = np.asarray(value_of(condition), dtype=bool)
    pulls = (scaled(np.where(chosen, 1.0, 0.0), a), scaled(np.where(chosen, 0.0, 1.0), b))
    return depending_on(np.where(chosen, value_of(a), value_of(b)), (a, b), pulls)


@rule_of(np.clip)
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@rule_of(np.copy)
def _copy(x: Traced) -> Traced:
    return Traced(x.node)
