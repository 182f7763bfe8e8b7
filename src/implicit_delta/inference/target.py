"""Target of an interval under a penalty, and how far the penalty has moved psi."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import is_network
from implicit_delta.models.penalty import NO_PENALTY

MOST = 1000  # parameters for which the likelihood's own information is formed
SINGULAR = 1e-10  # smallest pivot of a correlation-scaled information that is not rounding

PENALIZED = "psi at the maximum of the penalized likelihood, not at the true parameters"
UNKNOWN = f"{PENALIZED}; how far the penalty has moved it cannot be known, for {{reason}}"
STOPPED = (
    "psi of this training, from the same start and stopped where it was, on average over training "
    "sets; not psi at the maximum of the likelihood, nor at the truth"
)


class Target(NamedTuple):
    """One sentence on what is covered, and the shrinkage in standard errors (NaN if unknown)."""

    text: str = ""
    shrinkage: float = np.nan


def target_of(evaluation: Evaluation, errors: Array) -> Target:
    """Compare psi with what it would be without the penalty, in standard errors (K,)."""
    model = evaluation.fitted
    if model is not None and model.penalty.early_stop:
        frozen = model.facts.training.frozen
        others = f"; the other {frozen} parameters are held as they are" * (frozen > 0)
        return Target(STOPPED + others)
    if model is None or not model.penalty:
        return Target()
    if model.d > MOST:
        return Target(UNKNOWN.format(reason=f"it is looked at with up to {MOST} parameters"))
    step = newton_step(model)
    if step is None:
        return Target(UNKNOWN.format(reason="the data alone do not determine the parameters"))
    try:
        move = evaluation(model.theta + step) - evaluation(model.theta)
    except EvaluationError:
        return Target(UNKNOWN.format(reason="psi is not defined without the penalty"))
    return Target(PENALIZED, float(np.max(ratio(abs(move), errors))))


def newton_step(model: FittedModel) -> Array | None:
    """Return the step of theta toward the maximum without the penalty, (d,); None if unknown."""
    rise = model.penalty.given.score(model.theta) + model.score(model.theta)
    swift = _by_scores(model, rise)
    if swift is not None:
        return swift
    one = np.eye(model.d)
    try:
        # Of a network by its outputs: d products with the Hessian may outlast its training.
        curvature = "ggn" if is_network(model) else model.facts.curvature
        information = model.information(model.theta, one, curvature)
    except UnsupportedModelError:
        return None
    own = information - model.penalty.given.curvature(model.theta, one)
    scale = np.sqrt(np.maximum(np.diag(own), 0.0))
    if not np.all(scale > 0):
        return None
    try:
        root = cho_factor(own / np.outer(scale, scale), lower=True)
    except LinAlgError:
        return None
    if np.min(np.diag(root[0])) ** 2 < SINGULAR:
        return None
    return np.asarray(cho_solve(root, rise / scale) / scale)


def _by_scores(model: FittedModel, rise: Array) -> Array | None:
    """Solve in the metric of the score rows, where these tell the curvature without a penalty."""
    if objective_of(model).outer_products is None or model.facts.curvature != "hessian":
        return None
    bare = objective_of(replace(model, penalty=NO_PENALTY)).outer_products
    try:
        return None if bare is None else bare.solve(rise)
    except (ConvergenceError, NotAMaximumError):
        return None


def debiased(model: FittedModel) -> FittedModel:
    """Make one Newton step without the penalty."""
    if not model.penalty.given:
        raise ValueError(
            "debias=True takes the penalty out, but this model has none (l2=, penalty=): leave "
            "debias out."
        )
    step = newton_step(model) if model.d <= MOST else None
    if step is None:
        raise UnsupportedModelError(
            "debias=True needs a likelihood that determines the parameters without the penalty, "
            f"and at most {MOST} of them; here it does not, or there are more. The interval "
            "without debias covers psi of the penalized fit."
        )
    return replace(model, penalty=NO_PENALTY).at(model.theta + step)
