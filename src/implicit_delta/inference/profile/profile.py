"""Likelihood-ratio intervals of anything computed from a fitted model."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from implicit_delta.core.findings import Finding, report
from implicit_delta.core.hints import also
from implicit_delta.core.parallel import run_all
from implicit_delta.core.precision import cautious
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array, Asked
from implicit_delta.core.warn import warn
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    ImplicitDeltaError,
    UnsupportedModelError,
)
from implicit_delta.estimate import Interval
from implicit_delta.estimate.quantiles import checked_level, likelihood_ratio_root, t_quantile
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import total_error
from implicit_delta.inference.assemble import Cost
from implicit_delta.inference.checks.case import drift_of
from implicit_delta.inference.checks.drift import of_drift
from implicit_delta.inference.profile.audit import Audit
from implicit_delta.inference.profile.constrained import (
    Feasible,
    mixed_roots,
    roots_at_bound,
    without_inequalities,
)
from implicit_delta.inference.profile.path import follow
from implicit_delta.inference.profile.problem import Point, Problem, count_passes
from implicit_delta.inference.profile.result import SIGNS, Curve, Profile, Profiles
from implicit_delta.inference.profile.values import Values, findings_of, union_text
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

Side: TypeAlias = Literal["both", "upper", "lower"]

OUT_OF_REACH = 2.0  # times the root of the quantile: no region comes near such a constraint
AT_MAXIMUM = 1e-5  # standard errors that a climb would gain: its square in the deviance
UNKNOWN = np.full((1, 1), np.nan)  # variance of a psi that constraints fix
SEARCHES = 12  # points on the surface in a usual profile, to estimate its calls


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
    side: Side = "both",
    strict: bool = True,
    name: str | Sequence[str] | None = None,
    n_jobs: int = 1,
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
    if side not in get_args(Side):
        raise ValueError(f"side is one of {', '.join(map(repr, get_args(Side)))}, not {side!r}.")
    if fixed_by_constraints(model):
        evaluation = Evaluation.of(without_inequalities(model), psi, name)
        fixed = model.space.constraints
    else:
        evaluation, fixed = Evaluation.of(model, psi, name), None
    one = partial(
        profile_of,
        confidence_level=confidence_level,
        maximizer=as_maximizer(maximizer),
        curvature=curvature,
        strict=strict,
        fixed=fixed,
        side=side,
    )
    if evaluation.size == 1:
        return one(evaluation)
    with progress_for(model, "profiles", evaluation.size * _calls(model.d)):
        return Profiles(_profile_each(evaluation, one, n_jobs))


def _profile_each(
    evaluation: Evaluation, one: Callable[[Evaluation], Profile], n_jobs: int
) -> tuple[Profile, ...]:
    """Profile each component, and warn in this process of what others have warned of."""
    parts = [evaluation.component(k) for k in range(evaluation.size)]
    with progress("profiles", total=len(parts), unit="quantity") as bar:

        def done(found: tuple[Profile | ImplicitDeltaError, list[Warning]]) -> None:
            for message in found[1]:
                warn(str(message), type(message), getattr(message, "finding", None))
            if isinstance(found[0], ImplicitDeltaError):
                raise found[0]
            bar.update(1)

        every = run_all(_with_warnings, [(one, part) for part in parts], n_jobs, done)
    return tuple(found for found, _ in every)


def _with_warnings(
    one: Callable[[Evaluation], Profile], evaluation: Evaluation
) -> tuple[Profile | ImplicitDeltaError, list[Warning]]:
    """Profile one quantity, perhaps in another process, and list what was warned of."""
    found: Profile | ImplicitDeltaError
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            found = one(evaluation)
        except ImplicitDeltaError as error:
            found = error
            found.add_note(f"This was the profile of {evaluation.names[0]}.")
    return found, [w.message for w in record if isinstance(w.message, Warning)]


def profile_of(
    evaluation: Evaluation,
    confidence_level: float | Sequence[float],
    *,
    maximizer: Maximizer | None = None,
    curvature: Curvature | None = None,
    strict: bool = True,
    fixed: Constraints | None = None,
    side: Side = "both",
) -> Profile:
    """Profile an evaluation that has been bound to a model; see `profile`.

    Constraints that fix the maximum are given on their own: the model then has none.
    """
    cost, levels = Cost.start(evaluation.model), levels_of(confidence_level)
    if curvature is None:
        check_maximum(evaluation.model)
        curvature = evaluation.model.facts.curvature
    model, ascending = evaluation.model, sorted(levels)
    roots = [likelihood_ratio_root(level, model.facts.df, side) for level in ascending]
    with (
        count_passes(model, f"profiling {evaluation.names[0]}") as update,
        isolated_cache(model, empty=False),
    ):
        request = _Request(ascending, roots, SIGNS[side], curvature, maximizer, strict, update)
        if fixed is None:
            search = _search(evaluation, request)
        else:
            search = _search_inside(evaluation, fixed, request, UNKNOWN)
    evaluation, found = search.evaluation, search.found
    intervals = {level: _interval(evaluation, found[level], level) for level in levels}
    findings = findings_of(evaluation.names[0], found)
    report(findings, strict)
    total = total_error(evaluation, search.covariance)
    parts = {part: float(np.sqrt(V[0, 0])) for part, V in total.parts.items()}
    return Profile(
        value=float(evaluation.value[0]),
        budget={
            **(parts or {"model": float(np.sqrt(search.covariance[0, 0]))}),
            "total": float(np.sqrt(total.covariance[0, 0])),
        },
        intervals=intervals,
        pieces={level: _pieces(found[level], intervals[level]) for level in levels},
        curve=_curve(search.points),
        name=evaluation.names[0],
        several=not np.isscalar(confidence_level),
        penalized=bool(evaluation.model.penalty.given),
        passes=cost.passes,
        seconds=cost.seconds,
        df=evaluation.model.facts.df,
        limits=search.limits,
        side=side,
        findings=findings,
    )


def _calls(d: int) -> int:
    """Estimate the calls of one profile."""
    return SEARCHES * (2 * d + 4) + 14 * d


class _Request(NamedTuple):
    """Levels, ascending, the root of the deviance for each, the signs of the ends, and options."""

    levels: list[float]
    roots: list[float]
    signs: tuple[int, ...]
    curvature: Curvature
    maximizer: Maximizer | None
    strict: bool
    update_progress: Callable[[], None]


class _Search(NamedTuple):
    """Values by level, the path, the variance of psi, and the constraints that ends reach."""

    evaluation: Evaluation
    found: dict[float, Values]
    points: list[tuple[int, Point]]
    covariance: Array
    limits: tuple[str, ...] = ()


def _search(evaluation: Evaluation, request: _Request) -> _Search:
    """Search without the constraints, and within them if they cut into the region."""
    model = evaluation.model
    nearest = nearest_limit(model)
    if nearest < NEAR and len(request.signs) == 1:
        request = _with_mixed_roots(evaluation, request)
    if nearest > OUT_OF_REACH * request.roots[-1]:
        return _search_freely(evaluation, request)
    if nearest > 0:  # no constraint holds the maximum
        try:
            search = _search_freely(evaluation, request)
        except (ImplicitDeltaError, ArithmeticError, ValueError):  # beyond the constraints
            return _search_constrained(evaluation, request)
        ends = [end for values in search.found.values() for _, end in values.ends]
        simple = all(len(values.pieces) == 1 for values in search.found.values())
        if simple and all(satisfies_constraints(model, end.theta) for end in ends):
            return search
    return _search_constrained(evaluation, request)


def _with_mixed_roots(evaluation: Evaluation, request: _Request) -> _Request:
    """Take the quantiles of a one-sided limit near constraints of other quantities."""
    constraints = evaluation.model.space.constraints
    assert constraints is not None
    if evaluation.itself is not None:
        return request
    feasible = Feasible(evaluation.on(without_inequalities(evaluation.model)), constraints)
    return request._replace(roots=mixed_roots(feasible, request.roots, request.signs[0]))


def _search_freely(evaluation: Evaluation, request: _Request) -> _Search:
    """Find the values of psi over the region, with an audit; constraints take no part."""
    _check_evaluation(evaluation)
    model = evaluation.model
    check_likelihood(model)
    response = _response(evaluation, request)
    ascent = Ascent.of(model, request.maximizer, request.curvature)
    if not _is_at_maximum(model, ascent):
        evaluation = evaluation.on(model.at(ascent.climb(model).x))
    problem = Problem.of(evaluation, ascent.scale, request.curvature, request.update_progress)
    with progress_for(model, "profile", _calls(model.d)):
        found, points = follow(problem, request.roots, request.signs)
        found = Audit(problem, ascent, response.nonlinearity).completed(found)
        for values in found:
            _check_order(values, problem.value)
    by_level = dict(zip(request.levels, found, strict=True))
    return _Search(evaluation, by_level, points, np.asarray(response.covariance))


def _is_at_maximum(model: FittedModel, ascent: Ascent) -> bool:
    if ascent.scale is None:
        return False
    score = ascent.scale.half_transpose(model.score(model.theta))
    return bool(np.linalg.norm(score) <= AT_MAXIMUM)


def _response(evaluation: Evaluation, request: _Request) -> Response:
    """Solve for the response at the maximum, if it is one."""
    model = evaluation.model
    with np.errstate(all="ignore"):  # psi need not be defined half a standard error away
        response = Infinitesimal(curvature=request.curvature).respond(model, evaluation)
    errors = np.sqrt(response.covariance.diagonal())
    assert response.directions is not None
    drift = drift_of(model.score(model.theta), response.directions, errors)
    report([of_drift(model, drift), *about_solve(response)], request.strict)
    return response


def _search_constrained(evaluation: Evaluation, request: _Request) -> _Search:
    """Search within the constraints; psi may be at one of them, without a standard error."""
    constraints = evaluation.model.space.constraints
    assert constraints is not None
    if evaluation.itself is not None:
        raise EvaluationError(
            "A smoothed psi is known along the active constraints only, and a profile leaves them. "
            "Profile psi itself, or use `infer(model, psi)`."
        )
    try:
        covariance = np.asarray(_response(evaluation, request).covariance)
    except EvaluationError:  # the constraints fix psi
        covariance = UNKNOWN
    whole = evaluation.on(without_inequalities(evaluation.model))
    return _search_inside(whole, constraints, request, covariance)


def _search_inside(
    whole: Evaluation, constraints: Constraints, request: _Request, covariance: Array
) -> _Search:
    """Find the ends within constraints that the model itself does not have."""
    _check_evaluation(whole)
    check_likelihood(whole.model)
    feasible = Feasible(whole, constraints)
    problem = Problem.of(
        whole, feasible.scale, whole.model.facts.curvature, request.update_progress
    )
    problem = replace(problem, limits=feasible.limits)
    found, points = _follow_inside(feasible, problem, request)
    for values in found:
        _check_order(values, problem.value)
    ends = [end.theta for values in found for _, end in values.ends if end.kind != "open"]
    limits = dict.fromkeys(text for theta in ends for text in feasible.reached(theta))
    by_level = dict(zip(request.levels, found, strict=True))
    return _Search(whole, by_level, points, covariance, tuple(limits))


def _follow_inside(
    feasible: Feasible, problem: Problem, request: _Request
) -> tuple[list[Values], list[tuple[int, Point]]]:
    """Find the ends; that of a limit again, at its own quantile, where a bound holds psi."""
    signs, sign = request.signs, request.signs[0]
    if len(signs) > 1:
        return follow(problem, request.roots, signs)
    beyond = [np.inf for _ in request.levels]
    if not feasible.is_straight(sign):
        found = follow(problem, request.roots, signs)
        beyond = [feasible.beyond(values.end(sign)) for values in found[0]]
        if not any(beyond):
            return found
    return follow(problem, roots_at_bound(request.levels, request.roots, beyond), signs)


def _check_order(values: Values, value: float) -> None:
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
            f"The values of psi are not one interval, but {union_text(values.pieces)}, and the "
            "error of the evaluation cannot be combined with pieces. Ask for a lower "
            "confidence_level, or profile the plain mean, without `Average`, for the pieces due to "
            "the model alone."
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


def _curve(points: list[tuple[int, Point]]) -> Curve:
    return Curve(
        lam=np.array([sign * point.lam if point.root else 0.0 for sign, point in points]),
        psi=np.array([point.psi for _, point in points]),
        deviance=np.array([point.root**2 for _, point in points]),
    )
