"""Checks of a page: each diagnostic with a mark and a sentence on what it means here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from implicit_delta.core import thresholds as limits
from implicit_delta.estimate.diagnostics import DEBIASED
from implicit_delta.estimate.quantiles import t_quantile
from implicit_delta.estimate.report.advice import for_reader
from implicit_delta.estimate.report.text import brief, in_errors, listed, share, tag

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

Level = Literal["problem", "look", "ok", "note"]
LEVELS: Mapping[str, Level] = {
    "error": "problem", "refuse": "problem", "warn": "look", "note": "note",
}  # fmt: skip
WORDS: Mapping[Level, str] = {"problem": "Problem", "look": "Look", "ok": "OK", "note": "Note"}
SIGNS: Mapping[Level, str] = {"problem": "✕", "look": "!", "ok": "✓", "note": "○"}
COUNTED: Mapping[Level, tuple[str, str]] = {
    "problem": ("check fails", "checks fail"),
    "look": ("check needs a look", "checks need a look"),
    "ok": ("check passed", "checks passed"),
}
CODES = {"bend": "nonlinearity"}  # findings that are the verdict on a diagnostic


class Check(NamedTuple):
    """A diagnostic, its value, its mark, and a sentence on what it means here."""

    name: str
    value: str
    level: Level
    sentence: str


class Measure(NamedTuple):
    """A number that should be small: a sentence with ``{x}``, how it is written, and its limits.

    The limits are those at which the library warns and refuses; what this means is the text of the
    finding.
    """

    name: str
    sentence: str
    write: Callable[[float], str]
    looks: float
    fails: float = math.inf

    def check(self, x: float) -> Check:
        """Mark a number."""
        level: Level = "problem" if x > self.fails else "look" if x > self.looks else "ok"
        return Check(self.name, brief(x), level, f"{self.sentence.format(x=self.write(x))}.")


MEASURES: Mapping[str, Measure] = {
    "drift": Measure(
        "drift", "Finishing the fit would move the estimate by {x} standard errors", in_errors,
        limits.DRIFT_WARNS, limits.DRIFT_REFUSES,
    ),
    "nonlinearity": Measure(
        "nonlinearity", "The quantity bends by {x} within half a standard error, which a symmetric "
        "interval ignores", share, limits.BEND_WARNS, limits.BEND_REFUSES,
    ),
    "bias": Measure(
        "bias", "Because the quantity bends, the estimate is off by {x} standard errors on average",
        in_errors, limits.SHIFT_WARNS,
    ),
    "shrinkage": Measure(
        "shrinkage", "The penalty has moved the estimate by {x} standard errors, and the interval "
        "is for the penalized fit", in_errors, limits.SHRINKAGE_WARNS,
    ),
    "residual": Measure(
        "residual", "The equations behind the standard error are solved up to {x} of it", share,
        limits.UNCERTAIN,
    ),
    "asymmetry": Measure(
        "asymmetry", "Two computations of the same covariance differ by {x}", share,
        limits.UNCERTAIN,
    ),
}  # fmt: skip
WORRY = ": with so few units it is uncertain"
STOPPED = Measure(
    "drift", "The training stopped early; going on would move the estimate by {x} standard errors, "
    "a possible bias beside the interval", in_errors, limits.STOPPED_WARNS,
)  # fmt: skip
# Notes that are numbers; a bootstrap has a limit of its own for its Monte-Carlo error.
NOTES: Mapping[str, Measure] = {
    "monte_carlo_error": Measure(
        "Monte-Carlo error", "Another seed would change the standard error by about {x} of itself",
        share, limits.UNCERTAIN,
    ),
    "nonlinear_share": Measure(
        "nonlinear share", "{x} of the variance over the draws is not linear in the parameters",
        share, limits.NONLINEAR_WARNS,
    ),
    "failed": Measure("failed replicates", "Refits that gave no value: {x}", brief, 0.0),
    "bias": Measure(
        "bias over refits", "The mean over the refits is {x} standard errors from the estimate",
        in_errors, limits.SHIFT_WARNS,
    ),
    "noise": Measure(
        "noise of the fit", "Fitting the same data again moves the estimate by {x} standard errors",
        in_errors, limits.UNCERTAIN,
    ),
    "end_difference": Measure(
        "end difference", "Training runs that lead to the same end differ by {x} standard errors",
        in_errors, limits.ENDS_APART,
    ),
    "response_difference": Measure(
        "response difference", "Training runs to the same end differ by {x} of the response",
        share, 1 - limits.REACHED,
    ),
    "statistic_shift": Measure(
        "shift", "The mean over draws is {x} standard errors from the value here, a possible bias",
        in_errors, limits.SHIFT_WARNS,
    ),
    "smoothing_change": Measure(
        "smoothing change", "With half the smoothing the standard error changes by {x}",
        share, limits.CHANGE_WARNS,
    ),
    "smoothing_error": Measure(
        "smoothing error", "Another seed would change the smoothed slope by about {x}",
        share, limits.UNCERTAIN,
    ),
}  # fmt: skip
# Notes with a sentence, and one limit of its own: a p-value is small where something is wrong.
TEXTS: Mapping[str, tuple[str, Level, str]] = {
    "near": (
        "near a limit", "look", "The fit is close to a limit of its constraints ({x}), where the "
        "normal approximation fails; an interval from a profile respects the limits.",
    ),
    "constraints": ("constraints", "note", "Held at the fit: {x}."),
    "flat_directions": (
        "flat directions", "note", "{x} directions of the parameters are not determined by the "
        "data. The quantity does not change along them, so that its interval does not suffer.",
    ),
    "accuracy": ("accuracy", "note", "The error of the iterative solve is {x}."),
    "most_reached": (
        "most reached", "note", "The training steps reach at most {x} of the variance.",
    ),
    "hansen_p_value": (
        "Hansen's J, p-value", "ok", "The estimating equations do not contradict each other ({x}).",
    ),
    "pieces": ("more than one interval", "look", "{x}."),
    "rows": ("rows of joined estimates", "look", "{x}."),
    "limits": ("limits that ends reach", "note", "{x}."),
    **{
        name: (name.replace("_", " "), "note", "{x}.")
        for name in ("stopped", "polished", "precision", "training_noise", "initialization_noise")
    },
}  # fmt: skip
CONTRADICT = "The estimating equations contradict each other: not all of them can hold."


def checks_of(estimate: Estimate, others: Sequence[Check] = ()) -> list[Check]:
    """Judge every diagnostic of an estimate, the worst first."""
    found = [
        *others,
        *_findings(estimate),
        *_measured(estimate),
        *_of_variance(estimate),
        *_notes(estimate.diagnostics.notes),
        *_unknown(estimate),
    ]
    return sorted(found, key=lambda check: list(WORDS).index(check.level))


def verdict_of(checks: Sequence[Check]) -> tuple[Level, str]:
    """Sum up: the worst level, and how many checks have it."""
    for level, (one, more) in COUNTED.items():
        count = sum(check.level == level for check in checks)
        if count:
            return level, f"{count} {one if count == 1 else more}"
    return "note", "nothing was checked"


def mark(level: Level) -> str:
    """Show a level by its sign, its word and its color."""
    sign = tag("span", SIGNS[level], aria_hidden="true")
    return tag("span", sign, f" {WORDS[level]}", class_=f"mark {level}")


def settings_of(estimate: Estimate) -> dict[str, str]:
    """Return the notes that are no check: settings, counts and reasons."""
    notes = estimate.diagnostics.notes.items()
    judged = {*NOTES, *TEXTS, "question"}
    return {name: brief(x) for name, x in notes if name not in judged and not _is_nan(x)}


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


def _findings(estimate: Estimate) -> Iterator[Check]:
    """Show findings in words for a reader, then warnings that are not about a finding."""
    found = estimate.diagnostics
    for one in found.findings:
        value = "" if one.number is None else brief(float(one.number))
        name = CODES.get(one.code, one.code.replace("_", " "))
        yield Check(name, value, LEVELS[one.level], for_reader(one))
    known = {str(one) for one in found.findings}
    yield from (Check("warning", "", "look", text) for text in found.warnings if text not in known)


def _measured(estimate: Estimate) -> Iterator[Check]:
    """Judge what was measured, but for what a finding has judged already."""
    found = estimate.diagnostics
    judged = {CODES.get(one.code, one.code) for one in found.findings}
    known = {name: getattr(found, name) for name in MEASURES if name not in judged}
    for name, x in known.items():
        measure = MEASURES[name]
        if name == "drift" and estimate.drift is not None:
            measure = STOPPED
        elif name == "drift" and estimate.target == DEBIASED:
            measure = measure._replace(looks=limits.DEBIASED_WARNS, fails=limits.DEBIASED_REFUSES)
        if not math.isnan(x):
            yield measure.check(x)
    curvature = found.smallest_curvature
    if not math.isnan(curvature):
        strict = curvature > 0
        text = "The log-likelihood falls in every direction from the fit, as an interval requires."
        text = text if strict else "In one direction from the fit the log-likelihood does not fall."
        yield Check("smallest curvature", brief(curvature), "ok" if strict else "problem", text)


def _of_variance(estimate: Estimate) -> Iterator[Check]:
    """Judge what the variance rests on."""
    errors = zip(estimate.names, np.atleast_1d(estimate.standard_error), strict=True)
    still = [name for name, error in errors if not error > 0]
    if still:
        text = (
            f"{listed(still)} came out without any error. That is right for a constant; of "
            "anything that was estimated it would be wrong."
        )
        yield Check("standard error", "0", "look", text)
    least = float(np.min(estimate.df))
    if math.isfinite(least):
        few = least < limits.FEW_CLUSTERS - 1
        text = (
            f"{_reason(estimate, least)}, so a 95% interval takes "
            f"{float(t_quantile(0.95, least)):.3g} standard errors instead of 1.96"
        )
        level: Level = "look" if few else "ok"
        yield Check("degrees of freedom", brief(least), level, f"{text}{WORRY * few}.")
    if estimate.errors_add:
        text = (
            "Whether the evaluation rows were used in the fit is unknown, so the standard errors "
            "are added: the interval is an upper bound."
        )
        yield Check("errors add", "yes", "note", text)


def _reason(estimate: Estimate, df: float) -> str:
    """Explain where degrees of freedom come from."""
    groups = clusters_of(estimate)
    if groups:
        fewest = min(map(int, groups.split(" x ")))
        alike = f" (as well as from {df + 1:.2g} of equal weight)" if df < fewest - 1.5 else ""
        return f"There are {groups} groups, and the error is estimated from how they differ{alike}"
    if str(estimate.diagnostics.notes.get("variance", "")).startswith("robust"):
        return "The error is estimated from how the rows that count most here scatter"
    return "The scale of the error was itself estimated"


def clusters_of(estimate: Estimate) -> str:
    """Return the number of clusters, such as 40 or 40 x 8; empty without any."""
    variance = str(estimate.diagnostics.notes.get("variance", ""))
    places = ((variance, ", ", " clusters)"), (estimate.method, " of ", " clusters"))
    counts = (
        text.rpartition(before)[2].removesuffix(after)
        for text, before, after in places
        if text.endswith(after)
    )
    return next(counts, "")


def _notes(notes: Mapping[str, Any]) -> Iterator[Check]:
    for name, note in notes.items():
        number = float(note) if isinstance(note, int | float | np.number) else math.nan
        if name in TEXTS and not _is_nan(note):
            title, level, sentence = TEXTS[name]
            if name == "hansen_p_value" and number < limits.REJECTED:
                level, sentence = "look", CONTRADICT
            yield Check(title, "", level, sentence.format(x=brief(note)))
        elif name in NOTES and not math.isnan(number):
            measure = NOTES[name]
            if name == "monte_carlo_error" and "replicates" in notes:
                measure = measure._replace(looks=limits.FEW_REPLICATES)
            yield measure.check(number)


def _unknown(estimate: Estimate) -> Iterator[Check]:
    """List what the method could not measure."""
    found = estimate.diagnostics
    names = [name for name in (*MEASURES, "smallest_curvature") if _is_nan(getattr(found, name))]
    names += [name for name, note in found.notes.items() if _is_nan(note)]
    if names:
        listing = listed([name.replace("_", " ") for name in names], len(names))
        text = f"Not measured by this method, or not applicable: {listing}."
        yield Check("not measured", "", "note", text)
