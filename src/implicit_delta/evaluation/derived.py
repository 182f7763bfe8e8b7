"""Columns that were made from the variable of a question by hand, and would stay as they are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning
from implicit_delta.evaluation.spread import numbers
from implicit_delta.models.prediction import Predictor

SAME = 1e-6  # of the size of a column: single precision leaves a tenth of that
SPARE = 8  # rows beyond the terms of a relation, so that it does not hold by chance
FEW = 24  # rows that are tried first
ENOUGH = 5000  # rows of a table: a product that is zero in all of these may be missed
MOST = 100  # columns whose products are looked at
CUT = 5  # rows on each side of a cut: k of n rows are an interval by chance in n / (n over k) cases
LABELS = 20  # of a column whose labels may be intervals of the variable
TOGETHER = 10  # rows in which two independent 0/1 columns would both be 1; none by chance: e**-10

Relation: TypeAlias = tuple[tuple[Any, ...], str, str]  # names, what it equals, terms of a formula

# Functions of the variable that are looked for, alone and times another column.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "{}": lambda x: x,
    "{}**2": np.square,
    "{}**3": lambda x: x**3,
    "np.log({})": np.log,
    "np.log1p({})": np.log1p,
    "np.exp({})": np.exp,
    "np.sqrt({})": np.sqrt,
    "1 / {}": np.reciprocal,
    "abs({})": np.abs,
}


def check_derived(predictor: Predictor, variable: Any) -> None:
    """Refuse a variable of which another column of the model is an exact function."""
    columns = Columns.of(predictor, variable)
    for names, told, terms in columns.relations():
        if all(map(predictor.reads, names)):
            raise EvaluationError(_refusal(variable, names[0], told, terms))
    if apart := [name for name in columns.exclusive() if predictor.reads(name)]:
        warn(
            f"{variable!r} and {', '.join(map(repr, apart))} are never 1 in the same row, as the "
            f"0/1 columns of one factor are: rows that have another label keep it while "
            f"{variable!r} is set to 1. Fit with the factor itself, `C(label)` in a formula or a "
            "OneHotEncoder in a pipeline, and compare two of its labels.",
            ImplicitDeltaWarning,
        )


def _refusal(variable: Any, name: Any, told: str, terms: str) -> str:
    return (
        f"{name!r} {told} in all training rows, and would stay as it is while {variable!r} "
        f"changes. Let the model make it: in a formula write `{terms}`, with scikit-learn use a "
        "pipeline (PolynomialFeatures, FunctionTransformer). Or make both tables with all their "
        "columns: `e = infer(model, average_prediction(pd.concat([low, high]), by=[0] * len(low) "
        "+ [1] * len(high)))`, and `e[1] - e[0]` is the difference."
    )


@dataclass(frozen=True, eq=False)
class Columns:
    """A numeric variable x (n,) and the other columns of a table, (n, p); labels as 0/1."""

    variable: Any
    x: Array
    names: list[Any]
    others: Array

    @classmethod
    def of(cls, predictor: Predictor, variable: Any) -> "Columns":
        """Take rows without missing numbers, some of very many, and columns that vary."""
        table = _some_rows(predictor.table)
        x = next(iter(_as_numbers(table, variable)), np.empty(0))
        found = [
            (name, column)
            for name in predictor.needed()
            if name != variable and x.size
            for column in _as_numbers(table, name)
            if np.ptp(column) != 0  # that of NaN is not
        ]
        others = np.column_stack([column for _, column in found]) if found else np.empty((0, 0))
        whole = np.isfinite(others).all(axis=1) & np.isfinite(x) if found else np.empty(0, bool)
        return cls(variable, x[: whole.size][whole], [n for n, _ in found], others[whole])

    def relations(self) -> Iterator[Relation]:
        """Yield columns that are functions of x, or of x and another column."""
        if self.x.size <= SPARE or np.ptp(self.x) == 0:
            return
        levels = np.unique(self.x[: 10 * FEW]).size
        ends = self.others.argmin(axis=0), self.others.argmax(axis=0)
        some = np.unique(np.r_[np.linspace(0, self.x.size - 1, FEW).astype(np.intp), *ends])
        for told, function in FUNCTIONS.items():
            with np.errstate(all="ignore"):
                f = function(self.x)
            if np.all(np.isfinite(f)) and np.ptp(f) > 0 and (levels > 3 or told == "{}"):
                yield from self._of(told, f, some)
        if levels > 2:
            for k, column in enumerate(self.others.T):
                if _is_cut(self.x, column):
                    told, terms = "is a step along {}", "I({} > value)"
                    yield (self.names[k],), told.format(self.variable), terms.format(self.variable)

    def exclusive(self) -> list[Any]:
        """List 0/1 columns that are never 1 together with x, though they would be by chance."""
        if not self.x.size or set(np.unique(self.x)) != {0.0, 1.0}:
            return []
        binary = ((self.others == 0) | (self.others == 1)).all(axis=0)
        expected = self.x.sum() * self.others.mean(axis=0)
        apart = binary & (self.x @ self.others == 0) & (expected >= TOGETHER)
        return [self.names[k] for k in np.flatnonzero(apart)]

    def _of(self, told: str, f: Array, some: NDArray[np.intp]) -> Iterator[Relation]:
        """Columns linear in f and x, and those linear in another column z besides."""
        name, C = told.format(self.variable), self.others
        own = self.x[:, None] if told == "{}" else np.column_stack([self.x, f])
        for k in np.flatnonzero(_inside(_basis(own[some]), C[some])):
            if self._holds(_basis(own), k):
                exact = np.allclose(f, C[:, k], rtol=SAME, atol=0.0)
                shown = f"equals {name}" if exact else f"is a linear function of {name}"
                yield (self.names[k],), shown, f"{self.variable} + I({name})"
        if len(self.names) > MOST:
            return
        tried = _inside(_basis(own[some], C[some].T), C[some])
        for z, k in np.argwhere(tried & ~np.eye(len(tried), dtype=bool)):
            if self._holds(_basis(own, C[:, z]), k) and not _is_function(C[:, z], C[:, k]):
                exact = np.allclose(f * C[:, z], C[:, k], rtol=SAME, atol=SAME)
                shown = f"equals {name} *" if exact else f"is a function of {name} and"
                terms = f"{name if told == '{}' else f'I({name})'} * {self.names[z]}"
                yield (self.names[k], self.names[z]), f"{shown} {self.names[z]}", terms

    def _holds(self, basis: Array, k: Any) -> bool:
        spare = len(basis) >= basis.shape[1] + SPARE
        return spare and bool(_inside(basis, self.others[:, [k]])[0])


def _some_rows(table: Any) -> Any:
    """Take rows all over a long table: what holds in all of them holds in these."""
    if len(table) <= ENOUGH:
        return table
    rows = np.linspace(0, len(table) - 1, ENOUGH).astype(np.intp)
    return table.iloc[rows] if hasattr(table, "columns") else table[rows]


def _as_numbers(table: Any, name: Any) -> list[Array]:
    """Turn a column into numbers, or one 0/1 column for each of a few labels."""
    column = table[name] if hasattr(table, "columns") else table[:, name]
    if column.ndim != 1:
        return []
    if getattr(column.dtype, "kind", "O") in "iufb":
        return [numbers(column)]
    if not hasattr(column, "value_counts"):
        return []
    labels = column.value_counts().index
    if len(labels) > LABELS:
        return []
    return [(column == label).to_numpy(dtype=np.float64, na_value=0.0) for label in labels]


def _basis(own: Array, z: Array | None = None) -> Array:
    """Terms 1, own (n, q) and these times z, (n,) or (p, n); centered for years and squares."""
    terms = np.column_stack([np.ones(len(own)), own - own.mean(axis=0)])
    if z is None:
        return terms
    centered = (z - z.mean(axis=-1, keepdims=True))[..., None]
    return np.concatenate(
        [np.broadcast_to(terms, (*z.shape, terms.shape[1])), terms * centered], -1
    )


def _inside(basis: Array, columns: Array) -> NDArray[np.bool_]:
    """Which columns (n, p) are combinations of the terms (..., n, q)."""
    size = np.linalg.norm(basis, axis=-2, keepdims=True)
    q, r = np.linalg.qr(basis / np.where(size > 0, size, 1.0))
    q = q * (abs(np.diagonal(r, axis1=-2, axis2=-1)) > SAME)[..., None, :]
    centered = columns - columns.mean(axis=0)
    rest = centered - q @ (np.swapaxes(q, -1, -2) @ centered)
    return np.asarray(np.linalg.norm(rest, axis=-2) <= SAME * np.linalg.norm(centered, axis=0))


def _is_function(z: Array, column: Array) -> bool:
    """Whether a column is linear in z, or the same wherever z is, which is not by chance."""
    if _inside(_basis(z[:, None]), column[:, None])[0]:
        return True
    levels, codes = np.unique(z, return_inverse=True)
    if levels.size > z.size / 2:
        return False
    low, high = np.full(levels.size, np.inf), np.full(levels.size, -np.inf)
    np.minimum.at(low, codes, column)
    np.maximum.at(high, codes, column)
    return bool(np.all(low == high))


def _is_cut(x: Array, column: Array) -> bool:
    """Whether a column has two values, one of them in an interval of x and the other outside."""
    ones = column == column.max()
    if not np.all(ones | (column == column.min())) or min(ones.sum(), (~ones).sum()) < CUT:
        return False
    inner, outer = x[ones], x[~ones]
    for one, other in ((inner, outer), (outer, inner)):
        if not np.any((other >= one.min()) & (other <= one.max())):
            return True
    return False
