"""Likelihood-ratio intervals of anything computed from a fitted model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from implicit_delta.core.findings import Finding, report
from implicit_delta.core.hints import also
from implicit_delta.core.precision import cautious
from implicit_delta.core.types import Array, Asked
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    ImplicitDeltaError,
    UnsupportedModelError,
)
from implicit_delta.estimate import Interval
from implicit_delta.estimate.quantiles import checked_level, t_quantile
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import total_error
from implicit_delta.inference.assemble import Cost
from implicit_delta.inference.checks.case import drift_of
from implicit_delta.inference.checks.drift import of_drift
from implicit_delta.inference.profile.audit import Audit
from implicit_delta.inference.profile.constrained import Feasible, without_inequalities
from implicit_delta.inference.profile.extreme import Guarded, Problem
from implicit_delta.inference.profile.many import Profiles, profiles_of
from implicit_delta.inference.profile.mixture import mixed_roots
from implicit_delta.inference.profile.notes import findings_of, spelled
from implicit_delta.inference.profile.path import Values, walk
from implicit_delta.inference.profile.result import Curve, Profile
from implicit_delta.inference.profile.sides import (
    SIGNS,
    Sides,
    checked_side,
    critical_root,
    lifted_roots,
)
from implicit_delta.inference.profile.ticks import profiling, tick
from implicit_delta.linalg.solvers import Factor
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.base import Response
from implicit_delta.methods.infinitesimal import Infinitesimal, about_solve
from implicit_delta.models.boundaries import NEAR, fixed_by_constraints, nearest_limit
from implicit_delta.models.constraints import Constraints
from implicit_delta.models.coordinates import satisfies_constraints
from implicit_delta.models.facts import Curvature
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import check_maximum
from implicit_delta.models.user_calls import isolated_cache, progress_for
from implicit_delta.optimize import Maximizer, Minimize, as_maximizer

FAR = 2.0  # times as far as the quantile: a limit that no region reaches
AT_TOP = 1e-5  # standard errors that a climb would gain: its square in the deviance
UNKNOWN = np.full((1, 1), np.nan)  # variance of a psi that limits fix
SEARCHES = 12  # points on the surface in a usual profile, to foretell its calls


@also(names="name")
@cautious
@isolated
def profile(
    model: FittedModel,
    psi: Asked,
    confidence_level: float | Sequence[float] = 0.95,
    *,
    maximizer: Maximizer | Minimize | None = None,
    curvature: Curvature | None = None,
    side: Sides = "both",
    strict: bool = True,
    name: str | Sequence[str] | None = None,
    n_jobs: int = 1,
    cache: str | Path | None = None,
) -> Any:
    r"""Find the likelihood-ratio interval of a scalar psi, or of each of several.

    It holds all values that psi takes where the deviance :math:`2 (L(\hat\theta) - L(\theta))` is
    at most the quantile of chi-squared with one degree of freedom. So its ends are the smallest and
    the largest psi over that region; there theta maximizes L among all theta of equal psi and is
    stationary for :math:`L + \lambda \psi`, on the path of lambda of the implicit delta method.
    Unlike the symmetric (Wald) interval of `infer` it is the same for every parametrization of the
    likelihood, and a monotone transform of psi transforms the interval.

    Where psi has a pole in the region (a ratio whose denominator may be zero), or the likelihood
    has a second maximum there, the values may be several pieces of the line: ``pieces`` of the
    result has them all, ``interval`` the one around the estimate. Psi is evaluated all over the
    region, and the likelihood behind the ends, to see that nothing was missed; what both hide
    between those points is not seen.

    With a penalty the objective L is penalized too, and its region is no longer that of the data
    alone: it is centered at the penalized maximum, and changes with the parametrization that the
    penalty is written in.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions, at its maximum.
    psi : callable or str, or sequence of them
        The evaluation: a function of the model in its own language, or a parameter by name. Of
        several values, as `parameters` returns, or of several functions, each has its own profile.
    confidence_level : float or sequence of float
        Between 0 and 1; one path serves several.
    maximizer : maximizer or callable, optional
        How theta is found, as in `FiniteDifference`: by default `lbfgs`, and `newton_krylov` beyond
        2500 parameters.
    curvature : {"hessian", "ggn"}, optional
        What the steps are scaled by, by default that of `infer`; it decides how fast the ends are
        found, not where they are.
    side : {"both", "upper", "lower"}
        Both ends, or one limit with its one-sided quantile: the other end is then infinite. A
        limit of 95 % is an end of the two-sided interval of 90 %; within constraints it never
        leaves them, and covers at least as often. See `limit`.
    strict : bool
        Refuse a model that is far from its maximum (drift above 1), as in `infer`.
    name : str or sequence of str, optional
        Of the evaluation, for tables (or `names`).
    n_jobs : int
        Processes that profile several quantities at once (-1: one for each core).
    cache : path, optional
        A file (JSON) that keeps each quantity as soon as it is finished, and from which the same
        call goes on after an interruption. Entries are found by the model (its data, theta and
        terms), the quantity and the settings, so that one file may serve several models. A
        maximizer that is a function enters by its name alone.

    Returns
    -------
    Profile, or Profiles for several quantities
        For an `Average`, or a psi with noise of its own, each half-length of the interval is
        combined with the error of the evaluation, as `infer` does with the standard error;
        ``budget`` lists the parts. The curve is that of the likelihood alone.

    Warns
    -----
    ImplicitDeltaWarning
        The deviance never reaches the quantile on one side: the interval is unbounded there, or
        ends at the largest or smallest value that psi can take. Or the values are not one interval.

    Raises
    ------
    ConvergenceError
        The model is not at its maximum, the path could not be followed, or psi was met outside of
        the interval and no search from there has converged.
    EvaluationError
        Psi has no derivative other than zero at the estimate.
    NotAMaximumError
        The likelihood is flat along some direction.

    Examples
    --------
    The variance of a normal distribution from five observations:

    >>> import implicit_delta as idm
    >>> y = np.array([1.2, 0.4, 2.2, 1.4, 0.8])
    >>> model = idm.from_loglik(
    ...     lambda th: -(((y - th[0]) / np.exp(th[1])) ** 2) / 2 - th[1], start=[0, 0]
    ... )
    >>> idm.profile(model, lambda th: np.exp(2 * th[1]), [0.8, 0.95])
         conf_level  estimate  conf_low  conf_high  wald_low  wald_high
    psi         80%    0.3680    0.1801     0.9387    0.0697     0.6663
    psi         95%    0.3680    0.1316     1.7472   -0.0882     0.8242
    """
    given = as_maximizer(maximizer)
    checked_side(side)
    if fixed_by_constraints(model):
        evaluation = Evaluation.of(without_inequalities(model), psi, name)
        fixed = model.space.constraints
    else:
        evaluation, fixed = Evaluation.of(model, psi, name), None
    one = partial(
        profile_of,
        confidence_level=confidence_level,
        maximizer=given,
        curvature=curvature,
        strict=strict,
        fixed=fixed,
        side=side,
    )
    if evaluation.size == 1 and cache is None:
        return one(evaluation)
    parts = [evaluation.component(k) for k in range(evaluation.size)]
    settings = f"{levels_of(confidence_level)} {side} {given} {curvature} {strict}"
    with progress_for(model, "profiles", evaluation.size * _calls(model.d)):
        found = profiles_of(parts, one, settings, n_jobs, cache)
    return found[0] if evaluation.scalar else Profiles(found)


def profile_of(
    evaluation: Evaluation,
    confidence_level: float | Sequence[float],
    *,
    maximizer: Maximizer | None = None,
    curvature: Curvature | None = None,
    strict: bool = True,
    fixed: Constraints | None = None,
    side: Sides = "both",
) -> Profile:
    """Profile an evaluation that has been bound to a model; see `profile`.

    Constraints that fix the maximum are given on their own: the model then has none.
    """
    cost, levels = Cost.start(evaluation.model), levels_of(confidence_level)
    if curvature is None:
        check_maximum(evaluation.model)
        curvature = evaluation.model.facts.curvature
    asked = _Asked.of(sorted(levels), evaluation.model.facts.df, side)
    model = evaluation.model
    with profiling(model, f"profiling {evaluation.names[0]}"), isolated_cache(model, empty=False):
        if fixed is None:
            walked = _walked(evaluation, asked, maximizer, curvature, strict)
        else:
            walked = _within(evaluation, fixed, asked, UNKNOWN)
    evaluation, found = walked.evaluation, walked.found
    intervals = {level: _interval(evaluation, found[level], level) for level in levels}
    findings = findings_of(evaluation.names[0], found)
    report(findings, strict)
    total = total_error(evaluation, walked.covariance)
    parts = {part: float(np.sqrt(V[0, 0])) for part, V in total.parts.items()}
    return Profile(
        value=float(evaluation.value[0]),
        budget={
            **(parts or {"model": float(np.sqrt(walked.covariance[0, 0]))}),
            "total": float(np.sqrt(total.covariance[0, 0])),
        },
        intervals=intervals,
        pieces={level: _pieces(found[level], intervals[level]) for level in levels},
        curve=_curve(walked.points),
        name=evaluation.names[0],
        several=not np.isscalar(confidence_level),
        penalized=bool(evaluation.model.penalty.given),
        passes=cost.passes,
        seconds=cost.seconds,
        df=evaluation.model.facts.df,
        limits=walked.limits,
        side=side,
        findings=findings,
    )


def _calls(d: int) -> int:
    """Foretell the calls of one profile."""
    return SEARCHES * (2 * d + 4) + 14 * d


class _Asked(NamedTuple):
    """Levels, ascending, the root of the deviance for each, and the signs of the ends."""

    levels: list[float]
    roots: list[float]
    signs: tuple[int, ...]

    @classmethod
    def of(cls, levels: list[float], df: float, side: Sides) -> "_Asked":
        return cls(levels, [critical_root(level, df, side) for level in levels], SIGNS[side])


class _Walked(NamedTuple):
    """Values by level, the path, and the variance of psi to compare with."""

    evaluation: Evaluation
    found: dict[float, Values]
    points: list[tuple[int, Any]]
    covariance: Array
    limits: tuple[str, ...] = ()


def _walked(
    evaluation: Evaluation,
    asked: _Asked,
    maximizer: Maximizer | None,
    curvature: Curvature,
    strict: bool,
) -> _Walked:
    """Walk along the surface of the region; within constraints where these cut into it."""
    model = evaluation.model
    nearest = nearest_limit(model)
    if nearest < NEAR and len(asked.signs) == 1:
        asked = _mixed(evaluation, asked)
    if nearest > FAR * asked.roots[-1]:
        return _along_surface(evaluation, asked, maximizer, curvature, strict)
    if nearest > 0:  # no limit holds the maximum
        try:
            walked = _along_surface(evaluation, asked, maximizer, curvature, strict)
        except (ImplicitDeltaError, ArithmeticError, ValueError):  # beyond the limits
            return _within_constraints(evaluation, asked, curvature, strict)
        ends = [end for values in walked.found.values() for _, end in values.ends]
        simple = all(len(values.pieces) == 1 for values in walked.found.values())
        if simple and all(satisfies_constraints(model, end.theta) for end in ends):
            return walked
    return _within_constraints(evaluation, asked, curvature, strict)


def _mixed(evaluation: Evaluation, asked: _Asked) -> _Asked:
    """Take the quantiles of a limit beside limits of other quantities."""
    constraints = evaluation.model.space.constraints
    assert constraints is not None
    if evaluation.itself is not None:
        return asked
    whole = evaluation.on(without_inequalities(evaluation.model))
    return asked._replace(roots=mixed_roots(whole, constraints, asked.roots, asked.signs[0]))


def _along_surface(
    evaluation: Evaluation,
    asked: _Asked,
    maximizer: Maximizer | None,
    curvature: Curvature,
    strict: bool,
) -> _Walked:
    _check_evaluation(evaluation)
    model = evaluation.model
    check_likelihood(model)
    response = _response(evaluation, curvature, strict)
    assert response.directions is not None
    ascent = Ascent.of(model, maximizer, curvature)
    top = model.theta if _is_top(model, ascent) else ascent.climb(model).x
    if not np.array_equal(top, model.theta):
        evaluation = evaluation.on(model.at(top))
    problem = _problem(evaluation, ascent.scale, curvature)
    with progress_for(model, "profile", _calls(model.d)):
        found, points = walk(problem, asked.roots, asked.signs)
        found = Audit(problem, ascent, response.nonlinearity).completed(found)
        for values in found:
            _check_holds(values, problem.value)
    by_level = dict(zip(asked.levels, found, strict=True))
    return _Walked(evaluation, by_level, points, np.asarray(response.covariance))


def _is_top(model: FittedModel, ascent: Ascent) -> bool:
    if ascent.scale is None:
        return False
    return bool(np.linalg.norm(ascent.scale.half_transpose(model.score(model.theta))) <= AT_TOP)


def _problem(evaluation: Evaluation, scale: Factor | None, curvature: Curvature) -> Problem:
    """Guard psi, which may not be defined everywhere in the region."""
    assert evaluation.function is not None
    model, guarded = evaluation.model, Guarded(evaluation.function)
    top = model.objective(model.theta)
    return Problem(
        replace(evaluation, function=guarded), top, scale, curvature, tick=partial(tick, model)
    )


def _response(evaluation: Evaluation, curvature: Curvature, strict: bool) -> Response:
    """Solve for the response at the maximum, if it is one."""
    model = evaluation.model
    with np.errstate(all="ignore"):  # psi need not be defined half a standard error away
        response = Infinitesimal(curvature=curvature).respond(model, evaluation)
    errors = np.sqrt(response.covariance.diagonal())
    assert response.directions is not None
    drift = drift_of(model.score(model.theta), response.directions, errors)
    report([of_drift(model, drift), *about_solve(response)], strict)
    return response


def _within_constraints(
    evaluation: Evaluation, asked: _Asked, curvature: Curvature, strict: bool
) -> _Walked:
    """Find the ends within the constraints; psi may be at a limit, without a standard error."""
    constraints = evaluation.model.space.constraints
    assert constraints is not None
    if evaluation.itself is not None:
        raise EvaluationError(
            "A smoothed psi is known along the active constraints only, and a profile leaves them. "
            "Profile psi itself, or use `infer(model, psi)`."
        )
    try:
        covariance = np.asarray(_response(evaluation, curvature, strict).covariance)
    except EvaluationError:  # the limits fix psi
        covariance = UNKNOWN
    whole = evaluation.on(without_inequalities(evaluation.model))
    return _within(whole, constraints, asked, covariance)


def _within(
    whole: Evaluation, constraints: Constraints, asked: _Asked, covariance: Array
) -> _Walked:
    _check_evaluation(whole)
    check_likelihood(whole.model)
    feasible = Feasible(whole, constraints)
    problem = replace(
        _problem(whole, feasible.scale, whole.model.facts.curvature), limits=feasible.limits
    )
    values, points = _searched(feasible, problem, asked)
    for found in values:
        _check_holds(found, problem.value)
    ends = [end.theta for found in values for _, end in found.ends if end.kind != "open"]
    limits = dict.fromkeys(text for theta in ends for text in feasible.reached(theta))
    by_level = dict(zip(asked.levels, values, strict=True))
    return _Walked(whole, by_level, points, covariance, tuple(limits))


def _searched(
    feasible: Feasible, problem: Problem, asked: _Asked
) -> tuple[list[Values], list[tuple[int, Any]]]:
    """Find the ends; that of a limit again, at its own quantile, where a bound holds psi."""
    if len(asked.signs) > 1:
        return walk(problem, asked.roots, asked.signs)
    sign, beyond = asked.signs[0], [np.inf for _ in asked.levels]
    if not feasible.straight(sign):
        found = walk(problem, asked.roots, asked.signs)
        beyond = [feasible.beyond(values.end(sign)) for values in found[0]]
        if not any(beyond):
            return found
    return walk(problem, lifted_roots(asked.levels, asked.roots, beyond), asked.signs)


def _check_holds(values: Values, value: float) -> None:
    if not values.low.psi <= value <= values.high.psi:
        raise ConvergenceError(
            f"The ends found for psi, {values.low.psi:.6g} and {values.high.psi:.6g}, do not have "
            f"its estimate {value:.6g} between them, so they are not returned. Usual causes: a "
            "derivative of psi or a score that is wrong, or rounding where psi is nearly "
            "constant. Use float64, leave out `score=`, or use `infer(model, psi, Bootstrap())`."
        )


def _interval(evaluation: Evaluation, values: Values, level: float) -> Interval:
    """Combine each half-length of the likelihood-ratio interval with the evaluation's own error."""
    value, quantile = float(evaluation.value[0]), values.root
    if evaluation.sampling is None and evaluation.noise is None:
        return values.interval
    if len(values.pieces) > 1:
        raise EvaluationError(
            f"The values of psi are not one interval, but {spelled(values.pieces)}, and the error "
            "of the evaluation cannot be combined with pieces. Ask for a lower confidence_level, "
            "or profile the plain mean, without `Average`, for the pieces due to the model alone."
        )

    few = 0.0 if evaluation.sampling is None else float(t_quantile(level, evaluation.sampling.df))

    def length(end: float) -> float:
        model = np.array([[((end - value) / quantile) ** 2]])
        total = total_error(evaluation, model).covariance if np.isfinite(end) else model
        return max(quantile, few) * float(np.sqrt(total[0, 0]))

    low, high = (length(float(end)) for end in values.interval)
    return Interval(value - low, value + high)


