"""A model from estimates and their covariance, whoever made them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.claimed import Claimed, checked_covariance, label_names
from implicit_delta.models.facts import Host
from implicit_delta.models.foreign import has_estimates, refuse_foreign
from implicit_delta.models.given import given_model, lengths_of
from implicit_delta.models.glm.prediction import LinearPrediction, Response, Rows
from implicit_delta.models.named_theta import Layout, flattened
from implicit_delta.models.prediction import (
    FunctionPrediction,
    Prediction,
    Predictor,
    as_table,
    column_of,
    names_of,
    replaced,
)
from implicit_delta.models.recognized import Recognized, recognized
from implicit_delta.models.traced_series import LikeParams

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

AGAIN = (
    "For anything else use `bootstrap(fit, data, psi)`, or give the log-likelihood to "
    "`from_loglik`."
)
NO_PREDICT = (
    "Questions such as `average_comparison` need predictions. Give `predict=`, a function of the "
    "parameters and a data frame: `from_estimates(params, covariance, predict=lambda params, "
    "frame: ..., data=frame)`. Or write psi as a function of the parameters."
)


def from_estimates(
    params: Any,
    covariance: Any = None,
    *,
    predict: Callable[[Any, Any], Any] | None = None,
    data: Any = None,
    n: int | None = None,
    df: float | None = None,
) -> "FittedModel":
    r"""Make a fitted model of estimates and their covariance, from any library or paper.

    ``infer(model, psi)`` is then the delta method, :math:`g' V g` with g the gradient of psi, and
    ``infer(model, psi, Simulation())`` draws from :math:`N(\hat\theta, V)`. Whether V is robust,
    clustered or model-based is up to the library that made it.

    Parameters
    ----------
    params : Series, dict or (d,) array, or results
        The estimates. Results of linearmodels (IV, panels), pyfixest and lifelines are known:
        ``from_estimates(results)`` has their covariance, quantiles and predictions (of lifelines
        the median lifetimes of AFT models). Psi and `predict` get the estimates as they are given
        here: a Series, parameters by name (``th.S``), or an array.
    covariance : DataFrame or (d, d) array, optional
        Symmetric and positive semi-definite; one with labels is put in the order of `params`. A
        parameter with variance 0 is taken as known.
    predict : callable, optional
        ``predict(params, frame)``, predictions of the rows of a table on the scale of the response:
        (m,), or (m, C) with C outcomes. With it, `average_comparison`, `average_slope` and the
        other questions work.
    data : DataFrame, dict or (m, p) array, optional
        The rows that questions average over unless they have ``data=`` of their own.
    n : int, optional
        Number of observations behind the estimates, for tables; by default the rows of `data`.
    df : float, optional
        Degrees of freedom of t quantiles and tests; by default those of the normal distribution.

    Returns
    -------
    FittedModel

    Notes
    -----
    There are no rows: ``robust=``, ``clusters=``, ``influence=``, `profile`, `limit`,
    `likelihood_ratio`, `Bootstrap` and the like are refused.

    Examples
    --------
    Two coefficients of a logit, as printed in a paper:

    >>> import implicit_delta as idm
    >>> V = [[0.25, -0.02], [-0.02, 0.0025]]
    >>> model = idm.from_estimates({"const": -2.0, "dose": 0.4}, V, df=46)
    >>> half = idm.infer(model, lambda th: -th.const / th.dose)
    >>> print(f"{half.value:.2f} +- {half.standard_error:.2f}")
    5.00 +- 0.84
    """
    if covariance is None:
        found = _known(params)
    else:
        found = Recognized(params, covariance, "", again=AGAIN)
    _check_counts(n, df)
    theta, names, to_host, layout = _parameters(found.params, found.covariance)
    V = checked_covariance(found.covariance, names, theta.size)
    freedom, n = found.df if df is None else float(df), found.n if n is None else n
    claimed = Claimed(V, "given", freedom, by_rows=False, description=found.description)
    if predict is not None:
        found = replace(found, predict=predict, response=None, relative="")
    if found.predict is None and data is not None:
        raise TypeError(f"data= are rows that predict= reads, which is not given. {NO_PREDICT}")
    predictor = _predictor(found, to_host, theta, V, found.data if data is None else data)
    table = None if predictor is None else predictor.table
    n = n or (0 if table is None else len(table))
    labels = getattr(table, "index", None) if table is not None and n == len(table) else None
    return given_model(
        "from_estimates", theta, claimed, to_host, n=n, names=names, layout=layout,
        again=found.again, host=Host(predictor=predictor, labels=labels),
    )  # fmt: skip


def _known(results: Any) -> Recognized:
    """Read results of a library whose covariance is known."""
    if has_estimates(results):
        return recognized(results)
    refuse_foreign(results, "from_estimates")
    raise TypeError(
        "from_estimates needs the covariance of the parameters, `from_estimates(params, "
        "covariance)`, or results of linearmodels, pyfixest or lifelines, not "
        f"{type(results).__name__} alone."
    )


def _predictor(
    found: Recognized, to_host: Callable[[Any], Any], theta: Array, V: Array, data: Any
) -> "EstimatesPredictor | None":
    """Predict, by default the rows of data."""
    if found.predict is None:
        return None
    steps, response = lengths_of(theta, V), found.response
    predictor = EstimatesPredictor(
        found.predict, to_host, theta, steps, None, response=response, relative=found.relative
    )
    return predictor if data is None else predictor.reading(data)


@dataclass(frozen=True, eq=False)
class EstimatesPredictor(Predictor):
    """Predictions by a function of parameters and a table."""

    predict: Callable[[Any, Any], Any]
    to_host: Callable[[Any], Any]
    theta: Array
    steps: Array
    table: Any
    classes: tuple[Any, ...] | None = None
    response: Response | None = None  # of the linear predictor that `predict` is then
    relative: str = ""

    def reading(self, data: Any) -> "EstimatesPredictor":
        if self.table is not None:
            return self
        if data is None:
            raise UnsupportedModelError(
                "There are no rows to average over. Give them to the question, "
                "`average_comparison(..., data=frame)`, or to the model, `from_estimates(params, "
                "covariance, predict=..., data=frame)`."
            )
        table = as_table(data, None)
        return replace(self, table=table, classes=_outcomes(self, table))

    def on(self, data: Any) -> Prediction:
        index = getattr(data, "index", None)
        if self.response is not None:
            return LinearPrediction(self._design(data), self.response, index)
        function = partial(_predicted, self.predict, self.to_host, data)
        return FunctionPrediction(function, lambda _: self.steps, index)

    def _design(self, data: Any) -> Rows:
        """Read the design of a linear predictor: its change with each parameter."""
        offset, *columns = (
            np.asarray(_predicted(self.predict, self.to_host, data, b), dtype=np.float64)
            for b in np.vstack([np.zeros(self.theta.size), np.eye(self.theta.size)])
        )
        return Rows(np.column_stack(columns) - offset[:, None], offset)

    def reads(self, name: Any) -> bool:
        """Whether predictions change when the column is shuffled."""
        column = np.asarray(column_of(self.table, name))
        shuffled = np.random.default_rng(0).permutation(column)
        before = self.on(self.table).value(self.theta)
        after = self.on(replaced(self.table, name, shuffled)).value(self.theta)
        return not np.array_equal(before, after)


def _predicted(predict: Any, to_host: Any, data: Any, theta: Any) -> Any:
    return predict(to_host(theta), data)


def _outcomes(predictor: EstimatesPredictor, table: Any) -> tuple[Any, ...] | None:
    """Check the predictions of a table, and label their columns if there are several."""
    found = predictor.predict(predictor.to_host(predictor.theta.copy()), table)
    values = np.asarray(found, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(table):
        raise ValueError(
            f"predict returned shape {values.shape} for {len(table)} rows: it must return one "
            "number per row, (m,), or one per row and outcome, (m, C)."
        )
    if values.ndim == 1:
        return None
    return tuple(names_of(found if hasattr(found, "columns") else values))


def _parameters(
    params: Any, covariance: Any
) -> tuple[Array, tuple[str, ...] | None, Callable[[Any], Any], Layout | None]:
    """Take the numbers, their names, and the shape in which functions get them."""
    labels = label_names(getattr(params, "index", ()))
    layout = None if labels else flattened(params, "params")[1]
    theta = np.array(params if layout is None else flattened(params, "params")[0], dtype=np.float64)
    if theta.ndim != 1 or theta.size == 0 or not np.all(np.isfinite(theta)):
        raise ValueError(
            f"params must be finite numbers, one per parameter, (d,), and not of shape "
            f"{theta.shape}{'' if np.all(np.isfinite(theta)) else ' with NaN or infinity'}."
        )
    if layout is not None:
        return theta, layout.names, layout.named, layout
    own = labels or label_names(getattr(covariance, "index", ()))
    if len(set(own)) < len(own):
        raise ValueError("Two parameters have the same name: names of parameters must differ.")
    return theta, tuple(own) if len(own) == theta.size else None, LikeParams(_like(params)), None


def _like(params: Any) -> Any:
    return params.copy() if hasattr(params, "index") and hasattr(params, "iloc") else np.empty(0)


def _check_counts(n: Any, df: Any) -> None:
    """Check the number of observations and the degrees of freedom."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
        raise ValueError(f"n must be a number of observations, 1 or more, not {n!r}.")
    if df is not None and not float(df) > 0:
        raise ValueError(f"df must be degrees of freedom above 0, not {df!r}.")
