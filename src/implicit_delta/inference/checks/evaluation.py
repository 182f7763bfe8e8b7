"""Evaluation: a psi that is optimistic or that is itself uncertain."""

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.errors import EvaluationError
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.training_loss import ADVICE, REASON, optimism_of
from implicit_delta.linalg.arrays import ratio

VANISHES = 1e-3  # of the whole error: what the parameters add is what the search has left
BLUR_WARNS, BLUR_REFUSES = 0.01, 0.1  # of a standard error, by which psi itself is uncertain


def training_loss(case: Case) -> Finding | None:
    """Find an average over training rows that is the loss of each of them."""
    optimism = None if case.model is None else optimism_of(case.evaluation)
    if optimism is None:
        return None
    vanishes = np.sqrt(np.diag(case.response.covariance)) <= VANISHES * case.errors
    if np.all(vanishes):
        return Finding(
            "error", "training_loss", REASON, optimism, remedies=(ADVICE,), error=EvaluationError
        )
    return Finding(
        "warn",
        "training_loss",
        "h is the loss of each training row: its mean is optimistic for new rows, by about "
        f"{optimism:.2g} (d / n), and the interval is around that.",
        number=optimism,
        remedies=(ADVICE,),
    )


def blur(case: Case) -> Finding | None:
    """Find a psi that is itself uncertain by part of its standard error."""
    found = case.evaluation.blur
    if case.model is None or found is None:
        return None
    shares = ratio(found, case.errors)
    k = int(np.argmax(shares))
    if shares[k] <= BLUR_WARNS:
        return None
    return Finding(
        "refuse" if shares[k] > BLUR_REFUSES else "warn",
        "blur",
        f"{case.evaluation.names[k]} is itself uncertain by {found[k]:.1g}, {shares[k]:.0%} of its "
        "standard error: it is rounded to single precision, or differs between two calls with the "
        "same parameters, which numerical derivatives magnify.",
        number=float(shares[k]),
        remedies=(
            "Compute psi in float64 and without a state of its own, or leave out a large constant "
            "in it.",
        ),
        error=EvaluationError,
    )
