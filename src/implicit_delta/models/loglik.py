"""A log-likelihood written in NumPy, fitted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from implicit_delta.core.arguments import as_parameters, check_rows
from implicit_delta.core.calls import Limited, is_spent, most_calls
from implicit_delta.core.hints import hinting
from implicit_delta.core.progress import calls_ahead
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    UnsupportedModelError,
)
from implicit_delta.models.along import OneTerm
from implicit_delta.models.checks import (
    check_derivative,
    check_repeatable,
    check_repeatable_beside,
    wrong_beside,
)
from implicit_delta.models.constrained_fit import checked_under_constraints, constrained_maximum
from implicit_delta.models.constraints import box, constraints_of
from implicit_delta.models.facts import Facts
from implicit_delta.models.fit_checks import cause_beside, check_steps
from implicit_delta.models.inside import Inside
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.loglik_rows import LoglikRows, rows_of
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import (
    named_point,
    names_of,
    naming_best_point,
    speaking,
)
from implicit_delta.models.objective import objective_of
from implicit_delta.models.restarts import idle_at
from implicit_delta.models.runaway import check_runaways
from implicit_delta.models.sign import sign_question, warn_of_sign
from implicit_delta.models.simulated import Simulated, with_common_numbers
from implicit_delta.models.space import Space
from implicit_delta.models.starts import (
    best_of,
    first_start,
    points_of,
)
from implicit_delta.models.traced_loglik import (
    TRACE_FROM,
    TracedScore,
    can_be_traced,
    tells_the_truth,
)
from implicit_delta.models.weights import observation_weights
from implicit_delta.models.written_penalty import WrittenPenalty, name_of, penalty_of

CALLS = 18  # gradients of a usual fit, its second differences included, to foretell its calls
HINTS = {
    "limits": 'give `bounds=`, a pair for each parameter or by name, `{"S": (0, None)}`.',
    "p0": "give `start=`.",
    "x0": "give `start=`.",
}
IN_SINGLE = (
    "No maximum was found: loglik(theta) computes in single precision, in which its differences "
    "are lost to rounding. Convert the data with `.astype(np.float64)`, or give `score=`."
)


OTHER_CAUSES = (
    "Others: kinks or clipping in the log-likelihood (absolute errors, `np.maximum`, `np.clip`), "
    "theta that is cast to single precision inside of it (`.astype(np.float32)`), rounding or "
    "noise (`np.round`, a solver with a loose tolerance)."
)


@hinting(**HINTS, jac="give `score=`, of each term.", grad="give `score=`, of each term.")
def from_loglik(
    loglik: Callable[[Array], Any],
    theta: Any = None,
    *,
    start: Any = None,
    starts: int | Sequence[Any] | None = None,
    score: Callable[[Array], Any] | None = None,
    penalty: Callable[[Array], float] | None = None,
    l2: float = 0.0,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    names: Sequence[str] | None = None,
    bounds: Any = None,
    constraints: Any = (),
    simulate: Callable[[Array, np.random.Generator], Any] | None = None,
    rng: int | np.random.Generator | None = None,
    max_calls: int | None = None,
) -> FittedModel:
    r"""Make a fitted model of a log-likelihood function.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)
    - \tfrac{1}{2} \text{l2}\, |\theta|^2`. Give `theta`, the parameters that maximize it, or
    `start`, from where it is then maximized. Give exactly what was maximized: a penalty left out
    here shows up as drift.

    Parameters
    ----------
    loglik : callable
        The log-likelihood of each observation, (d,) to (n,): never their mean, never their sum.
        For dependent data return the whole log-likelihood as one observation, of shape (1,).
    theta : (d,) array, dict, named tuple or pandas Series, optional
        The maximum, if it is known.
    start : (d,) array, dict, named tuple or pandas Series, optional
        Where to start looking for the maximum. With names, ``{"S": 100.0, "beta": np.zeros(3)}``,
        all functions get an array with these names: ``th.S``, ``th["S"]``, ``th.beta``.
    starts : int or sequence of starts, optional
        Fit from each of them and keep the best. A number: `start`, and the best of ten times as
        many points, by their log-likelihood, that are drawn around it and around zero in the
        scale of the terms (within `bounds`, always the same ones). Or a list.
        ``model.facts.optima`` has the maxima that were found.
    score : callable, optional
        Derivative of each term, (d,) to (n, d). Without it, derivatives are traced through NumPy
        where that is possible and saves time, and taken numerically elsewhere.
    penalty : callable, optional
        A function of theta that was subtracted from the log-likelihood.
    l2 : float
        Shorthand for the penalty ``l2 / 2 * sum(theta ** 2)``. On the scale of the sum: a weight
        decay w on a *mean* loss is ``l2 = n * w``.
    weights : (n,) array, optional
        How much each observation counts.
    weight_kind : {"frequency", "precision", "sampling"}
        Repetitions of a row; one over its variance, up to a common factor (or the number of times
        that its term counts, of one observation); or the number of units of a population that it
        stands for, as in surveys, with the design-based variance by default.
    names : sequence of str, optional
        Names of the parameters, if `theta` or `start` has none.
    bounds : sequence of pairs, dict of pairs, or scipy.optimize.Bounds, optional
        Limits (low, high) of each parameter, None for no limit, as in `scipy.optimize.minimize`; or
        of some of them by name, ``{"S": (0, None)}``.
    constraints : constraint or sequence of them
        `scipy.optimize.LinearConstraint`, `NonlinearConstraint`, or dicts with ``"type"`` and
        ``"fun"``. Standard errors are along those that are active.
    simulate : callable, optional
        ``simulate(theta, rng)`` draws data and returns their log-likelihood, a function like
        `loglik` (or a pair, with its `score`). ``Bootstrap(kind="parametric")`` and
        `goodness_of_fit` draw from it, also where the data are dependent or binned.
    rng : int or numpy.random.Generator, optional
        For a log-likelihood that is itself simulated, ``loglik(theta, rng)``: it is given the same
        random numbers at every theta (common random numbers), fresh ones unless this is given.
    max_calls : int, optional
        Calls of `loglik` that the fit may make, of each start: 3000, and more for ten parameters
        and more. Beyond, a `ConvergenceError` says how far it got, with the best point in `theta`.

    Returns
    -------
    FittedModel

    Examples
    --------
    >>> from scipy.stats import norm
    >>> y = np.array([1.2, 0.4, 2.2, 1.4, 0.8])
    >>> model = from_loglik(lambda th: norm.logpdf(y, th[0], np.exp(th[1])), start=[0, 0])
    >>> model.theta.round(6)
    array([ 1.2     , -0.499836])
    """
    start, given = first_start(theta, start, starts)
    point, layout = named_point(theta, start, l2, "the maximum of the log-likelihood", names)
    loglik = with_common_numbers(loglik, rng)
    loglik, score, penalty = (speaking(f, layout) for f in (loglik, score, penalty))
    terms = check_repeatable(loglik, point, "loglik")
    if start is not None and not point.all():  # what a state is multiplied by may be zero there
        check_repeatable_beside(loglik, point, "loglik")
    n = terms.size
    under = constraints_of(bounds, constraints, point, layout, start is not None)
    rows = LoglikRows(
        loglik=loglik if under is None else Inside(loglik, *box(under, point)),
        n=n,
        d=point.size,
        scores=score,
        draw=None if simulate is None else Simulated(simulate, layout),
        is_bounded=under is not None,
    )
    model = FittedModel(
        point,
        rows,
        observation_weights(weights, n, weight_kind),
        penalty_of(penalty, l2),
        Space(names_of(layout), layout, under, language=VectorLanguage(layout)),
        Facts(source="from_loglik"),
    )
    if score is not None:
        check_rows(score(point.copy()), (n, point.size), "score")
        check_derivative(loglik, score, point, "score")
    subtracted = 0.0 if penalty is None else penalty(point.copy())
    if np.ndim(subtracted) > 0:
        raise ValueError(
            f"penalty(theta) returned shape {np.shape(subtracted)}, but must return one number: "
            "sum it, for example `lambda theta: 5 * np.sum(theta**2)`."
        )
    if not np.isfinite(float(subtracted)):
        raise ValueError(f"penalty(theta) is {subtracted!r} at the given parameters.")
    if score is None:
        model = _with_traced_score(model, start is not None)
    if start is None:
        model = _verified(model) if score is None else _bending_right(model)
        check_runaways(model, False)
        return _described(checked_under_constraints(model))
    points = [point] if starts is None else points_of(given, model)
    most = most_calls(max_calls, point.size)
    with naming_best_point(layout):
        fitted = _fitted_from(model, points, most, terms.dtype)
    if score is not None:  # at a start of zeros a wrong derivative may be right
        check_derivative(loglik, score, fitted.theta, "score")
        _bending_right(fitted)
    else:
        check_steps(fitted)
    check_runaways(fitted, True)
    return _described(fitted)


def _described(model: FittedModel) -> FittedModel:
    """Note the function, and its derivatives where those of others of this size are exact."""
    rows = rows_of(model).at_rest(np.array(model.theta), model.weights, model.penalty)
    return replace(model, rows=rows, facts=replace(model.facts, notes=notes_of(rows)))


def notes_of(rows: LoglikRows) -> dict[str, str]:
    """Describe the function and its derivatives, for `print(model)`."""
    notes = {"log-likelihood": name_of(rows.loglik)}
    if rows.d >= TRACE_FROM and rows.is_traced:
        notes["derivatives"] = "exact, by tracing"
    elif rows.d >= TRACE_FROM and rows.scores is None:
        notes["derivatives"] = "by differences"
    return notes


def _with_scores(model: FittedModel, scores: Callable[[Array], Any] | None) -> FittedModel:
    return replace(model, rows=rows_of(model).with_terms(scores=scores))


def _with_traced_score(model: FittedModel, checked: bool) -> FittedModel:
    """Trace the log-likelihood, if that can be done and its penalty can be traced too."""
    point = np.array(model.theta)
    if not all(can_be_traced(f, point, checked) for f in _functions(model)):
        return model
    rows = rows_of(model)
    return _with_scores(model, TracedScore(rows.loglik, rows.counter))


def _functions(model: FittedModel) -> list[Callable[[Array], Any]]:
    """The log-likelihood and the penalty that were given, as functions to terms."""
    written = [p for p in model.penalty.functions if isinstance(p, WrittenPenalty)]
    return [rows_of(model).loglik, *(OneTerm(p.function) for p in written)]


def _bending_right(model: FittedModel) -> FittedModel:
    """Refuse a given score that is right at theta alone: its differences are the curvature."""
    cause = cause_beside(model)
    if cause:
        raise ValueError(wrong_beside("score", cause))
    return model


def _verified(model: FittedModel) -> FittedModel:
    """Keep traced derivatives at a maximum only if differences over its units agree with them."""
    if not rows_of(model).is_traced:
        return model
    point = np.array(model.theta)
    try:
        with np.errstate(all="ignore"):
            right = all(
                tells_the_truth(f, point, objective_of(model).units) for f in _functions(model)
            )
    except (ArithmeticError, ValueError):
        right = False
    return model if right else _with_scores(model, None)


def _fitted_from(
    model: FittedModel, points: list[Array], most: int, dtype: np.dtype[Any]
) -> FittedModel:
    """Fit; where traced derivatives fail, or do not hold where they lead, by differences."""
    rows = rows_of(model)
    if rows.is_traced:
        try:
            fitted = _climbed(model, points, most)
        except (ImplicitDeltaError, ArithmeticError, ValueError) as error:
            if is_spent(error):
                raise
            fitted = None
        if fitted is not None and rows_of(_verified(fitted)).is_traced:
            warn_of_sign(_climbing(model), fitted)
            return fitted
        model = replace(model, rows=rows.of(scores=None))
    try:
        fitted = _climbed(model, points, most)
    except (ConvergenceError, UnsupportedModelError) as error:
        if is_spent(error):
            raise
        if dtype != np.float64 and isinstance(error, ConvergenceError):
            raise ConvergenceError(IN_SINGLE) from error
        check_repeatable_beside(rows.loglik, np.array(model.theta), "loglik")
        if rows_of(model).scores is not None:
            _bending_right(model)
        causes = (
            sign_question(_climbing(model, most / 3)) or ("got stuck" in str(error)) * OTHER_CAUSES
        )
        causes = causes or idle_at(model.rows.terms, np.array(model.theta), model.space.names)
        raise (ConvergenceError(f"{error} {causes}") if causes else error) from error
    warn_of_sign(_climbing(model), fitted)
    return fitted


def _climbing(model: FittedModel, most: float = np.inf) -> FittedModel:
    """Make the model of a climb, with so many calls of the log-likelihood."""
    rows = rows_of(model)

    def height(theta: Array, terms: Array) -> float:
        return model.weights.total(terms) - model.penalty.value(theta)

    calls = Limited(rows.loglik, most, height, "the log-likelihood")
    return replace(model, rows=_with_function(rows, calls).for_climbing())


def _with_function(rows: LoglikRows, loglik: Callable[[Array], Any]) -> LoglikRows:
    """Take another function for the same terms: what is known of them stays."""
    scores: Any = rows.scores
    if rows.is_traced:
        scores = replace(scores, function=loglik)
    return rows.with_terms(loglik=loglik, scores=scores)


def _climbed(model: FittedModel, points: list[Array], most: int) -> FittedModel:
    """Fit from each point and keep the best."""
    climbing = _climbing(model, most)
    if len(points) == 1:
        theta = as_parameters(constrained_maximum(replace(climbing, theta=points[0])))
        rows = _with_function(rows_of(climbing), rows_of(model).loglik).with_terms(climbs=False)
        return replace(model, theta=theta, rows=rows)

    def search(point: Array) -> tuple[Array, float]:
        theta = constrained_maximum(replace(_climbing(model, most), theta=point))
        return np.array(theta), float(free.objective(theta))

    free = _climbing(model)
    with np.errstate(all="ignore"):
        free.objective(points[0])  # one call tells how slow they are
        expected = len(points) * CALLS * (2 * free.d + 2)
        with calls_ahead(rows_of(free).counter, "starts", expected):
            optima = best_of(search, points, lambda theta: objective_of(free.at(theta)).units)
    best = model.at(optima[0].theta)
    return replace(best, facts=replace(best.facts, optima=optima))
