"""Likelihood-ratio intervals of anything computed from a fitted model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from implicit_delta._core.deprecated import renamed
from implicit_delta._core.types import Psi
from implicit_delta._core.warn import warn
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning
from implicit_delta.estimate import Interval
from implicit_delta.estimate.quantiles import checked_level, normal_quantile
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import total_error
from implicit_delta.inference.assemble import Cost
from implicit_delta.inference.guards import check_drift, drift_of
from implicit_delta.inference.profile.path import Side
from implicit_delta.inference.profile.result import Curve, Profile
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.numerics.maximizers import Maximizer


def profile(
    model: FittedModel,
    psi: Psi,
    confidence_level: float | Sequence[float] = 0.95,
    *,
    maximizer: Maximizer | None = None,
    curvature: Curvature = "hessian",
    strict: bool = True,
    name: str | None = None,
    maximize: Maximizer | None = None,
) -> Profile:
    r"""Find the likelihood-ratio interval of a scalar psi.

    The interval holds all values that psi takes where the deviance :math:`2 (L(\hat\theta) -
    L(\theta))` is below the quantile of chi-squared with one degree of freedom. So its ends are
    the smallest and the largest psi over that region; there theta maximizes L among all theta of
    equal psi and is stationary for :math:`L + \lambda \psi`, on the path of lambda of the
    implicit delta method. Unlike the symmetric (Wald) interval of `infer` it is the same for every
    parametrization, and a monotone transform of psi transforms the interval.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions, at its maximum.
    psi : callable
        The evaluation: a function of the model in its own language that returns one number.
    confidence_level : float or sequence of float
        Between 0 and 1; one path serves several.
    maximizer : maximizer, optional
        How theta is found: by default `lbfgs`, and `newton_krylov` beyond 2500 parameters.
    curvature : {"hessian", "ggn"}
        What the steps are scaled by; it decides how fast the ends are found, not where they are.
    strict : bool
        Refuse a model that is far from its maximum (drift above 1), as in `infer`.
    name : str, optional
        Of the evaluation, for tables.
    maximize : maximizer, optional
        Deprecated name of `maximizer`.

    Returns
    -------
    Profile
        For an `Average`, or a psi with noise of its own, each half-length of the interval is
        combined with the error of the evaluation, as `infer` does with the standard error;
        ``budget`` lists the parts. The curve is that of the likelihood alone.

    Warns
    -----
    ImplicitDeltaWarning
        The deviance never reaches the quantile on one side: the interval is unbounded there, or
        ends at the largest or smallest value that psi can take.

    Raises
    ------
    ConvergenceError
        The model is not at its maximum, or the path could not be followed.
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
    maximizer = renamed(maximizer, maximize)
    evaluation = Evaluation.of(model, psi, name)
    return profile_of(
        evaluation, confidence_level, maximizer=maximizer, curvature=curvature, strict=strict
    )


def profile_of(
    evaluation: Evaluation,
    confidence_level: float | Sequence[float],
    *,
    maximizer: Maximizer | None = None,
    curvature: Curvature = "hessian",
    strict: bool = True,
) -> Profile:
    """Profile an evaluation that has been bound to a model; see `profile`."""
    _check_evaluation(evaluation)
    model = evaluation.model
    cost, levels = Cost.start(model), _levels(confidence_level)
    response = Infinitesimal(curvature=curvature).respond(model, evaluation)
    error = float(np.sqrt(response.covariance[0, 0]))
    assert response.directions is not None
    check_drift(drift_of(model.score(model.theta), response.directions, np.array([error])), strict)
    ascent = Ascent.of(model, maximizer, curvature)
    fitted = model.at(ascent.climb(model).x)
    evaluation = evaluation.on(fitted)
    tangent = response.directions[:, 0] / error
    below, above = (
        Side(fitted, evaluation, ascent, sign, sign * tangent, error) for sign in (-1, 1)
    )
    ends = {level: _interval(evaluation, below, above, level) for level in sorted(levels)}
    _warn_of_open_sides(below, above, evaluation.names[0], max(levels))
    total = total_error(evaluation, response.covariance)
    parts = {part: float(np.sqrt(V[0, 0])) for part, V in total.parts.items()} or {"model": error}
    return Profile(
        value=float(evaluation.value[0]),
        budget={**parts, "total": float(np.sqrt(total.covariance[0, 0]))},
        intervals={level: ends[level] for level in levels},
        curve=_curve(below, above),
        name=evaluation.names[0],
        several=not np.isscalar(confidence_level),
        passes=cost.passes,
        seconds=cost.seconds,
    )


def _interval(evaluation: Evaluation, below: Side, above: Side, level: float) -> Interval:
    """Combine each half-length of the likelihood-ratio interval with the evaluation's own error."""
    value, quantile = float(evaluation.value[0]), normal_quantile(level)
    ends = [side.end(quantile) for side in (below, above)]
    if evaluation.units is None and evaluation.noise is None:
        return Interval(*ends)
    variances = [np.array([[((end - value) / quantile) ** 2]]) for end in ends]
    low, high = (np.sqrt(total_error(evaluation, V).covariance[0, 0]) for V in variances)
    return Interval(value - quantile * float(low), value + quantile * float(high))


def _levels(confidence_level: Any) -> list[float]:
    given = [confidence_level] if np.isscalar(confidence_level) else list(confidence_level)
    if not given:
        raise ValueError("Give at least one confidence_level, such as 0.95.")
    return [checked_level(level) for level in given]


def _check_evaluation(evaluation: Evaluation) -> None:
    if evaluation.size > 1:
        raise EvaluationError(
            f"psi returns {evaluation.size} values, and a profile is that of one: profile them one "
            "at a time, for example with `lambda theta: psi(theta)[0]`."
        )
    if evaluation.sample == "training":
        raise EvaluationError(
            "A profile knows the likelihood, but not how the error of an average over the training "
            "rows goes together with that of the model. Use `infer(model, psi)`, which is exact "
            'here, or `Average(h, sample="unknown")` for an upper bound.'
        )


def _curve(below: Side, above: Side) -> Curve:
    points = [*reversed(below.points), *above.points[1:]]
    return Curve(
        lam=np.array([point.lam for point in points]),
        psi=np.array([point.psi for point in points]),
        deviance=np.array([point.root**2 for point in points]),
    )


def _warn_of_open_sides(below: Side, above: Side, name: str, level: float) -> None:
    for side, word in ((below, "lower"), (above, "upper")):
        last, quantile = side.points[-1], normal_quantile(level) ** 2
        if side.unbounded_from < np.inf:
            text = (
                f"The interval of {name} is unbounded: its {word} end is infinite at confidence "
                f"level {level:g}, since the deviance never reaches {quantile:.3g} on that side. "
                "The data do not bound it, as with a ratio whose denominator may be zero."
            )
            warn(text, ImplicitDeltaWarning)
        elif side.extreme_from < np.inf:
            text = (
                f"The {word} end {last.psi:.6g} of the interval of {name} is the most extreme "
                f"value that psi takes at all nearby: the deviance there is {last.root**2:.3g}, "
                f"below the quantile {quantile:.3g}."
            )
            warn(text, ImplicitDeltaWarning)
