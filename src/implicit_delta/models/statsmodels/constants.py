"""Fitted numbers inside psi: `results.fittedvalues` does not move with the parameters."""

import dis
import inspect
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import takewhile
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from implicit_delta.core.types import Array

# Attributes of results that do not depend on the parameters: the model, settings, and numbers of
# the data or of the model with a constant alone. All others are taken for numbers of the fit.
STRUCTURE = {"model", "data", "endog", "exog", "family", "J", "K", "names", "specification"}
SETTINGS = {"cov_type", "use_t", "method", "mle_settings", "converged"}
OF_DATA = {"centered_tss", "uncentered_tss", "mse_total", "condition_number", "eigenvals"}
OF_NULL = {"null", "null_deviance", "llnull"}
KEPT = STRUCTURE | SETTINGS | OF_DATA | OF_NULL
SIZES = re.compile(r"nobs|df_|k_|.*_names$")
LABELS = {"index", "columns", "keys", "shape", "size", "ndim", "dtype", "name", "__len__"}
INSIDE = ("function", "psi", "h", "func", "__wrapped__")  # where others keep a function
READS = ("LOAD_ATTR", "LOAD_METHOD")
LIBRARIES = {"implicit_delta", "numpy", "pandas", "scipy", "sklearn", "statsmodels"}
DEEPEST = 4


def fitted_constants(psi: Any, params: Array) -> list[str]:
    """List what a function reads from results with these parameters, `results.params` say.

    In the code of psi and of the functions that it calls by name, and through attributes. Results
    that are renamed inside of psi, or an argument of these functions, are not followed.
    """
    if isinstance(psi, list | tuple | dict):
        entries = psi.values() if isinstance(psi, dict) else psi
        return sorted({name for entry in entries for name in fitted_constants(entry, params)})
    return sorted(set(_read(psi, params, set())))


def _read(psi: Any, params: Array, seen: set[int], depth: int = 0) -> Iterator[str]:
    function, known = _function(psi)
    if function is None or id(function) in seen or depth > DEEPEST:
        return
    if depth > 0 and str(function.__module__).partition(".")[0] in LIBRARIES:
        return  # whose own names are no results of the user
    seen.add(id(function))
    for name, *path in _paths(function.__code__):
        held = known.get(name)
        for k, attribute in enumerate(path, 1):
            if _is_fit(held, params):
                if _depends(attribute) and LABELS.isdisjoint(path[k : k + 1]):
                    yield ".".join([name, *path[:k]])
                break
            held = _attribute(held, attribute)
        owner, method = getattr(held, "__self__", None), getattr(held, "__name__", "")
        if _is_fit(owner, params):
            if _depends(method):
                yield f"{name} (the method `{method}` of the results)"
        elif callable(held) and not isinstance(held, type):
            yield from _read(held, params, seen, depth + 1)


def _depends(attribute: str) -> bool:
    return attribute not in KEPT and SIZES.match(attribute) is None


def _attribute(held: Any, name: str) -> Any:
    """Look up an attribute or a method, without running code of properties."""
    method = getattr(type(held), name, None)
    own = getattr(held, "__dict__", {}).get(name)
    return MethodType(method, held) if own is None and inspect.isfunction(method) else own


def _function(psi: Any, depth: int = 0) -> tuple[FunctionType | None, Mapping[str, Any]]:
    """Find the Python function inside of whatever holds it, and what its names stand for."""
    if inspect.isfunction(psi):
        return psi, _names_of(psi)
    if inspect.ismethod(psi):
        return _bound(psi.__func__, (psi.__self__,), {}, depth)
    if isinstance(psi, partial):
        return _bound(psi.func, psi.args, psi.keywords, depth)
    if depth == DEEPEST:
        return None, {}
    for name in INSIDE:
        found = _function(getattr(psi, name, None), depth + 1)
        if found[0] is not None:
            return found
    call = getattr(type(psi), "__call__", None)  # noqa: B004
    return _bound(call, (psi,), {}, depth) if inspect.isfunction(call) else (None, {})


def _bound(
    inner: Any, args: Sequence[Any], keywords: Mapping[str, Any], depth: int
) -> tuple[FunctionType | None, Mapping[str, Any]]:
    """Add arguments that are given already to the names of a function."""
    function, known = _function(inner, depth + 1)
    if function is None:
        return None, {}
    first = dict(zip(function.__code__.co_varnames, args, strict=False))
    return function, ChainMap(dict(keywords), first, dict(known))


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


def _is_fit(held: Any, params: Array) -> bool:
    """Whether an object is results of statsmodels with these parameters, or a copy of them."""
    bare = getattr(held, "_results", held)
    if not type(bare).__module__.startswith("statsmodels.") or not hasattr(bare, "params"):
        return False
    own = np.asarray(bare.params)
    return own.dtype.kind == "f" and np.array_equal(own.ravel(order="F"), params)


@lru_cache(maxsize=256)
def _paths(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Names with the attributes that are read from them, one after another; functions inside, too.

    The length of what is read counts as an attribute of it, and results inside of a wrapper are
    the wrapper.
    """
    steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    steps = [step for step in steps if step[1] != "_results"]
    found: list[tuple[str, ...]] = []
    for k, (operation, name) in enumerate(steps):
        if operation.startswith("LOAD_") and operation not in READS and isinstance(name, str):
            path = [str(read) for _, read in takewhile(lambda s: s[0] in READS, steps[k + 1 :])]
            after = steps[k + 1 + len(path)][0] if k + 1 + len(path) < len(steps) else ""
            if k and steps[k - 1][1] == "len" and after in ("PRECALL", "CALL"):
                path.append("__len__")
            found.append((name, *path))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _paths(constant)
    return tuple(found)
