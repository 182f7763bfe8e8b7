"""Covariances and degrees of freedom that results of statsmodels claim."""

from typing import Any

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.statsmodels.cox import Cox

OWN = {"nonrobust", "fixed scale", "approx"}  # the inverse information, as the model has it too
DIRECTIONS, STEP = 4, 0.1  # of second differences, and their length in standard errors
OFF = 0.02  # of a curvature: what these differences leave open
UPPER = {"HC0", "HC1", "HC2", "HC3", "HAC"}
BY_ROWS = {"HC0", "HC1", "HC2", "HC3", "cluster"}


def degrees_of_freedom(results: Any, robust: bool = False) -> float:
    """Return those of the t quantiles of a fit; infinite for normal ones.

    A robust fit does not say which ones its model would have: t for least squares alone.
    """
    if robust:
        linear = hasattr(results.model, "wexog")
        return float(results.df_resid) if linear else np.inf
    if not getattr(results, "use_t", False):
        return np.inf
    return float(getattr(results, "df_resid_inference", None) or results.df_resid)


def claim_of(results: Any, n: int) -> Claimed | None:
    """Take over the covariance of a fit, unless it is the inverse information."""
    groups, kind = _groups(results), _kind(results)
    if kind in OWN:
        return None
    efron = getattr(results.model, "ties", None) == "efron"
    covariance = _of_efron(results) if efron else np.array(results.cov_params(), dtype=np.float64)
    if not np.all(np.isfinite(covariance)):
        warn(
            f"The covariance of the fit ({kind}) has entries that are NaN or infinite, so the "
            "inverse information is used in its place. Ask for `robust=` or `clusters=`, or fit "
            "with another `cov_type`.",
            ImplicitDeltaWarning,
        )
        return None
    if _hessian_is_off(results):
        warn(
            f"The Hessian of {type(results.model).__name__} in statsmodels is not that of its "
            f"log-likelihood, so the covariance of the fit ({kind}) is doubtful. Ask for "
            "`robust=True` or `clusters=`, which use second differences of the log-likelihood.",
            ImplicitDeltaWarning,
        )
    clusters, several = _clusters(groups, n)
    return Claimed(
        covariance=covariance,
        name=f"{kind} (Efron's score residuals)" if efron else _name(results, kind),
        df=degrees_of_freedom(results),
        clusters=clusters,
        factor=_factor(results, kind, clusters),
        by_rows=kind in BY_ROWS and not several,
    )


def _of_efron(results: Any) -> Array:
    """Return the clustered covariance of a PHReg; score residuals of statsmodels are Breslow's."""
    cox, b = Cox.of(results.model), np.array(results.params, dtype=np.float64)
    eye = np.eye(b.size)
    rows = cox.terms_along(b, eye)
    information = cox.information(b, np.ones(len(rows)), eye, "hessian")
    labels, codes = np.unique(results.groups, return_inverse=True)
    sums = np.zeros((labels.size, b.size))
    np.add.at(sums, codes, rows)
    influences = sums @ np.linalg.inv(information)
    return np.asarray(influences.T @ influences)


def _hessian_is_off(results: Any) -> bool:
    """Hold a Hessian in closed form against second differences, in a few mixed directions."""
    model, b = results.model, np.asarray(results.params, dtype=np.float64)
    if not type(model).__module__.endswith("count_model"):
        return False  # the others agree with it in the tests
    hessian = np.asarray(model.hessian(b))
    units = 1 / np.sqrt(abs(np.diag(hessian)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(DIRECTIONS, b.size))
    steps = STEP / np.sqrt(b.size) * signs * units
    bends = [model.loglike(b + s) + model.loglike(b - s) - 2 * model.loglike(b) for s in steps]
    expected = np.einsum("kd,de,ke->k", steps, hessian, steps)
    return bool(np.any(abs(np.array(bends) - expected) > OFF * STEP**2))


def _reduced(results: Any) -> Any:
    """Return what was fitted: `fit_constrained` eliminates parameters, and keeps that fit."""
    return getattr(results, "results_constrained", results)


def _kind(results: Any) -> str:
    """Return the type of the covariance; PHReg has groups without a word of it."""
    if getattr(results, "groups", None) is not None:
        return "cluster"
    kind = str(getattr(_reduced(results), "cov_type", "nonrobust"))
    return kind.upper() if kind.upper() in UPPER else kind


def _name(results: Any, kind: str) -> str:
    """Return its name; outside linear models statsmodels makes HC0 of every HC."""
    made = kind in {"HC1", "HC2", "HC3"} and not hasattr(results, f"cov_{kind}")
    return f"{kind} (which is HC0 in {type(results.model).__name__})" if made else kind


def _groups(results: Any) -> Any:
    groups = getattr(_reduced(results), "cov_kwds", {}).get("groups")
    return getattr(results, "groups", None) if groups is None else groups


def _clusters(groups: Any, n: int) -> tuple[Clusters | None, bool]:
    """Number one label per row; labels of two ways, or of too few groups, stand for no rows."""
    if groups is None:
        return None, False
    labels = np.asarray(groups)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or len(labels) != n or len(np.unique(labels)) < 3:
        return None, True
    return Clusters.of(labels, np.ones(n)), False


def _factor(results: Any, kind: str, clusters: Clusters | None) -> float:
    """Return the small-sample factor, where it does not vary from row to row."""
    fitted = _reduced(results)
    n, d = len(results.model.endog), np.size(fitted.params)
    asked = getattr(fitted, "cov_kwds", {})
    factor = float(asked.get("scaling_factor") or 1.0)
    if kind == "HC1" and hasattr(results, "cov_HC1"):
        return factor * n / (n - d)
    if clusters is not None and asked.get("use_correction"):
        return factor * clusters.count / (clusters.count - 1) * (n - 1) / (n - d)
    return factor
