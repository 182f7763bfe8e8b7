"""Compiled functions that are shared between models of the same program.

A compiled function repeats what was traced, whatever the user's functions read from outside by
now. So the program of a new model is traced anew, which takes milliseconds, and shares what was
compiled only if the trace is the same operation by operation and constant by constant.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import jax
import numpy as np
from jax.extend import core

from implicit_delta.models.jax.program import JaxProgram
from implicit_delta.models.terms import SupervisedTerms

MOST_KEPT = 16  # programs, and functions of parameters alone
HIDDEN = ("callback", "...")  # what a trace shows in part: calls of Python, long arrays
Shape: Any = jax.ShapeDtypeStruct

_programs: dict[Hashable, dict[Any, Any]] = {}
_functions: dict[Hashable, Callable[..., Any]] = {}


def share(program: JaxProgram, flat: jax.Array, arrays: Any, cost: Callable[[], int]) -> JaxProgram:
    """Let a program use what one with the same trace has compiled, and has found rows to cost."""
    shapes = jax.tree_util.tree_map(lambda a: Shape(a.shape, a.dtype), arrays)
    point = Shape(flat.shape, flat.dtype)
    found = _key(program, point, shapes)
    table = {} if found is None else _kept(_programs, found, dict)
    if "row_bytes" not in table:
        table["row_bytes"] = cost()
    shared = replace(program, row_bytes=table["row_bytes"])
    if found is not None:
        shared.use(table, lambda: _key(program, point, shapes) == found)
    return shared


def compiled(function: Callable[[jax.Array], jax.Array], flat: jax.Array) -> Callable[..., Any]:
    """Compile a function, or take what was compiled from the same trace."""
    known = _fingerprint(function, flat)
    made: Callable[..., Any] = jax.jit(function)
    return made if known is None else _kept(_functions, known, lambda: made)


def unchanged(made: Any, function: Callable[[jax.Array], jax.Array], flat: jax.Array) -> bool:
    """Whether the trace of a function is still the one that was compiled."""
    known = _fingerprint(function, flat)
    return known is not None and _functions.get(known) is made


def constants_of(function: Callable[[jax.Array], Any], flat: jax.Array) -> list[Any]:
    """Arrays that the trace of a function holds; none if it cannot be traced."""
    try:
        closed = jax.make_jaxpr(function)(flat)
    except Exception:  # uncompiled, it may run
        return []
    return list(_constants(closed.jaxpr, closed.consts))


def _kept(table: dict[Hashable, Any], key: Hashable, make: Callable[[], Any]) -> Any:
    """Look up, make what is not there, and drop what was used longest ago."""
    found = table.pop(key, None)
    table[key] = make() if found is None else found
    while len(table) > MOST_KEPT:
        del table[next(iter(table))]
    return table[key]


def _key(program: JaxProgram, point: Any, shapes: Any) -> Hashable | None:
    """The user's functions, and the trace of all that is computed from them."""
    terms, rows = program.row_terms, jax.tree_util.tree_leaves(shapes)[0].shape[0]
    weights = Shape((rows,), point.dtype)

    def values(flat: Any, batch: Any) -> Any:
        penalty = () if program.penalty is None else program.loss(flat)
        if not isinstance(terms, SupervisedTerms):
            return program.terms(flat, batch), penalty
        seen = program.outputs(flat, batch), terms.targets(batch)
        return *seen, program.terms(flat, batch), penalty

    def derivatives(flat: Any, batch: Any, weights: Any) -> Any:
        penalty = () if program.penalty is None else program.hessian(flat)(flat[None])
        return program.hessian(flat, batch, weights)(flat[None]), penalty

    known = _fingerprint(values, point, shapes)
    if known is None:
        return None
    rules = "custom" in known[0]  # of derivatives, which have to be seen
    second = _fingerprint(derivatives, point, shapes, weights) if rules else ()
    if second is None:
        return None
    key = (terms, program.penalty, program.functional.layout, known, second)
    try:
        hash(key)
    except TypeError:  # a callable object without a hash
        return None
    return key


def _fingerprint(function: Callable[..., Any], *shapes: Any) -> tuple[str, str] | None:
    """Text of a trace and a digest of its constants; None if the text does not tell all."""
    try:
        closed = jax.make_jaxpr(function)(*shapes)
    except Exception:  # whatever cannot be traced is left to the checks, which explain it
        return None
    text = str(closed)
    if any(part in text for part in HIDDEN):
        return None
    digest = sha256()
    for constant in _constants(closed.jaxpr, closed.consts):
        try:
            array = np.asarray(constant)
        except TypeError:  # a random key
            return None
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return text, digest.hexdigest()


def _constants(jaxpr: Any, own: Any) -> Iterator[Any]:
    """Arrays that a trace holds, also those of functions within."""
    yield from own
    for equation in jaxpr.eqns:
        yield from (v.val for v in equation.invars if isinstance(v, core.Literal))
        for part, constants in traces_within(equation):
            yield from _constants(part, constants)


def traces_within(equation: Any) -> Iterator[tuple[Any, Any]]:
    """Traces of the functions that an equation calls, with their constants."""
    for value in equation.params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, core.ClosedJaxpr):
                yield part.jaxpr, part.consts
            elif isinstance(part, core.Jaxpr):
                yield part, ()
