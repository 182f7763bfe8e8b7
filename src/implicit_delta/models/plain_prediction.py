"""Predictions of anything that was fitted and predicts, without derivatives."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import Prediction, Predictor, as_table
from implicit_delta.models.statsmodels.prediction import predictor_of

NOTHING = np.empty(0)  # the parameters of an object that keeps them to itself


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
        method = self.fitted.predict_proba if self._probable else self.fitted.predict
        return PlainPrediction(np.asarray(method(data), np.float64), getattr(data, "index", None))


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
