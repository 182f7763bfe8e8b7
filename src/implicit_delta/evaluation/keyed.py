"""Dicts that psi returns: one array in the model's own language, and a name for each number."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from implicit_delta.errors import EvaluationError

Entry = tuple[str, Any]


def flattened(content: Mapping[Any, Any]) -> tuple[tuple[str, ...], Any]:
    """Put the numbers of a dict one after the other, (K,): arrays and dicts inside are numbered.

    Examples
    --------
    >>> names, values = flattened({"level": 2.0, "curve": [1.0, 4.0], "rate": {"old": 0.5}})
    >>> names, values
    (('level', 'curve[0]', 'curve[1]', 'rate[old]'), array([2. , 1. , 4. , 0.5]))
    """
    names: list[str] = []
    pieces = []
    for name, value in _entries(content):
        names += _labels(name, value)
        pieces.append(value)
    if not pieces:
        raise EvaluationError("psi returned an empty dict: there is nothing to infer.")
    return _distinct(names), _joined(pieces, columns=False)


def side_by_side(content: Mapping[Any, Any]) -> tuple[tuple[str, ...], Any]:
    """Put the columns of a dict, (m,) or (m, p) each, beside each other: (m, K)."""
    names: list[str] = []
    pieces: list[Any] = []
    for name, value in _entries(content, columns=True):
        shape = _shape(value)
        if len(shape) not in (1, 2) or shape[0] != _shape((pieces or [value])[0])[0]:
            raise EvaluationError(
                f"h returned a dict with {name!r} of shape {shape}, but each entry is a column "
                "with one number per evaluation row, (m,), of the same length as the others: not "
                "averaged and not summed."
            )
        inner = getattr(value, "columns", range(shape[-1]))
        names += [name] if len(shape) == 1 else [f"{name}[{k}]" for k in inner]
        pieces.append(value)
    if not pieces:
        raise EvaluationError("h returned an empty dict: there is nothing to average.")
    labels, joined = _distinct(names), _joined(pieces, columns=True)
    index = _common_index(pieces)
    if index is None or type(joined) is not np.ndarray:
        return labels, joined
    return labels, sys.modules["pandas"].DataFrame(joined, index=index, columns=labels)


def unmasked(value: Any) -> Any:
    """Refuse masked entries, whose numbers would come back to light."""
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise EvaluationError(
            f"psi returned a masked array with {np.sum(value.mask)} masked entries, which "
            "have no value. Leave them out with `.compressed()`, always the same ones, or fill "
            "them in with `.filled(...)`."
        )
    return value


def _entries(content: Any, *, columns: bool = False, prefix: str | None = None) -> Iterator[Entry]:
    """Walk through dicts, and lists unless these are columns, down to numbers and arrays."""
    nested = isinstance(content, Mapping)
    items = content.items() if nested else enumerate(content)
    for key, value in items:
        name = str(key) if prefix is None else f"{prefix}[{key}]"
        if isinstance(value, Mapping) or (isinstance(value, list | tuple) and not columns):
            yield from _entries(value, columns=columns, prefix=name)
        elif value is None or isinstance(value, str | bytes):
            raise EvaluationError(
                f"psi returned a dict whose {name!r} is {value!r:.60}, but must be a number or an "
                "array of them. Leave it out, or is a `return` missing?"
            )
        else:
            yield name, unmasked(value)


def _labels(name: str, value: Any) -> list[str]:
    """Name each number of an entry: as its key, with a place or a label of a Series."""
    shape = _shape(value)
    if len(shape) > 1 or shape == (0,):
        raise EvaluationError(
            f"psi returned a dict whose {name!r} has shape {shape}; each entry is a number or a "
            "one-dimensional array that is not empty, for example with .ravel()."
        )
    if not shape:
        return [name]
    index = value.index if hasattr(value, "index") and hasattr(value, "to_numpy") else None
    return [f"{name}[{k}]" for k in (range(shape[0]) if index is None else index)]


def _distinct(names: list[str]) -> tuple[str, ...]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise EvaluationError(
                f"psi returned a dict in which {name!r} names two numbers: keys are read as text, "
                "and entries of an array as key[0], key[1], ... Choose other keys."
            )
        seen.add(name)
    return tuple(names)


def _joined(pieces: list[Any], *, columns: bool) -> Any:
    """Join in the language of the pieces, where one has its own: torch, JAX, else NumPy."""
    libraries = {type(piece).__module__.partition(".")[0]: piece for piece in pieces}
    if "torch" in libraries:
        torch, own = sys.modules["torch"], libraries["torch"]
        tensors = [_tensor(piece, own) for piece in pieces]
        return (
            torch.column_stack(tensors) if columns else torch.cat([t.reshape(-1) for t in tensors])
        )
    own_numpy: Any = sys.modules["jax"].numpy if {"jax", "jaxlib"} & set(libraries) else np
    if columns:
        return own_numpy.column_stack(pieces)
    return own_numpy.concatenate([own_numpy.ravel(piece) for piece in pieces])


def _tensor(piece: Any, own: Any) -> Any:
    return piece if hasattr(piece, "new_tensor") else own.new_tensor(np.asarray(piece))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def _common_index(columns: list[Any]) -> Any:
    """Return the row labels of columns that have some; refuse columns in another order."""
    labeled = [column.index for column in columns if hasattr(column, "iloc")]
    if any(list(index) != list(labeled[0]) for index in labeled[1:]):
        raise EvaluationError(
            "h returned a dict of Series with different row labels, so that nobody knows which "
            "numbers are of one row. Give all of them one index, or return `.to_numpy()`."
        )
    return labeled[0] if labeled else None
