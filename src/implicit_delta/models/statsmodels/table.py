"""Table of the likelihood of each class of statsmodels, and one builder per kind."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.likelihood import HostLikelihood
from implicit_delta.models.glm.outcomes import KNOWN, Canonical, Outcome, Probit, squared_error
from implicit_delta.models.glm.predictors import LinearPredictors
from implicit_delta.models.noise import check_noise, effective_parameters
from implicit_delta.models.statsmodels.cox import Cox
from implicit_delta.models.statsmodels.grouped import (
    ConditionalGroups,
    HurdleRows,
    MixedGroups,
)
from implicit_delta.models.statsmodels.refusals import unsupported
from implicit_delta.models.statsmodels.terms import Family, NegativeBinomial, Numerical, Ordered
from implicit_delta.models.weights import warn_of_rates


class Built(NamedTuple):
    """A likelihood, its ridge, frequency weights, with a ridge freedom; whether of groups.

    And whether its scale is that of the residuals.
    """

    likelihood: HostLikelihood
    ridge: Array | float = 0.0
    counts: Array | None = None
    df: float = np.inf
    grouped: bool = False
    scaled: bool = False


# A builder gets results, coefficients and the penalty.
Builder: TypeAlias = Callable[[Any, Array, Array | None], Built]


def _least_squares(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build OLS, WLS and GLS on their whitened rows, with the scale that `bse` has."""
    X, y = results.model.wexog, results.model.wendog
    weights = _column(getattr(results.model, "weights", 1.0))  # of WLS
    unit = np.where(weights > 0, weights, 1.0) ** -0.5
    ridge: Array | float = 0.0
    df = np.inf
    if alpha is None:
        s2 = results.scale
    else:
        df = len(y) - effective_parameters(X.T @ X, len(y) * alpha)
        s2 = float(np.sum((y - X @ b) ** 2) / df)
        ridge = len(y) * alpha / s2
    known = alpha is None and results.cov_type == "fixed scale"
    if known:
        outcome = Canonical(Gaussian(results.cov_kwds.get("scale", 1.0)), y, unit)
    else:
        outcome = replace(squared_error(y, s2, np.mean(y**2)), unit=unit)
    return Built(LinearPredictors(X, outcome), ridge, df=df, scaled=not known)


