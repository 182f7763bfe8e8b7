r"""A training that stopped early is a state of its own: neither an error nor a maximum.

A network trained by minibatches is not at the maximum of its likelihood, which often has none.
Its last weights are those of the maximum under a ridge around the start of the training
(`early_stopped`), more or less: so is the response of psi, :math:`w = A^{-1} g` with
:math:`A = G + \text{l2} + \delta`, G the Gauss-Newton matrix. The error of psi is that of repeating
the same training on other data. It is made of the residuals, adjusted for leverage (HC2): the
inverse of A itself would count what no data ever move, such as a constant added to all logits.
"""

import logging
from dataclasses import replace

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.rounding import is_same
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, ShrinkageWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.training_gain import stopped_early
from implicit_delta.methods.base import Response
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_formable
from implicit_delta.models.penalty import NO_PENALTY

FORETOLD = 130  # of evidence, gain, leverages and one solve: 104 to 110 with 25 450 weights
OBEYED, NOISE = 0.5, 2.0  # of a ridge; standard errors of a slope
ALIKE = 1e-5  # of the gradient of a penalty, which may be by differences


logger = logging.getLogger("implicit_delta")


def as_trained(model: FittedModel) -> tuple[FittedModel, Finding | None]:
    """Add the ridge that an early stop stands for; other models are returned as they are."""
    if not stopped_early(model):
        return model, None
    _check_trained(model)
    if not is_formable(model):
        logger.info(
            "infer: the training stopped early; about %d passes over the data for one "
            "smooth psi, and some 50 for every other",
            FORETOLD,
        )
    idle = idle_ridge(model)
    return early_stopped(replace(model, penalty=NO_PENALTY) if idle else model), idle


def _check_trained(model: FittedModel) -> None:
    """Refuse data that the training has made worse: they are not those of the training."""
    start = model.facts.training.start
    if start is None:
        return
    w, ends = model.weights.values, (start, model.theta)
    before, after = (float(w @ model.rows.terms(theta)) for theta in ends)
    if after <= before:
        raise ConvergenceError(
            f"The data are fitted worse by the trained weights (log-likelihood {after:.6g}) than "
            f"by start= ({before:.6g}): these are not the data of the training, or they are scaled "
            "otherwise, or the likelihood is another one. Give what was trained on, after all "
            "preprocessing."
        )


def idle_ridge(model: FittedModel) -> Finding | None:
    """Find an l2 that the training has not obeyed: its pull shows in the score.

    At a maximum the slope of the likelihood along theta is that of the ridge. Where it is not even
    half of it, and not by the noise of the last steps, the ridge was never there, was another one,
    or had no time to act.
    """
    theta, l2 = model.theta, model.penalty.floor
    pull = model.penalty.score(theta)
    if not l2 or not is_same(pull, l2 * theta, ALIKE):
        return None
    size = float(theta @ theta)
    supported = float((model.score(theta) + pull) @ theta) / size
    own = model.information(theta, theta, "ggn") - model.penalty.curvature(theta, theta)
    noise = np.sqrt(max(float(theta @ own), 0.0)) / size
    if supported + NOISE * noise >= OBEYED * l2:
        return None
    return Finding(
        "warn",
        "idle_ridge",
        f"l2={l2:.3g} is not what this training obeyed: at its weights the slope of the "
        f"log-likelihood supports a ridge of {max(supported, 0.0):.2g}.",
        number=max(supported, 0.0),
        causes=(
            "the training stopped before the penalty could act; a decoupled weight decay (AdamW), "
            "which stands for n * weight_decay times the root of the mean squared gradient, and "
            "not for n * weight_decay; or a guess",
        ),
        remedies=(
            "It is left out, and the standard error is that with a ridge by the evidence: leave "
            'l2= out, or give l2="evidence".',
        ),
        warning=ShrinkageWarning,
    )


def told(model: FittedModel) -> dict[str, str]:
    """Tell what was done about a training that stopped early."""
    stop, l2 = model.penalty.early_stop, model.penalty.given.floor
    if stop is None:
        return {}
    training = model.facts.training
    center = f"zero, as {training.no_start}" if training.start is None else "the start"
    given = f"l2 {l2:.3g} + " if l2 else ""
    held = f"{given}ridge {stop.strength:.3g} around {center} (evidence)"
    return {"stopped": f"{held}; {training.effective:.0f} of {model.d} parameters determined"}


def moves_to_come(evaluation: Evaluation, response: Response) -> Array | None:
    """Move of psi, (K,), that going on with a training which stopped early would make."""
    model = evaluation.fitted
    if model is None or not model.penalty.early_stop or response.directions is None:
        return None
    return np.asarray(own_score(model) @ response.directions)


def own_score(model: FittedModel) -> Array:
    """Score of the training's own objective, without the ridge that stands for its stop."""
    stop, score = model.penalty.early_stop, model.score(model.theta)
    return score if stop is None else np.asarray(score + stop.score(model.theta))
