"""Arrays that a function of a user refers to, to tell whether two functions share any data."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.inside import Inside
from implicit_delta.models.named_theta import Spoken
from implicit_delta.models.objective import objective_of

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

ALIKE = 1e-6  # of one less the cosine: rows that differ by a thousandth, more than differences do
BY_CHANCE = 1e-2  # probability of equal rows above which nothing is said
DEEPEST = 3  # functions that call functions of the user that hold the data


def columns_in(function: Any, n: int) -> set[str]:
    """Digest every column of n numbers that a function refers to, whatever the order of its rows.

    Looked at are closures, globals by name, defaults, bound arguments and attributes. Constant
    columns say nothing.
    """
    return {digest for value in _held(function, DEEPEST) for digest in _digests(value, n)}


def have_equal_slopes(one: "FittedModel", other: "FittedModel") -> bool:
    """Whether rows of two models of the same parameters have the same derivatives, in this order.

    Constants of a log-likelihood are not in these, and a noise variance is a factor of all. False
    if other rows of the same kinds could agree by chance.
    """
    names, others = one.space.names or (), other.space.names or ()
    if one.n != other.n or set(names) != set(others):
        return False
    theta, order = np.asarray(one.theta), [names.index(name) for name in others]
    v = objective_of(one).units * np.random.default_rng(0).uniform(0.5, 1.5, one.d)
    try:
        here = one.terms_along(theta, v[:, None])[:, 0]
        there = other.terms_along(theta[order], v[order, None])[:, 0]
    except (ImplicitDeltaError, ArithmeticError, ValueError):  # outside of what the other allows
        return False
    lengths = np.linalg.norm(here) * np.linalg.norm(there)
    return bool(here @ there > (1 - ALIKE) * lengths > 0 and _chance(here) < BY_CHANCE)


def _chance(values: Array) -> float:
    """Probability that a draw with replacement from some rows has each where it is."""
    counts = np.unique(np.round(values / np.abs(values).max(), 6), return_counts=True)[1]
    return float(np.exp(counts @ np.log(counts / values.size)))


def unwrapped(function: Any) -> Any:
    """Take off what the library has put around a function of a user."""
    inner = getattr(function, "problem", None)  # residuals
    if inner is not None:
        return unwrapped(inner.function)
    return unwrapped(function.function) if isinstance(function, Spoken | Inside) else function


def _held(function: Any, deep: int) -> Iterator[Any]:
    """Yield what a function holds, and what functions that it holds do."""
    for value in _referred(unwrapped(function)):
        yield value
        if deep and callable(value) and not isinstance(value, type):
            yield from _held(value, deep - 1)


def _referred(function: Any) -> Iterable[Any]:
    if isinstance(function, partial):
        return [function.func, *function.args, *function.keywords.values()]
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type(np)):
        return [getattr(function, "__func__", None), *_attributes(owner)]
    code = getattr(function, "__code__", None)
    if code is None:
        return _attributes(function)
    cells = [_contents(cell) for cell in function.__closure__ or ()]
    known = function.__globals__
    named = [known[name] for name in code.co_names if name in known]
    kept = (function.__kwdefaults__ or {}).values()
    return [*cells, *named, *(function.__defaults__ or ()), *kept]


def _attributes(owner: Any) -> list[Any]:
    return list(getattr(owner, "__dict__", {}).values())


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _digests(value: Any, n: int) -> Iterator[str]:
    """Digest the columns of an array, a data frame, or a dictionary or sequence of such."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and len(value) < n:
        for part in value:
            yield from _digests(part, n)
        return
    if hasattr(value, "columns") and hasattr(value, "__getitem__"):
        columns = [value[name] for name in value.columns]
    elif isinstance(value, np.ndarray | list | tuple) or hasattr(value, "to_numpy"):
        columns = [value]
    else:
        return
    for column in columns:
        yield from _digests_of_array(column, n)


def _digests_of_array(column: Any, n: int) -> Iterator[str]:
    try:
        array = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return
    if array.ndim not in (1, 2) or len(array) != n:
        return
    for each in array.reshape(n, -1).T:
        if np.ptp(each) > 0:
            yield hashlib.blake2b(np.sort(each).tobytes(), digest_size=8).hexdigest()
