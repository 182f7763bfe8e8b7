"""Fits that a entry does not read: whose they are, and a line that answers the question."""

from typing import Any

from implicit_delta.errors import UnsupportedModelError

# Where a library keeps the covariance of its coefficients, and these by name.
ESTIMATES = {
    "linearmodels": ("results.cov", "results.params"),
    "pyfixest": ("results._vcov", "results.coef()"),
    "lifelines": ("results.variance_matrix_", "results.params_"),
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


def refuse_foreign(fitted: Any, entry: str) -> None:
    """Refuse fits of libraries that another entry reads, or none, with what works instead."""
    own = type(fitted)
    told = f"{entry} does not read {own.__name__} of {library_of(own)}"
    # A class of the user may be derived from one of theirs.
    known = (library_of(kind) for kind in own.__mro__ if library_of(kind) in {*ESTIMATES, *READERS})
    library = next(known, "")
    if library in ESTIMATES:
        raise UnsupportedModelError(f"{told}. {_advice(fitted, library)}")
    if library in READERS and entry.startswith("from_") and not READERS[library].startswith(entry):
        raise UnsupportedModelError(f"{told}: that is for `{READERS[library]}`.")


def _advice(fitted: Any, library: str) -> str:
    """Take the covariance that a fit has of its coefficients, or fit again."""
    again = _lifelines(fitted) if library == "lifelines" else ""
    again = f"Fit it again to resampled rows: `{again}`." if again else WRITE
    covariance, params = ESTIMATES[library]
    if not all(hasattr(fitted, name.split(".")[1].rstrip("()")) for name in (covariance, params)):
        return again
    index = getattr(getattr(fitted, "params_", None), "index", None)
    if getattr(index, "nlevels", 1) > 1:
        params = f"{{'_'.join(name): b for name, b in {params}.items()}}"
    return (
        "It has estimates and their covariance, but not the log-likelihood of each row, from which "
        "errors are made here. Take its covariance, with a psi of the coefficients by name: "
        f"`infer(measurement({covariance}, **{params}), psi)`. Or {again[0].lower()}{again[1:]}"
    )


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
