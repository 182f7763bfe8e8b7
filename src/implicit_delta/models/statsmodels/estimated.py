"""Results of statsmodels that have estimates and a covariance, but no likelihood by rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.labels import NamedColumn
from implicit_delta.models.claimed import Claimed, checked_covariance
from implicit_delta.models.facts import Host
from implicit_delta.models.given import given_model
from implicit_delta.models.statsmodels.claims import degrees_of_freedom
from implicit_delta.models.statsmodels.prediction import predictor_of
from implicit_delta.models.statsmodels.refusals import remedy
from implicit_delta.models.traced_series import LikeParams

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

ESTIMATED = {
    "genmod.generalized_estimating_equations.GEE",
    "genmod.generalized_estimating_equations.NominalGEE",
    "genmod.generalized_estimating_equations.OrdinalGEE",
    "regression.quantile_regression.QuantReg",
    "robust.robust_linear_model.RLM",
    "sandbox.regression.gmm.IV2SLS",
}


def is_estimated(results: Any, kind: str) -> bool:
    """Whether results of a class come in with their own covariance."""
    if kind != "regression.mixed_linear_model.MixedLM":
        return kind in ESTIMATED
    model = results.model
    penalized = model.fe_pen is not None or model.cov_pen is not None
    return bool(results.reml) and not penalized and getattr(results, "freepat", None) is None


def estimated(results: Any, names: tuple[str, ...] | None, rows: Any) -> "FittedModel":
    """Make the model of results with the covariance that `results.bse` has."""
    bare = getattr(results, "_results", results)
    theta = np.array(bare.params, dtype=np.float64)
    V = checked_covariance(np.asarray(bare.cov_params(), dtype=np.float64), None, theta.size)
    df, predictor = degrees_of_freedom(bare), predictor_of(bare)
    described = ", ".join(["covariance as estimated by statsmodels", *_kind(bare)])
    host = Host(
        predictor=predictor,
        labels=rows,
        response=NamedColumn.of(getattr(bare.model.data, "orig_endog", None)),
    )
    return given_model(
        "from_statsmodels",
        theta,
        Claimed(V, "given", df, by_rows=False, description=described),
        LikeParams(results.params, predictor),
        n=len(bare.model.endog),
        names=names,
        again=remedy(bare),
        host=host,
    )


def _kind(results: Any) -> list[str]:
    """Name the kind of a covariance, where statsmodels keeps a record of it."""
    if hasattr(results, "reml"):
        return ["REML"]
    if hasattr(results, "fit_options"):  # of RLM
        return [str(results.fit_options["cov"])]
    kind = str(results.cov_type).replace("_", " ")
    return [] if hasattr(results, "q") else [kind]  # QuantReg says "nonrobust" of every kind
