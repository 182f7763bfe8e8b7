"""Refuse what has no honest error bar, and warn of what is doubtful."""

import warnings

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    DriftWarning,
    NonlinearityWarning,
)
from implicit_delta.methods.base import PROBE, Response
from implicit_delta.models.base import FittedModel

DRIFT_WARNS, DRIFT_REFUSES = 0.1, 1.0
BEND_WARNS, BEND_REFUSES = 0.25, 1.0
LOPSIDED_REFUSES = 0.9


def guard(model: FittedModel, response: Response, covariance: Array, strict: bool) -> float:
    """Check a response and return its drift; see the errors and warnings of `infer`."""
    drift = guard_drift(model, response, covariance, strict)
    _object_to_lopsidedness(_lopsidedness(model, response), strict)
    _object_to_bend(response.linearity, strict)
    return drift


def guard_drift(model: FittedModel, response: Response, covariance: Array, strict: bool) -> float:
    """Check only that training is finished, which is all that a profile needs."""
    drift = response.drift
    if response.directions is not None:
        score = model.score(model.theta)
        drift = _drift(score, response.directions, np.sqrt(np.diag(covariance)))
    _object_to_drift(drift, strict)
    return drift


def _drift(score: Array, directions: Array, errors: Array) -> float:
    """By how many standard errors psi would still move if training were finished."""
    moves = abs(score @ directions)
    return float(np.max(np.divide(moves, errors, out=np.zeros_like(moves), where=errors > 0)))


def _lopsidedness(model: FittedModel, response: Response) -> float:
    """Compare how far the objective falls half a standard error to either side.

    From 0, a parabola, to 1, where it is flat on one side: there is no maximum to speak of, even
    though its gradient may vanish there (separated classes). Where theta is short of the maximum,
    the fall is measured from the tangent.
    """
    if response.directions is None:
        return 0.0
    k = int(np.argmax(np.diag(response.covariance)))
    if not response.covariance[k, k] > 0:
        return 0.0
    step = PROBE / np.sqrt(response.covariance[k, k]) * response.directions[:, k]
    top, slope = model.objective(model.theta), float(model.score(model.theta) @ step)
    falls = [top - model.objective(model.theta + side * step) + side * slope for side in (1, -1)]
    if not np.all(np.isfinite(falls)):
        return 1.0
    return float(abs(falls[0] - falls[1]) / (abs(falls[0]) + abs(falls[1]) + 1e-12))


def _object_to_drift(drift: float, strict: bool) -> None:
    text = (
        f"The model is not at its maximum: finishing the training would move psi by {drift:.2g} "
        "standard errors (drift). Usual causes: training stopped early, or a penalty used in "
        "training was not given here. Use `polish(model)`, or give the `penalty=` or `l2=` that "
        "was used."
    )
    if drift > DRIFT_WARNS:
        _object(text, drift > DRIFT_REFUSES and strict, DriftWarning)


def _object_to_lopsidedness(lopsided: float, strict: bool) -> None:
    text = (
        "The log-likelihood is not close to a parabola: half a standard error to one side it "
        "falls far more than to the other. Usual causes: it has no finite maximum (perfectly "
        "separated classes; add `l2=`), or there are very few observations. Use "
        "`profile(model, psi)` or a penalty."
    )
    if lopsided > LOPSIDED_REFUSES:
        _object(text, strict, NonlinearityWarning)


def _object_to_bend(bend: float, strict: bool) -> None:
    text = (
        f"psi bends within half a standard error (nonlinearity {bend:.2g}, where 0 is a straight "
        "line), so a symmetric interval is doubtful. Use `profile(model, psi)`, `Simulation()`, "
        "`Smoothed(psi)` if it has steps or many kinks, or a transform of psi that is closer to "
        "linear."
    )
    if bend > BEND_WARNS:
        _object(text, bend > BEND_REFUSES and strict, NonlinearityWarning)


def _object(text: str, refuse: bool, warning: type[Warning]) -> None:
    if refuse:
        raise ConvergenceError(text + " Pass `strict=False` to get the number all the same.")
    warnings.warn(text, warning, stacklevel=5)
