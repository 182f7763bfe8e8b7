"""Statistics of an evaluation sample that are no means: AUC, F1, calibration error, a gap."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import SHIFT_WARNS
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, NonlinearityWarning
from implicit_delta.evaluation.average import Average, Sample, check_alone, check_sample
from implicit_delta.evaluation.replicated import Replicated, accepts_rng
from implicit_delta.evaluation.smoothed import Smoothed

OF_LABELS = {"y_true", "labels_true"}  # the first argument of scikit-learn's metrics
SAME = 1e-6  # relative: what the sums of one library differ by


@dataclass(frozen=True, eq=False)
class Statistic:
    r"""A statistic T of m rows that is no mean: AUC, F1, calibration error, a gap, a quantile.

    :math:`\psi(\theta) = T(u(\theta), w)` with units u, the scores of the rows, and weights w that
    count them. The units are smooth in the parameters; T need not be smooth in anything. The
    estimate is that of the population which the rows come from, and its error has two parts:

    ==============  ===============================================================================
    ``model``       Units at draws of the parameters, :math:`u(\hat\theta) \pm J_u \delta` with
                    :math:`\delta \sim N(0, A^{-1})`: the standard deviation of T over them. The
                    units move along their tangent, so that weights of networks make no
                    nonsense. Jumps that a finite sample makes are part of the other error: what
                    two halves of the rows have in common counts here.
    ``evaluation``  Derivative of T in the weight of each row (infinitesimal jackknife), for up to
                    2000 rows or clusters; for more, and for a T that moves in steps with the
                    weights as quantiles do, 400 draws of the weights (Bayesian bootstrap). The
                    model is not trained again.
    ==============  ===============================================================================

    The parts are combined as in `Average`: variances add for an ``"independent"`` sample, standard
    errors for an ``"unknown"`` one, and for the ``"training"`` rows, in order, the influence of row
    i is :math:`s_i' A^{-1} g` plus the derivative in its weight. What is a mean over rows of a
    smooth function is better asked as an `Average`, which needs no draws.

    Parameters
    ----------
    units : callable
        ``units(model)`` returns the scores of the rows, (m,) or (m, p), in the model's own
        language: probabilities or logits, not decisions.
    function : callable
        ``function(units, weight)`` returns a number or (K,) from NumPy arrays: units as they are
        above and ``weight`` (m,), which counts rows like scikit-learn's ``sample_weight``. Labels
        are its own. Twice the weight of all rows must not change it.
    sample : {"independent", "training", "unknown"}
        How the rows are related to the training rows.
    clusters : (m,) array, list or pandas Series, optional
        Labels of groups of rows that were sampled together, which are weighted whole.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(400, 2))
    >>> y = rng.random(400) < 1 / (1 + np.exp(-x[:, 0]))
    >>> old, new = slice(0, 200), slice(200, 400)
    >>> model = idm.from_loglik(
    ...     lambda b: -np.logaddexp(0, np.where(y[old], -1, 1) * (x[old] @ b)), start=[0.0, 0.0]
    ... )
    >>> def accuracy(score, weight):
    ...     return weight @ ((score > 0) == y[new]) / weight.sum()
    >>> est = idm.infer(model, idm.Statistic(lambda b: x[new] @ b, accuracy))
    >>> {part: round(error, 3) for part, error in est.budget.items()}
    {'model': 0.004, 'evaluation': 0.034, 'total': 0.034}
    """

    units: Any
    function: Any
    sample: Sample = "independent"
    clusters: Any = None

    def __post_init__(self) -> None:
        """Check what was configured."""
        wrapped = isinstance(self.units, Average | Replicated | Smoothed | Statistic)
        if not callable(self.units) or wrapped:
            raise TypeError(
                f"units must be a function of the model, not {type(self.units).__name__}: for "
                "example `lambda net: net(X_test)[:, 0]`."
            )
        if not callable(self.function):
            raise TypeError(
                f"function must be a function of units and weight, not "
                f"{type(self.function).__name__}: for example "
                "`lambda score, weight: roc_auc_score(y_test, score, sample_weight=weight)`."
            )
        _check_arguments(self.function)
        if accepts_rng(self.units):
            raise TypeError(
                "units of a Statistic cannot be random: fix the seed within, or average over seeds."
            )
        check_alone(self.units)
        check_sample(self.sample, self.clusters)


def _check_arguments(function: Any) -> None:
    """Refuse a function that does not take units and weight, such as a metric of y and a score."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind(None, None)
        bound = True
    except TypeError:
        bound = False
    first = next(iter(signature.parameters), "")
    if bound and first not in OF_LABELS:
        return
    name = getattr(function, "__name__", type(function).__name__)
    call = name if hasattr(function, "__name__") and name != "<lambda>" else ""
    taken = ", ".join([*signature.parameters][:2]) + ", ..." * (len(signature.parameters) > 2)
    weighs = "sample_weight" in signature.parameters or not call
    advice = (
        f"`lambda score, weight: {call or 'metric'}(y_test, score, sample_weight=weight)`, with "
        "decisions (`score > 0.5`) in place of `score` where it takes these"
        if weighs
        else f"{call} has no `sample_weight`, so write the statistic of weighted rows yourself, as "
        "in `lambda score, weight: np.average(loss(y_test, score), weights=weight)`"
    )
    raise TypeError(
        f"function is called with two arguments, the units of the rows and the weight of each, "
        f"`function(units, weight)`, and {call or 'this one'} takes ({taken}). Labels are "
        f"its own: {advice}."
    )


