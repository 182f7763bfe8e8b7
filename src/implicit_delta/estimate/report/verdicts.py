"""Verdicts on diagnostics: a mark, and a sentence on what each means for the estimate at hand.

The limits are those at which the library warns or refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.thresholds import (
    BEND_REFUSES,
    BEND_WARNS,
    DEBIASED_REFUSES,
    DEBIASED_WARNS,
    DRIFT_REFUSES,
    DRIFT_WARNS,
    FEW_CLUSTERS,
    SHIFT_WARNS,
    SHRINKAGE_WARNS,
    STOPPED_WARNS,
    UNCERTAIN,
)
from implicit_delta.estimate.diagnostics import DEBIASED, Diagnostics
from implicit_delta.estimate.held import covariance_of
from implicit_delta.estimate.quantiles import deviations, t_quantile
from implicit_delta.estimate.report.checks import LEVELS, Check, graded, little, worst_first
from implicit_delta.estimate.report.facts import clusters_of, variance_of
from implicit_delta.estimate.report.notes import noted, unknown
from implicit_delta.estimate.report.text import brief, listed, share

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


def checks_of(estimate: Estimate, others: Sequence[Check] = ()) -> list[Check]:
    """Judge every diagnostic of an estimate, the worst first."""
    found = [
        *others,
        *_no_error(estimate),
        *_warned(estimate.diagnostics),
        *_measured(estimate),
        *_degrees(estimate),
        *_bound(estimate),
        *noted(estimate),
        *_unknown(estimate.diagnostics),
    ]
    return worst_first(found)


def _no_error(estimate: Estimate) -> list[Check]:
    still = [
        name
        for name, error in zip(estimate.names, deviations(covariance_of(estimate)), strict=True)
        if not error > 0
    ]
    if not still:
        return []
    text = (
        f"{listed(still)} came out without any error. That is right for a constant; of anything "
        "that was estimated it would be wrong."
    )
    return [Check("standard error", "0", "look", text)]


def _warned(found: Diagnostics) -> list[Check]:
    """Show the warnings; one of a bend has its number, and is the verdict on it."""
    bends = {str(one): one for one in found.findings if one.code == "bend"}
    return [
        Check("warning", "", "look", text)
        if (bend := bends.get(text)) is None
        else Check("nonlinearity", f"{bend.number:.2g}", LEVELS[bend.level], text)
        for text in found.warnings
    ]


def _measured(estimate: Estimate) -> list[Check]:
    """Judge what was measured, but for a bend that a warning has judged already."""
    found = estimate.diagnostics
    told = {"nonlinearity"} if any(one.code == "bend" for one in found.findings) else set()
    known = {name: getattr(found, name) for name in _MEASURES if name not in told}
    return [
        _MEASURES[name](x, estimate) for name, x in known.items() if not math.isnan(x)
    ]  # fmt: skip


def _drift(x: float, estimate: Estimate) -> Check:
    if estimate.drift is not None:
        text = (
            f"The training stopped early. Going on with it would move the estimate by "
            f"{little(x)} standard errors: a possible bias beside the interval, not a part of it."
        )
        return Check("drift", brief(x), graded(x, STOPPED_WARNS), text)
    limits = (DRIFT_WARNS, DRIFT_REFUSES)
    if estimate.target == DEBIASED:
        limits = (DEBIASED_WARNS, DEBIASED_REFUSES)
    level = graded(x, *limits)
    text = f"Finishing the fit would move the estimate by {little(x)} standard errors" + {
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
    level = graded(x, BEND_WARNS, BEND_REFUSES)
    text = f"Within half a standard error the quantity bends by {share(x)}" + {
        "ok": ": the normal approximation is fair.",
        "look": ": a symmetric interval is doubtful; a profile or a bootstrap is not symmetric.",
    }.get(level, ": it turns around there, and the interval has no meaning.")
    return Check("nonlinearity", brief(x), level, text)


def _bias(x: float, estimate: Estimate) -> Check:
    level = graded(x, SHIFT_WARNS)
    text = f"Because the quantity bends, the estimate is off by {little(x)} standard errors" + (
        ", which the interval absorbs."
        if level == "ok"
        else " on average, so that the interval covers less often than it says."
    )
    return Check("bias", brief(x), level, text)


def _asymmetry(x: float, estimate: Estimate) -> Check:
    level = graded(x, UNCERTAIN)
    text = "Two ways to the same covariance" + (
        " agree." if level == "ok" else " disagree: refits did not finish, or pushed too far."
    )
    return Check("asymmetry", brief(x), level, text)


def _residual(x: float, estimate: Estimate) -> Check:
    level = graded(x, UNCERTAIN)
    text = "The equations behind the standard error are solved" + (
        " far more exactly than it is known."
        if level == "ok"
        else " only roughly: the standard error is uncertain. Tighten the solver."
    )
    return Check("residual", brief(x), level, text)


def _shrinkage(x: float, estimate: Estimate) -> Check:
    level = graded(x, SHRINKAGE_WARNS)
    text = f"The penalty has moved the estimate by {little(x)} standard errors" + (
        ": the interval serves for the truth as well."
        if level == "ok"
        else ": the interval is for the penalized fit, and covers the truth less often."
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


def _degrees(estimate: Estimate) -> list[Check]:
    least = float(np.min(estimate.df))
    if math.isinf(least):
        return []
    critical = float(t_quantile(0.95, least))
    few = least < FEW_CLUSTERS - 1
    text = f"{_reason(estimate, least)}, so a 95% interval takes {critical:.3g} " + (
        "standard errors instead of 1.96: with so few units it is uncertain."
        if few
        else "standard errors instead of 1.96."
    )
    return [Check("degrees of freedom", brief(least), "look" if few else "ok", text)]


def _reason(estimate: Estimate, df: float) -> str:
    """Tell where degrees of freedom come from."""
    groups = clusters_of(estimate)
    if groups:
        fewest = min(map(int, groups.split(" x ")))
        alike = f" (as well as from {df + 1:.2g} of equal weight)" if df < fewest - 1.5 else ""
        return f"There are {groups} groups, and the error is estimated from how they differ{alike}"
    if variance_of(estimate).startswith("robust"):
        return "The error is estimated from how the rows that count most here scatter"
    return "The scale of the error was itself estimated"


def _bound(estimate: Estimate) -> list[Check]:
    if not estimate.errors_add:
        return []
    text = (
        "Whether the evaluation rows were used in the fit is unknown, so the standard errors are "
        "added: the interval is an upper bound."
    )
    return [Check("errors add", "yes", "note", text)]


def _unknown(found: Diagnostics) -> list[Check]:
    """List what the method could not measure."""
    names = [
        item.name.replace("_", " ")
        for item in fields(found)
        if item.name in _MEASURES and math.isnan(getattr(found, item.name))
    ]
    names += [name.replace("_", " ") for name, note in found.notes.items() if unknown(note)]
    if not names:
        return []
    text = f"Not measured by this method, or not applicable: {listed(names, len(names))}."
    return [Check("not measured", "", "note", text)]
