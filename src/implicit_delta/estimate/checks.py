"""Validate the content of an estimate: every array is copied, checked once and locked."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta._core.types import Array


def read_only(what: str, content: ArrayLike, *, width: int | None = None) -> Array:
    """Copy an array, of finite numbers and (if given) this many columns, and lock it."""
    array = np.array(content, dtype=np.float64)
    if width is not None and (array.ndim != 2 or array.shape[1] != width):
        raise ValueError(
            f"{what} has shape {array.shape}; for {width} evaluations it is (rows, {width})"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what} is not finite. Usual causes: overflow in psi, or a division by zero. Without "
            "finite numbers there is no interval to give."
        )
    array.setflags(write=False)
    return array


def checked_covariance(what: str, content: ArrayLike, names: tuple[str, ...]) -> Array:
    """Copy a (K, K) array without negative variances, and lock it."""
    V = read_only(what, content, width=len(names))
    if V.shape[0] != V.shape[1]:
        raise ValueError(f"{what} has shape {V.shape}; it must be square")
    worst = int(np.argmin(np.diag(V)))
    if V[worst, worst] < 0:
        raise ValueError(
            f"{what} gives {names[worst]!r} the negative variance {V[worst, worst]:.3g}. Usual "
            "causes: an inexact solve, an optimum that is none, or a combination of evaluations "
            "whose covariance is not positive semi-definite. Tighten the solver or polish the fit."
        )
    return V


def checked_names(names: Iterable[str] | str, count: int | None = None) -> tuple[str, ...]:
    """One name for each evaluation, or a lone one."""
    found = (names,) if isinstance(names, str) else tuple(map(str, names))
    if count is not None and len(found) != count:
        raise ValueError(f"there are {count} evaluations, but {len(found)} names: {found[:5]}")
    return found
