"""Likelihood-ratio intervals of anything computed from a fitted model."""

import warnings
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from implicit_delta._core.types import Psi
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning
from implicit_delta.estimate import Interval
from implicit_delta.estimate.quantiles import checked_level, normal_quantile
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.guards import guard_drift
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
    maximize: Maximizer | None = None,
    curvature: Curvature = "hessian",
    strict: bool = True,
    name: str | None = None,
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
    maximize : maximizer, optional
        How theta is found: by default `lbfgs`, and `newton_krylov` beyond 2500 parameters.
    curvature : {"hessian", "ggn"}
        What the steps are scaled by; it decides how fast the ends are found, not where they are.
    strict : bool
        Refuse a model that is far from its maximum (drift above 1), as in `infer`.
    name : str, optional
        Of the evaluation, for tables.

    Returns
    -------
    Profile

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
    started, passes = perf_counter(), model.passes
    levels = _levels(confidence_level)
    response = Infinitesimal(curvature=curvature).respond(model, _scalar(model, psi, name))
    error = float(np.sqrt(response.covariance[0, 0]))
    guard_drift(model, response, response.covariance, strict)
    ascent = Ascent.of(model, maximize, curvature)
    fitted = model.at(ascent.climb(model).x)
    evaluation = _scalar(fitted, psi, name)
    tangent = response.directions[:, 0] / error  # type: ignore[index]
    below, above = (
        Side(fitted, evaluation, ascent, sign, sign * tangent, error) for sign in (-1, 1)
    )
    ends = {
        level: Interval(below.end(normal_quantile(level)), above.end(normal_quantile(level)))
        for level in sorted(levels)
    }
    _warn_of_open_sides(below, above, evaluation.names[0], max(levels))
    return Profile(
        value=float(evaluation.value[0]),
        standard_error=error,
        intervals={level: ends[level] for level in levels},
        curve=_curve(below, above),
        name=evaluation.names[0],
        several=not np.isscalar(confidence_level),
        passes=model.passes - passes,
        seconds=perf_counter() - started,
    )


def _levels(confidence_level: Any) -> list[float]:
    given = [confidence_level] if np.isscalar(confidence_level) else list(confidence_level)
    if not given:
        raise ValueError("Give at least one confidence_level, such as 0.95.")
    return [checked_level(level) for level in given]


def _scalar(model: FittedModel, psi: Psi, name: str | None) -> Evaluation:
    evaluation = Evaluation.of(model, psi, name)
    if evaluation.size > 1:
        raise EvaluationError(
            f"psi returns {evaluation.size} values, and a profile is that of one: profile them one "
            "at a time, for example with `lambda theta: psi(theta)[0]`."
        )
    return evaluation


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
            warnings.warn(text, ImplicitDeltaWarning, stacklevel=3)
        elif side.extreme_from < np.inf:
            text = (
                f"The {word} end {last.psi:.6g} of the interval of {name} is the most extreme "
                f"value that psi takes at all nearby: the deviance there is {last.root**2:.3g}, "
                f"below the quantile {quantile:.3g}."
            )
            warnings.warn(text, ImplicitDeltaWarning, stacklevel=3)
