"""Parameters that predict: what psi of a statsmodels model receives.

They are those of ``results.params``, with a method `predict`; whatever is computed from them is an
ordinary array, Series or DataFrame. This module needs pandas, and is imported where that is used.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from implicit_delta.calculus.tracing.traced import Link, Traced, depending_on, only_first_order
from implicit_delta.core.labels import near_match
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import Prediction, Predictor, as_table
from implicit_delta.models.traced_series import TracedSeries

REMEDY = (
    "Give those of the rows, `params.predict(data, exposure=data['years'])` or `offset=`; without "
    "data `params.predict()` has the rows of the fit with their own."
)


class NoSuchParameter(EvaluationError, KeyError):
    """A name or a number that no parameter has; its text is not quoted, as that of KeyError is."""

    __str__ = Exception.__str__


class Predicts:
    """Parameters with a method `predict`."""

    predictor: Predictor

    def predict(self, data: Any = None, offset: Any = None, exposure: Any = None) -> Any:
        """Predict the rows of a table on the response scale, (m,), or (m, C) with C outcomes.

        Parameters
        ----------
        data : DataFrame, dict or (m, p) array, optional
            Read through the formula of the fit; by default the rows of the fit, with their own
            offset and exposure. Other rows have those that are given, or none.
        offset : number or (m,) array, optional
            Added to the linear predictor.
        exposure : number or (m,) array, optional
            Of models with a logarithmic link, whose means are in proportion to it.

        Returns
        -------
        Series or array
            A Series with the labels of the rows, if a frame was given.
        """
        return predict_with(self.predictor, self._coefficients(), data, offset, exposure)

    def _coefficients(self) -> Any:
        """Coefficients in the order of the model, plain or traced: (d,)."""
        raise NotImplementedError


class Params(Predicts, pd.Series):  # type: ignore[misc]
    """A Series of parameters that predicts; copies and results are plain Series."""

    _metadata = ["predictor"]  # noqa: RUF012 (pandas looks here for attributes)
    predictor: Predictor

    @property
    def _constructor(self) -> Any:
        return pd.Series

    @property
    def _constructor_expanddim(self) -> Any:
        return pd.DataFrame

    def _coefficients(self) -> Any:
        return self.to_numpy()

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            raise NoSuchParameter(
                f"{key!r} is no parameter: {near_match(str(key), list(map(str, self.index)))} "
                f"Parameters are named: write `params[{self.index[0]!r}]`, or by position "
                "`params.iloc[0]`."
            ) from None


class ParamsTable(Predicts, pd.DataFrame):  # type: ignore[misc]
    """A DataFrame of parameters that predicts: a column for each outcome but the first."""

    _metadata = ["predictor"]  # noqa: RUF012
    predictor: Predictor

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @property
    def _constructor_sliced(self) -> Any:
        return pd.Series

    def _coefficients(self) -> Any:
        return self.to_numpy().ravel(order="F")


class ParamsArray(Predicts, np.ndarray):
    """An array of parameters that predicts; results of operations are plain arrays."""

    predictor: Predictor

    def _coefficients(self) -> Any:
        return np.asarray(self).ravel(order="F")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


class TracedParams(Predicts, Traced):
    """Traced parameters in the shape that psi expects, which predict."""

    def __init__(self, shaped: Traced, flat: Traced, predictor: Predictor) -> None:
        super().__init__(shaped.node)
        self.flat, self.predictor = flat, predictor

    def _coefficients(self) -> Any:
        return self.flat


class TracedParamsSeries(Predicts, TracedSeries):
    """Traced parameters with labels, which predict."""

    def __init__(self, flat: Traced, index: Any, predictor: Predictor) -> None:
        super().__init__(flat, index)
        self.predictor = predictor

    def _coefficients(self) -> Any:
        return self.values


def predict_with(
    predictor: Any, b: Any, data: Any = None, offset: Any = None, exposure: Any = None
) -> Any:
    """Predict rows with coefficients b, plain or traced; see `Predicts.predict`."""
    table = predictor.table if data is None else as_table(data, predictor.table)
    shift = _shift(predictor, table, offset, exposure)
    prediction = _read(predictor, table, shift, quiet=isinstance(b, Traced))
    labeled = hasattr(data, "index") or (data is None and hasattr(table, "index"))
    if isinstance(b, Traced):
        plain = b.node.value
        link = Link(lambda g: prediction.slope(plain, g))
        value = depending_on(prediction.value(plain), (b,), (link,), only_first_order)
        return TracedSeries(value, prediction.index) if labeled and value.ndim == 1 else value
    numbers = prediction.value(b)
    return pd.Series(numbers, prediction.index) if labeled and numbers.ndim == 1 else numbers


def _shift(predictor: Any, table: Any, offset: Any, exposure: Any) -> Any:
    """Sum an offset and the logarithm of an exposure; None where neither is given."""
    if exposure is None:
        return None if offset is None else _by_row("offset", offset, table)
    if not predictor.exposed:
        raise ValueError(
            "exposure= is for models with a logarithmic link, such as Poisson, whose means are in "
            "proportion to it, and this model has another. Give `offset=`, which is added to the "
            "linear predictor, or leave it out."
        )
    time = _by_row("exposure", exposure, table)
    if not np.all(time > 0):
        raise ValueError("exposure has entries that are not above 0, or missing.")
    return np.log(time) + (0.0 if offset is None else _by_row("offset", offset, table))


def _by_row(name: str, given: Any, table: Any) -> Any:
    """Numbers of the rows of a table, (m,); a Series with the same labels is put in their order."""
    rows = getattr(table, "index", None)
    if isinstance(given, pd.Series) and rows is not None and _same_labels(given.index, rows):
        given = given.reindex(rows)
    numbers = np.asarray(given, dtype=np.float64)
    if numbers.shape not in ((), (len(table),)):
        raise ValueError(
            f"{name} has shape {numbers.shape} for {len(table)} rows: give a number, or one for "
            "each row."
        )
    return np.broadcast_to(numbers, len(table))


def _same_labels(one: Any, other: Any) -> bool:
    return bool(one.is_unique and other.is_unique and set(one) == set(other))


def _read(predictor: Any, table: Any, offset: Any, *, quiet: bool) -> Prediction:
    """Read a table; a warning is for the plain call, as the traced one would end with it."""
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        found: Prediction = predictor.on(table, offset, REMEDY)
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
