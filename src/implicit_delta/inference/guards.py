"""Refuse what has no honest error bar, and warn of what is doubtful."""

from collections.abc import Mapping

import numpy as np

from implicit_delta._core.factored import Covariance
from implicit_delta._core.thresholds import (
    BEND_REFUSES,
    BEND_WARNS,
    DEBIASED_REFUSES,
    DEBIASED_WARNS,
    DRIFT_REFUSES,
    DRIFT_WARNS,
    PLAIN_WARNS,
    STOPPED_WARNS,
)
from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import ConvergenceError, DriftWarning, NonlinearityWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.training_gain import stopped_early
from implicit_delta.methods.base import PROBE, Response
from implicit_delta.methods.probe import FEW, falls_along, spread_out
from implicit_delta.models.base import FittedModel
from implicit_delta.models.glm.model import HostModel
from implicit_delta.numerics.arrays import ratio

MOST_PARAMETERS = 500  # whose covariance is formed to look at the drift of each
NOISE_EXPLAINS = 2.0  # times the noise of a training: a move by less is in the budget already
ONE_SIDED_REFUSES = 0.9
# Of 2740 fits in the tests, those of generalized linear models and distributions lay between 0.98
# and 1.04, single weights of networks up to 2.4; separated classes at 0.002 or at thousands.
LEAST, LOW, HIGH, MOST = 0.6, 0.85, 10.0, 1e3  # refused, warned about, warned about, refused
# Of a Gauss-Newton matrix: what it leaves out is a tenth of it in usual fits, and may be a half
# where a curve fits badly; a saddle has none left.
FAR_LESS = 0.2
POLISHED = (
    "The model was polished for another psi, up to a larger `drift=`, or with another maximizer: "
    "`polish(model)` without further arguments ends at the maximum."
)
TAKEN_AS_IT_IS = (
    " Or take the training as it stopped: `infer(model, psi)` without a method, for a standard "
    "error and a symmetric interval."
)
ONE_SIDED = (
    "The log-likelihood is not close to a parabola: half a standard error to one side it "
    "falls far more than to the other. Usual causes: it has no finite maximum (perfectly "
    "separated classes; add `l2=`), or there are very few observations. Use "
    "`profile(model, psi)` or a penalty."
)

STRAIGHTENED = (
    "Use `profile(model, psi)`, `Simulation()`, `Smoothed(psi)` if it has steps or many kinks, or "
    "a transform of psi that is closer to linear."
)
SANDWICHED = (
    "Ask for a transform of psi that is closer to linear, or use `bootstrap(fit, data, psi)`, "
    "which fits to resampled rows."
)


def guard(
    model: FittedModel,
    response: Response,
    covariance: Covariance,
    strict: bool,
    debias: bool = False,
    noise: Array | float = 0.0,
) -> float:
    """Check a response and return its drift; see the errors and warnings of `infer`.

    With noise of the training in psi, its variances (K,), drift is what these do not explain.
    """
    if response.directions is None:
        drift = response.drift
        check_drift(model, drift, strict, debias)
    else:
        errors, explained = np.sqrt(covariance.diagonal() + noise), NOISE_EXPLAINS * np.sqrt(noise)
        if model.tether:
            return np.nan  # a state of its own; see `check_stop`
        score = model.score(model.theta) if response.score is None else response.score
        drift = drift_of(score, response.directions, errors, explained)
        check_drift(model, drift, strict, debias)
        if drift <= DRIFT_WARNS and not debias:
            _warn_of_parameters(model, score, drift)
        if not model.sandwiched and not response.robust:  # whose variance is not a curvature
            _check_parabola(model, response, score, strict)
    return drift


def drift_of(
    score: Array, directions: Array, errors: Array, explained: Array | float = 0.0
) -> float:
    """Return by how many standard errors psi would still move if training were finished."""
    moves = np.maximum(abs(score @ directions) - explained, 0.0)
    return float(np.max(ratio(moves, errors)))


def check_drift(model: FittedModel, drift: float, strict: bool, debias: bool = False) -> None:
    """Warn of a training that is not finished, or refuse it; NaN is unknown."""
    text = (
        f"One Newton step without the penalty is not enough: psi is still {drift:.2g} standard "
        "errors from where the likelihood alone is maximal (drift). The penalty is strong, or "
        "without it there is no maximum. Fit the model without the penalty."
        if debias
        else f"The model is not at its maximum: finishing the training would move psi by "
        f"{drift:.2g} standard errors (drift). "
    )
    some, most = (DRIFT_WARNS, DRIFT_REFUSES)
    if debias:
        some, most = (DEBIASED_WARNS, DEBIASED_REFUSES)
    if drift > some:
        text += "" if debias else _drift_advice(model)
        refuse_or_warn(text, drift > most and strict, DriftWarning)


def _drift_advice(model: FittedModel) -> str:
    """Name causes and remedies that are left: not the `polish` or the `infer` just called."""
    if model.facts.training.before is not None:
        return POLISHED
    return model.drift_causes() + (TAKEN_AS_IT_IS if stopped_early(model) else "")


