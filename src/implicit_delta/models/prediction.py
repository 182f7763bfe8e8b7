"""Contract of predictions: the protocol through which a question meets a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from implicit_delta.calculus.tracing import trace
from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.parametrization import Parametrization


class Prediction(Protocol):
    """Predictions of the rows of one table, read once and shared by all theta."""

    @property
    def index(self) -> Any:
        """Labels of the rows, or None."""

    def value(self, theta: Array) -> Array:
        """Predict on the response scale: (m,), or (m, C) with C outcomes."""

    def slope(self, theta: Array, weights: Array | None) -> Array:
        """Differentiate weighted sums of the rows: weights (K, m) or (K, m, C) to (K, d).

        Without weights every row by itself: (m, d) or (m, C, d).
        """

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        """Second derivatives of sums with weights (K, m) along steps (S, d): (K, S).

        None where these are not known; differences of values will do.
        """


class Predictor(ABC):
    """The reading of tables by a fitted model.

    Attributes
    ----------
    table : DataFrame or (n, p) array
        The training rows as the user gave them, in the model's row order.
    classes : tuple or None
        Labels of the columns of a prediction, if it has several.
    relative : str
        Why levels of predictions are not known, but only their differences; usually empty.
    constant : str
        Hint at a call of the host library that makes psi a constant, for messages.
    """

    table: Any
    classes: tuple[Any, ...] | None
    relative: str = ""

    @property
    def constant(self) -> str:
        return ""

    @abstractmethod
    def on(self, data: Any) -> Prediction:
        """Read the rows of a table; those of `table` itself are the training rows."""

    # Derived from the member above; a backend may know more.

    def reading(self, data: Any) -> "Predictor":
        """Return the predictor for a question with rows of its own; None: the training rows."""
        return self

    def scenarios(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        """Read a table several times, each time with another column (m,) of one variable."""
        return [self.on(replaced(data, variable, column)) for column in columns]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        """List the labels of a factor; None for a number. Refuse what the model does not use."""
        return labels_of(column_of(self.table, variable))

    def needed(self) -> list[Any]:
        """List the columns of `table` that predictions may depend on."""
        return names_of(self.table)

    def reads(self, name: Any) -> bool:
        """Whether predictions depend on one of these."""
        return True

    def tangent(self, theta: Array) -> "Predictor":
        """Predict by the tangent of the model at theta; a linear predictor is its own."""
        return self

    def changed(self) -> str:
        """Describe how `table` was changed since the fit, where that can be known; else empty."""
        return ""


@dataclass(frozen=True, eq=False)
class FunctionPrediction:
    """Predictions by a function of theta, (d,) to (m,) or (m, C), which is traced if it can be.

    Otherwise its derivatives are differences in `units` of theta.
    """

    function: Callable[[Any], Any]
    units: Callable[[Array], Array]
    index: Any

    def value(self, theta: Array) -> Array:
        return np.asarray(self.function(theta), dtype=np.float64)

    def slope(self, theta: Array, weights: Array | None) -> Array:
        def sums(point: Any) -> Any:
            found = self.function(point)
            rows = found.reshape(-1) if hasattr(found, "reshape") else np.ravel(found)
            return rows if weights is None else weights.reshape(len(weights), -1) @ rows

        slopes = jacobian_of(sums, theta, self.units(theta), trace(sums, theta))
        return slopes.reshape(*self.value(theta).shape, -1) if weights is None else slopes

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        return None


@dataclass(frozen=True, eq=False)
class InCoordinates(Predictor):
    """A predictor of all parameters, as one of the coordinates of a `Parametrization`."""

    host: Predictor
    chart: Parametrization

    @property
    def table(self) -> Any:
        return self.host.table

    @property
    def classes(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        return self.host.classes

    @property
    def constant(self) -> str:
        return self.host.constant

    def tangent(self, theta: Array) -> "InCoordinates":
        return replace(self, host=self.host.tangent(self.chart.point(theta)))

    def on(self, data: Any) -> Prediction:
        return _Moved(self.host.on(data), self.chart)

    def scenarios(self, data: Any, variable: Any, columns: Any) -> list[Prediction]:
        found = self.host.scenarios(data, variable, columns)
        return [_Moved(prediction, self.chart) for prediction in found]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        return self.host.levels(variable)

    def needed(self) -> list[Any]:
        return self.host.needed()

    def reads(self, name: Any) -> bool:
        return self.host.reads(name)

    def changed(self) -> str:
        return self.host.changed()


@dataclass(frozen=True, eq=False)
class _Moved:
    prediction: Prediction
    chart: Parametrization

    @property
    def index(self) -> Any:
        return self.prediction.index

    def value(self, theta: Array) -> Array:
        return self.prediction.value(self.chart.point(theta))

    def tangent(self, theta: Array) -> "_Moved":
        return replace(self, prediction=tangent_of(self.prediction, self.chart.point(theta)))

    def slope(self, theta: Array, weights: Array | None) -> Array:
        point = self.chart.point(theta)
        slopes = self.prediction.slope(point, weights)
        flat = slopes.reshape(-1, slopes.shape[-1])
        return np.asarray(self.chart.pull(point, flat.T).T.reshape(*slopes.shape[:-1], -1))

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        point = self.chart.point(theta)
        return self.prediction.bends(point, weights, self.chart.push(point, steps.T).T)


def tangent_of(prediction: Prediction, theta: Array) -> Prediction:
    """Predict by the tangent of the model at theta; a linear predictor is its own."""
    touched: Prediction = getattr(prediction, "tangent", lambda _: prediction)(theta)
    return touched


def as_table(data: Any, like: Any) -> Any:
    """Turn what a user gives as rows into a table like that of the training, but never that one."""
    if isinstance(data, dict):
        data = optional("pandas", "A dict of columns").DataFrame(data)
    if type(data).__module__.partition(".")[0] == "polars":
        # to_pandas() would want pyarrow
        data = optional("pandas", "A question").DataFrame(data.to_dict(as_series=False))
    table = data if hasattr(data, "iloc") else np.asarray(data)
    if table.ndim != 2:
        raise TypeError(
            f"data is a {type(data).__name__} with {table.ndim} dimension(s), but a table is "
            "needed: a DataFrame, or an array with one row per observation and all columns. For "
            "one row of a frame write `frame.iloc[[0]]`."
        )
    if len(table) == 0:
        raise ValueError("data has no rows: there is nothing to predict.")
    if table is like:  # given rows are no training rows, even if they are equal
        return table.copy(deep=False) if hasattr(table, "columns") else table.view()
    if hasattr(table, "columns") or not hasattr(like, "columns"):
        return table
    return _labeled(table, like)


def _labeled(array: Any, like: Any) -> Any:
    """Give the columns of an array the names of those of the training."""
    if array.shape[1] != like.shape[1]:
        raise ValueError(
            f"data has {array.shape[1]} columns, but the model was fitted to {like.shape[1]}: "
            f"{', '.join(map(repr, names_of(like)))}. Give all of them in this order (statsmodels' "
            "constant is one), or a DataFrame."
        )
    return type(like)(array, columns=like.columns)


def variable_in(table: Any, variable: Any) -> Any:
    """Name of a variable in a table: itself, or that of the column at its position."""
    names = names_of(table)
    position = isinstance(variable, int | np.integer) and not isinstance(variable, bool)
    if position and variable not in names and -len(names) <= variable < len(names):
        return names[int(variable)]
    return variable


def names_of(table: Any) -> list[Any]:
    """List the columns of a table: names, or positions in an array."""
    return list(table.columns) if hasattr(table, "columns") else list(range(table.shape[1]))


def column_of(table: Any, variable: Any) -> Any:
    """Take one column of a table; refuse a name that is not there, with a near one."""
    check_known(variable, names_of(table), "data")
    if not hasattr(table, "columns"):
        return table[:, variable]
    column = table[variable]
    if column.ndim != 1:
        raise ValueError(f"data has {column.shape[1]} columns called {variable!r}. Rename them.")
    return column


def replaced(table: Any, variable: Any, column: Any) -> Any:
    """Copy a table with another column."""
    check_known(variable, names_of(table), "data")
    if hasattr(table, "columns"):
        return (
            table.assign(**{variable: column})
            if isinstance(variable, str)
            else _set(table, variable, column)
        )
    changed = np.array(table, dtype=np.result_type(table, np.asarray(column)))
    changed[:, variable] = column
    return changed


def _set(table: Any, variable: Any, column: Any) -> Any:
    changed = table.copy()
    changed[variable] = column
    return changed


def check_known(variable: Any, names: Sequence[Any], where: str) -> None:
    """Refuse a variable that is not among the names, and show a near one."""
    if any(variable == name and type(variable) is not bool for name in names):
        return
    near = get_close_matches(str(variable), list(map(str, names)), 1, 0.5)
    hint = f" Is it {near[0]!r}?" if near else ""
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    raise ValueError(f"{variable!r} is not in {where}.{hint} There are: {shown}.")


def labels_of(column: Any) -> tuple[Any, ...] | None:
    """List the labels of a column of strings, categories or truth values; None for numbers."""
    kept = getattr(getattr(column, "cat", None), "categories", None)
    if kept is not None:
        return tuple(kept)
    kind = getattr(column.dtype, "kind", "O")
    if kind == "b":
        return (False, True)
    if kind in "iuf":
        return None
    known = {entry for entry in np.asarray(column, dtype=object) if not is_missing(entry)}
    return tuple(sorted(known, key=str))


def is_missing(entry: Any) -> bool:
    """Whether an entry of a table is None, NaN, NaT or NA."""
    return entry is None or type(entry).__name__ in ("NAType", "NaTType") or bool(entry != entry)
