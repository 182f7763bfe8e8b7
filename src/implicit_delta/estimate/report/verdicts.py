"""Verdicts on diagnostics: a mark, and a sentence on what each means for the estimate at hand.

The limits are those at which the library warns or refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from implicit_delta._core.thresholds import (
    BEND_REFUSES,
    BEND_WARNS,
    CHANGE_WARNS,
    DEBIASED_REFUSES,
    DEBIASED_WARNS,
    DRIFT_REFUSES,
    DRIFT_WARNS,
    FEW_CLUSTERS,
    FEW_REPLICATES,
    NONLINEAR_WARNS,
    REACHED,
    REJECTED,
    SHIFT_WARNS,
    SHRINKAGE_WARNS,
    STOPPED_WARNS,
    UNCERTAIN,
)
from implicit_delta.estimate.diagnostics import DEBIASED, Diagnostics
from implicit_delta.estimate.quantiles import deviations, t_quantile
from implicit_delta.estimate.report.text import brief, listed

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

Level = Literal["ok", "look", "problem", "note"]
WORDS: Mapping[Level, str] = {"ok": "OK", "look": "Look", "problem": "Problem", "note": "Note"}
SIGNS: Mapping[Level, str] = {"ok": "✓", "look": "!", "problem": "✕", "note": "○"}
COSTS = ("passes", "seconds")


@dataclass(frozen=True)
class Check:
    """A diagnostic, its value, its mark, and a sentence."""

    name: str
    value: str
    level: Level
    sentence: str


def checks_of(estimate: Estimate, others: Sequence[Check] = ()) -> list[Check]:
    """Judge every diagnostic of an estimate, the worst first."""
    found = [
        *others,
        *_no_error(estimate),
        *(Check("warning", "", "look", text) for text in estimate.diagnostics.warnings),
        *_measured(estimate),
        *_degrees(estimate),
        *_bound(estimate),
        *_noted(estimate),
        *_unknown(estimate.diagnostics),
    ]
    order = ["problem", "look", "ok", "note"]
    return sorted(found, key=lambda check: order.index(check.level))


def verdict_of(checks: list[Check]) -> tuple[Level, str]:
    """Sum up: the worst mark, and how many have it."""
    counts = {level: sum(check.level == level for check in checks) for level in WORDS}
    if counts["problem"]:
        return "problem", _counted(counts["problem"], "check fails", "checks fail")
    if counts["look"]:
        return "look", _counted(counts["look"], "check needs a look", "checks need a look")
    if counts["ok"]:
        return "ok", _counted(counts["ok"], "check passed", "checks passed")
    return "note", "Nothing was checked"


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _graded(x: float, looks: float, fails: float = math.inf) -> Level:
    return "problem" if x > fails else "look" if x > looks else "ok"


def _no_error(estimate: Estimate) -> list[Check]:
    still = [
        name
        for name, error in zip(estimate.names, deviations(estimate.covariance), strict=True)
        if not error > 0
    ]
    if not still:
        return []
    text = (
        f"{listed(still)} came out without any error. That is right for a constant; of anything "
        "that was estimated it would be wrong."
    )
    return [Check("standard error", "0", "look", text)]


def _measured(estimate: Estimate) -> list[Check]:
    found = estimate.diagnostics
    known = {name: getattr(found, name) for name in _MEASURES}
    return [
        _MEASURES[name](x, estimate) for name, x in known.items() if not math.isnan(x)
    ]  # fmt: skip


def _drift(x: float, estimate: Estimate) -> Check:
    if estimate.drift is not None:
        text = (
            f"The training stopped early. Going on with it would move the estimate by {x:.2g} "
            "standard errors: a possible bias beside the interval, not a part of it."
        )
        return Check("drift", brief(x), _graded(x, STOPPED_WARNS), text)
    limits = (DRIFT_WARNS, DRIFT_REFUSES)
    if estimate.target == DEBIASED:
        limits = (DEBIASED_WARNS, DEBIASED_REFUSES)
    level = _graded(x, *limits)
    text = f"Finishing the fit would move the estimate by {_little(x)} standard errors" + {
        "ok": ": it is finished for all purposes.",
        "look": ": it stopped short of its maximum, and the interval is off by about as much.",
    }.get(level, ": the interval is around the wrong place. Finish the fit first.")
    return Check("drift", brief(x), level, text)


def _curvature(x: float, estimate: Estimate) -> Check:
    if x > 0:
        text = (
            "The log-likelihood curves downward in every direction that was met: the fit is at a "
            "strict maximum, which an interval needs."
        )
        return Check("smallest curvature", brief(x), "ok", text)
    text = (
        "In one direction the log-likelihood does not curve downward: the data do not determine "
        "the parameters, and the interval has no ground."
    )
    return Check("smallest curvature", brief(x), "problem", text)


def _nonlinearity(x: float, estimate: Estimate) -> Check:
    level = _graded(x, BEND_WARNS, BEND_REFUSES)
    text = f"Within half a standard error the quantity bends by {x:.1%}" + {
        "ok": ": a symmetric interval is fair.",
        "look": ": a symmetric interval is doubtful; a profile or a bootstrap is not symmetric.",
    }.get(level, ": it turns around there, and the interval has no meaning.")
    return Check("nonlinearity", brief(x), level, text)


def _bias(x: float, estimate: Estimate) -> Check:
    level = _graded(x, SHIFT_WARNS)
    text = f"Because the quantity bends, the estimate is off by {_little(x)} standard errors" + (
        ", which the interval absorbs."
        if level == "ok"
        else " on average, so that the interval covers less often than it says."
    )
    return Check("bias", brief(x), level, text)


def _asymmetry(x: float, estimate: Estimate) -> Check:
    level = _graded(x, UNCERTAIN)
    text = "Two ways to the same covariance" + (
        " agree." if level == "ok" else " disagree: refits did not finish, or pushed too far."
    )
    return Check("asymmetry", brief(x), level, text)


def _residual(x: float, estimate: Estimate) -> Check:
    level = _graded(x, UNCERTAIN)
    text = "The equations behind the standard error are solved" + (
        " far more exactly than it is known."
        if level == "ok"
        else " only roughly: the standard error is uncertain. Tighten the solver."
    )
    return Check("residual", brief(x), level, text)


def _shrinkage(x: float, estimate: Estimate) -> Check:
    level = _graded(x, SHRINKAGE_WARNS)
    text = f"The penalty has moved the estimate by {_little(x)} standard errors" + (
        ": the interval serves for the truth as well."
        if level == "ok"
        else ": the interval is for the penalized fit, and covers the truth less often than it says."
    )
    return Check("shrinkage", brief(x), level, text)


_MEASURES: Mapping[str, Callable[[float, Any], Check]] = {
    "drift": _drift,
    "smallest_curvature": _curvature,
    "nonlinearity": _nonlinearity,
    "bias": _bias,
    "shrinkage": _shrinkage,
    "residual": _residual,
    "asymmetry": _asymmetry,
}


def _little(x: float) -> str:
    return "less than 0.01" if x < 0.01 else f"about {x:.2g}"


def _degrees(estimate: Estimate) -> list[Check]:
    least = float(np.min(estimate.df))
    if math.isinf(least):
        return []
    critical = float(t_quantile(0.95, least))
    few = least < FEW_CLUSTERS - 1
    text = (
        f"The scale of the error was itself estimated, so a 95% interval takes {critical:.3g} "
        + (
            "standard errors instead of 1.96: with so few units it is uncertain."
            if few
            else "standard errors instead of 1.96."
        )
    )
    return [Check("degrees of freedom", brief(least), "look" if few else "ok", text)]


def _bound(estimate: Estimate) -> list[Check]:
    if not estimate.errors_add:
        return []
    text = (
        "Whether the evaluation rows were used in the fit is unknown, so the standard errors are "
        "added: the interval is an upper bound."
    )
    return [Check("errors add", "yes", "note", text)]


def _noted(estimate: Estimate) -> list[Check]:
    notes = estimate.diagnostics.notes
    found = []
    for name, judge in _NOTES.items():
        if name in notes and (check := judge(notes[name], estimate)) is not None:
            found.append(check)
    return found


def _number(content: Any) -> float:
    return float(content) if isinstance(content, int | float | np.number) else math.nan


def _monte_carlo(x: Any, estimate: Estimate) -> Check | None:
    refitted = "replicates" in estimate.diagnostics.notes
    error = _number(x)
    level = _graded(error, FEW_REPLICATES if refitted else UNCERTAIN)
    text = f"Another seed would change the standard error by about {error:.1%} of itself" + (
        "." if level == "ok" else ": take more draws before you rely on the second digit."
    )
    return Check("Monte-Carlo error", brief(x), level, text)


def _linear_draws(x: Any, estimate: Estimate) -> Check | None:
    level = _graded(_number(x), NONLINEAR_WARNS)
    text = f"{_number(x):.1%} of the variance over the draws is not linear in the parameters" + (
        "." if level == "ok" else ": the quantity turns or jumps here, or the draws go too far."
    )
    return Check("nonlinear share", brief(x), level, text)


def _failed(x: Any, estimate: Estimate) -> Check | None:
    total = brief(_number(estimate.diagnostics.notes.get("replicates", math.nan)))
    if not _number(x) > 0:
        return Check("failed replicates", "0", "ok", f"All {total} refits gave a value.")
    text = f"{brief(x)} of {total} refits gave no value; the interval rests on the others."
    return Check("failed replicates", brief(x), "look", text)


def _share_reached(x: Any, estimate: Estimate) -> Check | None:
    if math.isnan(_number(x)):
        return Check("share reached", brief(x), "look", "Whether trainings finish is not known.")
    level: Level = "look" if _number(x) < REACHED else "ok"
    text = f"The trainings reach {_number(x):.0%} of the variance" + (
        ": they finish." if level == "ok" else ": they stop short, and the error is too small."
    )
    return Check("share reached", brief(x), level, text)


def _unfinished(x: Any, estimate: Estimate) -> Check | None:
    if math.isnan(_number(x)):
        return None
    text = f"The trainings end {_little(_number(x))} standard errors from where they lead."
    return Check("unfinished", brief(x), _graded(_number(x), DRIFT_WARNS), text)


def _shift(x: Any, estimate: Estimate) -> Check | None:
    text = (
        f"On average over draws the statistic is {_little(_number(x))} standard errors from its "
        "value here, a possible bias."
    )
    return Check("shift", brief(x), _graded(_number(x), SHIFT_WARNS), text)


def _smoothing_change(x: Any, estimate: Estimate) -> Check | None:
    text = f"With half the smoothing the standard error changes by {_number(x):.0%}."
    return Check("smoothing change", brief(x), _graded(_number(x), CHANGE_WARNS), text)


def _smoothing_error(x: Any, estimate: Estimate) -> Check | None:
    text = f"Another seed would change the smoothed slope by about {_number(x):.0%}."
    return Check("smoothing error", brief(x), _graded(_number(x), UNCERTAIN), text)


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
    "share_reached": _share_reached,
    "unfinished": _unfinished,
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
    "training_noise": _said("training noise"),
    "initialization_noise": _said("initialization noise"),
    "pieces": _said("more than one interval", "look"),
    "limits": _said("limits that ends reach"),
    "rows": _said("rows of joined estimates", "look"),
}


def _unknown(found: Diagnostics) -> list[Check]:
    """List what the method could not measure."""
    names = [
        item.name.replace("_", " ")
        for item in fields(found)
        if item.name in _MEASURES and math.isnan(getattr(found, item.name))
    ]
    if not names:
        return []
    text = f"Not measured by this method, or not applicable: {listed(names, len(names))}."
    return [Check("not measured", "", "note", text)]


def settings_of(estimate: Estimate) -> dict[str, str]:
    """Return the notes that are no check: settings, counts and reasons."""
    notes = estimate.diagnostics.notes
    return {name: brief(note) for name, note in notes.items() if name not in _NOTES}
