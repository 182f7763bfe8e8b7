"""Tables of typical rows, with given values of some columns."""

from itertools import product
from typing import Any

import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.evaluation.spread import RowWeights, mean_of, numbers
from implicit_delta.models.model import FittedModel
from implicit_delta.models.prediction import Predictor, check_known, names_of

GIVEN = "implicit_delta.given"  # attribute of a grid: names of the columns whose values were given


def datagrid(model_or_frame: Any, **values: Any) -> Any:
    """Make a table with one row per combination of given values, the other columns typical.

    Parameters
    ----------
    model_or_frame : FittedModel or DataFrame
        Whose training rows, or which rows, are typical.
    **values : value or list of values
        By column.

    Returns
    -------
    DataFrame
        The other columns are at their mean if they are numbers, and at their mode if they are
        labels, truth values, zeros and ones, or numbers that the formula of the model takes for
        labels. Of a model, those that it predicts from: without the outcome. `predictions` of it
        are named by the given values.

    Examples
    --------
    >>> import pandas as pd, implicit_delta as idm
    >>> frame = pd.DataFrame({"x": [1.0, 2.0, 6.0], "g": ["a", "b", "b"]})
    >>> idm.datagrid(frame, x=[0, 1])
       x  g
    0  0  b
    1  1  b
    """
    fitted = model_or_frame if isinstance(model_or_frame, FittedModel) else None
    predictor = None if fitted is None else fitted.facts.host.predictor
    if fitted is not None and predictor is None:
        raise UnsupportedModelError("The model has no table of training rows. Give a frame.")
    table = model_or_frame if predictor is None else predictor.table
    if not hasattr(table, "columns"):
        raise TypeError(
            f"datagrid needs a model of a data frame, or a frame, not {type(table).__name__}."
        )
    for name in values:
        check_known(name, names_of(table), "data")
    lists = [v if np.ndim(v) else [v] for v in values.values()]
    rows = optional("pandas", "datagrid").DataFrame(list(product(*lists)), columns=list(values))
    weights = RowWeights(np.ones(len(table)))
    if fitted is not None:
        weights = RowWeights.of(fitted, len(table))
    for name in names_of(table):
        if name not in values and _used(name, predictor):
            rows[name] = _typical(table[name], predictor, weights)
    grid = rows[[name for name in names_of(table) if name in rows]]
    grid.attrs[GIVEN] = list(values)
    return grid


def row_names(table: Any) -> list[str]:
    """Name the rows of a grid by the values that were given, if it is one and has them still."""
    given = getattr(table, "attrs", {}).get(GIVEN, [])
    if not given or table.index.dtype.kind not in "iu" or not set(given) <= set(table.columns):
        return []
    rows = zip(*(table[name] for name in given), strict=True)
    return [", ".join(map("{}={}".format, given, row)) for row in rows]


def _used(name: Any, predictor: Predictor | None) -> bool:
    """Whether the predictions of a model depend on a column."""
    try:
        if predictor is not None:
            predictor.levels(name)
    except ValueError:  # not in the formula
        return False
    return True


def _typical(column: Any, predictor: Predictor | None, weights: RowWeights) -> Any:
    numeric = getattr(column.dtype, "kind", "O") in "iuf"
    factor = predictor is not None and predictor.levels(column.name) is not None
    kinds = set(column.dropna().unique())
    if numeric and not factor and not (kinds and kinds <= {0, 1}):
        return mean_of(numbers(column), weights)
    return _mode(column, weights)


def _mode(column: Any, weights: RowWeights) -> Any:
    """Find the label with the largest weight, of several the first in their order."""
    if np.ptp(weights.values) == 0:
        return column.mode().iloc[0]
    totals = type(column)(weights.values).groupby(column.to_numpy(), sort=True).sum()
    return totals.idxmax()
