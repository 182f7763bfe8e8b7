"""Scenarios of a question: the table as it is, with a variable set to two values, or moved."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.evaluation.contrasts import CONTRASTS
from implicit_delta.evaluation.derived import check_derived
from implicit_delta.evaluation.spread import RowWeights, numbers, spread_of
from implicit_delta.models.prediction import (
    Prediction,
    Predictor,
    check_known,
    column_of,
    is_missing,
    variable_in,
)

Flags: TypeAlias = NDArray[np.bool_]
Found: TypeAlias = tuple[Finding | None, ...]
Side = list[tuple[Prediction, Any]]  # predictions and their factors, (m,) or a number: their sum

SHORTHANDS = {  # for the distribution of a variable in the training rows: from which to which
    "sd": ("its mean minus half a standard deviation", "its mean plus half a standard deviation"),
    "2sd": ("its mean minus a standard deviation", "its mean plus a standard deviation"),
    "iqr": ("its first quartile", "its third quartile"),
    "minmax": ("its smallest value", "its largest value"),
}
HALF = 0.5  # of a change from 0 to 1
MEANT = {"lnor": "lnoddsratio", "lnoravg": "lnoddsratio", "or": "oddsratio"}  # elsewhere
# Steps of a slope, in standard deviations; near zero a share of x, as logarithms and roots bend.
STEP, SHARE, LEAST, TINY = 1e-3, 1e-2, 1e-6, 1e-9
AT_ENDS = 0.1  # times the step: the one-sided formula has an order less
KINKED = 1e-2  # by which slopes to both sides may differ: those of smooth predictions by 1e-4
INSIDE = np.array([1.0, -8.0, 8.0, -1.0]) / 12, np.array([-2.0, -1.0, 1.0, 2.0])
ONE_SIDED = np.array([-3.0, 4.0, -1.0]) / 2, np.array([0.0, 1.0, 2.0])
AT_END = np.array([-11.0, 18.0, -9.0, 2.0]) / 6, np.array([0.0, 1.0, 2.0, 3.0])


class Scenarios(ABC):
    """Sides of a question, each a sum of predictions of changed tables."""

    @abstractmethod
    def sides(self, predictor: Predictor, data: Any, weights: RowWeights) -> list[Side]:
        """Predict the changed tables; the weights are those of the training rows."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the result."""

    @abstractmethod
    def words(self, outcome: str) -> str:
        """Tell in words what is averaged, of an outcome."""

    def check(self, predictor: Predictor) -> Found:
        """Refuse a change that the training rows, or their columns, say nothing about."""
        return ()

    def range_in(self, table: Any) -> Finding | None:
        """Find default values that the data do not have."""
        return None

    def fixed(self, table: Any) -> "Scenarios":
        """Replace values that depend on the distribution in the training rows by numbers."""
        return self


@dataclass(frozen=True)
class Observed(Scenarios):
    """The table as it is."""

    name: str = "prediction"

    def words(self, outcome: str) -> str:
        return f"{self.name} of {outcome}"

    def sides(self, predictor: Predictor, data: Any, weights: RowWeights) -> list[Side]:
        return [[(predictor.on(data), 1.0)]]


