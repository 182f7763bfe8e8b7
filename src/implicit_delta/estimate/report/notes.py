"""Verdicts on the notes of single methods; a note without one is a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.thresholds import (
    CHANGE_WARNS,
    ENDS_APART,
    FEW_REPLICATES,
    NONLINEAR_WARNS,
    REACHED,
    REJECTED,
    SHIFT_WARNS,
    UNCERTAIN,
)
from implicit_delta.estimate.report.checks import Check, Level, graded, little
from implicit_delta.estimate.report.text import brief, share

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


def noted(estimate: Estimate) -> list[Check]:
    """Judge the notes that can be judged."""
    notes = estimate.diagnostics.notes
    known = [name for name in _NOTES if name in notes and not unknown(notes[name])]
    judged = (_NOTES[name](notes[name], estimate) for name in known)
    return [check for check in judged if check is not None]


def unknown(note: Any) -> bool:
    """Whether a note is a number that nobody knows."""
    return isinstance(note, float | np.floating) and math.isnan(note)


def settings_of(estimate: Estimate) -> dict[str, str]:
    """Return the notes that are no check: settings, counts and reasons."""
    found = estimate.diagnostics.notes.items()
    shown = {*_NOTES, "question"}
    return {name: brief(x) for name, x in found if name not in shown and not unknown(x)}


def _number(content: Any) -> float:
    return float(content) if isinstance(content, int | float | np.number) else math.nan


def _monte_carlo(x: Any, estimate: Estimate) -> Check | None:
    refitted = "replicates" in estimate.diagnostics.notes
    error = _number(x)
    level = graded(error, FEW_REPLICATES if refitted else UNCERTAIN)
    text = f"Another seed would change the standard error by about {share(error)} of itself" + (
        "." if level == "ok" else ": take more draws before you rely on the second digit."
    )
    return Check("Monte-Carlo error", brief(x), level, text)


def _linear_draws(x: Any, estimate: Estimate) -> Check | None:
    level = graded(_number(x), NONLINEAR_WARNS)
    text = f"{share(_number(x))} of the variance over the draws is not linear in the parameters" + (
        "." if level == "ok" else ": the quantity turns or jumps here, or the draws go too far."
    )
    return Check("nonlinear share", brief(x), level, text)


def _failed(x: Any, estimate: Estimate) -> Check | None:
    total = brief(_number(estimate.diagnostics.notes.get("replicates", math.nan)))
    if not _number(x) > 0:
        return Check("failed replicates", "0", "ok", f"All {total} refits gave a value.")
    text = f"{brief(x)} of {total} refits gave no value; the interval rests on the others."
    return Check("failed replicates", brief(x), "look", text)


def _bootstrap_bias(x: Any, estimate: Estimate) -> Check | None:
    text = f"The mean over the refits is {little(_number(x))} standard errors from the estimate."
    return Check("bias over refits", brief(x), graded(_number(x), SHIFT_WARNS), text)


def _random_fit(x: Any, estimate: Estimate) -> Check | None:
    text = (
        f"Fitting the same data again moves the estimate by {little(_number(x))} standard errors."
    )
    return Check("noise of the fit", brief(x), graded(_number(x), UNCERTAIN), text)


def _most_reached(x: Any, estimate: Estimate) -> Check | None:
    level: Level = "look" if _number(x) < REACHED else "note"
    text = f"The training steps reach at most {share(_number(x))} of the variance" + (
        "." if level == "note" else ": they stop short, and the error is too small."
    )
    return Check("most reached", brief(x), level, text)


def _response_difference(x: Any, estimate: Estimate) -> Check | None:
    if math.isnan(_number(x)):
        text = "Whether the training runs finish was not checked, or is lost in their noise."
        return Check("response difference", brief(x), "look", text)
    unfinished = _number(x) > 1 - REACHED
    text = (
        f"Training runs that lead to the same end differ by {share(_number(x))} of the response"
        + (": they do not finish." if unfinished else ". Only longer runs show that they finish.")
    )
    return Check("response difference", brief(x), "look" if unfinished else "note", text)


def _end_difference(x: Any, estimate: Estimate) -> Check | None:
    if math.isnan(_number(x)):
        return None
    text = (
        f"Training runs that lead to the same end differ by {little(_number(x))} standard errors."
    )
    return Check("end difference", brief(x), graded(_number(x), ENDS_APART), text)


def _shift(x: Any, estimate: Estimate) -> Check | None:
    text = (
        f"On average over draws the statistic is {little(_number(x))} standard errors from its "
        "value here, a possible bias."
    )
    return Check("shift", brief(x), graded(_number(x), SHIFT_WARNS), text)


def _smoothing_change(x: Any, estimate: Estimate) -> Check | None:
    text = f"With half the smoothing the standard error changes by {share(_number(x))}."
    return Check("smoothing change", brief(x), graded(_number(x), CHANGE_WARNS), text)


def _smoothing_error(x: Any, estimate: Estimate) -> Check | None:
    text = f"Another seed would change the smoothed slope by about {share(_number(x))}."
    return Check("smoothing error", brief(x), graded(_number(x), UNCERTAIN), text)


def _flat(x: Any, estimate: Estimate) -> Check | None:
    text = (
        f"{brief(x)} directions of the parameters are not determined by the data. The quantity "
        "does not change along them, so that its interval does not suffer."
    )
    return Check("flat directions", brief(x), "note", text)


def _accuracy(x: Any, estimate: Estimate) -> Check | None:
    level: Level = "look" if str(x).startswith("not") else "ok"
    return Check("accuracy", "", level, f"The error of the iterative solve is {brief(x)}.")


def _near(x: Any, estimate: Estimate) -> Check | None:
    text = (
        f"The fit is close to a limit of its constraints ({brief(x)}), where the normal "
        "approximation fails: use a profile."
    )
    return Check("near a limit", "", "look", text)


def _constraints(x: Any, estimate: Estimate) -> Check | None:
    return Check("constraints", "", "note", f"Held at the fit: {brief(x)}.")


def _hansen(x: Any, estimate: Estimate) -> Check | None:
    level: Level = "look" if _number(x) < REJECTED else "ok"
    text = "The estimating equations " + (
        "do not contradict each other (Hansen's J)."
        if level == "ok"
        else "contradict each other (Hansen's J): not all of them can hold."
    )
    return Check("Hansen's J, p-value", brief(x), level, text)


def _said(name: str, level: Level = "note") -> Callable[[Any, Any], Check | None]:
    """Pass on a note that is a sentence by itself."""
    return lambda x, _: Check(name, "", level, f"{brief(x)}.")


_NOTES: Mapping[str, Callable[[Any, Any], Check | None]] = {
    "monte_carlo_error": _monte_carlo,
    "nonlinear_share": _linear_draws,
    "failed": _failed,
    "bias": _bootstrap_bias,
    "noise": _random_fit,
    "most_reached": _most_reached,
    "response_difference": _response_difference,
    "end_difference": _end_difference,
    "statistic_shift": _shift,
    "smoothing_change": _smoothing_change,
    "smoothing_error": _smoothing_error,
    "hansen_p_value": _hansen,
    "accuracy": _accuracy,
    "near": _near,
    "constraints": _constraints,
    "flat_directions": _flat,
    "stopped": _said("stopped training"),
    "polished": _said("polished"),
    "precision": _said("precision"),
    "training_noise": _said("training noise"),
    "initialization_noise": _said("initialization noise"),
    "pieces": _said("more than one interval", "look"),
    "limits": _said("limits that ends reach"),
    "rows": _said("rows of joined estimates", "look"),
}
