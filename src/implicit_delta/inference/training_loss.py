"""The training loss as psi: recognized, because its error bar is not what one asks for."""

import numpy as np

from implicit_delta.calculus.units import sizes
from implicit_delta.errors import EvaluationError, ImplicitDeltaError
from implicit_delta.evaluation import Evaluation

SAME = 1e-4  # relative: two moves of psi that are those of the log-likelihood
REASON = (
    "psi is the training loss, or a multiple of it: training has made it as small as it gets on "
    "these rows, so that it does not respond to the parameters (its model part vanishes) and is "
    "optimistic for new rows."
)
ADVICE = (
    "Evaluate rows that were held out, `Average(lambda m: loss_by_row(m, held_out))`, or "
    "cross-fit: train on each part of the data and evaluate on the rest."
)


def refuse_training_loss(evaluation: Evaluation, error: ImplicitDeltaError) -> None:
    """Raise the real reason if a psi that was refused is the training loss."""
    try:
        found = evaluation.fitted is not None and _follows_the_likelihood(evaluation)
    except (ImplicitDeltaError, ArithmeticError):
        return
    if found:
        raise EvaluationError(f"{REASON} {ADVICE}") from error


def optimism_of(evaluation: Evaluation) -> float | None:
    """Return d / n in units of h, of an average over training rows that is the loss of each."""
    if (
        evaluation.sample != "training"
        or evaluation.units is None
        or (not evaluation.model.rows.symmetric)
    ):
        return None
    model = evaluation.model
    terms = model.rows.terms(model.theta)
    for column, value in zip(evaluation.units.T, evaluation.value, strict=True):
        own = column != value  # rows of other groups are at the value
        spread = np.ptp(column)
        if spread > 0 and abs(np.corrcoef(column[own], terms[own])[0, 1]) > 1 - 1e-9:
            return float(model.d / float(model.weights.counts.sum()) * spread / np.ptp(terms))
    return None


def _follows_the_likelihood(evaluation: Evaluation) -> bool:
    """Whether psi moves in proportion to the log-likelihood, there, back and elsewhere."""
    model, rng = evaluation.model, np.random.default_rng(0)
    step, other = 0.01 * rng.standard_normal((2, model.d)) * sizes(model.theta)
    ends = [model.theta + away for away in (step, -2 * step, other, 0 * step)]
    psi = np.array([evaluation(end)[0] for end in ends])
    loglik = np.array([float(model.weights.values @ model.rows.terms(end)) for end in ends])
    with np.errstate(all="ignore"):
        ratios = (psi[:3] - psi[3]) / (loglik[:3] - loglik[3])
    same = np.isfinite(ratios).all() and np.ptp(ratios) <= SAME * abs(ratios[0])
    return bool(same and np.all(psi[:3] != psi[3]))
