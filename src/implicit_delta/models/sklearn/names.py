"""Names of the columns that pipelines make: a name stands for the values of its column."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from implicit_delta.core.types import Array

NO_NAMES = (AttributeError, NotImplementedError, TypeError, ValueError)


def names_behind(pipelines: list[Any], table: Any, width: int) -> list[str]:
    """Names of the columns that the last estimator gets from the pipelines around it.

    They are those of the steps. A column that keeps its name but not its values is named after the
    step as well, such as ``standardscaler(dose)``: its coefficient has another unit than that of
    ``dose``. Behind a step without names the columns are numbered, ``x0``, ``x1``, ...
    """
    given = [str(name) for name in getattr(table, "columns", [])]
    names = given or [f"x{j}" for j in range(np.shape(table)[1])]
    try:
        for label, step in _steps(pipelines):
            made = step.transform(table)
            names, table = _named(label, step, names, table, made), made
    except NO_NAMES:
        names = []
    return names if len(names) == len(set(names)) == width else _numbered(width, given)


def _numbered(width: int, taken: list[str]) -> list[str]:
    """Number the columns, by names that the table does not have."""
    for letter in ("x", "z", "column"):
        names = [f"{letter}{j}" for j in range(width)]
        if not set(names) & set(taken):
            break
    return names


def _steps(pipelines: list[Any]) -> Iterator[tuple[str, Any]]:
    for pipeline in pipelines:
        for label, step in pipeline.steps[:-1]:
            if step is not None and step != "passthrough":
                yield label, step


def _named(label: str, step: Any, names: list[str], before: Any, after: Any) -> list[str]:
    """Names of the columns that a step makes, of the names of those that it gets."""
    known = [str(name) for name in getattr(step, "feature_names_in_", names)]
    found = []
    for j, name in enumerate(map(str, step.get_feature_names_out(known))):
        if name in known:
            i = known.index(name)
            same = _is_same(_column(before, i), _column(after, j))
            found.append(names[i] if same else f"{label}({names[i]})")
        else:
            found.append(name if known == names else f"{label}({name})")
    return found


def _column(table: Any, j: int) -> Array:
    if hasattr(table, "iloc"):
        return np.asarray(table.iloc[:, j])
    if hasattr(table, "toarray"):
        return np.asarray(table.tocsc()[:, [j]].toarray()[:, 0])
    return np.asarray(table)[:, j]


def _is_same(one: Array, other: Array) -> bool:
    """Whether two columns have the same values; missing ones are alike."""
    try:
        a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    except (TypeError, ValueError):
        return bool(np.all(one.astype(str) == other.astype(str)))
    return np.array_equal(a, b, equal_nan=True)
