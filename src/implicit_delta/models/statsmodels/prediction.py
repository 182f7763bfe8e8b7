"""Predictors of statsmodels results."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn_once
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning, UnsupportedModelError
from implicit_delta.models.glm.prediction import (
    LINEAR,
    LOG,
    LinearPrediction,
    Mean,
    Response,
    Rows,
    Softmax,
)
from implicit_delta.models.prediction import FunctionPrediction, Prediction, Predictor, replaced
from implicit_delta.models.statsmodels.design import ByColumns, ByFormulaic, ByPatsy, Design
from implicit_delta.models.statsmodels.table import offset_of

SAME = 1e-8  # of the largest number of a column: transforms of a design that is built again round
NONE: NDArray[np.intp] = np.empty(0, dtype=np.intp)
CHANGED = (
    "The data frame of the fit was changed since: its rows or the columns of its formula are "
    "others now. Fit the model again, or to a copy: `smf.ols(formula, data.copy())`."
)
TOGETHER = (
    "The formula gives a few of its own rows another design than all of them together: it computes "
    "with the other rows, as `x - x.mean()` does, or its data frame was changed since the fit. "
    "Predictions of other rows, or of rows that are changed, would then mean something else. Use "
    "`center(x)` or `standardize(x)`, which remember the rows of the fit, or make the column first."
)
# for questions
OWN_ROWS = "For the training rows with their own leave out data=; `by=` takes groups of these."
FEW = 5  # rows, to see that a design is made row by row
COUNTS = {  # whose mean is no function of one linear predictor
    "HurdleCountModel",
    "TruncatedLFPoisson",
    "TruncatedLFNegativeBinomialP",
    "TruncatedLFGeneralizedPoisson",
    "ZeroInflatedPoisson",
    "ZeroInflatedGeneralizedPoisson",
    "ZeroInflatedNegativeBinomialP",
}


def predictor_of(results: Any) -> Predictor | None:
    """Make the predictor of results, if their model predicts from a table of regressors."""
    model = results.model
    response, design = _response(model), _design(model)
    if design is None:
        return None
    if response is not None:
        X = np.asarray(model.exog, dtype=np.float64)
        return ByResponse(design, X, offset_of(model), _exposed(model), _classes(model), response)
    if type(model).__name__ in COUNTS and type(model).__module__.startswith("statsmodels."):
        X = np.asarray(model.exog, dtype=np.float64)
        errors = np.asarray(getattr(results, "bse", np.nan), dtype=np.float64)
        return ByHost(design, X, offset_of(model), True, None, model, errors)
    return None


@dataclass(frozen=True, eq=False)
class StatsmodelsPredictor(Predictor):
    """Reading of tables by a statsmodels model.

    Training rows keep the offset and the exposure of the fit; other rows have an offset of 0 and
    an exposure of 1, as in `results.predict`. Models with a logarithmic link are `exposed`: the
    logarithm of an exposure is an offset there.
    """

    design: Design
    X: Array
    offset: Array | float
    exposed: bool
    classes: tuple[Any, ...] | None

    @property
    def table(self) -> Any:
        return self.design.table

    @property
    def constant(self) -> str:
        return (
            " (`results.predict(X)` does not: use `params.predict(X)` or "
            "`results.model.predict(params, X)`.)"
        )

    def on(self, data: Any, offset: Any = None, remedy: str = OWN_ROWS) -> Prediction:
        """Read the rows of a table, with an offset (m,) of their own if they have one."""
        return self._prediction(self._rows(data, offset, remedy), data.index)

    def scenarios(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        """Build the columns of the design that depend on the variable; the others are shared."""
        places, rows = self.design.places(variable), self._rows(data)
        if data is self.table:
            if not self._same(places, self.design.part(data, variable)):
                raise EvaluationError(CHANGED)
            self._check_by_row(places, partial(self.design.part, variable=variable))
        tables = [replaced(data, variable, column) for column in columns]
        parts = [self.design.part(table, variable) for table in tables]
        return [self._prediction(rows, data.index, places, part) for part in parts]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        return self.design.levels(variable)

    def needed(self) -> list[Any]:
        return self.design.needed

    def changed(self) -> str:
        every = np.arange(self.X.shape[1])
        return "" if self._same(every, self.design.matrix(self.table)) else CHANGED

    @abstractmethod
    def _prediction(
        self, rows: Rows, index: Any, places: Any = NONE, columns: Any = None
    ) -> Prediction:
        """Predict rows, with other columns of the design at some places."""

    def _matrix(self, data: Any) -> Array:
        """Build the design of other rows."""
        if len(self.table) == len(self.X):
            self._check_by_row(np.arange(self.X.shape[1]), self.design.matrix)
        return self.design.matrix(data)

    def _check_by_row(self, places: NDArray[np.intp], build: Callable[[Any], Array]) -> None:
        """Refuse a design that depends on which rows are there."""
        few = np.unique(np.linspace(0, len(self.X) - 1, FEW).astype(np.intp))
        alone, fitted = build(self.table.iloc[few]), self.X[np.ix_(few, places)]
        if not _same_columns(alone, fitted, abs(self.X[:, places])):
            raise EvaluationError(TOGETHER)

    def _rows(self, data: Any, offset: Any = None, remedy: str = OWN_ROWS) -> Rows:
        if offset is not None:
            X = self.X if data is self.table else self._matrix(data)
            return Rows(X, np.broadcast_to(np.asarray(offset, dtype=np.float64), len(X)))
        if data is self.table:
            if len(data) != len(self.X):
                raise EvaluationError(CHANGED)
            return Rows(self.X, self.offset)
        if np.any(self.offset):
            warn_once(
                "The model was fitted with an offset or an exposure, which the rows of data= have "
                "not: predictions are those of an offset of 0 and an exposure of 1, as in "
                f"`results.predict(data)`. {remedy}",
                ImplicitDeltaWarning,
            )
        return Rows(self._matrix(data))

    def _same(self, places: NDArray[np.intp], built: Array) -> bool:
        """Whether columns of the design are those of the fit, and its data frame with them."""
        fitted = self.X[:, places]
        return fitted.shape == built.shape and _same_columns(built, fitted, abs(fitted))


def _same_columns(built: Array, fitted: Array, sizes: Array) -> bool:
    """Compare columns, each with its largest number in the fit."""
    return bool(np.all(abs(built - fitted) <= SAME * np.max(sizes, axis=0, initial=0.0)))


@dataclass(frozen=True, eq=False)
class ByResponse(StatsmodelsPredictor):
    """Linear predictors, with derivatives in closed form."""

    response: Response

    def _prediction(
        self, rows: Rows, index: Any, places: Any = NONE, columns: Any = None
    ) -> Prediction:
        if columns is None:
            return LinearPrediction(rows, self.response, index)
        return LinearPrediction(rows, self.response, index, places, columns)


@dataclass(frozen=True, eq=False)
class ByHost(StatsmodelsPredictor):
    """The host's own `predict`, with numerical derivatives in steps of standard errors."""

    model: Any
    errors: Array

    def _prediction(
        self, rows: Rows, index: Any, places: Any = NONE, columns: Any = None
    ) -> Prediction:
        if getattr(self.model, "k_inflate", 1) > 1:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} has regressors of the inflation of its own, which "
                "were given as an array, so that a table does not reach them. Write the question "
                "as a function: `lambda params: results.model.predict(params, X1, exog_infl=Z1)"
                ".mean()`."
            )
        X = rows.X.copy()
        if columns is not None:
            X[:, places] = columns
        function = partial(_predicted, self.model, X, rows.offset)
        return FunctionPrediction(function, self._units, index)

    def _units(self, theta: Array) -> Array:
        """Standard errors, as far as they are known."""
        known = np.isfinite(self.errors) & (self.errors > 0)
        return np.where(known, self.errors, 1e-2 * sizes(theta))


