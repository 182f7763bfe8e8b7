"""Profile: intervals, the path they were found along, a table and a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.estimate import Interval
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.estimate.tables import aligned, as_html, data_frame, decimals, number, percent
from implicit_delta.inference.profile.sides import BOTH, SIGNS, critical_root

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


class Curve(NamedTuple):
    """The path: multiplier, psi and deviance of each point, (m,) arrays with psi ascending."""

    lam: Array
    psi: Array
    deviance: Array


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """The likelihood-ratio intervals of one evaluation, and the path along which they were found.

    Attributes
    ----------
    value : float
        Psi at the maximum.
    budget : mapping of str to float
        Standard error due to the ``model``, the ``evaluation`` sample and the ``noise`` of psi, as
        far as there are any, and their ``total``.
    intervals : mapping of float to Interval
        By confidence level: the values around the estimate. An unbounded side is infinite.
    pieces : mapping of float to tuple of Interval
        By confidence level: all values, in ascending order. More than one interval if psi runs to
        infinity inside the likelihood region, or the likelihood has two maxima.
    curve : Curve
        Arrays ``lam``, ``psi`` and ``deviance``: the points that were needed to find the ends.
    name : str
    several : bool
        Whether a sequence of confidence levels was asked for.
    penalized : bool
        Whether a penalty was part of the objective.
    passes : int
        Over the data.
    seconds : float
    df : float
        Degrees of freedom of the quantiles: Student's t where a noise variance was estimated, as
        in R's `confint` of an `nls` fit.
    limits : tuple of str
        The constraints at which an interval ends, or that hold its end.
    side : {"both", "upper", "lower"}
        Of one-sided intervals the other end is infinite.
    findings : tuple of Finding
        What was warned of: pieces, second maxima, ends that psi has or that the data do not give.
    """

    value: float
    budget: Mapping[str, float]
    intervals: Mapping[float, Interval]
    pieces: Mapping[float, tuple[Interval, ...]]
    curve: Curve
    name: str
    several: bool
    penalized: bool
    passes: int
    seconds: float
    df: float = math.inf
    limits: tuple[str, ...] = ()
    side: str = "both"
    findings: tuple[Finding, ...] = ()

    @property
    def standard_error(self) -> float:
        """Standard error of the symmetric (Wald) interval, for comparison."""
        return self.budget["total"]

    @property
    def interval(self) -> Interval | dict[float, Interval]:
        """The interval, or one for each confidence level if a sequence of them was given."""
        return dict(self.intervals) if self.several else next(iter(self.intervals.values()))

    def confidence_interval(self, confidence_level: float | None = None) -> Interval:
        """Return the interval of one of the levels that were asked for; by default the first."""
        level = next(iter(self.intervals)) if confidence_level is None else confidence_level
        if level not in self.intervals:
            raise ValueError(
                f"The profile has intervals for the confidence levels {list(self.intervals)}, not "
                f"for {level!r}: give all levels to `profile(model, psi, confidence_level=[...])`."
            )
        return self.intervals[level]

    def wald(self, confidence_level: float = 0.95) -> Interval:
        """Return the symmetric interval of the same level."""
        critical = critical_root(checked_level(confidence_level), self.df, self.side)
        ends = (self.value + sign * critical * self.standard_error for sign in BOTH)
        pairs = zip(ends, BOTH, strict=True)
        return Interval(*(x if s in SIGNS[self.side] else s * math.inf for x, s in pairs))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as columns, one row per confidence level and piece."""
        rows = [(level, piece) for level, pieces in self.pieces.items() for piece in pieces]
        walds = [self.wald(level) for level, _ in rows]
        return {
            "term": [self.name] * len(rows),
            "conf_level": [level for level, _ in rows],
            "estimate": [self.value] * len(rows),
            "conf_low": [piece.low for _, piece in rows],
            "conf_high": [piece.high for _, piece in rows],
            "wald_low": [wald.low for wald in walds],
            "wald_high": [wald.high for wald in walds],
        }

    def to_frame(self) -> DataFrame:
        """Return the table as a pandas data frame, one row per confidence level and piece."""
        return data_frame("pandas", self.to_dict()).set_index("term")

    def summary(self) -> str:
        """Return the table and what it cost."""
        points = f"{self.curve.psi.size} points on the path"
        cost = f"{points}, {self.passes} passes over the data, {self.seconds:.3g} seconds"
        sided = "" if self.side == "both" else f", {self.side} limits"
        title = f"Likelihood-ratio intervals{sided}"
        if len(self.budget) > 2:
            sources = ", ".join(f"{error:.4g} {part}" for part, error in self.budget.items())
            title += f", widened by the error of the evaluation (standard errors: {sources})"
        return "\n\n".join([title, repr(self), *self._notes(), cost])

    def _notes(self) -> list[str]:
        notes = []
        if any(len(pieces) > 1 for pieces in self.pieces.values()):
            notes.append("The values are not one interval: each piece has its row.")
        if self.limits:
            notes.append(f"Within the constraints, of which ends reach {', '.join(self.limits)}.")
        if self.penalized:
            notes.append(
                "With the penalty: the intervals are around the penalized maximum, and change "
                "with the parametrization that the penalty is written in."
            )
        return notes

    def report(
        self,
        path: str | os.PathLike[str],
        title: str | None = None,
        question: str | None = None,
    ) -> Path:
        """Write a page to show, as `Estimate.report` does, of the first confidence level.

        Parameters
        ----------
        path : str or path
            A file that ends in ``.html`` or ``.htm``; one that is there is overwritten.
        title, question : str, optional
            The heading, and the question in your words.
        """
        from implicit_delta.inference.comparison_report import profile_report

        return profile_report(self, path, title, question)

    def __repr__(self) -> str:
        return aligned(self.cells())

    def _repr_html_(self) -> str:
        return as_html(self.cells(), "Likelihood-ratio (profile) and Wald intervals")

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the deviance against psi beside the parabola of the Wald interval.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        **style
            Passed to matplotlib's ``plot`` for the deviance.
        """
        from implicit_delta.inference.profile.plot import profile_plot

        return profile_plot(self, ax, **style)

    def decimals(self) -> int:
        """Count the decimals that show four digits of the Wald error and of that the ends imply.

        At a bound the Wald error may be NaN, zero, or of another size than the interval.
        """
        ends = [
            abs(float(end) - self.value) / critical_root(level, self.df, self.side)
            for level, interval in self.intervals.items()
            for end in interval
            if math.isfinite(float(end))
        ]
        sizes = [size for size in (self.standard_error, max(ends, default=0.0)) if size > 0]
        return decimals([min(sizes, default=0.0)], [self.value])[0]

    def cells(self) -> list[list[str]]:
        """Write the table as rows of texts, the header first."""
        columns = self.to_dict()
        places = self.decimals()
        rows = [
            [term, percent(level), *(number(x, places) for x in numbers)]
            for term, level, *numbers in zip(*columns.values(), strict=True)
        ]
        return [["", *list(columns)[1:]], *rows]
