"""Fits of other libraries: whose they are, and a line that answers the question."""

from typing import Any

import numpy as np

from implicit_delta.errors import UnsupportedModelError

# Where a library keeps the coefficients by name, and their covariance.
ESTIMATES = {
    "linearmodels": ("params", "cov"),
    "pyfixest": ("coef", "_vcov"),
    "lifelines": ("params_", "variance_matrix_"),
}
READERS = {
    "statsmodels": "from_statsmodels(results)",
    "sklearn": "from_sklearn(estimator, X, y)",
    "torch": "from_torch(module, data, likelihood)",
    "flax": "from_jax(module, params, data, likelihood)",
}
LIFELINES = ("duration_col", "event_col", "weights_col", "entry_col", "strata", "formula")
UNIVARIATE = ("durations", "event_observed", "weights")
WRITE = "Write `fit(data)`, a function that makes such a fit: `bootstrap(fit, data, psi)`."


def library_of(kind: type) -> str:
    """Name the library that defines a class."""
    return kind.__module__.partition(".")[0]


def foreign_library(fitted: Any) -> str:
    """Name the library of a fit that is known here; a class of a user may be derived from it."""
    known = {*ESTIMATES, *READERS}
    return next((name for name in map(library_of, type(fitted).__mro__) if name in known), "")


def refuse_foreign(fitted: Any, entry: str) -> None:
    """Refuse fits of libraries that another entry reads, or none, with what works instead."""
    own, library = type(fitted), foreign_library(fitted)
    told = f"{entry} does not read {own.__name__} of {library_of(own)}"
    if library in ESTIMATES and not has_estimates(fitted):
        raise UnsupportedModelError(f"{told}. {fit_again(fitted)}")
    if library in ESTIMATES:
        raise UnsupportedModelError(
            f"{told}. It has estimates and their covariance: "
            f"`infer(from_estimates(results), psi)`. {fit_again(fitted)}"
        )
    if library in READERS and entry.startswith("from_") and not READERS[library].startswith(entry):
        raise UnsupportedModelError(f"{told}: that is for `{READERS[library]}`.")


def has_estimates(fitted: Any) -> bool:
    """Whether a fit of another library has coefficients and their covariance."""
    members = ESTIMATES.get(foreign_library(fitted))
    if members is None or not all(hasattr(fitted, name) for name in members):
        return False
    return bool(np.ndim(params_of(fitted)) == 1)


def params_of(fitted: Any) -> Any:
    """Take the coefficients of a fit by name."""
    found = getattr(fitted, ESTIMATES[foreign_library(fitted)][0])
    return found() if callable(found) else found


def covariance_of(fitted: Any) -> Any:
    """Take the covariance of the coefficients of a fit."""
    return getattr(fitted, ESTIMATES[foreign_library(fitted)][1])


def fit_again(fitted: Any) -> str:
    """Write how to fit again to resampled rows."""
    again = _lifelines(fitted) if foreign_library(fitted) == "lifelines" else ""
    return f"Fit it again to resampled rows: `{again}`." if again else WRITE


def _lifelines(fitter: Any) -> str:
    """Write the call that fits again: a regression to a table, a curve to its durations."""
    if hasattr(fitter, "duration_col"):
        given = [name for name in LIFELINES if getattr(fitter, name, None) is not None]
        options = "".join(f", {name}=results.{name}" for name in given)
        psi = "lambda fitted: psi(fitted.params_)" if hasattr(fitter, "params_") else "psi"
        fit = f"copy(results).fit(d{options})"
        return f"from copy import copy; bootstrap(lambda d: {fit}, data, {psi})"
    if all(getattr(fitter, name, None) is not None for name in UNIVARIATE):
        rows = ", ".join(f"results.{name}" for name in UNIVARIATE)
        fit = "copy(results).fit(d[0], d[1], weights=d[2])"
        return f"from copy import copy; bootstrap(lambda d: {fit}, ({rows}), psi)"
    return ""
