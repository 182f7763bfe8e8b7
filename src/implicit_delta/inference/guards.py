"""Refuse what has no honest error bar, and warn of what is doubtful."""

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import ConvergenceError, DriftWarning, NonlinearityWarning
from implicit_delta.methods.base import PROBE, Response
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics.arrays import ratio

DRIFT_WARNS, DRIFT_REFUSES = 0.1, 1.0
BEND_WARNS, BEND_REFUSES = 0.25, 1.0
ONE_SIDED_REFUSES = 0.9


def guard(model: FittedModel, response: Response, covariance: Array, strict: bool) -> float:
    """Check a response and return its drift; see the errors and warnings of `infer`."""
    if response.directions is None:
        drift = response.drift
        check_drift(drift, strict)
    else:
        score = model.score(model.theta) if response.score is None else response.score
        drift = drift_of(score, response.directions, np.sqrt(np.diag(covariance)))
        check_drift(drift, strict)
        _check_two_sided(_one_sidedness(model, response, score), strict)
    check_bend(response.nonlinearity, strict)
    return drift


def drift_of(score: Array, directions: Array, errors: Array) -> float:
    """Return by how many standard errors psi would still move if training were finished."""
    moves = abs(score @ directions)
    return float(np.max(ratio(moves, errors)))


def check_drift(drift: float, strict: bool) -> None:
    """Warn of a training that is not finished, or refuse it; NaN is unknown."""
    text = (
        f"The model is not at its maximum: finishing the training would move psi by {drift:.2g} "
        "standard errors (drift). Usual causes: training stopped early, or a penalty used in "
        "training was not given here. Use `polish(model)`, or give the `penalty=` or `l2=` that "
        "was used."
    )
    if drift > DRIFT_WARNS:
        _refuse_or_warn(text, drift > DRIFT_REFUSES and strict, DriftWarning)


def check_bend(bend: float, strict: bool) -> None:
    """Warn of a psi that bends within half a standard error, or refuse it; NaN is unknown."""
    text = (
        f"psi bends within half a standard error (nonlinearity {bend:.2g}, where 0 is a straight "
        "line), so a symmetric interval is doubtful. Use `profile(model, psi)`, `Simulation()`, "
        "`Smoothed(psi)` if it has steps or many kinks, or a transform of psi that is closer to "
        "linear."
    )
    if bend > BEND_WARNS:
        _refuse_or_warn(text, bend > BEND_REFUSES and strict, NonlinearityWarning)


def _one_sidedness(model: FittedModel, response: Response, score: Array) -> float:
    """Compare how far the objective falls half a standard error to either side.

    From 0, a parabola, to 1, where it is flat on one side: there is no maximum to speak of, even
    though its gradient may vanish there (separated classes). Where theta is short of the maximum,
    the fall is measured from the tangent.
    """
    assert response.directions is not None
    k = int(np.argmax(np.diag(response.covariance)))
    if not response.covariance[k, k] > 0:
        return 0.0
    step = PROBE / np.sqrt(response.covariance[k, k]) * response.directions[:, k]
    top, slope = model.objective(model.theta), float(score @ step)
    falls = [top - model.objective(model.theta + side * step) + side * slope for side in (1, -1)]
    if not np.all(np.isfinite(falls)):
        return 1.0
    return float(abs(falls[0] - falls[1]) / (abs(falls[0]) + abs(falls[1]) + 1e-12))


def _check_two_sided(one_sided: float, strict: bool) -> None:
    text = (
        "The log-likelihood is not close to a parabola: half a standard error to one side it "
        "falls far more than to the other. Usual causes: it has no finite maximum (perfectly "
        "separated classes; add `l2=`), or there are very few observations. Use "
        "`profile(model, psi)` or a penalty."
    )
    if one_sided > ONE_SIDED_REFUSES:
        _refuse_or_warn(text, strict, NonlinearityWarning)


def _refuse_or_warn(text: str, refuse: bool, warning: type[Warning]) -> None:
    if refuse:
        raise ConvergenceError(text + " Pass `strict=False` to get the number all the same.")
    warn(text, warning)