@dataclass(frozen=True, eq=False)
class Compared(Scenarios):
    """Two tables: a variable set to the second of two values, and to the first."""

    variable: Any
    values: Any
    how: str
    chosen: bool = True  # and not the default

    def sides(self, predictor: Predictor, data: Any, weights: RowWeights) -> list[Side]:
        variable = variable_in(predictor.table, self.variable)
        levels = predictor.levels(variable)
        column = column_of(data, variable)
        if levels is None:
            known = numbers(column_of(predictor.table, variable))
            low, high = self._numbers(variable, numbers(column), known, weights)
        else:
            low, high = (self._label(value, levels, column) for value in self._pair(levels))
        below, above = predictor.scenarios(data, variable, [low, high])
        return [[(above, 1.0)], [(below, 1.0)]]

    @property
    def name(self) -> str:
        if isinstance(self.values, str):
            return f"{self.variable}: {self.values}"
        if np.ndim(self.values) == 0:
            return f"{self.variable}: +{self.values}"
        low, high = self.values
        return f"{self.variable}: {CONTRASTS[self.how].sign.format(high, low)}"

    def words(self, outcome: str) -> str:
        high, low = self._ends()
        contrast = CONTRASTS[self.how]
        return contrast.words.format(high=f"average of {outcome} {high} in every row", low=low)

    def _ends(self) -> tuple[str, str]:
        """Tell both scenarios."""
        name = _called(self.variable)
        if not isinstance(self.values, str) and np.ndim(self.values) == 0:
            way = "higher" if self.values > 0 else "lower"
            return f"if {name} were {abs(self.values)} {way}", f"with {name} as it is"
        known = isinstance(self.values, str)
        low, high = SHORTHANDS[self.values] if known else self.values
        return f"if {name} = {high}", f"if {name} = {low}"

    def check(self, predictor: Predictor) -> Found:
        variable = variable_in(predictor.table, self.variable)
        column = np.asarray(column_of(predictor.table, variable))
        if column.dtype.kind in "iufb" and np.all(column == column[0]):
            raise ValueError(
                f"{variable!r} is the same in all training rows, which tell nothing about a change "
                "of it. Compare values of a variable that varies."
            )
        return check_derived(predictor, variable), self.range_in(predictor.table)

    def range_in(self, table: Any) -> Finding | None:
        variable = variable_in(table, self.variable)
        column = np.asarray(column_of(table, variable))
        if self.chosen or column.dtype.kind not in "iuf":
            return None
        low, high = np.nanmin(column), np.nanmax(column)
        inside = float(min(high, 1.0) - max(low, 0.0))
        if (low, high) == (0, 1):
            return None
        where = ": most of this change is outside of the data." if inside < HALF else "."
        return Finding(
            "warn" if inside < HALF else "note",
            "default_values",
            f"average_comparison({variable!r}) compares 1 with 0, but {variable!r} is from "
            f"{low:.4g} to {high:.4g} in the training rows{where}",
            number=inside,
            remedies=(
                'Give `values=1` for one unit more in each row, `values="iqr"`, or '
                "`values=(0, 1)` if it is meant.",
            ),
        )

    def fixed(self, table: Any) -> "Compared":
        if not isinstance(self.values, str):
            return self
        x = numbers(column_of(table, variable_in(table, self.variable)))
        return replace(self, values=spread_of(x, RowWeights(np.ones(x.size)), self.values))

    def _numbers(
        self, variable: Any, x: Array, known: Array, weights: RowWeights
    ) -> tuple[Array, Array]:
        """Columns of a numeric variable, x in the rows and known in those of the training."""
        if not isinstance(self.values, str) and np.ndim(self.values) == 0:
            _check_known(variable, x)
            return x, x + self.values
        pair = self.values
        if isinstance(pair, str):
            pair = spread_of(known, weights, pair)
            if not pair[0] < pair[1]:
                raise ValueError(
                    f"values={self.values!r} are both {pair[0]:.4g}: {variable!r} is the same in "
                    "so many training rows. Give two values, `values=(0, 1)`."
                )
        if any(isinstance(value, str) for value in pair):
            raise TypeError(f"{variable!r} is a number, so that {pair!r} are no values of it.")
        return np.full(x.shape, float(pair[0])), np.full(x.shape, float(pair[1]))

    def _pair(self, levels: tuple[Any, ...]) -> Any:
        if isinstance(self.values, str) or np.ndim(self.values) == 0:
            raise ValueError(
                f"{self.variable!r} is a factor with the labels {_shown(levels)}: give two of "
                f"them, `values=({levels[0]!r}, {levels[-1]!r})`, instead of {self.values!r}."
            )
        return self.values

    def _label(self, value: Any, levels: tuple[Any, ...], column: Any) -> Any:
        """Column of one label, of the type that the variable has."""
        if value not in levels:
            raise ValueError(
                f"{value!r} is not a label of {self.variable!r}. There are: {_shown(levels)}; give "
                f"two of them, `values=({levels[0]!r}, {levels[-1]!r})`."
            )
        found = levels[levels.index(value)]
        if not hasattr(column, "astype") or not hasattr(column, "index"):
            return np.full(len(column), found)
        constant = column.copy()
        constant[:] = found
        return constant


def _called(variable: Any) -> str:
    """Name a variable in a sentence: by its position in an array."""
    return variable if isinstance(variable, str) else f"column {variable}"


def _shown(levels: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, levels[:8])) + (", ..." if len(levels) > 8 else "")


def _check_known(variable: Any, x: Array) -> None:
    """Refuse steps from values that are missing."""
    missing = int(np.isnan(x).sum())
    if missing:
        named = isinstance(variable, str)
        kept = f"X[{variable!r}].notna()" if named else f"~np.isnan(X[:, {variable}])"
        raise ValueError(
            f"{variable!r} is missing in {missing} of {x.size} rows, to which no step can be "
            f"added: the model fills something in there. Leave these rows out, `data=X[{kept}]`, "
            f"or set all rows to two values, `average_comparison({variable!r}, values=(0, 1))`."
        )


