"""Trainings that stopped early: states, residuals or data that say little about psi."""

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import MEMORIZED_REFUSES, MEMORIZED_WARNS, STOPPED_WARNS
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    DriftWarning,
    ShrinkageWarning,
    SmallSampleWarning,
)
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.influence import Sandwich
from implicit_delta.linalg.arrays import ratio

INFORMED = 0.01  # of the variance that the ridge allows
# Times the error without an adjustment for leverage. In a trial with 300 rows that a network had
# memorized, errors were 5 times too large, and 6 times too small without the adjustment.
ADJUSTED_WARNS = 2.0


def states_apart(case: Case) -> Finding | None:
    """Find checkpoints or replicates of another training."""
    return case.noise.apart


def states_alike(case: Case) -> Finding | None:
    """Find checkpoints that are too close in time."""
    return case.noise.alike


def close_fit(case: Case) -> Finding | None:
    """Find residuals whose adjustment for leverage is most of the standard error."""
    directions = case.response.directions
    if case.sandwich is None or not case.sandwich.stopped or directions is None:
        return None
    own = Sandwich().of_directions(case.evaluation.model, directions)
    adjusted, plain = (np.sqrt(V.diagonal()) for V in (case.part.covariance, own))
    if not np.any(adjusted > ADJUSTED_WARNS * plain):
        return None
    k = int(np.argmax(ratio(adjusted, plain)))
    return Finding(
        "warn",
        "close_fit",
        "The network fits its training rows so closely that their residuals say little about its "
        f"error: it is {plain[k]:.3g} from the residuals as they are and {adjusted[k]:.3g} "
        "adjusted for leverage, and the truth may be several times as large or between them.",
        number=float(adjusted[k] / plain[k]),
        remedies=("Stop earlier, use a penalty or more rows, or retrain on resampled rows.",),
        warning=SmallSampleWarning,
    )


def memorized(case: Case) -> Finding | None:
    """Find standard errors, (K,), of residuals that are next to nothing.

    If the model is right, they are about those of :math:`w'Gw`, with G its Gauss-Newton matrix;
    residuals of rows that were memorized are smaller by far.
    """
    if case.sandwich is None or not case.sandwich.stopped or case.response.directions is None:
        return None
    errors = np.sqrt(case.part.covariance.diagonal())
    implied = np.sqrt(_informed(case))
    share = np.where(implied > 0, ratio(errors, implied), 1.0)
    k = int(np.argmin(share))
    if not share[k] < MEMORIZED_WARNS:
        return None
    return Finding(
        "refuse" if share[k] < MEMORIZED_REFUSES else "warn",
        "memorized",
        "The residuals of the training rows are too small to tell the error of psi: it is "
        f"{errors[k]:.2g} from them, and {implied[k]:.2g} from the curvature of the network.",
        number=float(share[k]),
        causes=(
            "the network has memorized its rows (few of them, classes that it separates, a long "
            "training), and errors from its residuals are far too small",
            "class weights far below one",
        ),
        remedies=(
            "Stop earlier or train on more rows; add a penalty and finish with it, "
            "`polish(from_torch(module, data, likelihood, l2=1.0))`; or train again on resampled "
            "rows, `bootstrap(fit, data, psi, replicates=20)`.",
        ),
        error=ConvergenceError,
        warning=SmallSampleWarning,
    )


def stop(case: Case) -> Finding | None:
    """Find a training that stopped early and whose end is outside of the interval."""
    if case.to_come is None or not case.drift > STOPPED_WARNS:
        return None
    return Finding(
        "warn",
        "stop",
        f"The training stopped early, and going on with it would move psi by {case.drift:.2g} "
        "standard errors (drift): the interval is for psi of a training that stops there, and "
        "not for where it leads.",
        number=case.drift,
        causes=(
            "few steps, after which the error is rather too large",
            "the data, their scaling, the likelihood or a penalty given here are not those of the "
            "training",
        ),
        warning=DriftWarning,
    )


def uninformed(case: Case) -> Finding | None:
    """Find a psi that rests on the start: of its variance A^-1 the ridge has nearly all."""
    if case.to_come is None or not np.any(_informed(case) == 0):
        return None
    return Finding(
        "warn",
        "uninformed",
        "The data tell next to nothing about psi, or about one of its values: it is what the "
        "start of the training has made it, and its standard error is that of other data from "
        "the same start.",
        remedies=(
            "Retrain from other starts (`replicates=`) to see what that means, or ask for what "
            "the data determine.",
        ),
        warning=ShrinkageWarning,
    )


def _informed(case: Case) -> Array:
    """Part of the variance A^-1 that is not the ridge's, (K,); zero where that has nearly all."""
    assert case.response.directions is not None
    whole = case.response.covariance.diagonal()
    rest = whole - case.evaluation.model.penalty.floor * np.sum(case.response.directions**2, axis=0)
    return np.where(rest < INFORMED * whole, 0.0, rest)