def _predicted(model: Any, X: Array, offset: Array | float, theta: Array) -> Array:
    return np.asarray(model.predict(theta, exog=X, offset=np.broadcast_to(offset, len(X))))


def _design(model: Any) -> Design | None:
    """Find out how the model reads a table."""
    import pandas as pd

    frame = getattr(model.data, "frame", None)
    spec = getattr(model.data, "model_spec", None) or getattr(model.data, "design_info", None)
    if frame is not None and spec is not None:
        if list(spec.column_names) != list(model.exog_names)[: len(spec.column_names)]:
            return None  # a formula that the model has changed
        kind = ByPatsy if hasattr(spec, "factor_infos") else ByFormulaic
        dropped = getattr(model.data, "missing_row_idx", None)
        frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
        frame = frame if hasattr(frame, "iloc") else pd.DataFrame(frame)
        return kind(frame, spec, np.asarray([] if dropped is None else dropped, dtype=np.intp))
    exog = getattr(model.data, "orig_exog", None)
    if exog is None:
        return None
    if hasattr(exog, "columns"):
        return ByColumns(exog)
    X = np.asarray(exog).reshape(len(exog), -1)  # one regressor may come as (n,)
    names = model.exog_names[: X.shape[1]]
    return ByColumns(pd.DataFrame(X, columns=names, copy=False))