def _pieces(values: Values, interval: Interval) -> tuple[Interval, ...]:
    return values.pieces if len(values.pieces) > 1 else (interval,)


def levels_of(confidence_level: Any) -> list[float]:
    """Check one confidence level, or several."""
    given = [confidence_level] if np.isscalar(confidence_level) else list(confidence_level)
    if not given:
        raise ValueError("Give at least one confidence_level, such as 0.95.")
    return [checked_level(level) for level in given]


def _check_evaluation(evaluation: Evaluation) -> None:
    if evaluation.size > 1:
        raise EvaluationError(
            f"psi returns {evaluation.size} values, and a profile is that of one: profile them one "
            "at a time, for example with `lambda theta: psi(theta)[0]`, or with the key in the "
            "place of 0 if psi returns a dict."
        )
    if evaluation.sample == "training":
        raise EvaluationError(
            "A profile uses the likelihood, which does not include the covariance between the "
            "error of an average over the training rows and that of the model. Use `infer(model, "
            'psi)`, which is exact here, or `Average(h, sample="unknown")` for an upper bound.'
        )
    if not np.any(evaluation.jacobian(evaluation.model.theta)):
        raise EvaluationError(
            "psi does not change with the parameters: its derivative is exactly zero at the "
            "estimate. Usual causes: psi is constant on that side (`max`, `clip`), has an extreme "
            "there (a square, `abs`), is piecewise constant (a count, an accuracy, a rank), or its "
            "parameters are detached. Profile what is inside, `profile(model, inside)`, and "
            "transform its interval; or use `infer(model, psi, Simulation())`."
        )


def check_likelihood(model: FittedModel) -> None:
    """Refuse a pseudo-likelihood; warn where the fit does not believe its likelihood."""
    if model.weights.kind == "sampling":
        raise UnsupportedModelError(
            "With sampling weights the objective is no log-likelihood: its fall from the maximum "
            "grows with the unit of the weights, and has no chi-squared quantile. Use "
            "`infer(model, psi)`, whose variance is design-based, or `Bootstrap()`."
        )
    if not model.rows.symmetric:
        model.objective(model.theta)  # which says why there is none
    covariance = model.facts.host.covariance
    if covariance is not None:
        text = (
            "A profile is that of the likelihood, and the standard errors of the fit are not: "
            f"{covariance}."
        )
        remedy = "For these use `infer(model, psi)`."
        report([Finding("warn", "host_covariance", text, remedies=(remedy,))], strict=True)


def _curve(points: list[tuple[int, Any]]) -> Curve:
    return Curve(
        lam=np.array([sign * point.lam if point.root else 0.0 for sign, point in points]),
        psi=np.array([point.psi for _, point in points]),
        deviance=np.array([point.root**2 for _, point in points]),
    )
