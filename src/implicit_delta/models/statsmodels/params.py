"""Parameters that predict: what psi of a statsmodels model receives.

They are those of ``results.params``, with a method `predict`; whatever is computed from them is an
ordinary array, Series or DataFrame. This module needs pandas, and is imported where that is used.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from implicit_delta._core.labels import near_match
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import Prediction, Predictor, as_table
from implicit_delta.models.statsmodels.traced_series import TracedSeries
from implicit_delta.numerics.tracing.traced import Traced, depending_on


class NoSuchParameter(EvaluationError, KeyError):
    """A name or a number that no parameter has; its text is not quoted, as that of KeyError is."""

    __str__ = Exception.__str__


class Params(pd.Series):  # type: ignore[misc]
    """A Series of parameters that predicts; copies and results are plain Series."""

    _metadata = ["predictor"]  # noqa: RUF012 (pandas looks here for attributes)
    predictor: Predictor

    @property
    def _constructor(self) -> Any:
        return pd.Series

    @property
    def _constructor_expanddim(self) -> Any:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            raise NoSuchParameter(
                f"{key!r} is no parameter: {near_match(str(key), list(map(str, self.index)))} "
                f"Parameters are named: write `params[{self.index[0]!r}]`, or by position "
                "`params.iloc[0]`."
            ) from None

    def predict(self, data: Any = None, offset: Any = None) -> Any:
        """Predict the rows of a table on the response scale; see `predict_with`."""
        return predict_with(self.predictor, self.to_numpy(), data, offset)


class ParamsTable(pd.DataFrame):  # type: ignore[misc]
    """A DataFrame of parameters that predicts: a column for each outcome but the first."""

    _metadata = ["predictor"]  # noqa: RUF012
    predictor: Predictor

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @property
    def _constructor_sliced(self) -> Any:
        return pd.Series

    def predict(self, data: Any = None, offset: Any = None) -> Any:
        """Predict the rows of a table on the response scale; see `predict_with`."""
        return predict_with(self.predictor, self.to_numpy().ravel(order="F"), data, offset)


class ParamsArray(np.ndarray):
    """An array of parameters that predicts; results of operations are plain arrays."""

    predictor: Predictor

    def predict(self, data: Any = None, offset: Any = None) -> Any:
        """Predict the rows of a table on the response scale; see `predict_with`."""
        return predict_with(self.predictor, np.asarray(self).ravel(order="F"), data, offset)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


class TracedParams(Traced):
    """Traced parameters in the shape that psi expects, which predict."""

    def __init__(self, shaped: Traced, flat: Traced, predictor: Predictor) -> None:
        super().__init__(shaped.node)
        self.flat, self.predictor = flat, predictor

    def predict(self, data: Any = None, offset: Any = None) -> Any:
        """Predict the rows of a table on the response scale; see `predict_with`."""
        return predict_with(self.predictor, self.flat, data, offset)


class TracedParamsSeries(TracedSeries):
    """Traced parameters with labels, which predict."""

    def __init__(self, flat: Traced, index: Any, predictor: Predictor) -> None:
        super().__init__(flat, index)
        self.predictor = predictor

    def predict(self, data: Any = None, offset: Any = None) -> Any:
        """Predict the rows of a table on the response scale; see `predict_with`."""
        return predict_with(self.predictor, self.values, data, offset)


def predict_with(predictor: Any, b: Any, data: Any = None, offset: Any = None) -> Any:
    """Predict rows with coefficients b, plain or traced: (m,), or (m, C) with C outcomes.

    One number per row comes as a Series with the labels of the rows, if a frame was given.
    Without data the rows are those of the fit, with their offset and exposure; others have those
    that are given, `offset` being their sum on the scale of the linear predictor, or none.
    """
    table = predictor.table if data is None else as_table(data, predictor.table)
    prediction = _read(predictor, table, offset, quiet=isinstance(b, Traced))
    labeled = hasattr(data, "index") or (data is None and hasattr(table, "index"))
    if isinstance(b, Traced):
        plain = b.node.value
        value = depending_on(prediction.value(plain), (b,), (lambda g: prediction.slope(plain, g),))
        return TracedSeries(value, prediction.index) if labeled and value.ndim == 1 else value
    numbers = prediction.value(b)
    return pd.Series(numbers, prediction.index) if labeled and numbers.ndim == 1 else numbers


def _read(predictor: Any, table: Any, offset: Any, *, quiet: bool) -> Prediction:
    """Read a table; a warning is for the plain call, as the traced one would end with it."""
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        found: Prediction = predictor.on(table, offset)
        return found


def like(params: Any, b: Any, predictor: Predictor) -> Any:
    """Give b, plain or traced, the shape and the labels of params, and a method `predict`."""
    shaped = b.reshape(params.shape[::-1]).T if params.ndim == 2 else b
    labeled = hasattr(params, "index")
    if isinstance(b, Traced):
        if labeled and params.ndim == 1:
            return TracedParamsSeries(b, params.index, predictor)
        return TracedParams(shaped, b, predictor)
    if not labeled:
        made: Any = shaped.view(ParamsArray)
    elif params.ndim == 2:
        made = ParamsTable(shaped, index=params.index, columns=params.columns)
    else:
        made = Params(shaped, index=params.index)
    object.__setattr__(made, "predictor", predictor)  # pandas looks around for long
    return made


def _plain(argument: Any) -> Any:
    return np.asarray(argument) if isinstance(argument, ParamsArray) else argument
