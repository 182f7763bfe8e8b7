"""Families of models: their classes in statsmodels, and the GLM that takes weights or a link."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from implicit_delta.command.failure import Failure, meant

Outcome = Literal["number", "binary", "share", "count", "positive", "classes", "ordered"]
GLM = "genmod.generalized_linear_model.GLM"
DISCRETE = "discrete.discrete_model"
ORDERED = "miscmodels.ordinal_model.OrderedModel"
BFGS = {"method": "bfgs", "maxiter": 2000, "disp": 0}
# Beyond the default of 35 steps, which badly scaled columns need.
NEWTON = {"maxiter": 200, "disp": 0}


class Family(NamedTuple):
    """A class of statsmodels, settings of its fit, and its twin among the GLMs (family, link)."""

    model: str
    outcome: Outcome
    glm: tuple[str, str | None] | None = None
    shifts: tuple[str, ...] = ()
    fit: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}


OFFSET, COUNTS = ("offset",), ("offset", "exposure")
FAMILIES = {
    "ols": Family("regression.linear_model.OLS", "number", ("Gaussian", "Identity")),
    "logit": Family(f"{DISCRETE}.Logit", "binary", ("Binomial", "Logit"), OFFSET, NEWTON),
    "probit": Family(f"{DISCRETE}.Probit", "binary", ("Binomial", "Probit"), OFFSET, NEWTON),
    "poisson": Family(f"{DISCRETE}.Poisson", "count", ("Poisson", "Log"), COUNTS, NEWTON),
    "negativebinomial": Family(f"{DISCRETE}.NegativeBinomial", "count", None, COUNTS, BFGS),
    "mnlogit": Family(f"{DISCRETE}.MNLogit", "classes", None, (), NEWTON),
    "ordered": Family(ORDERED, "ordered", None, OFFSET, BFGS, {"distr": "logit"}),
    "orderedprobit": Family(ORDERED, "ordered", None, OFFSET, BFGS, {"distr": "probit"}),
    "gaussian": Family(GLM, "number", ("Gaussian", None), COUNTS),
    "binomial": Family(GLM, "share", ("Binomial", None), COUNTS),
    "gamma": Family(GLM, "positive", ("Gamma", None), COUNTS),
    "inversegaussian": Family(GLM, "positive", ("InverseGaussian", None), COUNTS),
}
OTHER_NAMES = {
    "linear": "ols", "logistic": "logit", "nb": "negativebinomial", "multinomial": "mnlogit",
    "orderedlogit": "ordered", "ordinal": "ordered",
}  # fmt: skip
LINKS = {
    "identity": "Identity", "log": "Log", "logit": "Logit", "probit": "Probit",
    "cloglog": "CLogLog", "loglog": "LogLog", "cauchy": "Cauchy", "inverse": "InversePower",
    "inversesquared": "InverseSquared", "sqrt": "Sqrt",
}  # fmt: skip
# What weights are for a GLM: each row stands for so many equal ones; one over its variance, or
# trials of a share; shares of a population, always with the sandwich.
WEIGHTS = {"frequency": "freq_weights", "precision": "var_weights", "sampling": "freq_weights"}


def family_for(options: Any) -> Family:
    """Choose the class of a model: weights and links are those of a GLM."""
    name = _known(options.family, FAMILIES, "family")
    family = FAMILIES[name]
    if (options.weights is None) != (options.weight_kind is None):
        raise Failure(
            "--weights and --weight-kind go together: frequency (each row stands for so many "
            "equal ones), precision (one over the variance of a row), sampling (survey weights)."
        )
    if name == "ols" and options.weight_kind == "precision" and options.link is None:
        return family._replace(model="regression.linear_model.WLS")
    if options.weights is not None or options.link is not None:
        if family.glm is None:
            raise Failure(f"The family {name} takes neither --weights nor --link here.")
        kind, link = family.glm
        link = link if options.link is None else LINKS[_known(options.link, LINKS, "link")]
        fit = {"use_t": True} if name == "ols" else {}
        family = Family(GLM, family.outcome, (kind, link), COUNTS, fit)
    for shift in COUNTS:
        if getattr(options, shift) is not None and shift not in family.shifts:
            other = " Use --family gaussian." if name == "ols" and shift == "offset" else ""
            raise Failure(f"The family {name} takes no --{shift}.{other}")
    return family


def _known(name: str, names: Mapping[str, Any], kind: str) -> str:
    """Find a name; case, blanks and hyphens do not matter."""
    short = "".join(letter for letter in name.lower() if letter.isalnum())
    short = OTHER_NAMES.get(short, short)
    if short not in names:
        raise Failure(
            f"There is no {kind} {name!r}: {meant(short, names)} Known are {', '.join(names)}."
        )
    return short
