"""Traced array and the tables of NumPy operations that it supports."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from implicit_delta.core.types import Array

Linear: TypeAlias = Callable[[Array], Array]
Change: TypeAlias = Callable[[Array, Sequence[Array], Array], Sequence[Array | None]]


class Link(NamedTuple):
    """Linear maps between a value and one argument, K vectors at a time along the first axis.

    `pull` maps cotangents of the value to those of the argument, `push` tangents of the argument
    to those of the value.
    """

    pull: Linear
    push: Linear | None = None


class Tape(threading.local):
    """Nodes and bytes that a trace may still take, and the index of its Series, in each thread."""

    nodes: float = math.inf
    bytes: float = math.inf
    index: Any = None

    def spend(self, size: int) -> None:
        """Count one node; refuse those that are too many."""
        self.nodes, self.bytes = self.nodes - 1, self.bytes - size
        if self.nodes < 0 or self.bytes < 0:
            raise MemoryError("the history is too long to be kept")

    def numbers(self, labeled: Any) -> Array:
        """Return the numbers of a Series; refuse another index, which pandas would align."""
        index = getattr(labeled, "index", None)
        if self.index is not None and not self.index.equals(index):
            raise TypeError("Series of different indexes cannot be traced")
        self.index = index
        return np.asarray(labeled)


TAPE = Tape()

# Filled by `partials` and `rules`; an operation in none of them raises.
PARTIALS: dict[Any, tuple[Callable[..., Any], ...]] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
PLAIN: set[Any] = set()

_clock = count()


class Node:
    """A value, its links to its parents and, unless these are constant, how they change.

    `change` maps a cotangent of the value, tangents of the parents (K, ...) and those of the value
    to what changes of each link make of the cotangent: (K, ...) for each parent, or None.
    """

    __slots__ = ("change", "order", "parents", "value")

    def __init__(
        self, value: Any, parents: Sequence[tuple["Node", Link]] = (), change: Change | None = None
    ) -> None:
        self.value: Array = np.asarray(value, dtype=np.float64)
        TAPE.spend(self.value.nbytes)
        self.parents, self.change = tuple(parents), change
        self.order = next(_clock)


def history_of(result: Node) -> list[Node]:
    """Return all nodes that the result depends on, latest first."""
    seen, waiting = {result.order: result}, [result]
    while waiting:
        for parent, _ in waiting.pop().parents:
            if parent.order not in seen:
                seen[parent.order] = parent
                waiting.append(parent)
    return [seen[order] for order in sorted(seen, reverse=True)]


def push_forward(nodes: Sequence[Node], tangents: dict[int, Array]) -> dict[int, Array]:
    """Extend tangents (K, ...) of some nodes to all, latest first; other sources are constant."""
    count = len(next(iter(tangents.values())))
    found = dict(tangents)
    for node in reversed(nodes):
        for parent, link in node.parents:
            assert link.push is not None
            part = link.push(found[parent.order])
            known = found.get(node.order)
            found[node.order] = part if known is None else known + part
        if node.order not in found:
            found[node.order] = np.zeros((count, *node.value.shape))
    return found


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """Array with the history of its computation.

    The node is immutable; the handle is not, so that code which works in place
    (``np.exp(x, out=x)``, ``x /= total``) can be followed. Methods of arrays go through NumPy's
    functions, so that there is one table of what can be traced.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    __pandas_priority__ = 10_000  # so that a Series or a DataFrame leaves arithmetic to this

    def __init__(self, node: Node) -> None:
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "outer" and not kwargs:
            return _outer(ufunc, *map(unwrap, inputs))
        out = kwargs.pop("out", None)
        if kwargs or method != "__call__":
            return NotImplemented
        arguments = [unwrap(argument) for argument in inputs]
        if ufunc in PLAIN:
            return ufunc(*map(value_of, arguments)) if out is None else NotImplemented
        if ufunc in PARTIALS:
            result = _elementwise(ufunc, arguments)
        elif ufunc in FUNCTIONS:
            result = FUNCTIONS[ufunc](*arguments)
        else:
            return NotImplemented
        return result if out is None else _assign(out[0], result)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        arguments = [unwrap(argument) for argument in args]
        if function in PLAIN:
            return function(*map(value_of, arguments), **kwargs)
        if function not in FUNCTIONS:
            return NotImplemented
        return FUNCTIONS[function](*arguments, **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        # `np.asarray(x)` is harmless in most code, but NumPy does not dispatch it. A 0-d object
        # array that holds this one survives it: its first arithmetic operation unwraps it.
        if dtype is not None and np.dtype(dtype) != object:
            raise TypeError("a traced array cannot be turned into numbers")
        holder = np.empty((), dtype=object)
        holder[()] = self
        return holder

    def __float__(self) -> float:
        raise TypeError("a traced number cannot be turned into a float")

    def __bool__(self) -> bool:
        return bool(self.node.value)

    def __len__(self) -> int:
        return len(self.node.value)

    def __iter__(self) -> Iterator["Traced"]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return FUNCTIONS["getitem"](self, key)

    def __getattr__(self, name: str) -> Any:
        """Find the method `exp` that arrays of objects call on their entries for `np.exp`."""
        ufunc: Any = getattr(np, name, None)
        if ufunc not in PARTIALS or ufunc.nin != 1:
            raise AttributeError(name)
        return lambda: ufunc(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.value.shape

    @property
    def ndim(self) -> int:
        return self.node.value.ndim

    @property
    def size(self) -> int:
        return self.node.value.size

    @property
    def dtype(self) -> Any:
        return self.node.value.dtype

    @property
    def T(self) -> Any:
        return FUNCTIONS[np.transpose](self)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        return FUNCTIONS[np.reshape](self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Any:
        return FUNCTIONS[np.transpose](self, axes[0] if len(axes) == 1 else axes or None)

    def copy(self) -> "Traced":
        return Traced(self.node)

    def astype(self, dtype: Any, copy: bool = True) -> "Traced":
        if np.dtype(dtype) != np.float64:
            raise TypeError("a traced array is float64")
        return Traced(self.node)


def _method(function: Any) -> Any:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


METHODS = (
    "sum",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "cumsum",
    "dot",
    "ravel",
    "squeeze",
    "clip",
    "prod",
    "repeat",
    "take",
)
for _name in METHODS:
    setattr(Traced, _name, _method(getattr(np, _name)))
Traced.flatten = Traced.ravel  # type: ignore[attr-defined]


def unwrap(argument: Any) -> Any:
    """Take a traced array out of the object array of `np.asarray`, and numbers out of pandas."""
    if isinstance(argument, np.ndarray) and argument.dtype == object and argument.ndim == 0:
        return argument[()]
    labeled = hasattr(argument, "__pandas_priority__") and not isinstance(argument, Traced)
    return TAPE.numbers(argument) if labeled else argument


def value_of(argument: Any) -> Any:
    """Return the plain numbers of an argument, traced or not."""
    return argument.node.value if isinstance(argument, Traced) else argument


def depending_on(
    value: Any, arguments: Sequence[Any], links: Sequence[Any], change: Change | None = None
) -> Traced:
    """Make a traced array; arguments that are not traced need no link."""
    pairs = zip(arguments, links, strict=True)
    parents = [(a.node, link) for a, link in pairs if isinstance(a, Traced)]
    return Traced(Node(value, parents, change))


def only_first_order(*_: Any) -> Any:
    """Refuse to differentiate a second time: the change of links that nobody knows."""
    raise TypeError("second derivatives of this function are not traced")


def multilinear(
    value: Any, arguments: Sequence[Any], link_of: Callable[[int, list[Any]], Link]
) -> Traced:
    """Make a product of arguments; `link_of(i, values)` does not look at ``values[i]``."""
    values = [np.asarray(value_of(argument)) for argument in arguments]
    traced = [i for i, argument in enumerate(arguments) if isinstance(argument, Traced)]

    def pulled(i: int, j: int, cotangent: Array, tangents: Array) -> Array:
        moved = ([*values[:j], tangent, *values[j + 1 :]] for tangent in tangents)
        return np.concatenate([link_of(i, with_t).pull(cotangent[None]) for with_t in moved])

    def change(cotangent: Array, tangents: Sequence[Array], _: Array) -> list[Array | None]:
        pairs = list(zip(traced, tangents, strict=True))
        return [sum(pulled(i, j, cotangent, t) for j, t in pairs if j != i) for i in traced]  # type: ignore[misc]

    links = [link_of(i, values) for i in range(len(values))]
    return depending_on(value, arguments, links, change if len(traced) > 1 else None)


def sum_to(cotangent: Array, shape: tuple[int, ...]) -> Array:
    """Undo broadcasting: sum over the axes that the argument does not have or has only once."""
    extra = cotangent.ndim - 1 - len(shape)
    cotangent = cotangent.sum(axis=tuple(range(1, 1 + extra))) if extra else cotangent
    single = tuple(i for i, s in enumerate(shape, 1) if s == 1 and cotangent.shape[i] != 1)
    return cotangent.sum(axis=single, keepdims=True) if single else cotangent


def scaled(factor: Any, argument: Any, shape: tuple[int, ...]) -> Link:
    """Link an elementwise result of a shape by its partial derivative (1 and -1 cost nothing)."""
    own = np.shape(value_of(argument))
    lead = (1,) * (len(shape) - len(own))

    def times(g: Array) -> Array:
        return g * factor if not isinstance(factor, int) else g if factor == 1 else -g

    def push(t: Array) -> Array:
        return np.broadcast_to(times(t.reshape(len(t), *lead, *own)), (len(t), *shape))

    return Link(lambda g: sum_to(times(g), own), push)


def _elementwise(ufunc: Any, arguments: list[Any]) -> Traced:
    values = [np.asarray(value_of(argument), dtype=np.float64) for argument in arguments]
    result = ufunc(*values)
    traced = [i for i, argument in enumerate(arguments) if isinstance(argument, Traced)]
    links: list[Any] = [None] * len(values)
    for i in traced:
        links[i] = scaled(PARTIALS[ufunc][i](result, *values), arguments[i], result.shape)

    def change(cotangent: Array, tangents: Sequence[Array], own: Array) -> list[Array | None]:
        """Differentiate the partial derivatives, which are made of traceable functions."""
        y, moving = Traced(Node(result)), {i: Traced(Node(values[i])) for i in traced}
        known = {moving[i].node.order: t for i, t in zip(traced, tangents, strict=True)}
        known[y.node.order] = own
        own_arguments = [moving.get(i, value) for i, value in enumerate(values)]
        factors = [PARTIALS[ufunc][i](y, *own_arguments) for i in traced]
        return [
            sum_to(cotangent * _moves(factor, known, result.ndim), values[i].shape)
            if isinstance(factor, Traced)
            else None
            for i, factor in zip(traced, factors, strict=True)
        ]

    return depending_on(result, arguments, links, change)


def _moves(factor: Traced, tangents: dict[int, Array], ndim: int) -> Array:
    """Tangents (K, ...) of a factor, with as many axes as what it multiplies."""
    found = push_forward(history_of(factor.node), tangents)[factor.node.order]
    return found.reshape(len(found), *(1,) * (ndim - factor.ndim), *factor.shape)


def _outer(ufunc: Any, left: Any, right: Any) -> Any:
    return ufunc(np.reshape(left, (*np.shape(left), *(1 for _ in np.shape(right)))), right)


def _assign(out: Any, result: Traced) -> Traced:
    target = unwrap(out)
    if not isinstance(target, Traced) or target.shape != result.shape:
        raise TypeError("a traced array cannot be written into an array of numbers")
    target.node = result.node
    return target
