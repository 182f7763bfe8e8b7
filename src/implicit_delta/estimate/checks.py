"""Validate the content of an estimate: every array is copied, checked once and locked."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.core.factored import Covariance, Factored, settled
from implicit_delta.core.labels import as_names, distinct
from implicit_delta.core.rounding import is_symmetric
from implicit_delta.core.types import Array
from implicit_delta.estimate.held import Parts, held_parts, locked
from implicit_delta.estimate.rows import Rows


def checked_content(
    value: ArrayLike,
    covariance: ArrayLike | Factored,
    names: Iterable[str] | str,
    *,
    parts: Mapping[str, ArrayLike],
    errors_add: bool,
    df: ArrayLike,
    target: str,
    scale: str | Iterable[str],
    acceleration: ArrayLike | None,
    drift: ArrayLike | None,
    influence: ArrayLike | None,
    rows: Rows | None,
    draws: ArrayLike | None,
    deviations: ArrayLike | None,
    **others: Any,
) -> dict[str, Any]:
    """Check the fields of an estimate against each other."""
    values = read_only("value", value)
    if values.ndim > 1 or values.size == 0:
        raise ValueError(f"value has shape {values.shape}; give a number or a (K,) array, K > 0")
    K, labels = values.size, checked_names(names, values.size)
    if errors_add not in (True, False):
        raise ValueError(f"errors_add is True or False, not {errors_add!r}")
    if errors_add and not {"model", "evaluation"} <= set(parts):
        raise ValueError("errors_add is about the parts 'model' and 'evaluation': give both")
    many = {"influence": influence, "draws": draws, "deviations": deviations}
    found: dict[str, Any] = {
        name: None if array is None else read_only(name, array, width=K)
        for name, array in many.items()
    }
    for name, column in {"acceleration": acceleration, "drift": drift}.items():
        given = None if column is None else read_only(name, column)
        found[name] = None if given is None else np.broadcast_to(given, (K,))
    return {
        **found,
        "value": float(values) if values.ndim == 0 else values,
        "names": labels,
        "covariance": checked_covariance("covariance", covariance, labels),
        "parts": _checked_parts(parts, labels),
        "df": checked_df(df, K),
        "target": str(target),
        "scale": checked_scale(scale, values.ravel()),
        "rows": _checked_rows(rows, found["influence"]),
    }


def _checked_parts(
    parts: Mapping[str, ArrayLike | Factored], names: tuple[str, ...]
) -> Mapping[str, Array]:
    checked = {
        str(part): checked_covariance(f"parts[{part!r}]", V, names)
        for part, V in held_parts(parts).items()
    }
    many = any(isinstance(V, Factored) for V in checked.values())
    return Parts(checked) if many else MappingProxyType(checked)  # type: ignore[arg-type]


def _checked_rows(rows: Rows | None, influence: Array | None) -> Rows | None:
    if influence is None:
        return rows
    if rows is not None and rows.n != len(influence):
        raise ValueError(f"rows are {rows.n}, but there are influences of {len(influence)}")
    return rows or Rows(len(influence))


def read_only(what: str, content: ArrayLike, *, width: int | None = None) -> Array:
    """Copy an array, of finite numbers and (if given) this many columns, and lock it."""
    array = real_numbers(what, content)
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


def real_numbers(what: str, content: ArrayLike) -> Array:
    """Copy real numbers; refuse what NumPy would make some of, such as text or a complex part."""
    given = np.asarray(content)
    masked = isinstance(content, np.ma.MaskedArray) and bool(np.any(content.mask))
    if masked or given.dtype.kind not in "fiubO":
        kind = "masked entries" if masked else given.dtype
        raise ValueError(f"{what} has to be real numbers, not {kind}: {content!r:.60}")
    return np.array(given, dtype=np.float64)


def checked_covariance(
    what: str, content: ArrayLike | Factored, names: tuple[str, ...]
) -> Covariance:
    """Copy a symmetric (K, K) array without negative variances, and lock it."""
    if isinstance(content, Factored):
        return _checked_factors(what, content, names)
    V = read_only(what, content, width=len(names))
    if V.shape[0] != V.shape[1]:
        raise ValueError(f"{what} has shape {V.shape}; it must be square")
    _check_variances(what, V, names)
    _check_symmetry(what, V, names)
    return V


def _checked_factors(what: str, content: Factored, names: tuple[str, ...]) -> Covariance:
    """Copy factors (K, r) and (r, r), and lock them; few evaluations get their matrix."""
    if len(content) != len(names):
        raise ValueError(f"{what} has shape {content.shape} for {len(names)} evaluations")
    middle = content.middle
    if middle is not None:
        middle = read_only(what, (middle + middle.T) / 2)
    V = settled(Factored(read_only(what, content.left), middle))
    _check_variances(what, V, names)
    return V if isinstance(V, Factored) else locked(V)


def _check_variances(what: str, V: Covariance, names: tuple[str, ...]) -> None:
    variances = V.diagonal()
    worst = int(np.argmin(variances))
    if variances[worst] < 0:
        raise ValueError(
            f"{what} gives {names[worst]!r} the negative variance {variances[worst]:.3g}. Usual "
            "causes: an inexact solve, an optimum that is not one, or a combination of evaluations "
            "whose covariance is not positive semi-definite. Tighten the solver or polish the fit."
        )


def _check_symmetry(what: str, V: Array, names: tuple[str, ...]) -> None:
    if not is_symmetric(V):
        j, k = np.unravel_index(int(np.argmax(abs(V - V.T))), V.shape)
        raise ValueError(
            f"{what} is not symmetric: {V[j, k]:.6g} between {names[j]!r} and {names[k]!r}, and "
            f"{V[k, j]:.6g} the other way. If the difference is an error of computation, give "
            "`(V + V.T) / 2`."
        )


def checked_names(names: Iterable[str] | str, count: int | None = None) -> tuple[str, ...]:
    """One name for each evaluation, or a lone one; repeated and empty ones are numbered."""
    found = as_names(names)
    if count is not None and len(found) != count:
        raise ValueError(f"there are {count} evaluations, but {len(found)} names: {found[:5]}")
    return distinct(found)


def checked_df(df: ArrayLike, count: int) -> float | Array:
    """Check degrees of freedom, positive or infinite: one number if all are the same."""
    numbers = real_numbers("df", df)
    if numbers.shape not in {(), (count,)} or not np.all(numbers > 0):  # NaN too
        raise ValueError(
            f"df is a positive number of degrees of freedom (np.inf: normal quantiles), or one for "
            f"each of {count} evaluations, not {df!r:.60}"
        )
    if np.all(numbers == numbers.flat[0]):
        return float(numbers.flat[0])
    numbers.setflags(write=False)
    return numbers


def checked_scale(scale: Any, values: Array) -> str | tuple[str, ...]:
    """Check the scale of intervals and tests: one text if it is the same for all evaluations."""
    each = (scale,) * values.size if isinstance(scale, str) else tuple(np.atleast_1d(scale))
    if len(each) != values.size or not set(each) <= {"", "log"}:
        raise ValueError(
            f"scale is '' or 'log', or one of them for each of {values.size} evaluations, not "
            f"{scale!r:.60}"
        )
    low = [value for value, one in zip(values, each, strict=True) if one == "log" and value <= 0]
    if low:
        raise ValueError(f"scale='log' is of values above 0, such as ratios, not of {low[0]:.6g}")
    return str(each[0]) if len(set(each)) == 1 else tuple(map(str, each))


def checked_null(null: ArrayLike, count: int) -> Array:
    """Return the hypotheses, (K,)."""
    hypothesis = real_numbers("null", null)
    if not np.isfinite(hypothesis).all():
        raise ValueError(f"null is not finite: {null!r:.60}. A test needs a number to test.")
    if hypothesis.shape not in {(), (count,)}:
        raise ValueError(
            f"null has shape {hypothesis.shape}; give one number, or one for each of the "
            f"{count} evaluations"
        )
    return np.broadcast_to(hypothesis, (count,))