def _exposed(model: Any) -> bool:
    """Whether the link is logarithmic, so that means are in proportion to an exposure."""
    if type(model).__name__ in ("GLM", "GEE"):
        return type(model.family.link).__name__ == "Log"
    return MEANS.get(type(model).__name__) is LOG


def _classes(model: Any) -> tuple[Any, ...] | None:
    """Label the outcomes of models with several."""
    kind = type(model).__name__
    if kind == "MNLogit":  # "y[a]" of a formula, whose outcome is "a"
        names = [str(name) for name in model._ynames_map.values()]
        return tuple(name[name.find("[") + 1 : -1] if "[" in name else name for name in names)
    return tuple(model.labels) if kind == "OrderedModel" else None


def _response(model: Any) -> Response | None:
    kind = type(model).__name__ if type(model).__module__.startswith("statsmodels.") else ""
    if kind in ("GLM", "GEE"):
        return Mean(model.family.fitted, model.family.link.inverse_deriv)
    if kind == "MNLogit":
        return Softmax(int(model.J) - 1)
    return Thresholds(model.distr) if kind == "OrderedModel" else MEANS.get(kind)


@dataclass(frozen=True, eq=False)
class Thresholds(Response):
    """Probabilities of ordered levels, ``F(t_j - eta) - F(t_(j-1) - eta)``.

    The rest are the first threshold and the logarithms of the steps to the others.
    """

    distribution: Any

    def value(self, eta: Array, rest: Array) -> Array:
        z = np.cumsum(_steps(rest)) - eta
        below, above = self.distribution.cdf(z), self.distribution.sf(z)
        inner = np.where(z[:, :-1] > 0, -np.diff(above), np.diff(below))
        return np.column_stack([below[:, :1], inner, above[:, -1:]])

    def pull(self, eta: Array, rest: Array, weights: Array) -> tuple[Array, Array | None]:
        density = self.distribution.pdf(np.cumsum(_steps(rest)) - eta)
        moved = (weights[..., :-1] - weights[..., 1:]) * density
        chain = np.tril(np.ones((rest.size, rest.size))) * _steps(rest, slope=True)
        return -moved.sum(axis=-1, keepdims=True), moved @ chain


def _steps(rest: Array, slope: bool = False) -> Array:
    """Steps from each threshold to the next, or their derivatives in the parameters."""
    return np.concatenate([np.ones(1) if slope else rest[:1], np.exp(rest[1:])])


def _density(z: Array) -> Array:
    return np.asarray(np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def _logistic_density(z: Array) -> Array:
    return np.asarray(expit(z) * expit(-z))


MEANS: dict[str, Response] = {
    "OLS": LINEAR,
    "WLS": LINEAR,
    "GLS": LINEAR,
    "MixedLM": LINEAR,
    "QuantReg": LINEAR,
    "RLM": LINEAR,
    "IV2SLS": LINEAR,
    "Logit": Mean(expit, _logistic_density),
    "Probit": Mean(ndtr, _density),
    "Poisson": LOG,
    "NegativeBinomial": LOG,
    "NegativeBinomialP": LOG,
    "GeneralizedPoisson": LOG,
}
