"""Results of linearmodels, pyfixest and lifelines: covariance, quantiles and predictions.

These libraries are known by the module of a class, and never imported.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.rounding import is_same
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.foreign import (
    FIT_AGAIN,
    covariance_of,
    foreign_library,
    params_of,
)
from implicit_delta.models.glm.prediction import LINEAR, LOG, Response

SAME = 1e-8  # of a standard error: two computations of one matrix; robust ones differ by percents
ABSORBED = (
    "The fixed effects of this fit are not among its parameters, so that levels of predictions, "
    "and their ratios, are not known with an error. Differences are: `average_comparison` and "
    "`average_slope`."
)


@dataclass(frozen=True, eq=False)
class Recognized:
    """Estimates of another library, as `from_estimates` takes them.

    Attributes
    ----------
    params, covariance
    kind : str
        Of the covariance, in the words of the library.
    predict : callable or None
        Of parameters and a table: the linear predictor if there is a `response`, else predictions.
    response : Response or None
        Mean as a function of the linear predictor.
    relative : str
        Why levels of predictions are not known, if they are not.
    data : table or None
        The rows of the fit, if it keeps them.
    n, df
        Number of observations, and degrees of freedom of the quantiles.
    """

    params: Any
    covariance: Any
    kind: str
    predict: Callable[[Any, Any], Any] | None = None
    response: Response | None = None
    relative: str = ""
    data: Any = None
    n: int | None = None
    df: float = np.inf
    library: str = ""
    again: str = ""

    @property
    def description(self) -> str:
        """Describe the covariance for printing."""
        if not self.library:
            return "covariance as given"
        return f"covariance as estimated by {self.library}{', ' * bool(self.kind)}{self.kind}"


def recognized(fitted: Any) -> Recognized:
    """Read results that have estimates and a covariance; see `foreign.has_estimates`."""
    library = foreign_library(fitted)
    params, covariance = params_of(fitted), covariance_of(fitted)
    read = {"linearmodels": _linearmodels, "pyfixest": _pyfixest, "lifelines": _lifelines}
    return Recognized(params, covariance, library=library, again=FIT_AGAIN, **read[library](fitted))


def _linearmodels(results: Any) -> dict[str, Any]:
    kind = getattr(results, "cov_type", None) or getattr(results, "_cov_type", "")
    debiased = getattr(results, "debiased", None) or getattr(results, "_debiased", False)
    found = {
        "kind": str(kind).lower(),
        "df": float(results.df_resid) if debiased else np.inf,
        "n": _count(getattr(results, "nobs", None)),
    }
    model: Any = getattr(results, "model", None)
    if type(model).__module__ not in ("linearmodels.iv.model", "linearmodels.panel.model"):
        return found  # systems and absorbed regressors have no predictions of one outcome
    effects = [getattr(model, f"{name}_effects", False) for name in ("entity", "time", "other")]
    absorbed = any(effects) or type(model).__name__ == "FirstDifferenceOLS"
    return found | {
        "response": LINEAR,
        "relative": ABSORBED if absorbed else "",
        "predict": _OfFormula(model) if model.formula else _OfColumns(list(results.params.index)),
        "data": None if model.formula else _regressors(model),
    }


@dataclass(frozen=True, eq=False)
class _OfFormula:
    """Predictions of linearmodels through the formula of a fit."""

    model: Any

    def __call__(self, params: Any, frame: Any) -> Array:
        found = self.model.predict(np.asarray(params)[:, None], data=frame)
        return np.asarray(found, dtype=np.float64).ravel()


@dataclass(frozen=True, eq=False)
class _OfColumns:
    """Predictions from columns that have the names of the parameters."""

    names: list[str]

    def __call__(self, params: Any, frame: Any) -> Array:
        return np.asarray(np.asarray(frame[self.names], dtype=np.float64) @ np.asarray(params))


def _regressors(model: Any) -> Any:
    """Return the columns that a model of linearmodels was given."""
    exog = model.exog
    if not hasattr(exog, "pandas"):
        return exog.dataframe
    return exog.pandas.join(model.endog.pandas)


def _pyfixest(fit: Any) -> dict[str, Any]:
    detail = str(getattr(fit, "_vcov_type_detail", ""))
    linear = getattr(fit, "_method", "") == "feols"
    absorbed = bool(getattr(fit, "_has_fixef", False))
    found = {
        "kind": f"clustered ({detail})" if detail.startswith("CRV") else detail,
        "df": float(fit._df_t) if linear else np.inf,
        "n": _count(getattr(fit, "_N", None)),
    }
    known = linear or getattr(fit, "_method", "") == "fepois"
    if not known or getattr(fit, "_is_iv", False) or (absorbed and not linear):
        return found
    data: Any = getattr(fit, "_data", None)
    return found | {
        "response": LINEAR if linear else LOG,
        "relative": ABSORBED if absorbed else "",
        "predict": _OfFixest(fit),
        "data": data if hasattr(data, "iloc") and len(data) == found["n"] else None,
    }


@dataclass(frozen=True, eq=False)
class _OfFixest:
    """Linear predictors of pyfixest without its fixed effects."""

    fit: Any

    def __call__(self, params: Any, frame: Any) -> Array:
        moved = copy(self.fit)
        moved._beta_hat, moved._has_fixef = np.asarray(params), False
        return np.asarray(moved.predict(newdata=frame.reset_index(drop=True), type="link"))


def _lifelines(fitter: Any) -> dict[str, Any]:
    _check_errors(fitter)
    penalized = ", penalized" if np.any(getattr(fitter, "penalizer", 0.0)) else ""
    found = {
        "kind": f"inverse Hessian{penalized}",
        "n": _count(np.size(getattr(fitter, "durations", ()))),
    }
    if "aft" not in type(fitter).__module__:
        return found  # the baseline hazard of a Cox model has no covariance
    return found | {"predict": _Median(fitter)}


def _check_errors(fitter: Any) -> None:
    """Raise if the standard errors of a fit of lifelines are not those of its covariance.

    With ``robust=True`` or ``cluster_col=`` the sandwich is in `standard_errors_` alone, and
    `variance_matrix_` is the inverse Hessian all the same.
    """
    stated = getattr(fitter, "standard_errors_", None)
    kept = np.sqrt(np.diag(np.asarray(fitter.variance_matrix_, dtype=np.float64)))
    if stated is not None and not is_same(np.asarray(stated) / kept, np.ones(kept.size), SAME):
        raise UnsupportedModelError(
            "This fit of lifelines is robust or clustered, and lifelines keeps its standard errors "
            "alone: `results.variance_matrix_` is the covariance without them. Fit it without "
            "`robust=` and `cluster_col=` for model-based errors, or give a robust covariance, "
            f"`from_estimates(results.params_, covariance)`. {FIT_AGAIN}"
        )


@dataclass(frozen=True, eq=False)
class _Median:
    """Median lifetimes of an accelerated failure time model of lifelines."""

    fitter: Any

    def __call__(self, params: Any, frame: Any) -> Array:
        moved = copy(self.fitter)
        moved.params_ = type(self.fitter.params_)(np.asarray(params), self.fitter.params_.index)
        return np.asarray(moved.predict_median(frame), dtype=np.float64).ravel()


def _count(n: Any) -> int | None:
    return int(n) if n is not None and n > 0 else None
