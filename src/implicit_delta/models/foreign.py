"""Fits of other libraries: whose they are, and what answers the question."""

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
FIT_AGAIN = (
    "To fit it again to resampled rows, write `fit(data)`, a function that makes this fit with the "
    "same options and returns it: `bootstrap(fit, data, psi)`, with psi a function of what fit "
    "returns."
)


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
        raise UnsupportedModelError(f"{told}. {FIT_AGAIN}")
    if library in ESTIMATES:
        raise UnsupportedModelError(
            f"{told}. It has estimates and their covariance: "
            f"`infer(from_estimates(results), psi)`. {FIT_AGAIN}"
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
