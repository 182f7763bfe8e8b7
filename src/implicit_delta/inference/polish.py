"""Finish an optimization that stopped early."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from implicit_delta.core.budget import check_budget
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.precision import cautious
from implicit_delta.core.types import Array, Asked
from implicit_delta.errors import (
    ConvergenceError,
    DriftWarning,
    EvaluationError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.psi_drift import Look, PsiDrift
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.infinitesimal import Infinitesimal, about_solve
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.facts import Curvature
from implicit_delta.models.isolation import isolated
from implicit_delta.models.maximum import maximum_of
from implicit_delta.models.model import FittedModel
from implicit_delta.models.noise import with_noise_again
from implicit_delta.models.outputs import tangent_model
from implicit_delta.models.refit_fixed import check_unchanged
from implicit_delta.optimize import Maximizer, Minimize, as_maximizer

logger = logging.getLogger("implicit_delta")
NO_MAXIMUM = Finding(
    "warn",
    "no_maximum",
    "psi has come to rest where the Hessian is not positive: this is no maximum, and psi may move "
    "again if the training goes on. Its drift is by the Gauss-Newton matrix.",
    remedies=(
        "Take the same for its error, "
        '`infer(result.model, psi, Infinitesimal(curvature="ggn"))`, or climb on to a maximum '
        "with `polish(model)`.",
    ),
    warning=DriftWarning,
)
MOST_ALTERNATIONS = 50
SETTLED = 1e-7  # of the noise variance: half of it is that of a standard error
STILL_MOVES = (
    f"The noise variance still moves after {MOST_ALTERNATIONS} climbs, each with that of the last. "
    "The penalty may be so weak that the model interpolates: give a larger one, or the variance as "
    "a number, `Gaussian(variance=...)` or `from_residuals(..., variance=...)`."
)
DRIFT = 0.01  # standard errors: a tenth of what `infer` warns of


@dataclass(frozen=True)
class Polished:
    """The result of `polish(model, psi)`.

    Attributes
    ----------
    model : FittedModel
        At the maximum.
    moved : (K,) array or float
        By how many standard errors each evaluation moved.
    gain : float
        By how much the objective rose.
    iterations : int
    drift : float
        Standard errors by which an evaluation would still move, the largest.
    curvature : {"hessian", "ggn"}
        That of these standard errors: where the Hessian is not positive, the Gauss-Newton matrix.
    findings : tuple of Finding
        What was found on the way, as in `Diagnostics`.
    """

    model: FittedModel
    moved: float | Array
    gain: float
    iterations: int
    drift: float = np.nan
    curvature: Curvature = "hessian"
    findings: tuple[Finding, ...] = ()


@overload
def polish(
    model: FittedModel,
    psi: None = None,
    *,
    tangent: bool = False,
    maximizer: Maximizer | Minimize | None = None,
    drift: float = DRIFT,
    budget: float | None = None,
) -> FittedModel: ...
@overload
def polish(
    model: FittedModel,
    psi: Asked,
    *,
    tangent: bool = False,
    maximizer: Maximizer | Minimize | None = None,
    drift: float = DRIFT,
    budget: float | None = None,
) -> Polished: ...
@cautious
@isolated
def polish(
    model: FittedModel,
    psi: Asked | None = None,
    *,
    tangent: bool = False,
    maximizer: Maximizer | Minimize | None = None,
    drift: float = DRIFT,
    budget: float | None = None,
) -> FittedModel | Polished:
    """Maximize the model's objective to the end, starting where it is.

    A noise variance that the model has estimated is estimated again where the climb ends, and under
    a penalty, which it is weighed against, both alternate until they settle.

    Parameters
    ----------
    model : FittedModel
        Anything made by `from_*`; it is not changed.
    psi : callable, optional
        An evaluation; with it, the result also says by how many standard errors psi moved, and
        beyond 500 parameters the climb ends when psi will hardly move any more: see `drift`.
    tangent : bool
        Whether to maximize the likelihood of the tangent of a network, whose outputs are linear in
        the step from where it is. It is concave, so that with a penalty there is one maximum, for
        ReLU too, and the result is a model of that tangent: psi sees the module with these outputs.
    maximizer : maximizer or callable, optional
        As in `FiniteDifference`. By default `lbfgs`, scaled by the factorized curvature, for up to
        500 parameters and `newton_krylov` beyond.
    drift : float
        Standard errors of psi that may remain, if psi and no maximizer is given and the model has
        more than 500 parameters. The Newton decrement has to be below it too, and to fall as near a
        maximum: one Newton step tells little about the end of psi elsewhere.
    budget : float, optional
        Most passes over the data.

    Returns
    -------
    FittedModel, or Polished if psi is given
        How far the objective rose is also logged (logger ``implicit_delta``, level INFO). The
        summary of an estimate made from the finished model has how far psi has moved: it is
        about that model, and not about the one that was deployed.

    Raises
    ------
    ConvergenceError
        If no maximum was found, or the budget does not reach it.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([1.0, 2.0, 6.0])
    >>> rough = idm.from_residuals(lambda m: y - m[0], theta=[2.9], variance=1.0)
    >>> idm.polish(rough).theta
    array([3.])
    >>> round(idm.polish(rough, lambda m: m[0]).moved, 6)  # 0.1 * sqrt(3)
    0.173205
    """
    check_budget(budget)
    if not 0 < drift < np.inf:
        raise ValueError(f"drift is a positive number of standard errors, not {drift!r}.")
    check_unchanged(model)
    model = tangent_model(model) if tangent else model
    given = as_maximizer(maximizer)
    finished, iterations, watch = _alternated(model, psi, given, drift, budget)
    before = model.facts.training.before
    facts = finished.facts.with_training(before=model.theta if before is None else before)
    finished = replace(finished, facts=facts)
    found = report(_left_behind(model, finished))
    gain = finished.objective(finished.theta) - finished.objective(model.theta)
    logger.info("polish: the objective rose by %.4g in %d iterations", gain, iterations)
    if psi is None:
        return finished
    evaluation = Evaluation.of(finished, psi)
    if watch is not None and watch.last is not None:
        look, solved = watch.last, report([NO_MAXIMUM] if watch.last.curvature == "ggn" else [])
    else:
        look, solved = _look(evaluation)
    moved = _moved(model, evaluation, psi, look.errors)
    drift, found = float(np.max(look.drift)), (*found, *evaluation.findings, *solved)
    return Polished(finished, moved, gain, iterations, drift, look.curvature, found)


def _left_behind(model: FittedModel, finished: FittedModel) -> Iterator[Finding]:
    """Find what belongs to the parameters before, and not to those at the maximum."""
    claimed, trained = model.facts.host.covariance, model.facts.training
    if claimed is not None and finished.facts.host.covariance is None:
        yield Finding(
            "warn",
            "covariance_of_fit",
            f"The parameters have moved, and the covariance of the fit ({claimed.name}) is "
            "not that of the new ones: the inverse information is used from here on.",
            remedies=("Ask for `robust=` or `clusters=`, or fit again to the end.",),
        )
    if trained.replicates is not None and finished.facts.training.replicates is None:
        yield Finding(
            "warn",
            "replicates_of_fit",
            "The parameters have moved, and those of the replicates have not: the budget has no "
            "line `initialization` from here on.",
            remedies=(
                "Polish each replicate as a model of its own, and give `.module` of each to "
                "`from_torch(..., replicates=)` (`.params` in JAX).",
            ),
        )


WITH_VARIANCE = (
    "That was after the noise variance had been estimated again: it decides how much the penalty "
    "weighs, and here the two run away from each other. Give the variance as a number."
)


def _alternated(
    model: FittedModel,
    psi: Asked | None,
    given: Maximizer | None,
    drift: float,
    budget: float | None,
) -> tuple[FittedModel, int, PsiDrift | None]:
    """Alternate between theta given the noise variance and that variance at theta.

    One climb is enough where no variance is estimated, or theta does not depend on it.
    """
    by_psi = psi is not None and given is None and model.d > CHEAP_LIMIT
    here, iterations, first = model, 0, model.rows.passes
    for _ in range(MOST_ALTERNATIONS):
        watch = PsiDrift(here, psi, drift) if psi is not None and by_psi else None
        try:
            found, steps = _climbed(here, given, watch, budget, model.rows.passes - first)
        except ConvergenceError as error:
            raise (
                error if here is model else ConvergenceError(f"{error} {WITH_VARIANCE}")
            ) from error
        here, ratio_of_noise = with_noise_again(here.at(found))
        iterations += steps
        if abs(ratio_of_noise - 1) <= SETTLED or not (here.penalty.given or by_psi):
            return here, iterations, watch
    raise ConvergenceError(STILL_MOVES)


def _climbed(
    model: FittedModel,
    given: Maximizer | None,
    watch: PsiDrift | None,
    budget: float | None,
    spent: float,
) -> tuple[Array, int]:
    """Climb to the maximum, under the constraints if there are any."""
    if model.space.constraints is not None:
        return constrained_maximum(model), 0
    try:
        return maximum_of(model, given, done=watch, budget=budget, spent=spent)
    except ConvergenceError as error:
        if watch is None or watch.last is None:
            raise
        raise ConvergenceError(f"{error} {watch.last}") from None


def move_by_polish(evaluation: Evaluation, errors: Array) -> dict[str, str]:
    """Note how far psi is from where it was before `polish`, if the model was polished.

    Parameters
    ----------
    evaluation : Evaluation
    errors : (K,) array
        Standard errors.
    """
    fitted = evaluation.fitted
    before = None if fitted is None else fitted.facts.training.before
    if before is None:
        return {}
    try:
        first = evaluation(before)
    except EvaluationError:
        return {"polished": "psi is not defined where the training had ended"}
    moved = float(np.max(ratio(np.abs(evaluation.value - first), errors)))
    where = f"psi was {first[0]:.4g} before, " if evaluation.scalar else "psi has moved by up to "
    return {"polished": f"{where}{moved:.2g} standard errors{' away' * evaluation.scalar}"}


def _look(evaluation: Evaluation) -> tuple[Look, tuple[Finding, ...]]:
    """Standard errors and drift at a maximum, and what was found about the solve."""
    response = Infinitesimal().respond(evaluation.model, evaluation)
    found = report(about_solve(response))
    assert response.directions is not None
    assert response.score is not None
    errors = np.sqrt(response.covariance.diagonal())
    drift = ratio(np.abs(response.directions.T @ response.score), errors)
    return Look(evaluation.jacobian(evaluation.model.theta), errors, drift, "hessian"), found


def _moved(model: FittedModel, evaluation: Evaluation, psi: Asked, errors: Array) -> float | Array:
    before = (
        evaluation(model.theta)
        if model.space.constraints is None
        else Evaluation.of(model, psi).value
    )
    moved = ratio(evaluation.value - before, errors)
    return float(moved[0]) if evaluation.scalar else moved