def _warn_of_parameters(model: FittedModel, score: Array, drift: float) -> None:
    """Warn where psi stands still, but a parameter is far from its maximum: another fit's psi."""
    known = isinstance(model, HostModel) and not model.bends and model.constraints is None
    if not known or model.d > MOST_PARAMETERS:
        return
    try:
        inverse = np.linalg.inv(model.information(model.theta, np.eye(model.d)))
    except np.linalg.LinAlgError:
        return
    moves = ratio(abs(inverse @ score), np.sqrt(np.clip(np.diag(inverse), 0, None)))
    worst = int(np.argmax(moves))
    if moves[worst] > DRIFT_REFUSES:
        name = f"parameter {worst}" if model.names is None else repr(model.names[worst])
        warn(
            f"The model is not at its maximum: finishing the training would move {name} by "
            f"{moves[worst]:.2g} standard errors (drift), and psi by {drift:.1g}, which happens to "
            f"depend little on it. The rows or weights may not be those of the fit. "
            f"{_drift_advice(model)}",
            DriftWarning,
        )


def check_stop(to_come: Array, errors: Array) -> float:
    """Return the drift of a training that stopped early; warn if its end is outside the interval.

    Both are (K,): the moves of psi that are still to come, and standard errors.
    """
    drift = float(np.max(ratio(abs(to_come), errors)))
    if drift > STOPPED_WARNS:
        warn(
            f"The training stopped early, and going on with it would move psi by {drift:.2g} "
            "standard errors (drift): the interval is for psi of a training that stops there, and "
            "not for where it leads. Usual causes: few steps, after which the error is rather too "
            "large; or the data, their scaling, the likelihood or a penalty given here are not "
            "those of the training.",
            DriftWarning,
        )
    return drift


def check_bend(
    bend: float, strict: bool, evaluation: Evaluation, response: Response, advice: str
) -> None:
    """Warn of a psi that bends within half a standard error, or refuse it; NaN is unknown.

    Without falls of the objective the bend is a plain one, against the length of the step.
    """
    several = evaluation.size > 1 and response.bent is not None
    of = f" of {evaluation.names[response.bent or 0]!r:.60}" if several else ""
    on = ", on the log scale," if evaluation.logs[response.bent or 0] else ""
    text = (
        f"psi bends within half a standard error (nonlinearity {bend:.2g}{of}, where 0 is a "
        f"straight line), so a symmetric interval{on} is doubtful. {advice}"
    )
    if bend > (BEND_WARNS if response.falls else PLAIN_WARNS):
        refuse_or_warn(text, bend > BEND_REFUSES and strict, NonlinearityWarning)


def _check_parabola(model: FittedModel, response: Response, score: Array, strict: bool) -> None:
    """Compare the fall of the objective half a standard error to either side with a parabola's."""
    for falls in (response.falls or _falls(model, response, score)).values():
        lopsided = abs(falls[0] - falls[1]) / (abs(falls[0]) + abs(falls[1]) + 1e-12)
        if not np.all(np.isfinite(falls)) or lopsided > ONE_SIDED_REFUSES:
            refuse_or_warn(ONE_SIDED, strict, NonlinearityWarning)
        elif response.exact:
            _check_fall(float(np.mean(falls)) / (PROBE**2 / 2), strict)
        elif model.curvature == "ggn":
            _check_rest(float(np.mean(falls)) / (PROBE**2 / 2), strict)


def _falls(
    model: FittedModel, response: Response, score: Array
) -> Mapping[int, tuple[float, float]]:
    """Falls of the objective half a standard error along a few responses."""
    assert response.directions is not None
    errors, top = np.sqrt(response.covariance.diagonal()), model.objective(model.theta)
    steps = PROBE * response.directions / np.where(errors > 0, errors, 1.0)
    spread = spread_out(np.flatnonzero(errors > 0), FEW)
    chosen = dict.fromkeys([int(np.argmax(errors)), *spread])  # each once
    return {k: falls_along(model, steps[:, k], score, top) for k in chosen if errors[k] > 0}


def _check_rest(fall: float, strict: bool) -> None:
    """Object to a Gauss-Newton matrix of which the rest of the Hessian leaves little, or much."""
    text = (
        f"Half a standard error from the fitted parameters the log-likelihood falls by {fall:.2g} "
        "times what the Gauss-Newton matrix implies, so the standard error cannot be trusted. "
        "Usual causes: the residuals are large and the curve bends, so that what this matrix "
        "leaves out matters; a local maximum that does not fit the data, or none at all. Fit from "
        'another `start=`, use `Infinitesimal(curvature="hessian")`, or `profile(model, psi)`.'
    )
    if not LEAST <= fall <= HIGH:
        refuse_or_warn(text, strict and not FAR_LESS <= fall <= MOST, NonlinearityWarning)


def _check_fall(fall: float, strict: bool) -> None:
    """Object to a curvature that the objective does not have: `fall` is 1 for a parabola."""
    text = (
        f"Half a standard error from the fitted parameters the log-likelihood falls by {fall:.2g} "
        "times what its second derivative implies, so the standard error cannot be trusted. "
        "Usual causes: it has no finite maximum (separated classes, an empty cell: add `l2=`), it "
        "has kinks (absolute errors), or a derivative is wrong (`score=`, single precision). "
        "`profile(model, psi)` and `Bootstrap()` use no second derivative."
    )
    if not LOW <= fall <= HIGH:
        refuse_or_warn(text, strict and not LEAST <= fall <= MOST, NonlinearityWarning)


def refuse_or_warn(text: str, refuse: bool, warning: type[Warning]) -> None:
    """Raise the text as an error, or warn with it."""
    if refuse:
        raise ConvergenceError(text + " Pass `strict=False` to get the number anyway.")
    warn(text, warning)
