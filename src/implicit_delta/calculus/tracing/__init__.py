"""Differentiation of NumPy code, by sweeps backward and forward.

A function written for NumPy arrays is called with a `Traced` array instead. NumPy dispatches every
operation on it to the tables in `partials` and `rules`, which record how the result depends on the
arguments; one sweep backward then gives all derivatives for about the cost of the function
itself, where differences cost at least twice the number of parameters times that.

Unlike an autodiff framework this needs no other NumPy to be imported, and an operation outside the
tables raises, so that the caller can fall back on differences. Nothing may drop the history
silently, so a traced array cannot be turned into floats.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.calculus.tracing import partials, rules  # noqa: F401 (they fill the tables)
from implicit_delta.calculus.tracing.scipy_functions import dispatched
from implicit_delta.calculus.tracing.traced import TAPE, Node, Traced, history_of, push_forward
from implicit_delta.core.types import Array

LARGEST_SWEEP = 2**24  # numbers held per array during a sweep; more evaluations go in blocks
# Beyond this many a parameter, a history of small steps costs more than the differences that it
# saves; beyond that size it does not fit.
MOST_NODES, MOST_BYTES = 25, 2**28


def trace(f: Callable[[Any], Any], x: Array) -> tuple[Array, Array] | None:
    """Evaluate and differentiate f at x, (K,) and (K, d); None if f cannot be traced.

    The value is that of the traced call: a function that looks at the type of its argument, or
    catches its errors, may have another value for plain numbers.
    """
    history = _recorded(f, x)
    return None if history is None else (np.atleast_1d(history.value), history.jacobian())


@dataclass(frozen=True, eq=False)
class History:
    """Result of a function of an array (d,), () or (n,), and all nodes it depends on."""

    source: Node
    nodes: list[Node]  # latest first

    @property
    def value(self) -> Array:
        """Result of the function."""
        return self.nodes[0].value

    def jacobian(self) -> Array:
        """Sweep the identity backward from few values, forward from few parameters: (n, d)."""
        size = max(self.value.size, 1)
        if size > self.source.value.size:
            return np.ascontiguousarray(self.push(np.eye(self.source.value.size)).T)
        rows, block = np.eye(size).reshape(size, *self.value.shape), self._block()
        return np.concatenate([self.pull(rows[k : k + block]) for k in range(0, size, block)])

    def pull(self, rows: Array) -> Array:
        """Multiply rows, (K, n), by the Jacobian: (K, d)."""
        cotangents = {self.nodes[0].order: rows}
        for node in self.nodes:
            if node is self.source:
                continue
            cotangent = cotangents.pop(node.order)
            for parent, link in node.parents:
                part = link.pull(cotangent)
                known = cotangents.get(parent.order)
                cotangents[parent.order] = part if known is None else known + part
        return cotangents.get(self.source.order, np.zeros((len(rows), self.source.value.size)))

    def push(self, rows: Array) -> Array:
        """Multiply the Jacobian by directions, (K, d): (K, n), a block of them at a time."""
        block, last, first = self._block(), self.nodes[0].order, self.source.order
        parts = [
            push_forward(self.nodes, {first: rows[k : k + block]})[last]
            for k in range(0, len(rows), block)
        ]
        return np.concatenate(parts)

    def hessian(self, weights: Array, rows: Array) -> Array:
        """Multiply the Hessian of the weighted sum by directions, (K, d): (K, d).

        Forward over backward: tangents of all nodes, then cotangents with their changes.
        """
        block = max(1, LARGEST_SWEEP // sum(node.value.size for node in self.nodes))
        parts = [self._second(weights, rows[k : k + block]) for k in range(0, len(rows), block)]
        return np.concatenate(parts)

    def _second(self, weights: Array, rows: Array) -> Array:
        tangents = push_forward(self.nodes, {self.source.order: rows})
        cotangents = {self.nodes[0].order: np.broadcast_to(weights, self.value.shape)[None]}
        changes = {self.nodes[0].order: np.zeros((len(rows), *self.value.shape))}

        def add(known: dict[int, Array], parent: Node, part: Array | None) -> None:
            if part is not None:
                known[parent.order] = part + known[parent.order] if parent.order in known else part

        for node in self.nodes:
            if node is self.source:
                continue
            cotangent, change = cotangents.pop(node.order), changes.pop(node.order)
            own = [tangents[parent.order] for parent, _ in node.parents]
            bent = node.change and node.change(cotangent[0], own, tangents[node.order])
            for i, (parent, link) in enumerate(node.parents):
                add(cotangents, parent, link.pull(cotangent))
                add(changes, parent, link.pull(change))
                add(changes, parent, bent[i] if bent else None)
        return changes.get(self.source.order, np.zeros(rows.shape))

    def _block(self) -> int:
        return max(1, LARGEST_SWEEP // max(max(node.value.size for node in self.nodes), 1))


def trace_terms(f: Callable[[Any], Any], x: Array) -> History | None:
    """Record a function (d,) to (n,) that may be long; None if it cannot be traced, or is."""
    history = _recorded(f, x, MOST_NODES * x.size, MOST_BYTES)
    return None if history is None or history.value.ndim != 1 else history


def _recorded(
    f: Callable[[Any], Any], x: Array, nodes: float = math.inf, size: float = math.inf
) -> History | None:
    outside = TAPE.nodes, TAPE.bytes, TAPE.index
    TAPE.nodes, TAPE.bytes, TAPE.index = nodes, size, None
    try:
        source = Node(np.array(x, dtype=np.float64))
        with warnings.catch_warnings(), dispatched():
            warnings.simplefilter("error")
            result = _collect(f(Traced(source)))
    except Exception:  # whatever f or NumPy makes of the unusual argument, differences will do
        return None
    finally:
        TAPE.nodes, TAPE.bytes, TAPE.index = outside
    if result is None or result.value.ndim > 1 or not np.all(np.isfinite(result.value)):
        return None
    return History(source, history_of(result))


def _collect(result: Any) -> Node | None:
    """Return the one node behind the result of f; None if f did not use its argument."""
    if isinstance(result, Traced):
        return result.node
    array: Any = np.asarray(result)
    if array.dtype != object or array.ndim > 1:
        return None
    if array.ndim == 0:
        return array[()].node  # type: ignore[no-any-return]
    stacked: Any = np.stack([_as_traced(entry) for entry in array])
    return stacked.node  # type: ignore[no-any-return]


def _as_traced(entry: Any) -> Traced:
    return entry if isinstance(entry, Traced) else Traced(Node(np.asarray(entry, np.float64)))