@dataclass(frozen=True, eq=False)
class OfRows:
    """The function of a statistic with the shape of its units, (m,) or (m, p)."""

    function: Any
    shape: tuple[int, ...]

    def raw(self, units: Array, weight: Array) -> Any:
        """Call the user's function with arrays of its own."""
        return self.function(units.reshape(self.shape).copy(), weight.copy())

    def __call__(self, units: Array, weight: Array, where: str) -> Array:
        """Evaluate to (K,), or say where it failed."""
        try:
            raw = self.raw(units, weight)
        except Exception as error:
            raise EvaluationError(
                f"function(units, weight) of the Statistic raised {type(error).__name__} {where}: "
                f"{error!s:.300} It gets the units and the weight of each row, and has to be "
                "defined for units near those of the fit and for weights of any size. "
                "Probabilities that move along their tangent may leave 0 to 1: return logits as "
                "units, and make probabilities of them in the function."
            ) from error
        value = np.asarray(raw)
        if value.dtype.kind not in "fiub" or value.ndim > 1 or value.size == 0:
            raise EvaluationError(
                f"function of the Statistic returned {raw!r:.60} {where}, but must return a "
                "number or a one-dimensional array (K,)."
            )
        if not np.all(np.isfinite(value)):
            raise EvaluationError(
                f"function of the Statistic is NaN or infinite {where} ({raw!r:.60}). Usual "
                "causes: a group or class without any row, or missing values in its own data."
            )
        return np.atleast_1d(value.astype(np.float64))


def checked_scores(values: Any, sample: Sample, n: int) -> Array:
    """Check the units of a statistic, (m,) or (m, p), and return them in double precision."""
    scores = np.asarray(values)
    if scores.dtype.kind in "iub":
        raise EvaluationError(
            f"units returned {scores.dtype}: decisions or ranks, which do not respond to small "
            "changes of the parameters. Return the scores (probabilities, logits), and decide in "
            "`function`."
        )
    if scores.dtype.kind != "f" or scores.ndim not in (1, 2) or scores.size == 0:
        raise EvaluationError(
            f"units returned shape {scores.shape} of {scores.dtype}, but must return one score "
            "for each evaluation row, (m,), or (m, p)."
        )
    m = scores.shape[0]
    if not np.all(np.isfinite(scores)):
        bad = np.flatnonzero(~np.isfinite(scores.reshape(m, -1)).all(axis=1))
        raise EvaluationError(
            f"units are NaN or infinite for evaluation row {bad[0]} ({bad.size} of {m} rows). "
            "Check the evaluation data for missing values; logits do not overflow."
        )
    if m < 2:
        raise EvaluationError(
            "units returned one row, whose sampling error cannot be estimated. For an estimate "
            "about this very row pass a plain function, without `Statistic`."
        )
    if sample == "training" and m != n:
        raise EvaluationError(
            f'units returned {m} rows, but there are {n} observations: sample="training" means '
            'that row i is training row i. For other rows use sample="independent" or, if some '
            'may be the same, sample="unknown".'
        )
    return scores.astype(np.float64)


def check_function(function: OfRows, units: Array, weight: Array) -> Array:
    """Evaluate, twice and with twice the weight; refuse a function that differs."""
    value = function(units, weight, "at the fitted parameters")
    again, twice = (
        function(units, times * weight, f"with weights of {times} for each row") for times in (1, 2)
    )
    scale = SAME * np.max(abs(value))
    if again.shape != value.shape or np.any(abs(again - value) > scale):
        raise EvaluationError(
            f"function of the Statistic returned {value!s:.40} and then {again!s:.40} for the same "
            "units: it is random or keeps a state. Fix its seed within."
        )
    if np.any(abs(twice - value) > scale):
        raise EvaluationError(
            f"function of the Statistic is {value!s:.40}, and {twice!s:.40} if all weights are "
            "doubled: it is a sum or a count, and not a property of the population that the rows "
            "stand for. Divide by `weight.sum()`."
        )
    return value


def shifted(shift: float) -> Finding | None:
    """Find a statistic that is on average far from its value over draws of its units."""
    if not shift > SHIFT_WARNS:
        return None
    return Finding(
        "warn",
        "statistic_shift",
        f"Over draws of the units the statistic is on average {shift:.2g} standard errors away "
        "from its value: it bends or is near its best within the uncertainty of the model, so "
        "that its value may be off by as much.",
        number=shift,
        remedies=("Use more training rows, a simpler model, or `Bootstrap()` to see how far.",),
        warning=NonlinearityWarning,
    )