def _generalized(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build a GLM; binomial trials join the variance weights, so that the family has none."""
    model = results.model
    family = copy(model.family)
    if hasattr(family, "n"):
        family.n = 1
    scale = results.scale if alpha is None else model.estimate_scale(model.predict(b))
    outcome = Family(
        family, _column(model.endog), _column(model.var_weights * model.n_trials), float(scale)
    )
    if type(family).__name__ == "Gaussian" and not isinstance(model.scaletype, float):
        check_noise(float(scale), float(np.mean(model.var_weights * model.endog**2)), KNOWN)
    weights = np.asarray(model.freq_weights, dtype=np.float64)
    if type(family).__name__ in ("Binomial", "Poisson"):
        y = np.asarray(model.endog * model.n_trials, dtype=np.float64)
        warn_of_rates(y, weights, "freq_weights", "Fit with `var_weights=` instead.")
    likelihood = LinearPredictors(model.exog, outcome, _column(offset_of(model)))
    fixed = type(family).__name__ in ("Binomial", "Poisson", "NegativeBinomial")
    scaled = not fixed if model.scaletype is None else model.scaletype in ("x2", "X2")
    return Built(likelihood, _summed(alpha, model), weights, scaled=scaled)


def host_curvature(results: Any, likelihood: HostLikelihood, weights: Array) -> Curvature:
    """Find the information that the standard errors of a GLM were made of."""
    if type(results.model).__name__ != "GLM" or not hasattr(results, "normalized_cov_params"):
        return "hessian"
    if results.method == "IRLS":
        return "ggn"
    covariance = results.normalized_cov_params * results.scale
    b, one = np.asarray(results.params), np.eye(len(covariance))
    kinds: tuple[Curvature, Curvature] = ("hessian", "ggn")
    gaps = [np.linalg.norm(likelihood.information(b, weights, covariance, k) - one) for k in kinds]
    return kinds[int(np.argmin(gaps))]


def _discrete(
    kind: Callable[[Array], Outcome], results: Any, b: Array, alpha: Array | None
) -> Built:
    """Build a discrete model of one linear predictor."""
    model = results.model
    outcome = kind(np.asarray(model.endog, dtype=np.float64))
    return Built(LinearPredictors(model.exog, outcome, _column(offset_of(model))))


def _multinomial(results: Any, b: Array, alpha: Array | None) -> Built:
    outcome = Canonical(Categorical(), np.argmax(results.model.wendog, axis=1))
    return Built(LinearPredictors(results.model.exog, outcome, base=True))


def _negative_binomial(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    if model.loglike_method != "nb2":
        return numerical(results, b, alpha)
    y = np.asarray(model.endog, dtype=np.float64)
    return Built(NegativeBinomial(model.exog, y, offset_of(model)))


def _ordered(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    X = np.zeros((len(model.endog), 0)) if model.exog is None else np.asarray(model.exog)
    y = np.asarray(model.endog, dtype=np.intp)
    return Built(Ordered(X, y, offset_of(model), model.k_levels, model.distr))


def _proportional_hazards(results: Any, b: Array, alpha: Array | None) -> Built:
    return Built(Cox.of(results.model), _summed(alpha, results.model))


def numerical(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build from the log-likelihood alone: of each row, or of all together if that is all."""
    method = "loglikeobs"
    try:
        results.model.loglikeobs(b)
    except (AttributeError, NotImplementedError):
        method = "loglike"
    return Built(Numerical(results.model, method, b))


def _by_groups(results: Any, b: Array, alpha: Array | None) -> Built:
    groups = ConditionalGroups(results.model)
    return Built(Numerical(groups, "loglikeobs", b, type(results.model).__name__), grouped=True)


def _hurdle(results: Any, b: Array, alpha: Array | None) -> Built:
    return Built(Numerical(HurdleRows(results.model), "loglikeobs", b, "HurdleCountModel"))


def _mixed(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build a MixedLM by its groups; the criterion of REML is no sum over these."""
    model = results.model
    penalized = model.fe_pen is not None or model.cov_pen is not None
    if results.reml or penalized or getattr(results, "freepat", None) is not None:
        raise unsupported(results)
    groups = MixedGroups(model)
    groups.check(b)
    return Built(Numerical(groups, "loglikeobs", b, "MixedLM"), grouped=True)


def _summed(alpha: Array | None, model: Any) -> Array | float:
    """Bring a penalty of the mean log-likelihood to the scale of the sum."""
    return 0.0 if alpha is None else model.nobs * alpha


def _column(values: Any) -> Array:
    """Make a column (n, 1), or (1, 1) of one number."""
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def offset_of(model: Any) -> Array | float:
    """Sum offset and exposure, which statsmodels has taken the logarithm of."""
    parts = [getattr(model, name, None) for name in ("offset", "exposure")]
    return sum((np.asarray(part, dtype=np.float64) for part in parts if part is not None), 0.0)


SUPPORTED: dict[str, Builder] = {
    "regression.linear_model.OLS": _least_squares,
    "regression.linear_model.WLS": _least_squares,
    "regression.linear_model.GLS": _least_squares,
    "genmod.generalized_linear_model.GLM": _generalized,
    "discrete.discrete_model.Logit": partial(_discrete, partial(Canonical, Bernoulli())),
    "discrete.discrete_model.Probit": partial(_discrete, Probit),
    "discrete.discrete_model.Poisson": partial(_discrete, partial(Canonical, Poisson())),
    "discrete.discrete_model.MNLogit": _multinomial,
    "discrete.discrete_model.NegativeBinomial": _negative_binomial,
    "discrete.discrete_model.NegativeBinomialP": numerical,
    "discrete.discrete_model.GeneralizedPoisson": numerical,
    "discrete.conditional_models.ConditionalLogit": _by_groups,
    "discrete.conditional_models.ConditionalPoisson": _by_groups,
    "discrete.truncated_model.HurdleCountModel": _hurdle,
    "discrete.truncated_model.TruncatedLFPoisson": numerical,
    "discrete.truncated_model.TruncatedLFNegativeBinomialP": numerical,
    "discrete.truncated_model.TruncatedLFGeneralizedPoisson": numerical,
    "discrete.count_model.ZeroInflatedPoisson": numerical,
    "discrete.count_model.ZeroInflatedGeneralizedPoisson": numerical,
    "discrete.count_model.ZeroInflatedNegativeBinomialP": numerical,
    "miscmodels.ordinal_model.OrderedModel": _ordered,
    "duration.hazard_regression.PHReg": _proportional_hazards,
    "regression.mixed_linear_model.MixedLM": _mixed,
    "tsa.arima.model.ARIMA": numerical,
    "tsa.statespace.sarimax.SARIMAX": numerical,
    "tsa.statespace.structural.UnobservedComponents": numerical,
    "tsa.regime_switching.markov_regression.MarkovRegression": numerical,
    "tsa.regime_switching.markov_autoregression.MarkovAutoregression": numerical,
    "tsa.statespace.varmax.VARMAX": numerical,
    "tsa.statespace.dynamic_factor.DynamicFactor": numerical,
}

PENALIZED = {"OLS", "WLS", "GLS", "GLM", "PHReg"}
