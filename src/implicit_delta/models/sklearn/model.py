"""From a fitted scikit-learn estimator to a fitted model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import Bounds

from implicit_delta.core.labels import NamedColumn
from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.constrained_fit import checked_under_constraints
from implicit_delta.models.constraints import constraints_of
from implicit_delta.models.facts import BY_LIBRARY, OTHER_FIT, Facts, Host
from implicit_delta.models.foreign import FIT_AGAIN, library_of, refuse_foreign
from implicit_delta.models.glm.language import HostLanguage
from implicit_delta.models.glm.network import Network
from implicit_delta.models.glm.predictors import LinearPredictors
from implicit_delta.models.glm.rows import check_coefficients, host_rows
from implicit_delta.models.model import FittedModel
from implicit_delta.models.parametrization import LinearMap
from implicit_delta.models.penalty import Penalty, Ridge
from implicit_delta.models.prediction import InCoordinates
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.sklearn.copies import pipeline_copy
from implicit_delta.models.sklearn.names import names_behind
from implicit_delta.models.sklearn.prediction import SklearnPredictor, response_of
from implicit_delta.models.sklearn.selection import refuse_supervised
from implicit_delta.models.sklearn.table import (
    OF_MEAN_LOSS,
    SUPPORTED,
    Builder,
    Built,
    penalty_note,
)
from implicit_delta.models.sklearn.watch import Watch
from implicit_delta.models.space import Space
from implicit_delta.models.weights import observation_weights

CLONE = (
    "Bootstrap the whole fit: `bootstrap(lambda data: clone(estimator).fit(*data), (X, y), psi)`, "
    "with `clone` of sklearn.base. Sample weights are a third array of the data, which the "
    "function passes on to fit."
)


def from_sklearn(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    weight_kind: WeightKind = "frequency",
) -> FittedModel:
    r"""Make a fitted model of a scikit-learn estimator.

    Psi receives a fitted copy of the estimator, which predicts. Intercepts and penalties are
    exactly as scikit-learn has them.

    Parameters
    ----------
    estimator : scikit-learn estimator
        Fitted: LinearRegression and Ridge (also with ``positive=True``), LogisticRegression (no
        penalty or L2; two classes or more), PoissonRegressor, GammaRegressor, TweedieRegressor,
        MLPClassifier, MLPRegressor, or a Pipeline whose last step is one of these. The
        transformers of a pipeline are held fixed, so one that has seen y (a selection of features)
        is refused.
    X : (n, p) array, data frame or sparse matrix
        The features of the fit.
    y : (n,) array
        The targets of the fit.
    sample_weight : (n,) array, optional
        The weights of the fit.
    weight_kind : {"frequency", "precision", "sampling"}
        Repetitions of a row; one over its variance, up to a common factor (or the number of times
        that its term counts, of one observation); or the number of units of a population that it
        stands for, as in surveys, with the design-based variance by default.

    Returns
    -------
    FittedModel

    Notes
    -----
    scikit-learn stops early by default; `polish` finishes its optimization, and drift measures
    how far it was from the end. Coefficients that ``positive=True`` holds at zero have no standard
    error: that of everything else is along these constraints, and `profile` has intervals that
    respect them. The noise variance of least squares, and the dispersion of the
    gamma and Tweedie regressors, is plugged in: Pearson's chi-square over n less the effective
    number of parameters (for MLPRegressor over n).

    Softmax has one set of coefficients too many: with several classes, the parameters of the
    model are those of all classes but the last, and the sum over classes is held where it is.
    Psi sees all of them.

    Examples
    --------
    >>> from sklearn.linear_model import PoissonRegressor
    >>> import implicit_delta as idm
    >>> X = np.arange(10.0)[:, None]
    >>> y = np.array([1, 0, 2, 1, 3, 2, 5, 4, 7, 9])
    >>> reg = PoissonRegressor(alpha=0, tol=1e-8).fit(X, y)
    >>> mean = idm.infer(idm.from_sklearn(reg, X, y), lambda reg: reg.predict([[5.0], [10.0]]))
    >>> mean.standard_error.round(2)
    array([0.59, 3.57])
    """
    refuse_foreign(estimator, "from_sklearn")
    optional("sklearn", "from_sklearn")
    *pipelines, last = _unwrap(estimator)
    table = X
    with _fit_again(estimator):
        build = _builder(last)
        _check_fitted(last)
        for pipeline in pipelines:
            refuse_supervised(pipeline, X, y)
            X = _transformed(pipeline, X)
        features, labels = _features(last, X)
        if pipelines:
            labels = names_behind(pipelines, table, features.shape[1])
        n = len(features)
        _check_targets(y, n)
        weights = observation_weights(sample_weight, n, weight_kind, "sample_weight")
        built = build(last, features, y, weights, labels)
    check_coefficients(built.b, "scikit-learn")
    note = penalty_note(last) if np.any(built.ridge) else ""
    by_rows = type(last).__name__ in OF_MEAN_LOSS
    host = Host(
        labels=getattr(X if hasattr(X, "columns") else y, "index", None),
        response=NamedColumn.of(y),
        predictor=_predictor(pipelines, last, table, features, built),
        scale_rule=built.scale_rule,
        drift_causes=OTHER_FIT,
    )
    notes = {"likelihood": repr(built.likelihood)}
    hidden = isinstance(built.likelihood, Network) and built.to_tangent is None
    bounds = Bounds(built.low, np.inf) if np.any(np.isfinite(built.low)) else None
    model = FittedModel(
        theta=built.b,
        rows=host_rows(built.likelihood, built.b, "scikit-learn", hidden),
        weights=weights,
        penalty=Penalty((Ridge(built.ridge, name=note),), by_rows=by_rows),
        space=Space(
            names=None if built.names is None else tuple(map(str, built.names)),
            constraints=constraints_of(bounds, (), built.b, built.names),
            language=_language(pipelines, last, built),
        ),
        facts=Facts(BY_LIBRARY, host, built.df, source="from_sklearn", notes=notes),
    )
    if built.shifted_together is not None:
        model = _without_shifts(model, LinearMap.fixing_sums(built.b, built.shifted_together))
    return checked_under_constraints(model)


def _language(pipelines: list[Any], last: Any, built: Built) -> HostLanguage:
    """Give psi a copy of the estimator, with copies of the pipelines around it."""
    to_host, to_tangent = built.to_host, built.to_tangent
    for pipeline in reversed(pipelines):
        to_host = partial(pipeline_copy, pipeline, to_host)
        to_tangent = to_tangent and partial(pipeline_copy, pipeline, to_tangent)
    linear = isinstance(built.likelihood, LinearPredictors)
    return HostLanguage(to_host, Watch(last), to_tangent, linear)


def _without_shifts(model: FittedModel, chart: LinearMap) -> FittedModel:
    """Leave out the directions in which coefficients can be shifted together without effect."""
    names, language, host = model.space.names, model.space.language, model.facts.host
    assert isinstance(language, HostLanguage)
    assert host.predictor is not None
    return replace(
        model,
        theta=chart.coordinates(model.theta),
        rows=Restricted(model.rows, chart),
        penalty=replace(model.penalty, ridges=tuple(map(chart.ridge, model.penalty.ridges))),
        space=replace(
            model.space,
            names=names and tuple(names[j] for j in chart.kept),
            language=language.along(chart),
        ),
        facts=model.facts.with_host(predictor=InCoordinates(host.predictor, chart)),
    )


def _predictor(
    pipelines: list[Any], last: Any, table: Any, features: Array, built: Built
) -> SklearnPredictor:
    """Make the reading of tables by an estimator, through all its pipelines."""
    read = partial(_read, pipelines, last)  # no closure: models are pickled
    width = features.shape[1] + bool(getattr(last, "fit_intercept", False))
    outputs = getattr(last, "n_outputs_", built.b.size // width)
    classes = tuple(last.classes_.tolist()) if hasattr(last, "classes_") else None
    response = response_of(last, int(outputs))
    return SklearnPredictor(table, features, read, pipelines, built.likelihood, response, classes)


def _read(pipelines: list[Any], last: Any, data: Any) -> Array:
    """Turn a table into the features of the last step."""
    for pipeline in pipelines:
        data = _transformed(pipeline, data)
    return _features(last, data)[0]


def _transformed(pipeline: Any, X: Any) -> Any:
    return pipeline[:-1].transform(X) if len(pipeline.steps) > 1 else X


# By a part of the name of an estimator, the first that fits.
CHOSEN = {
    "RidgeCV": "a penalty chosen from the data; fit Ridge(alpha=estimator.alpha_) to treat it as "
    "given",
    "LogisticRegressionCV": "a penalty chosen from the data; fit LogisticRegression(C=...) to "
    "treat it as given",
    "SearchCV": "settings chosen from the data; give its best_estimator_ to treat them as given",
    "TransformedTarget": "a transformed target; transform y and give its regressor_",
}
L1 = "an L1 penalty, whose maximum has corners"
REASONS = (
    CHOSEN
    | {
        "Lasso": L1,
        "ElasticNet": L1,
        "LinearSVC": "the hinge loss, which is not a log-likelihood",
        "SVC": "the hinge loss, which is not a log-likelihood and has no curvature",
        "SVR": "a loss with corners, which is not a log-likelihood",
        "Quantile": "the check loss, which is not a log-likelihood and has no curvature",
        "SGDClassifier": "a stochastic optimizer that stops anywhere; use LogisticRegression",
        "SGDRegressor": "a stochastic optimizer that stops anywhere; use Ridge",
        "Neighbors": "no parameters, but the training rows themselves",
        "GaussianProcess": "a likelihood that is not a sum over rows",
        "Huber": "M-estimation, which is not maximum likelihood",
    }
    | dict.fromkeys(
        ("Tree", "Forest", "Boost", "Bagging"),
        "trees, which are piecewise constant and chosen step by step",
    )
)


def _builder(estimator: Any) -> Builder:
    kind = type(estimator)
    name, library = kind.__name__, library_of(kind)
    if library == "sklearn" and name in SUPPORTED:
        return SUPPORTED[name]
    default = "no smooth log-likelihood of its parameters that is known here"
    reason = next((REASONS[word] for word in REASONS if word in name), default)
    told = f"does not support {name}: it has {reason}."
    if library != "sklearn":
        told = f"knows the likelihoods of scikit-learn's classes, and {name} is of {library}."
    raise UnsupportedModelError(f"from_sklearn {told}")


@contextmanager
def _fit_again(estimator: Any) -> Iterator[None]:
    """Add to a refusal what works for whatever can be fitted again."""
    try:
        yield
    except UnsupportedModelError as error:
        again = CLONE if hasattr(estimator, "get_params") else FIT_AGAIN
        raise UnsupportedModelError(f"{error} {again}") from None


def _unwrap(estimator: Any) -> list[Any]:
    """List the pipelines around the last step, the outermost first, and that step."""
    if type(estimator).__name__ != "Pipeline":
        return [estimator]
    _check_fitted(estimator)
    return [estimator, *_unwrap(estimator.steps[-1][1])]


def _check_fitted(estimator: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise ValueError(
            f"This {type(estimator).__name__} is not fitted: call its fit(X, y) first."
        ) from None


def _features(estimator: Any, X: Any) -> tuple[Array, list[str]]:
    """Check the features against those of the fit; return them as floats with their names."""
    fitted = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    given = [str(name) for name in getattr(X, "columns", [])]
    if fitted and given and fitted != given:
        raise ValueError(
            f"{type(estimator).__name__} was fitted to the columns {fitted}, not {given}. Give "
            "the X of the fit."
        )
    array = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    width = estimator.n_features_in_
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(
            f"{type(estimator).__name__} was fitted to {width} features, but X has shape "
            f"{array.shape}. Give the X of the fit, shape (n, {width})."
        )
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        raise ValueError(
            f"X has a missing or infinite value in row {bad[0, 0]}, column {bad[0, 1]} "
            f"({len(bad)} in all). Give the X of the fit, after the same cleaning."
        )
    return array, fitted or given or [f"x{j}" for j in range(width)]


def _check_targets(y: Any, n: int) -> None:
    if np.shape(y)[:1] != (n,):
        raise ValueError(f"y has shape {np.shape(y)}, but X has {n} rows.")
    values = np.asarray(y)
    if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
        raise ValueError("y has missing or infinite values. Give the y of the fit.")
