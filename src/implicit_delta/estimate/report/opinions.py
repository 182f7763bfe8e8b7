"""Second opinions: intervals of other methods, and whether they agree with the first."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.thresholds import DRIFT_REFUSES, SHRINKAGE_WARNS
from implicit_delta.estimate.report.checks import Check, Level
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.tabled import SHOWN, columns_of
from implicit_delta.estimate.transforms import Shown

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

KINDS = {"percentile": "percentiles of the draws", "bca": "BCa, corrected for bias and skewness"}
Ends = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Opinion:
    """The answer of one method to one evaluation; NaN where it has none, with the reason.

    Attributes
    ----------
    method, term : str
    value, low, high : float
    reason : str
        Why there is no answer.
    pieces : sequence of Interval
        All values of a profile, which need not be one interval, nor symmetric.
    """

    method: str
    term: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    pieces: Sequence[Interval] = ()

    @property
    def spans(self) -> Sequence[tuple[float, float]]:
        """The interval, or its pieces."""
        return [(float(a), float(b)) for a, b in self.pieces] or [(self.low, self.high)]

    def verdict(self, first: Opinion, error: float) -> tuple[Level, str]:
        """Compare with the first opinion: by offsets that change a coverage, as for a bias."""
        if self is first:
            return "note", "reference"
        if math.isnan(self.value):
            return "note", f"no answer: {self.reason}" if self.reason else "no answer"
        if not error > 0 or math.isnan(first.value):
            return "note", "nothing to compare with"
        if len(self.spans) != len(first.spans):
            kinds = ("one interval", "in pieces")[:: 1 if len(self.spans) == 1 else -1]
            return "problem", f"{kinds[0]}, where the first is {kinds[1]}"
        pairs = ((self.low, first.low), (self.high, first.high))
        moves = [0.0 if own == other else (own - other) / error for own, other in pairs]
        gap = max(map(abs, moves))
        if not gap > SHRINKAGE_WARNS:
            return "ok", "agrees"
        if math.isinf(gap):
            return "problem", "one has an end where the other has none"
        return ("problem" if gap > DRIFT_REFUSES else "look"), _moved(*moves)


def _moved(low: float, high: float) -> str:
    """Say by how many standard errors both ends are elsewhere.

    Examples
    --------
    >>> _moved(-0.24, -0.33)
    'starts 0.24 and ends 0.33 standard errors lower'
    >>> _moved(-0.5, 0.5)
    'starts 0.5 lower and ends 0.5 higher, in standard errors'
    """
    one, two = ("higher" if x > 0 else "lower" for x in (low, high))
    if one == two:
        return f"starts {abs(low):.2g} and ends {abs(high):.2g} standard errors {one}"
    return f"starts {abs(low):.2g} {one} and ends {abs(high):.2g} {two}, in standard errors"


def agreement(found: Sequence[Opinion], errors: Mapping[str, float]) -> Check | None:
    """Sum up how the others compare with the first opinion on each evaluation."""
    if not found:
        return None
    firsts = {one.term: one for one in reversed(found)}
    others = [(one, firsts[one.term]) for one in found if one is not firsts[one.term]]
    judged = [one.verdict(first, errors[one.term])[0] for one, first in others]
    agree, counted = judged.count("ok"), sum(level != "note" for level in judged)
    if not counted:
        return Check("second opinions", "", "note", "No other method has an answer to compare.")
    value, count = f"{agree} of {counted} agree", counted - agree
    apart = [pair for pair, level in zip(others, judged, strict=True) if level == "look"]
    level: Level = "problem" if "problem" in judged else "look" if apart else "ok"
    if level == "look" and all(bool(one.pieces) != bool(first.pieces) for one, first in apart):
        by_page = bool(apart[0][1].pieces)
        text = (
            "The symmetric interval ignores skewness, and so differs by more than a quarter of a "
            "standard error at one end; "
            + ("prefer this one." if by_page else "prefer the profile, if the model is right.")
        )
        return Check("second opinions", value, "note" if by_page else "look", text)
    text = (
        f"{count} of {counted} other intervals differ by more than a quarter of a standard error "
        "at one end. Find out why before you rely on any of them."
        if count
        else "Every other interval agrees: no end is more than a quarter of a standard error away."
    )
    return Check("second opinions", value, level, text)


def own_opinions(estimate: Estimate, level: float, transform: Any = None) -> list[Opinion]:
    """Return what an estimate itself holds beside its normal interval: draws, or influences."""
    others = dict(_others(estimate, level, transform))
    if not others:
        return []
    own = columns_of(estimate, level, transform=transform)
    return [
        Opinion(text, name, own["estimate"][k], float(low[k]), float(high[k]))
        for k, name in enumerate(estimate.names)
        for text, (low, high) in {"this page": _ends(own), **others}.items()
    ]


def _others(estimate: Estimate, level: float, transform: Any) -> Iterator[tuple[str, Ends]]:
    for kind, text in KINDS.items() if estimate.draws is not None else ():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of few replicates, which their number shows
                low, high = map(np.atleast_1d, estimate.confidence_interval(level, kind=kind))
        except ValueError:
            continue
        shown = {"estimate": low, "std_error": 0 * low, "conf_low": low, "conf_high": high}
        # Quantiles need no scale, but are shown on that of the page.
        yield text, _ends(Shown(transform if transform in SHOWN.values() else None)(shown))
    by_model = not estimate.parts and "variance" not in estimate.diagnostics.notes
    if estimate.influence is not None and estimate.rows is not None and by_model:
        robust = replace(estimate, covariance=estimate.rows.scatter(estimate.influence))
        ends = _ends(columns_of(robust, level, transform=transform))
        yield "robust (HC0, from the influences)", ends


def _ends(columns: Mapping[str, Any]) -> Ends:
    return columns["conf_low"], columns["conf_high"]
