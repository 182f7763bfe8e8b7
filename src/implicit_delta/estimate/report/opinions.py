"""Second opinions: intervals of other methods, and whether they agree with the first."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.thresholds import DRIFT_REFUSES, SHRINKAGE_WARNS
from implicit_delta.estimate.drawn import SHOWN
from implicit_delta.estimate.report.checks import Check, Level
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.tabled import columns_of
from implicit_delta.estimate.transforms import Shown

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

APART: tuple[Level, ...] = ("look", "problem")
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
    def skewable(self) -> bool:
        """Whether it is an interval of a profile, which need not be symmetric."""
        return bool(self.pieces)

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
        told = _moved((self.low - first.low) / error, (self.high - first.high) / error)
        return ("problem" if gap > DRIFT_REFUSES else "look"), told


def _moved(low: float, high: float) -> str:
    """Tell by how many standard errors both ends are elsewhere; an infinite one is not.

    Examples
    --------
    >>> _moved(-0.24, -0.33)
    'starts 0.24 and ends 0.33 standard errors lower'
    >>> _moved(-0.5, 0.5)
    'starts 0.5 lower and ends 0.5 higher, in standard errors'
    """
    one, two = ("" if math.isnan(x) else "higher" if x > 0 else "lower" for x in (low, high))
    if one == two:
        return f"starts {abs(low):.2g} and ends {abs(high):.2g} standard errors {one}"
    ends = [f"starts {abs(low):.2g} {one}"] * bool(one) + [f"ends {abs(high):.2g} {two}"] * bool(
        two
    )
    return f"{' and '.join(ends)}, in standard errors"


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
    worst: Level = "problem" if "problem" in judged else "look" if "look" in judged else "ok"
    value = f"{agree} of {counted} agree"
    apart = [pair for pair, level in zip(others, judged, strict=True) if level in APART]
    if worst == "look" and all(one.skewable != first.skewable for one, first in apart):
        return _skewness(value, counted - agree, by_page=apart[0][1].skewable)
    text = (
        "Every other interval agrees: no end is more than a quarter of a standard error away."
        if agree == counted
        else f"{counted - agree} of {counted} other intervals differ by more than a quarter of a "
        "standard error at one end. Find out why before you rely on any of them."
    )
    return Check("second opinions", value, worst, text)


def _skewness(value: str, count: int, by_page: bool) -> Check:
    """Explain symmetric intervals that differ from those of a profile, by less than an error."""
    what = "The symmetric interval ignores" if by_page or count == 1 else "Symmetric ones ignore"
    text = (
        f"{what} skewness, and so differs by more than a quarter of a standard error at one end; "
        + ("prefer this one." if by_page else "prefer that of the profile, if the model is right.")
    )
    return Check("second opinions", value, "note" if by_page else "look", text)


def own_opinions(estimate: Estimate, level: float, transform: Any = None) -> list[Opinion]:
    """Return what an estimate itself holds beside its normal interval: draws, or influences."""
    others = {text: _by_draws(estimate, level, transform, kind) for kind, text in KINDS.items()}
    others["robust (HC0, from the influences)"] = _by_rows(estimate, level, transform)
    known = {text: ends for text, ends in others.items() if ends is not None}
    if not known:
        return []
    own = columns_of(estimate, level, transform=transform)
    known = {"this page": _ends(own), **known}
    return [
        Opinion(text, name, own["estimate"][k], float(low[k]), float(high[k]))
        for k, name in enumerate(estimate.names)
        for text, (low, high) in known.items()
    ]


Ends = tuple[Sequence[float], Sequence[float]]


def _ends(columns: Mapping[str, Any]) -> Ends:
    return columns["conf_low"], columns["conf_high"]


def _by_draws(estimate: Estimate, level: float, transform: Any, kind: str) -> Ends | None:
    if estimate.draws is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few replicates, which their number shows
            low, high = map(np.atleast_1d, estimate.confidence_interval(level, kind=kind))
    except ValueError:
        return None
    if not isinstance(transform, str) or transform not in SHOWN:
        return low.tolist(), high.tolist()  # quantiles need no scale
    zeros = np.zeros(len(low))
    shown = {"estimate": zeros, "std_error": zeros, "conf_low": low, "conf_high": high}
    return _ends(Shown(transform)(shown))


def _by_rows(estimate: Estimate, level: float, transform: Any) -> Ends | None:
    """Return the sandwich interval where the one of the page rests on the model alone."""
    plain = not estimate.parts and "variance" not in estimate.diagnostics.notes
    if estimate.influence is None or estimate.rows is None or not plain:
        return None
    robust = replace(estimate, covariance=estimate.rows.scatter(estimate.influence))
    return _ends(columns_of(robust, level, transform=transform))
