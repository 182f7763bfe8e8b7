"""Refusals of statsmodels fits, with the line that answers the question all the same."""

from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.foreign import WRITE

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
    "GLSAR": "infer(from_statsmodels(OLS(results.model.endog, results.model.exog).fit()), psi, "
    "robust=HAC(4))",
    "AutoReg": "infer(from_statsmodels(OLS(results.model._y, results.model._x).fit()), psi)",
    "RollingOLS": "infer(from_statsmodels(OLS(results.model.endog[-results.model._window:], "
    "results.model.exog[-results.model._window:]).fit()), psi)",
    "RecursiveLS": "infer(from_statsmodels(OLS(results.model.endog, results.model.exog).fit()), "
    "psi)",
    "VAR": "infer(from_statsmodels(VARMAX(results.model.endog, order=(results.k_ar, 0))"
    ".fit(disp=0)), psi)",
}
IMPORTS = {
    "OLS": "from statsmodels.api import OLS; ",
    "VARMAX": "from statsmodels.tsa.api import VARMAX; ",
    "from_loglik": "import numpy as np; ",
}
WHOLE = (
    "infer(from_loglik(lambda b: np.atleast_1d(results.model.loglike(b)), "
    "theta=np.asarray(results.params)), psi)"
)
BY_GROUPS = "from copy import copy; from_statsmodels(copy(results.model).fit(reml=False))"


class Recipe(NamedTuple):
    """Code that fits a model again: columns beside endog and exog, options, and the call."""

    columns: tuple[str, ...] = ()
    options: str = ""
    fit: str = "fit()"


RECIPES = {
    "QuantReg": Recipe(fit="fit(q=results.q)"),
    "RLM": Recipe(options=", M=model.M", fit="fit(scale_est=results.fit_options['scale_est'])"),
    "GEE": Recipe(
        ("groups", "time", "offset", "exposure", "weights"),
        ", family=model.family, cov_struct={structure}",
    ),
    "NominalGEE": Recipe(("groups",), ", cov_struct={structure}"),
    "OrdinalGEE": Recipe(("groups",), ", cov_struct={structure}"),
    "ConditionalMNLogit": Recipe(("groups",), fit="fit(disp=0)"),
    "PHReg": Recipe(("status", "entry", "strata", "offset"), ", ties=model.ties"),
    "MixedLM": Recipe(("groups", "exog_re"), fit="fit(reml=results.reml)"),
    "IV2SLS": Recipe(("instrument",)),
    "GLM": Recipe(("offset", "exposure", "freq_weights", "var_weights"), ", family=model.family"),
    "WLS": Recipe(("weights",)),
}
GAM = (
    "model = results.model; smooth = model.smoother; bootstrap(lambda d: type(model)(d['endog'], "
    "d['exog'], smoother=type(smooth)(d['x'], df=smooth.dfs, degree=smooth.degrees), "
    "alpha=model.alpha, family=model.family).fit(), {'endog': model.data.orig_endog, 'exog': "
    "model.exog_linear, 'x': smooth.x}, lambda fitted: psi(fitted.params))"
)


def unsupported(results: Any) -> UnsupportedModelError:
    """Make the refusal of a class of statsmodels."""
    name = type(results.model).__qualname__
    reason = f" It has {REASONS[name]}." if name in REASONS else ""
    return UnsupportedModelError(
        f"from_statsmodels does not support {name}.{reason} {advice(results)}"
    )


def advice(results: Any, fit: str = "") -> str:
    """Name a line that works: a bootstrap, or for a series another road."""
    kind = type(results.model)
    name, module = kind.__qualname__, kind.__module__
    if name in SERIES or ".tsa." in module:
        if not hasattr(results.model, "loglike") or isinstance(results.params, dict):
            return (
                "Its rows are ordered in time and cannot be drawn, and it has no log-likelihood of "
                "its parameters: fit a state-space model, such as UnobservedComponents or ARIMA."
            )
        line = SERIES.get(name, WHOLE)
        imports = next(text for word, text in IMPORTS.items() if word in line)
        told = "Its rows are ordered in time and cannot be drawn; use"
        return f"{told} `{imports}{line}`."
    if not _can_be_made(results.model):
        return WRITE
    again = f"Fit it again to resampled rows: `{line_of(results, fit)}`."
    if name != "MixedLM":
        return again
    drawn = "" if results.model.exog_vc.names else f" {again.replace('rows', 'groups')}"
    return f"Use maximum likelihood, which is a sum over the groups: `{BY_GROUPS}`.{drawn}"


def line_of(results: Any, fit: str = "") -> str:
    """Write the call of `bootstrap` for these results, with the psi of `infer`, of the parameters.

    A fit by another call than `fit()` is given as code.
    """
    model = results.model
    if type(model).__qualname__ == "GLMGam":
        return GAM
    recipe = RECIPES.get(type(model).__qualname__) or _general(model)
    columns = ["endog", *(["exog"] if model.exog is not None else []), *recipe.columns]
    places = {column: _place(model, column) for column in columns}
    data = ", ".join(f"'{column}': {place}" for column, place in places.items() if place)
    by = f", clusters={places['groups']}" if "groups" in places else ""
    options = recipe.options.replace("{structure}", _structure(model))
    return (
        f"{'import numpy as np; ' if 'np.' in data else ''}model = results.model; "
        f"bootstrap(lambda d: type(model)(**d{options}).{fit or recipe.fit}, {{{data}}}, "
        f"lambda fitted: psi(fitted.params){by})"
    )


def _general(model: Any) -> Recipe:
    """Read the settings of a model from what statsmodels makes copies of it with."""
    settings: dict[str, Any] = getattr(model, "_get_init_kwds", dict)()
    given = [name for name, value in settings.items() if value is not None]
    columns = [name for name in given if _place(model, name)]
    others = [name for name in given if name not in columns and hasattr(model, name)]
    return Recipe(tuple(columns), "".join(f", {name}=model.{name}" for name in others))


def _can_be_made(model: Any) -> bool:
    """Whether the arguments that its class needs are known."""
    arguments = list(signature(type(model)).parameters.values())
    needed = {
        a.name for a in arguments if a.default is a.empty and a.kind is a.POSITIONAL_OR_KEYWORD
    }
    recipe = RECIPES.get(type(model).__qualname__) or _general(model)
    return needed <= {"endog", "exog", *recipe.columns}


def _structure(model: Any) -> str:
    """Write a fresh working correlation, with the settings of the one that was fitted."""
    structure = getattr(model, "cov_struct", None)
    settings = [] if structure is None else list(signature(type(structure)).parameters)
    given = [name for name in settings if getattr(structure, name, None) is not None]
    inside = ", ".join(f"{name}=model.cov_struct.{name}" for name in given)
    return f"type(model.cov_struct)({inside})"


def _place(model: Any, column: str) -> str:
    """Name the attribute that holds a column as it was given; nothing if there is none."""
    if hasattr(model, f"{column}_orig"):  # an outcome of several classes was made several rows
        return f"model.{column}_orig"
    if column in ("endog", "exog"):
        return f"model.data.orig_{column}"
    if column == "exposure" and getattr(model, column, None) is not None:
        return "np.exp(model.exposure)"  # statsmodels has taken the logarithm
    values: Any = getattr(model, column, None)
    aligned = values is not None and np.shape(values)[:1] == (len(model.endog),)
    return f"model.{column}" if aligned else ""