@dataclass(frozen=True, eq=False)
class Sloped(Scenarios):
    """The derivative of each row's prediction in a variable.

    Four predictions in steps of a thousandth of a standard deviation, whose combination is exact
    for polynomials of degree four; rows at the ends of the data take steps inward (degree three).
    """

    variable: Any

    def sides(self, predictor: Predictor, data: Any, weights: RowWeights) -> list[Side]:
        variable = variable_in(predictor.table, self.variable)
        levels = predictor.levels(variable)
        if levels is not None:
            raise ValueError(
                f"{variable!r} is a factor with the labels {_shown(levels)}, and has no slope. "
                f"Compare two of them: `average_comparison({variable!r}, values=({levels[0]!r}, "
                f"{levels[-1]!r}))`."
            )
        x = numbers(column_of(data, variable))
        _check_known(variable, x)
        known = numbers(column_of(predictor.table, variable))
        columns, factors = _stencil(x, known, variable)
        found = predictor.scenarios(data, variable, columns)
        return [list(zip(found, factors, strict=True))]

    @property
    def name(self) -> str:
        return f"slope of {self.variable}"

    def words(self, outcome: str) -> str:
        return f"average change of {outcome} per unit of {_called(self.variable)}"

    def check(self, predictor: Predictor) -> Found:
        return (check_derived(predictor, variable_in(predictor.table, self.variable)),)

    def one_sided(self, predictor: Predictor, data: Any, sign: float) -> Side:
        """Predictions whose sum is the slope to one side, exact for polynomials of degree two."""
        variable = variable_in(predictor.table, self.variable)
        x, known = (numbers(column_of(table, variable)) for table in (data, predictor.table))
        step, up, down = _steps(x, known, variable)
        step = AT_ENDS * np.where(up, 1.0, np.where(down, -1.0, sign)) * step
        columns = [x + place * step for place in ONE_SIDED[1]]
        found = predictor.scenarios(data, variable, columns)
        return [(p, factor / step) for p, factor in zip(found, ONE_SIDED[0], strict=True)]


def _steps(x: Array, known: Array, variable: Any) -> tuple[Array, Flags, Flags]:
    """Steps (m,) around each x, and whether there is no room for them below and above."""
    spread = np.nanstd(known)
    if not spread > 0:
        raise ValueError(f"{variable!r} is the same in all training rows, and has no slope.")
    low, high = np.nanmin(known), np.nanmax(known)
    least = LEAST * spread
    if low > 0:
        least = np.clip(SHARE * low, TINY * spread, least)
    step = np.clip(SHARE * abs(x), least, STEP * spread)
    up = (x >= low) & (x - 2 * step < low)
    return step, up, (x <= high) & (x + 2 * step > high)


def _stencil(x: Array, known: Array, variable: Any) -> tuple[list[Array], list[Array]]:
    """Points (m,) around each x, inside of the known range if x is, and their factors (m,)."""
    step, up, down = _steps(x, known, variable)
    direction = AT_ENDS * np.where(up, 1.0, -1.0) * step
    columns, factors = [], []
    for k in range(4):
        moved = np.where(up | down, AT_END[1][k] * direction, INSIDE[1][k] * step)
        columns.append(x + moved)
        factors.append(np.where(up | down, AT_END[0][k] / direction, INSIDE[0][k] / step))
    return columns, factors


def check_values(variable: Any, values: Any, how: Any) -> None:
    """Refuse values and contrasts that are none, before any model is there."""
    if how in MEANT:
        raise ValueError(f"how={how!r} is called {MEANT[how]!r} here.")
    if how not in CONTRASTS:
        check_known(how, list(CONTRASTS), "the contrasts of how=")
    if isinstance(values, str):
        if values not in SHORTHANDS:
            raise ValueError(
                f"values={values!r} is none of {', '.join(map(repr, SHORTHANDS))}. Give one of "
                f"these, a step such as 1, or a pair: `average_comparison({variable!r}, "
                "values=(0, 1))`."
            )
        return
    if isinstance(values, dict | set) or np.ndim(values) > 1 or np.shape(values) not in ((), (2,)):
        raise ValueError(
            f"values={values!r} must be a pair such as (0, 1), a step such as 1, or one of "
            f"{', '.join(map(repr, SHORTHANDS))}."
        )
    pair = np.atleast_1d(np.asarray(values, dtype=object))
    if any(map(is_missing, pair)):
        raise ValueError(f"values={values!r} has missing values.")
    if pair.size == 1 and (isinstance(values, bool) or not np.isreal(values)):
        raise TypeError(f"values={values!r} must be a number, a pair or a shorthand.")
    if (pair.size == 2 and pair[0] == pair[1]) or (pair.size == 1 and pair[0] == 0):
        raise ValueError(f"values={values!r} compares a value with itself.")
