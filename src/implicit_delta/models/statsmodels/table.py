"""Which likelihood each class of statsmodels has: an explicit table, and one builder per kind."""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.models.base import Curvature
from implicit_delta.models.glm.model import Likelihood
from implicit_delta.models.glm.predictors import (
    Counts,
    LinearPredictor,
    Logistic,
    Normal,
    NormalOgive,
    Response,
    Softmax,
)
from implicit_delta.models.statsmodels.terms import (
    Family,
    NegativeBinomial,
    Numerical,
    OneTerm,
    Ordered,
    RowWise,
)

# A builder gets results, coefficients and the penalty, and returns the likelihood, frequency
# weights and the ridge on the scale of the likelihood.
Built: TypeAlias = tuple[Likelihood, Array | None, Array]
Builder: TypeAlias = Callable[[Any, Array, Array | None], Built]


def _least_squares(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build OLS, WLS and GLS on their whitened rows, with the scale that `bse` has."""
    model = results.model
    if alpha is None:
        s2 = results.scale
        if results.cov_type == "fixed scale":
            s2 = results.cov_kwds.get("scale", 1.0)
        ridge = np.zeros(b.size)
    else:
        s2 = _ridge_variance(model.wexog, model.wendog, b, alpha)
        ridge = len(model.wendog) * alpha / s2
    return LinearPredictor(model.wexog, Normal(model.wendog, float(s2))), None, ridge


def _ridge_variance(X: Array, y: Array, b: Array, alpha: Array) -> float:
    """Squared residuals over n less the effective number of parameters."""
    gram = X.T @ X
    freedom = len(y) - np.trace(np.linalg.solve(gram + np.diag(len(y) * alpha), gram))
    return float(np.sum((y - X @ b) ** 2) / freedom)


def _generalized(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build a GLM; binomial trials join the variance weights, so that the family has none."""
    model = results.model
    family = copy(model.family)
    if hasattr(family, "n"):
        family.n = 1
    scale = results.scale if alpha is None else model.estimate_scale(model.predict(b))
    prior = np.asarray(model.var_weights * model.n_trials, dtype=np.float64)
    response = Family(family, np.asarray(model.endog, dtype=np.float64), prior, float(scale))
    weights = np.asarray(model.freq_weights, dtype=np.float64)
    ridge = np.zeros(b.size) if alpha is None else model.nobs * alpha
    return LinearPredictor(model.exog, response, _offset(model)), weights, ridge


def host_curvature(results: Any, likelihood: Likelihood, weights: Array) -> Curvature:
    """Find out which information the standard errors of a GLM were made of."""
    if type(results.model).__name__ != "GLM" or not hasattr(results, "normalized_cov_params"):
        return "hessian"
    if results.method == "IRLS":
        return "ggn"
    covariance = results.normalized_cov_params * results.scale
    b, one = np.asarray(results.params), np.eye(len(covariance))
    kinds: tuple[Curvature, Curvature] = ("hessian", "ggn")
    gaps = [np.linalg.norm(likelihood.information(b, weights, covariance, k) - one) for k in kinds]
    return kinds[int(np.argmin(gaps))]


def _response(kind: Callable[[Array], Response]) -> Builder:
    """Build a discrete model of one linear predictor."""

    def build(results: Any, b: Array, alpha: Array | None) -> Built:
        model = results.model
        response = kind(np.asarray(model.endog, dtype=np.float64))
        return LinearPredictor(model.exog, response, _offset(model)), None, np.zeros(b.size)

    return build


def _multinomial(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    classes = np.asarray(model.wendog, dtype=np.float64)
    return Softmax(model.exog, classes, base=True), None, np.zeros(b.size)


def _negative_binomial(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    if model.loglike_method != "nb2":
        return numerical(results, b, alpha)
    rows = NegativeBinomial(model.exog, np.asarray(model.endog, np.float64), _offset(model))
    return RowWise(rows), None, np.zeros(b.size)


def _ordered(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    X = np.zeros((len(model.endog), 0)) if model.exog is None else np.asarray(model.exog)
    y = np.asarray(model.endog, dtype=np.intp)
    rows = Ordered(X, y, _offset(model), model.k_levels, model.distr)
    return RowWise(rows), None, np.zeros(b.size)


def _proportional_hazards(results: Any, b: Array, alpha: Array | None) -> Built:
    model = results.model
    likelihood = OneTerm(model.loglike, model.score, model.hessian)
    return likelihood, None, np.zeros(b.size) if alpha is None else model.nobs * alpha


def numerical(results: Any, b: Array, alpha: Array | None) -> Built:
    """Build from the log-likelihood alone: of each row, or of all together if that is all."""
    model = results.model
    try:
        model.loglikeobs(b)
        loglik = model.loglikeobs
    except (AttributeError, NotImplementedError):
        loglik = model.loglike
    return Numerical(loglik, b), None, np.zeros(b.size)


def _offset(model: Any) -> Array | float:
    """Sum offset and exposure, which statsmodels has taken the logarithm of."""
    parts = [getattr(model, name, None) for name in ("offset", "exposure")]
    return sum((np.asarray(part, dtype=np.float64) for part in parts if part is not None), 0.0)


SUPPORTED: dict[str, Builder] = {
    "regression.linear_model.OLS": _least_squares,
    "regression.linear_model.WLS": _least_squares,
    "regression.linear_model.GLS": _least_squares,
    "genmod.generalized_linear_model.GLM": _generalized,
    "discrete.discrete_model.Logit": _response(Logistic),
    "discrete.discrete_model.Probit": _response(NormalOgive),
    "discrete.discrete_model.Poisson": _response(Counts),
    "discrete.discrete_model.MNLogit": _multinomial,
    "discrete.discrete_model.NegativeBinomial": _negative_binomial,
    "discrete.discrete_model.NegativeBinomialP": numerical,
    "discrete.discrete_model.GeneralizedPoisson": numerical,
    "discrete.count_model.ZeroInflatedPoisson": numerical,
    "discrete.count_model.ZeroInflatedGeneralizedPoisson": numerical,
    "discrete.count_model.ZeroInflatedNegativeBinomialP": numerical,
    "miscmodels.ordinal_model.OrderedModel": _ordered,
    "duration.hazard_regression.PHReg": _proportional_hazards,
}

PENALIZED = {"OLS", "WLS", "GLS", "GLM", "PHReg"}
