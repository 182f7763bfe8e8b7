"""Predictors of statsmodels results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning
from implicit_delta.models.glm.prediction import LinearPrediction, Mean, Response, Rows, Softmax
from implicit_delta.models.prediction import Prediction, Predictor, replaced
from implicit_delta.models.statsmodels.design import ByColumns, ByFormula, Design
from implicit_delta.models.statsmodels.table import offset_of

SAME = 1e-8  # relative: a design that is built again has the rounding of its transforms


def predictor_of(results: Any) -> Predictor | None:
    """Make the predictor of results, if their model predicts from a table of regressors."""
    response = _response(results)
    design = _design(results.model)
    if response is None or design is None:
        return None
    return StatsmodelsPredictor(results.model, design, response, _classes(results.model))


@dataclass(frozen=True, eq=False)
class StatsmodelsPredictor(Predictor):
    """Predictions by the linear predictors of a statsmodels model.

    Training rows keep the offset and the exposure of the fit; other rows have an offset of 0 and
    an exposure of 1, as in `results.predict`.
    """

    model: Any
    design: Design
    response: Response
    classes: tuple[Any, ...] | None = None

    @property
    def table(self) -> Any:
        return self.design.table

    def on(self, data: Any) -> Prediction:
        return LinearPrediction(self._rows(data), self.response, data.index)

    def scenarios(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        """Build the columns of the design that depend on the variable; the others are shared."""
        places, rows = self.design.places(variable), self._rows(data)
        if data is self.table:
            self._check_unchanged(places, self.design.part(data, variable))
        tables = [replaced(data, variable, column) for column in columns]
        parts = [self.design.part(table, variable) for table in tables]
        return [LinearPrediction(rows, self.response, data.index, places, X) for X in parts]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        return self.design.levels(variable)

    def _rows(self, data: Any) -> Rows:
        if data is self.table:
            return Rows(np.asarray(self.model.exog, dtype=np.float64), offset_of(self.model))
        if np.any(offset_of(self.model)):
            warn(
                "The model was fitted with an offset or an exposure, which the rows of data= have "
                "not: predictions are those of an offset of 0 and an exposure of 1, as in "
                "`results.predict(data)`. For the training rows with their own leave out data=; "
                "`by=` takes groups of these.",
                ImplicitDeltaWarning,
            )
        return Rows(self.design.matrix(data))

    def _check_unchanged(self, places: NDArray[np.intp], built: Array) -> None:
        """Refuse a data frame that is not the one of the fit any more."""
        fitted = self.model.exog[:, places]
        if fitted.shape != built.shape or not np.allclose(built, fitted, rtol=SAME, atol=SAME):
            raise EvaluationError(
                "The data frame of the fit was changed since: its formula gives another design "
                "now. Fit the model again, or to a copy: `smf.ols(formula, data.copy())`."
            )


def _design(model: Any) -> Design | None:
    """Find out how the model reads a table."""
    import pandas as pd

    frame = getattr(model.data, "frame", None)
    spec = getattr(model.data, "model_spec", None) or getattr(model.data, "design_info", None)
    if frame is not None and spec is not None:
        kept = np.setdiff1d(np.arange(len(frame)), _dropped(model.data, len(frame)))
        table = frame if kept.size == len(frame) else frame.iloc[kept]
        return ByFormula(table, spec)
    exog = getattr(model.data, "orig_exog", None)
    if exog is None:
        return None
    if hasattr(exog, "columns"):
        return ByColumns(exog)
    return ByColumns(pd.DataFrame(np.asarray(exog), columns=model.exog_names, copy=False))


def _dropped(data: Any, n: int) -> Any:
    found = getattr(data, "missing_row_idx", None)
    return np.empty(0, dtype=np.intp) if found is None else np.asarray(found, dtype=np.intp)


def _classes(model: Any) -> tuple[Any, ...] | None:
    """Label the outcomes of models with several."""
    kind = type(model).__name__
    if kind == "MNLogit":
        return tuple(model._ynames_map.values())
    return tuple(model.labels) if kind == "OrderedModel" else None


def _response(results: Any) -> Response | None:
    model = results.model
    kind = type(model).__name__
    if kind == "GLM":
        return Mean(model.family.fitted, model.family.link.inverse_deriv)
    if kind == "MNLogit":
        return Softmax(int(model.J) - 1)
    return MEANS.get(kind)


def _density(z: Array) -> Array:
    return np.asarray(np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def _logistic_density(z: Array) -> Array:
    return np.asarray(expit(z) * expit(-z))


def _same(eta: Array) -> Array:
    return eta


LINEAR, LOG = Mean(_same, np.ones_like), Mean(np.exp, np.exp)
MEANS: dict[str, Response] = {
    "OLS": LINEAR,
    "WLS": LINEAR,
    "GLS": LINEAR,
    "MixedLM": LINEAR,
    "Logit": Mean(expit, _logistic_density),
    "Probit": Mean(ndtr, _density),
    "Poisson": LOG,
    "NegativeBinomial": LOG,
    "NegativeBinomialP": LOG,
    "GeneralizedPoisson": LOG,
}
