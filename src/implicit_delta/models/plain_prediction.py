"""Predictions of anything that was fitted and predicts, without derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import (
    Prediction,
    Predictor,
    as_table,
    check_known,
    names_of,
)
from implicit_delta.models.statsmodels.prediction import predictor_of

NOTHING = np.empty(0)  # the parameters of an object that keeps them to itself
STENCIL = 4  # points of a slope, in steps of a thousandth of a standard deviation
ROUGH = 0.1  # of a difference: smooth predictions bend by a thousandth over such a step


def plain_predictor(fitted: Any, table: Any = None) -> tuple[Predictor, Array]:
    """Make the predictor of a fitted object, with its parameters if they are known.

    Parameters
    ----------
    fitted : object
        Results of statsmodels, or whatever has `predict_proba` or `predict`.
    table : DataFrame or (n, p) array, optional
        The rows of the fit; results of statsmodels keep them.
    """
    bare = getattr(fitted, "_results", fitted)
    if hasattr(bare, "model") and hasattr(bare, "params") and hasattr(bare.model, "data"):
        known = predictor_of(bare)
        if known is not None:
            return known, np.asarray(bare.params, dtype=np.float64).ravel(order="F")
    if not (hasattr(fitted, "predict") or hasattr(fitted, "predict_proba")):
        raise TypeError(
            f"A question needs something that predicts, and {type(fitted).__name__} has neither "
            "`predict` nor `predict_proba`. Return the fitted estimator from `fit`; for a model of "
            "a `from_*` function write `infer(model, question)`."
        )
    if table is None:
        raise TypeError(
            f"{type(fitted).__name__} does not keep the rows of its fit, over which the question "
            "averages: give rows, `data=frame`."
        )
    return PlainPredictor(fitted, as_table(table, table)), NOTHING


def counts_of(fitted: Any, n: int) -> Array:
    """Weights of n training rows in their averages: the `freq_weights` of a GLM, or ones."""
    model = getattr(getattr(fitted, "_results", fitted), "model", None)
    counts = np.asarray(getattr(model, "freq_weights", None), dtype=np.float64)
    return counts if counts.shape == (n,) else np.ones(n)


@dataclass(frozen=True, eq=False)
class PlainPredictor(Predictor):
    """The `predict_proba` of a classifier, or the `predict` of anything else."""

    fitted: Any
    table: Any

    @property
    def classes(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        known = getattr(self.fitted, "classes_", None)
        return None if known is None or not self._probable else tuple(np.asarray(known).tolist())

    @property
    def _probable(self) -> bool:
        return hasattr(self.fitted, "predict_proba")

    def on(self, data: Any) -> Prediction:
        index, names = getattr(data, "index", None), getattr(self.fitted, "feature_names_in_", None)
        if names is not None and hasattr(data, "columns"):
            for name in names:
                check_known(name, names_of(data), "data")
            data = data[list(names)]  # of a frame that holds the outcome too
        method = self.fitted.predict_proba if self._probable else self.fitted.predict
        predicted = np.asarray(method(data), np.float64)
        if predicted.ndim == 2 and predicted.shape[1] == 1:
            if self.classes is not None:
                raise EvaluationError(f"The fit has seen the class {self.classes[0]!r} alone.")
            predicted = predicted[:, 0]
        return PlainPrediction(predicted, index)

    def scenarios(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        found = super().scenarios(data, variable, columns)
        if len(columns) == STENCIL:
            _check_smooth(variable, [prediction.value(NOTHING) for prediction in found])
        return found


def _check_smooth(variable: Any, values: list[Array]) -> None:
    """Refuse a slope of predictions that move in steps: they differ as much over 2 h as over 4 h.

    Two wide points are twice as far apart as two near ones, or three times at an end of the data.
    """
    wide, near = values[3] - values[0], values[2] - values[1]
    moving = (wide != 0) | (near != 0)
    miss = np.minimum(abs(wide - 2 * near), abs(wide - 3 * near))
    rough = moving & (miss > ROUGH * np.maximum(abs(wide), abs(near)))
    if not np.any(moving) or rough.sum() > moving.sum() / 2:
        raise EvaluationError(
            f"The predictions move in steps along {variable!r}, or not at all, as those of trees "
            f"do: they have no slope. Compare two values: `average_comparison({variable!r}, "
            'values=(low, high))`, or values="iqr".'
        )


@dataclass(frozen=True, eq=False)
class PlainPrediction:
    """Predictions that are known at one fit only."""

    predicted: Array
    index: Any

    def value(self, theta: Array) -> Array:
        return self.predicted

    def slope(self, theta: Array, weights: Array | None) -> Array:
        raise EvaluationError("Predictions of a fit alone have no derivatives.")

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        return None
