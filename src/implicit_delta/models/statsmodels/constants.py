"""Fitted numbers inside psi: `results.fittedvalues` does not move with the parameters."""

import dis
import inspect
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from implicit_delta._core.types import Array

# Attributes of results that hold numbers of the fit, or make them.
FITTED = {"params", "fittedvalues", "predict", "get_prediction", "resid", "mu"}
LABELS = {"index", "keys", "shape", "size", "ndim", "name"}  # of these, which are no numbers
INSIDE = ("function", "psi", "h", "func", "__wrapped__")  # where others keep a function
READS = ("LOAD_ATTR", "LOAD_METHOD")
DEEPEST = 4


def fitted_constants(psi: Any, params: Array) -> list[str]:
    """List what a function reads from results with these parameters, `results.params` say."""
    if isinstance(psi, list | tuple | dict):
        entries = psi.values() if isinstance(psi, dict) else psi
        return sorted({name for entry in entries for name in fitted_constants(entry, params)})
    function = _function(psi)
    if function is None:
        return []
    known = _names_of(function)
    return sorted(set(_read(function.__code__, known, params)))


def _function(psi: Any, depth: int = 0) -> Any:
    """Find the Python function inside of whatever holds it."""
    if inspect.isfunction(psi) or depth == DEEPEST:
        return psi if inspect.isfunction(psi) else None
    inner = (getattr(psi, name, None) for name in INSIDE)
    return next(
        (found for one in inner if one is not None and (found := _function(one, depth + 1))), None
    )


def _names_of(function: Any) -> Mapping[str, Any]:
    """Objects that the names in a function stand for, as far as they are known before a call."""
    code = function.__code__
    given = function.__defaults__ or ()
    last = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    closed = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a name that is given a value later
            closed[name] = cell.cell_contents
    defaults = {**dict(zip(last, given, strict=True)), **(function.__kwdefaults__ or {})}
    return ChainMap(defaults, closed, function.__globals__)


def _read(code: CodeType, known: Mapping[str, Any], params: Array) -> Iterator[str]:
    for name, attribute in _attributes(code):
        held = known.get(name)
        if attribute in FITTED and _is_fit(held, params):
            yield f"{name}.{attribute}"
        owner, method = getattr(held, "__self__", None), getattr(held, "__name__", "")
        if attribute == "" and method in FITTED and _is_fit(owner, params):
            yield f"{name} (the method `{method}` of the results)"


def _is_fit(held: Any, params: Array) -> bool:
    """Whether an object is results of statsmodels with these parameters, or a copy of them."""
    bare = getattr(held, "_results", held)
    if not type(bare).__module__.startswith("statsmodels.") or not hasattr(bare, "params"):
        return False
    own = np.asarray(bare.params)
    return own.dtype.kind == "f" and np.array_equal(own.ravel(order="F"), params)


@lru_cache(maxsize=256)
def _attributes(code: CodeType) -> tuple[tuple[str, str], ...]:
    """Pairs of a name and the attribute that is read from it; functions inside, too."""
    steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    found: list[tuple[str, str]] = []
    for k, (operation, name) in enumerate(steps):
        if operation.startswith("LOAD_") and operation not in READS and isinstance(name, str):
            first, second = (
                str(argument) if read in READS else ""
                for read, argument in [*steps[k + 1 : k + 3], ("", ""), ("", "")][:2]
            )
            if second not in LABELS:
                found.append((name, first))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _attributes(constant)
    return tuple(found)
