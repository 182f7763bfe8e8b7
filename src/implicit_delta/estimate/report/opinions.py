"""Second opinions: intervals of other methods, and whether they agree with the first."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta._core.thresholds import DRIFT_REFUSES, SHRINKAGE_WARNS
from implicit_delta.estimate.quantiles import deviations, t_quantile
from implicit_delta.estimate.report.checks import Check, Level
from implicit_delta.estimate.results import Interval

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

KINDS = {"percentile": "percentiles of the draws", "bca": "BCa, corrected for bias and skewness"}


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
        All values, where they are not one interval.
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

    def apart(self, first: Opinion, error: float) -> float:
        """Return the largest distance between ends of two intervals, in standard errors."""
        gaps = [
            0.0 if own == other else abs(own - other) / error
            for own, other in ((self.low, first.low), (self.high, first.high))
        ]
        return max(gaps)

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
        gap = self.apart(first, error)
        if not gap > SHRINKAGE_WARNS:
            return "ok", "agrees"
        if math.isinf(gap):
            return "problem", "one has an end where the other has none"
        wider = _width(self) / _width(first) if _width(first) < math.inf else 1.0
        told = f"{gap:.2g} standard errors away at one end, {_compared(wider)}"
        return ("problem" if gap > DRIFT_REFUSES else "look"), told


def _width(one: Opinion) -> float:
    return one.high - one.low


def _compared(ratio: float) -> str:
    if 0.95 < ratio < 1.05:
        return "as wide"
    return f"{ratio:.2g} times as wide"


def agreement(found: Sequence[Opinion], estimate: Estimate) -> Check | None:
    """Sum up how the others compare with the first opinion on each evaluation."""
    if not found:
        return None
    errors = dict(zip(estimate.names, deviations(estimate.covariance).tolist(), strict=True))
    firsts = {one.term: one for one in reversed(found)}
    judged = [
        one.verdict(firsts[one.term], errors[one.term])[0]
        for one in found
        if one is not firsts[one.term]
    ]
    agree, counted = judged.count("ok"), sum(level != "note" for level in judged)
    if not counted:
        return Check("second opinions", "", "note", "No other method has an answer to compare.")
    worst: Level = "problem" if "problem" in judged else "look" if "look" in judged else "ok"
    text = (
        "Every other interval agrees: no end is more than a quarter of a standard error away."
        if agree == counted
        else f"{counted - agree} of {counted} other intervals differ by more than a quarter of a "
        "standard error at one end. Find out why before you rely on any of them."
    )
    return Check("second opinions", f"{agree} of {counted} agree", worst, text)


def own_opinions(estimate: Estimate, level: float) -> list[Opinion]:
    """Return what an estimate itself holds beside its normal interval: draws, or influences."""
    others = {text: _by_draws(estimate, level, kind) for kind, text in KINDS.items()}
    others["robust (HC0, from the influences)"] = _by_rows(estimate, level)
    known = {text: ends for text, ends in others.items() if ends is not None}
    if not known:
        return []
    known = {"this page": _ends(estimate.confidence_interval(level)), **known}
    values = np.atleast_1d(estimate.value)
    return [
        Opinion(text, name, float(values[k]), float(low[k]), float(high[k]))
        for k, name in enumerate(estimate.names)
        for text, (low, high) in known.items()
    ]


Ends = tuple[np.ndarray, np.ndarray]


def _ends(interval: object) -> Ends:
    low, high = map(np.atleast_1d, interval)  # type: ignore[call-overload]
    return low, high


def _by_draws(estimate: Estimate, level: float, kind: str) -> Ends | None:
    if estimate.draws is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few replicates, which their number shows
            return _ends(estimate.confidence_interval(level, kind=kind))
    except ValueError:
        return None


def _by_rows(estimate: Estimate, level: float) -> Ends | None:
    """Return the sandwich interval where the one of the page rests on the model alone."""
    plain = not estimate.parts and "variance" not in estimate.diagnostics.notes
    if estimate.influence is None or estimate.rows is None or not plain:
        return None
    half = t_quantile(level, estimate.df) * deviations(estimate.rows.scatter(estimate.influence))
    value = np.atleast_1d(estimate.value)
    return value - half, value + half
