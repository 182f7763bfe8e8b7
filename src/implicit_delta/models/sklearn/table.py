"""Table of the likelihood and penalty of each estimator of scikit-learn."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from implicit_delta.models.facts import ScaleRule
from implicit_delta.models.glm.likelihood import HostLikelihood
from implicit_delta.models.glm.network import Network
from implicit_delta.models.glm.outcomes import Canonical, Tweedie, squared_error
from implicit_delta.models.glm.predictors import LinearPredictors
from implicit_delta.models.noise import effective_parameters
from implicit_delta.models.sklearn.copies import (
    FORWARD,
    linear_copy,
    multinomial_copy,
    perceptron_copy,
    tangent_copy,
)
from implicit_delta.models.weights import Weights


@dataclass(frozen=True, eq=False)
class Built:
    """Likelihood, penalty and coefficients of an estimator.

    Attributes
    ----------
    likelihood : HostLikelihood
    b : (D,) array
        The estimator's coefficients in one vector.
    ridge : (D,) array
        The penalty of each, on the scale of the log-likelihood.
    to_host : callable
        Makes a fitted copy of the estimator with other coefficients.
    to_tangent : callable or None
        Makes one of coefficients and a step, in which its outputs are linear; for networks.
    names : list of str or None
        Names of the coefficients.
    shifted_together : (g, C) array of int or None
        Groups of coefficients, one for each class, that can be shifted together without effect.
    df : float
        Residual degrees of freedom, where a noise variance was estimated.
    low : (D,) array or float
        Lower bounds of the coefficients.
    scale_rule : {"unbiased", "mle"} or None
        How a noise variance or dispersion was estimated.
    """

    likelihood: HostLikelihood
    b: Array
    ridge: Array
    to_host: Callable[[Any], Any]
    names: list[str] | None = None
    shifted_together: NDArray[np.intp] | None = None
    df: float = np.inf
    to_tangent: Callable[[Any, Any], Any] | None = None
    low: Array | float = -np.inf
    scale_rule: ScaleRule | None = None


# A builder gets the estimator, the design matrix, the targets, the weights and feature names.
Builder: TypeAlias = Callable[[Any, Array, Any, Weights, list[str]], Built]


def _least_squares(reg: Any, X: Array, y: Any, weights: Weights, names: list[str]) -> Built:
    """Build LinearRegression and Ridge: ``sum w (y - X b)^2 + alpha |coef|^2`` over 2 s2.

    With ``positive=True``, coefficients at zero are no parameters of the noise variance.
    """
    _refuse_several_outputs(reg, y)
    design, b, penalized = _linear(reg, X)
    alpha = penalized * float(np.ravel(getattr(reg, "alpha", 0.0))[0])
    target = np.asarray(y, dtype=np.float64).ravel()
    low = np.where(penalized, 0.0, -np.inf) if reg.positive else np.full(b.size, -np.inf)
    free = b > low
    rows = design[:, free]
    df = _freedom((rows.T * weights.values) @ rows, weights.count, alpha[free])
    s2 = weights.mean_one_sum((target - design @ b) ** 2) / df
    mean_square = weights.mean_one_sum(target**2) / weights.count
    likelihood = LinearPredictors(design, squared_error(target, s2, mean_square))
    labels = _linear_names(reg, names)
    to_host = partial(linear_copy, reg)
    return Built(likelihood, b, alpha / s2, to_host, labels, df=df, low=low, scale_rule="unbiased")


def _mean_regression(reg: Any, X: Array, y: Any, weights: Weights, names: list[str]) -> Built:
    """Build the regressors that minimize a deviance: mean half deviance + alpha / 2 |coef|^2."""
    powers = {"PoissonRegressor": 1.0, "GammaRegressor": 2.0}
    power = float(powers.get(type(reg).__name__, getattr(reg, "power", 0.0)))
    link = getattr(reg, "link", "log")
    log_link = power > 0 if link == "auto" else link == "log"
    design, b, penalized = _linear(reg, X)
    alpha = penalized * reg.alpha * weights.values.sum()
    outcome = Tweedie(np.asarray(y, dtype=np.float64).reshape(-1, 1), power, log_link)
    likelihood, df = LinearPredictors(design, outcome), np.inf
    if power != 1:
        gram = likelihood.information(b, weights.values, np.eye(b.size), "ggn")
        df = _freedom(gram, weights.count, alpha)
        pearson = weights.mean_one_sum(outcome.pearson((design @ b)[:, None])[:, 0])
        outcome = replace(outcome, scale=pearson / df)
        likelihood = LinearPredictors(design, outcome)
    ridge, labels = alpha / outcome.scale, _linear_names(reg, names)
    rule: ScaleRule | None = None if power == 1 else "unbiased"
    return Built(likelihood, b, ridge, partial(linear_copy, reg), labels, df=df, scale_rule=rule)


def _logistic(clf: Any, X: Array, y: Any, weights: Weights, names: list[str]) -> Built:
    """Build LogisticRegression: ``C * sum of losses + |coef|^2 / 2``, binary or multinomial."""
    if clf.class_weight is not None:
        raise UnsupportedModelError(
            "LogisticRegression(class_weight=...) maximizes a reweighted likelihood, whose "
            "curvature is not its precision. Fit without it; if the weights count repetitions, "
            "give them as sample_weight to fit and to from_sklearn."
        )
    several = len(clf.classes_) > 2
    if several and _one_versus_rest(clf):
        raise UnsupportedModelError(
            "One-versus-rest fits do not maximize one likelihood. Use a multinomial "
            "LogisticRegression."
        )
    strength = _logistic_penalty(clf)
    codes = _class_codes(clf, y)
    design, b, penalized = _linear(clf, X)
    ridge = strength * penalized
    if clf.solver == "liblinear" and clf.fit_intercept:
        ridge[-1] = strength / clf.intercept_scaling**2  # liblinear penalizes the intercept too
    labels = _linear_names(clf, names)
    if not several:
        likelihood = LinearPredictors(design, Canonical(Bernoulli(), codes.astype(np.float64)))
        return Built(likelihood, b, ridge, partial(linear_copy, clf), labels)
    return Built(
        LinearPredictors(design, Canonical(Categorical(), codes)),
        b,
        np.tile(ridge, len(clf.classes_)),
        partial(multinomial_copy, clf),
        [f"{label}:{name}" for label in clf.classes_ for name in labels],
        np.arange(b.size).reshape(len(clf.classes_), -1).T,
    )


def _one_versus_rest(clf: Any) -> bool:
    """Whether one logit was fitted for each class: said, or done by the solver without a word."""
    import sklearn

    version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    silently = clf.solver == "liblinear" or (clf.solver == "newton-cholesky" and version < (1, 6))
    said = getattr(clf, "multi_class", "auto")
    return said == "ovr" or (silently and said != "multinomial")


def _logistic_penalty(clf: Any) -> float:
    penalty = getattr(clf, "penalty", "l2")
    mixed = penalty in ("elasticnet", "deprecated") and clf.l1_ratio not in (0, None)
    if penalty == "l1" or mixed:
        raise UnsupportedModelError(
            "LogisticRegression with an L1 penalty has a maximum with corners and no curvature "
            "there. Use an L2 penalty (l1_ratio=0) or none (C=np.inf)."
        )
    return 0.0 if penalty is None or np.isinf(clf.C) else 1.0 / clf.C


def _perceptron(mlp: Any, X: Array, y: Any, weights: Weights, names: list[str]) -> Built:
    """Build MLPRegressor and MLPClassifier: ``sum of losses + alpha / 2 |weights|^2``."""
    if mlp.early_stopping:
        raise UnsupportedModelError(
            f"{type(mlp).__name__}(early_stopping=True) trained on a random part of X and y, and "
            "not to the end. Fit with early_stopping=False; `polish` finishes a training."
        )
    widths = (X.shape[1], *(len(c) for c in mlp.intercepts_))
    pairs = zip(mlp.coefs_, mlp.intercepts_, strict=True)
    b = np.concatenate([np.ravel(part) for pair in pairs for part in pair]).astype(np.float64)
    penalized = np.concatenate([np.repeat([1.0, 0.0], [i * o, o]) for i, o in pairwise(widths)])
    likelihood, targets = _outputs(mlp, X, y, weights)
    scale = likelihood.variance if isinstance(likelihood, Gaussian) else 1.0
    last = None
    if isinstance(likelihood, Categorical):
        last = np.arange(b.size)[-(widths[-2] + 1) * widths[-1] :].reshape(-1, widths[-1])
    network = Network(X, widths, mlp.activation, likelihood, targets)
    ridge = penalized * mlp.alpha / scale
    to_host, to_tangent = (partial(way, mlp, widths) for way in (perceptron_copy, tangent_copy))
    known = to_tangent if hasattr(mlp, FORWARD) else None
    rule: ScaleRule | None = "mle" if isinstance(likelihood, Gaussian) else None
    return Built(
        network, b, ridge, to_host, shifted_together=last, to_tangent=known, scale_rule=rule
    )


def _outputs(mlp: Any, X: Array, y: Any, weights: Weights) -> tuple[Likelihood, Any]:
    """Choose the likelihood of the outputs, and its targets."""
    if type(mlp).__name__ == "MLPRegressor":
        _refuse_several_outputs(mlp, y)
        target = np.asarray(y, dtype=np.float64).ravel()
        if getattr(mlp, "loss", "squared_error") == "poisson":
            return Poisson(), target
        squares = weights.mean_one_sum((target - mlp.predict(X)) ** 2)
        return Gaussian(squares / weights.count), target
    if mlp.out_activation_ == "logistic" and mlp.n_outputs_ > 1:
        raise UnsupportedModelError("Several labels at once are several models; fit one for each.")
    return Bernoulli() if mlp.n_outputs_ == 1 else Categorical(), _class_codes(mlp, y)


def _linear(estimator: Any, X: Array) -> tuple[Array, Array, Array]:
    """Design matrix, coefficients class by class, and which of one class are penalized.

    The intercept comes last.
    """
    coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    penalized = np.ones(X.shape[1])
    if not estimator.fit_intercept:
        return X, coef.flatten(), penalized
    coef = np.column_stack([coef, np.ravel(estimator.intercept_)])
    return np.column_stack([X, np.ones(len(X))]), coef.flatten(), np.append(penalized, 0.0)


def _linear_names(estimator: Any, names: list[str]) -> list[str]:
    return [*names, "intercept"] if estimator.fit_intercept else names


def _freedom(gram: Array, count: float, ridge: Array) -> float:
    """Observations less the effective number of parameters."""
    used = effective_parameters(gram, ridge)
    if count - used <= 1e-9 * count:
        raise UnsupportedModelError(
            f"{used:.3g} effective parameters leave no degree of freedom to estimate the noise "
            f"variance from {count:g} observations. Use fewer features or a penalty."
        )
    return count - used


def _class_codes(clf: Any, y: Any) -> Any:
    labels = np.asarray(y).ravel()
    unknown = sorted({str(label) for label in np.unique(labels)} - set(map(str, clf.classes_)))
    if unknown:
        raise ValueError(
            f"y has classes that {type(clf).__name__} has not seen in its fit: "
            f"{', '.join(unknown[:5])}. Give the y it was fitted to."
        )
    return np.searchsorted(clf.classes_, labels)


def _refuse_several_outputs(estimator: Any, y: Any) -> None:
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        raise UnsupportedModelError(
            f"{type(estimator).__name__} with several targets at once is not supported, for their "
            "errors are correlated in a way it does not estimate. Fit one for each target."
        )


OF_MEAN_LOSS = {"PoissonRegressor", "GammaRegressor", "TweedieRegressor"}
# The setting of each estimator that penalizes, and a fit without a penalty.
UNPENALIZED = {
    "Ridge": ("alpha", "use LinearRegression()"),
    "LogisticRegression": ("C", "fit it with C=np.inf"),
    "PoissonRegressor": ("alpha", "fit it with alpha=0"),
    "GammaRegressor": ("alpha", "fit it with alpha=0"),
    "TweedieRegressor": ("alpha", "fit it with alpha=0"),
    "MLPClassifier": ("alpha", "fit it with alpha=0"),
    "MLPRegressor": ("alpha", "fit it with alpha=0"),
}


def penalty_note(estimator: Any) -> str:
    """Name the setting that penalizes, whether it is the default, and the fit without it."""
    kind = type(estimator)
    setting, without = UNPENALIZED[kind.__name__]
    value, default = getattr(estimator, setting), getattr(kind(), setting)
    if np.array_equal(value, default):
        return f"{kind.__name__}() has {setting}={value:g} by default; {without}."
    return f"{kind.__name__} was fitted with {setting}={value!r}; without a penalty {without}."


SUPPORTED: dict[str, Builder] = {
    "LinearRegression": _least_squares,
    "Ridge": _least_squares,
    "LogisticRegression": _logistic,
    "PoissonRegressor": _mean_regression,
    "GammaRegressor": _mean_regression,
    "TweedieRegressor": _mean_regression,
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
}
