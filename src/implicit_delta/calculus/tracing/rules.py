"""Pullbacks of NumPy's functions of whole arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from implicit_delta.calculus.tracing.traced import (
    FUNCTIONS,
    PLAIN,
    Link,
    Traced,
    depending_on,
    multilinear,
    scaled,
    unwrap,
    value_of,
)
from implicit_delta.core.types import Array

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
    return multilinear(left @ right, (a, b), _matmul_link)


def _matmul_link(i: int, values: list[Array]) -> Link:
    left, right = values
    if i == 0:
        return Link(lambda g: _pull_left(g, right), lambda t: t @ right)
    return Link(
        lambda g: _pull_right(g, left, right.ndim),
        lambda t: t @ left.T if right.ndim == 1 else np.asarray(left @ t),
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
    basic = basic and not any(isinstance(part, bool) for part in parts)
    if not basic and any(part is ... for part in parts):
        raise TypeError("an ellipsis beside arrays is not traced")
    shape = x.shape

    def pull(g: Array) -> Array:
        full = np.zeros((len(g), *shape))
        if basic:
            full[(slice(None), *parts)] = g
        else:  # an entry may have been picked more than once
            np.add.at(np.moveaxis(full, 0, -1), key, np.moveaxis(g, 0, -1))
        return full

    def push(t: Array) -> Array:
        return t[(slice(None), *parts)] if basic else np.moveaxis(np.moveaxis(t, 0, -1)[key], -1, 0)

    return depending_on(x.node.value[key], (x,), (Link(pull, push),))


@rule_of(np.sum)
def _sum(x: Traced, axis: Any = None, *, keepdims: bool = False) -> Traced:
    axes = tuple(range(x.ndim)) if axis is None else np.atleast_1d(axis) % max(x.ndim, 1)
    kept = [1 if i in axes else s for i, s in enumerate(x.shape)]
    shape = x.shape
    return depending_on(
        x.node.value.sum(axis=tuple(axes), keepdims=keepdims),
        (x,),
        (
            Link(
                lambda g: np.broadcast_to(g.reshape(len(g), *kept), (len(g), *shape)),
                lambda t: t.sum(axis=tuple(a + 1 for a in axes), keepdims=keepdims),
            ),
        ),
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
    link = Link(
        lambda g: np.flip(np.cumsum(np.flip(g, at), at), at), lambda t: np.cumsum(t, axis=at)
    )
    return depending_on(np.cumsum(x.node.value, axis), (x,), (link,))


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
    old, value = x.shape, x.node.value.reshape(shape)
    link = Link(lambda g: g.reshape(len(g), *old), lambda t: t.reshape(len(t), *value.shape))
    return depending_on(value, (x,), (link,))


@rule_of(np.ravel)
def _ravel(x: Traced, order: str = "C") -> Traced:
    return _reshape(x, -1, order)


def _reshape_by(function: Any, x: Traced, *args: Any, **kwargs: Any) -> Traced:
    return _reshape(x, function(x.node.value, *args, **kwargs).shape)


for _function in (np.squeeze, np.expand_dims, np.atleast_1d):
    FUNCTIONS[_function] = partial(_reshape_by, _function)


@rule_of(np.transpose)
def _transpose(x: Traced, axes: Any = None) -> Traced:
    order = [int(i) % x.ndim for i in (reversed(range(x.ndim)) if axes is None else axes)]
    back = (0, *(int(i) + 1 for i in np.argsort(order)))
    ahead = (0, *(i + 1 for i in order))
    link = Link(lambda g: g.transpose(back), lambda t: t.transpose(ahead))
    return depending_on(x.node.value.transpose(order), (x,), (link,))


@rule_of(np.broadcast_to)
def _broadcast_to(x: Traced, shape: Any) -> Traced:
    value = np.broadcast_to(x.node.value, shape)
    return depending_on(value, (x,), (scaled(1, x, value.shape),))


@rule_of(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Traced:
    parts = [unwrap(array) for array in arrays]
    values = [np.asarray(value_of(part)) for part in parts]
    at = axis % values[0].ndim
    ends = np.cumsum([value.shape[at] for value in values])
    places = [slice(e - value.shape[at], e) for e, value in zip(ends, values, strict=True)]
    value = np.concatenate(values, at)
    links = [_slicing((slice(None),) * (at + 1) + (place,), value.shape) for place in places]
    return depending_on(value, parts, links)


def _slicing(place: tuple[slice, ...], shape: tuple[int, ...]) -> Link:
    def push(t: Array) -> Array:
        full = np.zeros((len(t), *shape))
        full[place] = t
        return full

    return Link(lambda g: g[place], push)


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
    value = np.where(chosen, value_of(a), value_of(b))
    factors = np.where(chosen, 1.0, 0.0), np.where(chosen, 0.0, 1.0)
    links = [scaled(f, x, value.shape) for f, x in zip(factors, (a, b), strict=True)]
    return depending_on(value, (a, b), links)


@rule_of(np.clip)
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@rule_of(np.copy)
def _copy(x: Traced) -> Traced:
    return Traced(x.node)


@rule_of(np.prod)
def _prod(x: Traced, axis: Any = None) -> Any:
    if not x.node.value.all():
        raise TypeError("only products of numbers that are not zero are traced")
    signs = np.prod(np.sign(x.node.value), axis)
    logs: Any = np.log(np.abs(x))
    return signs * np.exp(np.sum(logs, axis))


@rule_of(np.einsum)
def _einsum(spelled: str, *operands: Any) -> Traced:
    """Sum products of arrays over letters; one that only an operand itself has is refused."""
    inputs, _, out = spelled.replace(" ", "").partition("->")
    names = inputs.split(",")
    if "->" not in spelled:
        out = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    values = [np.asarray(value_of(operand)) for operand in operands]
    if "." in spelled or "Z" in spelled or any(len(set(name)) < len(name) for name in names):
        raise TypeError("only sums of products over different letters are traced")
    link_of = partial(_einsum_link, names, out)
    return multilinear(np.einsum(f"{inputs}->{out}", *values), operands, link_of)


def _einsum_link(names: list[str], out: str, i: int, values: list[Array]) -> Link:
    others = [(name, value) for j, (name, value) in enumerate(zip(names, values)) if j != i]  # noqa: B905
    inputs, rest = [name for name, _ in others], [value for _, value in others]
    if not set(names[i]) <= set(out).union(*inputs):
        raise TypeError("a sum over a letter of one operand alone is not traced")
    return Link(
        lambda g: np.einsum(f"{','.join(['Z' + out, *inputs])}->Z{names[i]}", g, *rest),
        lambda t: np.einsum(f"{','.join(['Z' + names[i], *inputs])}->Z{out}", t, *rest),
    )


@rule_of(np.repeat)
def _repeat(x: Traced, repeats: Any, axis: int | None = None) -> Any:
    x = _reshape(x, -1) if axis is None else x
    if axis not in (None, 0):
        raise TypeError("only repetitions of rows are traced")
    return x[np.repeat(np.arange(len(x)), repeats)]


@rule_of(np.take)
def _take(x: Traced, indices: Any, axis: int | None = None) -> Any:
    return _reshape(x, -1)[indices] if axis is None else x[(slice(None),) * axis + (indices,)]


@rule_of(np.flip)
def _flip(x: Traced) -> Any:
    return x[(slice(None, None, -1),) * x.ndim]


@rule_of(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    value = 0.0 * x
    for coefficient in p:
        value = value * x + coefficient
    return value
