"""Refusals of statsmodels fits, with what answers the question all the same."""

from typing import Any

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.foreign import FIT_AGAIN

REASONS = {
    "GLMGam": "a penalty on the shape of its smooth terms, which is not a ridge",
    "GLSAR": "a correlation that is estimated along with the coefficients",
    "MixedLM": "a penalty or variances held fixed, so that its criterion is no sum over its groups",
    "AutoReg": "lags of its own outcome, which are its regressors",
    "RecursiveLS": "the coefficients of OLS, found row by row",
    "VAR": "several outcomes, with least squares for each",
}

# Where rows are ordered in time, drawing them would break what is estimated.
SERIES = {
    "GLSAR": "Fit OLS to the same columns, and take errors that allow for the correlation: "
    "`infer(from_statsmodels(results), psi, robust=HAC(4))`.",
    "AutoReg": "Fit OLS to the same outcome, with its lags as columns.",
    "RollingOLS": "Fit OLS to the rows of the last window.",
    "RecursiveLS": "Fit OLS to the same columns.",
    "VAR": "Fit VARMAX of the same order, `VARMAX(endog, order=(p, 0))`.",
}
WHOLE = (
    "Give its log-likelihood as one term: `from_loglik(lambda b: "
    "np.atleast_1d(results.model.loglike(b)), theta=np.asarray(results.params))`."
)
NO_LOGLIK = (
    "It has no log-likelihood of its parameters: fit a state-space model, such as "
    "UnobservedComponents or ARIMA."
)
BY_GROUPS = (
    "Use maximum likelihood, which is a sum over the groups: fit the model with `reml=False`, and "
    "without a penalty or variances held fixed."
)
CLUSTERS = "Pass the groups as a column of the data and as `clusters=`, which draws whole groups."


def unsupported(results: Any) -> UnsupportedModelError:
    """Make the refusal of a class of statsmodels."""
    name = type(results.model).__qualname__
    reason = f" It has {REASONS[name]}." if name in REASONS else ""
    return UnsupportedModelError(
        f"from_statsmodels does not support {name}.{reason} {remedy(results)}"
    )


def remedy(results: Any) -> str:
    """Name what works: a bootstrap, or for a series another model."""
    model, kind = results.model, type(results.model)
    if kind.__qualname__ in SERIES or ".tsa." in kind.__module__:
        has_loglik = hasattr(model, "loglike") and not isinstance(results.params, dict)
        other = SERIES.get(kind.__qualname__, WHOLE) if has_loglik else NO_LOGLIK
        return f"Its rows are ordered in time and cannot be drawn. {other}"
    again = f"{FIT_AGAIN} {CLUSTERS}" if hasattr(model, "groups") else FIT_AGAIN
    return f"{BY_GROUPS} {again}" if kind.__qualname__ == "MixedLM" else again
