"""Reverse-mode differentiation of NumPy code.

A function written for NumPy arrays is called with a `Traced` array instead. NumPy dispatches every
operation on it to the tables in `partials` and `rules`, which record how the result depends on the
arguments; one sweep backward then gives all derivatives for about the cost of the function
itself, where differences cost at least twice the number of parameters times that.

Unlike an autodiff framework this needs no other NumPy to be imported, and an operation outside the
tables raises, so that the caller can fall back on differences. Nothing may drop the history
silently, so a traced array cannot be turned into floats.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.numerics.tracing import partials, rules  # noqa: F401 (they fill the tables)
from implicit_delta.numerics.tracing.traced import Node, Traced

# Outputs, and times the inputs: a sweep backward costs their square, differences of f less.
MOST_ROWS, MANY = 2**12, 4
LARGEST_SWEEP = 2**24  # numbers held per array during a sweep; more evaluations go in blocks


def trace(f: Callable[[Any], Any], x: Array) -> tuple[Array, Array] | None:
    """Evaluate and differentiate f at x, (K,) and (K, d); None if f cannot be traced.

    The value is that of the traced call: a function that looks at the type of its argument, or
    catches its errors, may have another value for plain numbers.
    """
    source = Node(np.asarray(x, dtype=np.float64))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = _collect(f(Traced(source)))
    except Exception:  # whatever f or NumPy makes of the unusual argument, differences will do
        return None
    if result is None or result.value.ndim > 1 or not np.all(np.isfinite(result.value)):
        return None
    if result.value.size > max(MANY * source.value.size, MOST_ROWS):
        return None
    return np.atleast_1d(result.value), _sweep(result, source)


def traced_jacobian(f: Callable[[Any], Any], x: Array) -> Array | None:
    """Differentiate f at x exactly, or return None if f cannot be traced.

    Parameters
    ----------
    f : callable
        Of a (d,) array, to a number, a (K,) array or a sequence of K numbers.
    x : (d,) array

    Returns
    -------
    (K, d) array or None

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [1.0, 3.0]])
    >>> traced_jacobian(lambda b: np.exp(X @ b).mean(), np.zeros(2))
    array([[1. , 2.5]])
    >>> traced_jacobian(lambda b: float(b[0]), np.zeros(2)) is None
    True
    """
    traced = trace(f, x)
    return None if traced is None else traced[1]


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


def _sweep(result: Node, source: Node) -> Array:
    """Pull the rows of the identity back through the history, a block of rows at a time."""
    history = _history(result)
    largest = max(node.value.size for node in history)
    size = max(result.value.size, 1)
    block = max(1, LARGEST_SWEEP // max(largest, 1))
    rows = np.eye(size).reshape(size, *result.value.shape)
    pulled = [_pull(history, source, rows[k : k + block]) for k in range(0, size, block)]
    return np.concatenate(pulled)


def _history(result: Node) -> list[Node]:
    """Return all nodes that the result depends on, latest first."""
    seen, waiting = {result.order: result}, [result]
    while waiting:
        for parent, _ in waiting.pop().parents:
            if parent.order not in seen:
                seen[parent.order] = parent
                waiting.append(parent)
    return [seen[order] for order in sorted(seen, reverse=True)]


def _pull(history: list[Node], source: Node, rows: Array) -> Array:
    cotangents = {history[0].order: rows}
    for node in history:
        if node is source:
            continue
        cotangent = cotangents.pop(node.order)
        for parent, pull in node.parents:
            part = pull(cotangent)
            known = cotangents.get(parent.order)
            cotangents[parent.order] = part if known is None else known + part
    return cotangents.get(source.order, np.zeros((len(rows), source.value.size)))
