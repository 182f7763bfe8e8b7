"""Families of models: their classes in statsmodels, and the GLM that takes weights or a link."""

from dataclasses import dataclass, field
from typing import Any, Literal

from implicit_delta.command.failure import Failure, meant

Outcome = Literal["number", "binary", "share", "count", "positive", "classes", "ordered"]
GLM = "genmod.generalized_linear_model.GLM"
DISCRETE = "discrete.discrete_model"
BFGS = {"method": "bfgs", "maxiter": 2000, "disp": 0}
# Beyond the default of 35 steps, which badly scaled columns need.
NEWTON = {"maxiter": 200, "disp": 0}


@dataclass(frozen=True)
class Family:
    """A class of statsmodels, settings of its fit, and its twin among the GLMs (family, link)."""

    model: str
    outcome: Outcome
    glm: tuple[str, str | None] | None = None
    shifts: tuple[str, ...] = ()
    fit: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def as_glm(self, use_t: bool = False) -> "Family":
        """Return the generalized linear model with the same likelihood."""
        return Family(
            GLM, self.outcome, self.glm, ("offset", "exposure"), {"use_t": True} if use_t else {}
        )


def _glm(family: str, outcome: Outcome) -> Family:
    return Family(GLM, outcome, (family, None), ("offset", "exposure"))


COUNTS = ("offset", "exposure")
FAMILIES = {
    "ols": Family("regression.linear_model.OLS", "number", ("Gaussian", "Identity")),
    "logit": Family(f"{DISCRETE}.Logit", "binary", ("Binomial", "Logit"), ("offset",), NEWTON),
    "probit": Family(f"{DISCRETE}.Probit", "binary", ("Binomial", "Probit"), ("offset",), NEWTON),
    "poisson": Family(f"{DISCRETE}.Poisson", "count", ("Poisson", "Log"), COUNTS, NEWTON),
    "negativebinomial": Family(f"{DISCRETE}.NegativeBinomial", "count", None, COUNTS, BFGS),
    "mnlogit": Family(f"{DISCRETE}.MNLogit", "classes", None, (), NEWTON),
    "ordered": Family(
        "miscmodels.ordinal_model.OrderedModel", "ordered", None, ("offset",), BFGS,
        {"distr": "logit"},
    ),
    "orderedprobit": Family(
        "miscmodels.ordinal_model.OrderedModel", "ordered", None, ("offset",), BFGS,
        {"distr": "probit"},
    ),
    "gaussian": _glm("Gaussian", "number"),
    "binomial": _glm("Binomial", "share"),
    "gamma": _glm("Gamma", "positive"),
    "inversegaussian": _glm("InverseGaussian", "positive"),
}  # fmt: skip
OTHER_NAMES = {
    "linear": "ols", "logistic": "logit", "nb": "negativebinomial", "multinomial": "mnlogit",
    "orderedlogit": "ordered", "ordinal": "ordered",
}  # fmt: skip
LINKS = {
    "identity": "Identity", "log": "Log", "logit": "Logit", "probit": "Probit",
    "cloglog": "CLogLog", "loglog": "LogLog", "cauchy": "Cauchy", "inverse": "InversePower",
    "inversesquared": "InverseSquared", "sqrt": "Sqrt",
}  # fmt: skip


def family_of(name: str) -> str:
    """Return the name of a family; case, blanks and hyphens do not matter."""
    return _known(name, FAMILIES, "family", OTHER_NAMES)


def link_of(name: str) -> str:
    """Return the name of a link."""
    return _known(name, LINKS, "link")


def _known(
    name: str, names: dict[str, Any], what: str, others: dict[str, str] | None = None
) -> str:
    short = "".join(letter for letter in name.lower() if letter.isalnum())
    short = (others or {}).get(short, short)
    if short not in names:
        near = meant(short, list(names))
        every = f" Known are {', '.join(names)}."
        raise Failure(f"There is no {what} {name!r}: {near}{every if 'mean' in near else ''}")
    return short
