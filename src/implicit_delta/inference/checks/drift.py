"""Drift: a fit that is not at its maximum."""

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import (
    DEBIASED_REFUSES,
    DEBIASED_WARNS,
    DRIFT_REFUSES,
    DRIFT_WARNS,
)
from implicit_delta.errors import ConvergenceError, DriftWarning
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.training_gain import stopped_early
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network

MOST_PARAMETERS = 500  # whose covariance is formed to look at the drift of each
POLISHED = (
    "The model was polished for another psi, up to a larger `drift=`, or with another maximizer: "
    "`polish(model)` without further arguments ends at the maximum."
)
TAKEN_AS_IT_IS = (
    " Or take the training as it stopped: `infer(model, psi)` without a method, for a standard "
    "error and a symmetric interval."
)


def drift(case: Case) -> Finding | None:
    """Find psi away from its value at the maximum; a training that stopped has its own check."""
    if case.model is None or case.to_come is not None:
        return None
    return _debiased(case.drift) if case.debias else of_drift(case.model, case.drift)


def of_drift(model: FittedModel, drift: float) -> Finding | None:
    """Find a training that is not finished, from its drift in standard errors; NaN is unknown."""
    if not drift > DRIFT_WARNS:
        return None
    return Finding(
        "refuse" if drift > DRIFT_REFUSES else "warn",
        "drift",
        "The model is not at its maximum: finishing the training would move psi by "
        f"{drift:.2g} standard errors (drift).",
        number=drift,
        remedies=(_advice(model),),
        error=ConvergenceError,
        warning=DriftWarning,
    )


def _debiased(drift: float) -> Finding | None:
    """Find a penalty that one Newton step does not take out."""
    if not drift > DEBIASED_WARNS:
        return None
    return Finding(
        "refuse" if drift > DEBIASED_REFUSES else "warn",
        "debias",
        f"One Newton step without the penalty is not enough: psi is still {drift:.2g} standard "
        "errors from where the likelihood alone is maximal (drift). The penalty is strong, or "
        "without it there is no maximum.",
        number=drift,
        remedies=("Fit the model without the penalty.",),
        error=ConvergenceError,
        warning=DriftWarning,
    )


def _advice(model: FittedModel) -> str:
    """Name causes and remedies that are left: not the `polish` or the `infer` just called."""
    if model.facts.training.before is not None:
        return POLISHED
    return model.facts.host.drift_causes + (TAKEN_AS_IT_IS if stopped_early(model) else "")


def parameter_drift(case: Case) -> Finding | None:
    """Find a parameter that is far from its maximum where psi is not: another fit's psi."""
    model = case.model
    if model is None or not model.facts.training.by_library:
        return None
    if is_network(model) or model.space.constraints is not None:
        return None
    if case.response.directions is None or model.penalty.early_stop or model.d > MOST_PARAMETERS:
        return None
    if case.debias or not case.drift <= DRIFT_WARNS:
        return None
    try:
        inverse = np.linalg.inv(model.information(model.theta, np.eye(model.d)))
    except np.linalg.LinAlgError:
        return None
    moves = ratio(abs(inverse @ case.score), np.sqrt(np.clip(np.diag(inverse), 0, None)))
    worst = int(np.argmax(moves))
    if not moves[worst] > DRIFT_REFUSES:
        return None
    name = f"parameter {worst}" if model.space.names is None else repr(model.space.names[worst])
    return Finding(
        "warn",
        "parameter_drift",
        f"The model is not at its maximum: finishing the training would move {name} by "
        f"{moves[worst]:.2g} standard errors (drift), and psi by {case.drift:.1g}, which happens "
        "to depend little on it. The rows or weights may not be those of the fit.",
        number=float(moves[worst]),
        remedies=(_advice(model),),
        warning=DriftWarning,
    )
