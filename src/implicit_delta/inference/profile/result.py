"""Results: likelihood-ratio intervals of one quantity or of several, as tables and pictures."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.estimate import Interval
from implicit_delta.estimate.axes import new_axes
from implicit_delta.estimate.quantiles import checked_level, likelihood_ratio_root
from implicit_delta.estimate.scales import in_lines
from implicit_delta.estimate.tables import aligned, as_html, data_frame, decimals, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

SIGNS = {"both": (-1, 1), "upper": (1,), "lower": (-1,)}  # of the ends that are searched for


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
        length = self._root(checked_level(confidence_level)) * self.standard_error
        low, high = (length if sign in SIGNS[self.side] else math.inf for sign in SIGNS["both"])
        return Interval(self.value - low, self.value + high)

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

    def _root(self, level: float) -> float:
        return likelihood_ratio_root(level, self.df, self.side)

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
        return _plot(self, ax, **style)

    def decimals(self) -> int:
        """Count the decimals that show four digits of the Wald error and of that the ends imply.

        At a bound the Wald error may be NaN, zero, or of another size than the interval.
        """
        ends = [
            abs(float(end) - self.value) / self._root(level)
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


@dataclass(frozen=True, eq=False, repr=False)
class Profiles(Sequence[Profile]):
    """Profiles of several quantities: a sequence, and by name a mapping.

    Attributes
    ----------
    profiles : tuple of Profile
        In the order of the quantities.
    """

    profiles: tuple[Profile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities."""
        return tuple(profile.name for profile in self.profiles)

    def confidence_interval(self, confidence_level: float | None = None) -> Interval:
        """Return the intervals of one level as two arrays, (K,); by default the first level."""
        found = [profile.confidence_interval(confidence_level) for profile in self.profiles]
        low, high = (np.array([float(end) for end in ends]) for ends in zip(*found, strict=True))
        return Interval(low, high)

    @property
    def interval(self) -> Interval:
        """The intervals of the first level."""
        return self.confidence_interval()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"{key!r} is none of {', '.join(self.names)}.")
            return self.profiles[self.names.index(key)]
        found = self.profiles[key]
        return Profiles(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self.profiles)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self.profiles)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as columns, one row per quantity, confidence level and piece."""
        tables = [profile.to_dict() for profile in self.profiles]
        return {name: [x for table in tables for x in table[name]] for name in tables[0]}

    def to_frame(self) -> DataFrame:
        """Return the table as a pandas data frame."""
        return data_frame("pandas", self.to_dict()).set_index("term")

    def summary(self) -> str:
        """Return the table, notes and cost of each quantity."""
        return "\n\n".join(profile.summary() for profile in self.profiles)

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        return as_html(self._cells(), "Likelihood-ratio (profile) and Wald intervals")

    def plot(self, axes: Sequence[Axes] | None = None, **style: Any) -> list[Axes]:
        """Draw each profile on axes of its own."""
        if axes is None:
            _, grid = optional("matplotlib.pyplot", "plot()").subplots(
                1, len(self), squeeze=False, figsize=(3.2 * len(self), 2.8), layout="constrained"
            )
            axes = list(grid[0])
        return [profile.plot(ax, **style) for profile, ax in zip(self.profiles, axes, strict=True)]

    def _cells(self) -> list[list[str]]:
        tables = [profile.cells() for profile in self.profiles]
        return [tables[0][0], *(row for table in tables for row in table[1:])]


def _plot(profile: Profile, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the deviance against psi beside the Wald parabola, with the ends of both intervals.

    A curve crosses the line of a confidence level at the ends of its interval, which dotted
    lines mark. Where the interval is widened by the error of an evaluation, curve and parabola
    are those of the model alone, and the ends lie outside of the crossings.
    """
    ax = new_axes() if ax is None else ax
    psi, deviance = _smooth_curve(profile)
    look: dict[str, Any] = {"label": "likelihood ratio", "zorder": 3} | style
    (line,) = ax.plot(psi, deviance, **look)
    cutoffs = {level: profile._root(level) ** 2 for level in profile.intervals}
    low, high = _window(profile)
    along = np.linspace(low, high, 200)
    parabola = ((along - profile.value) / profile.budget["model"]) ** 2
    ax.plot(along, parabola, "--", color="0.5", label="Wald (parabola)")
    for level, cutoff in cutoffs.items():
        ax.axhline(cutoff, color="0.8", linewidth=0.8, zorder=0)
        ax.annotate(f"{100 * level:.10g}%", (high, cutoff), va="bottom", ha="right", color="0.4")
        own = [float(end) for piece in profile.pieces[level] for end in piece]
        _mark_ends(ax, own, cutoff, line.get_color())
        _mark_ends(ax, profile.wald(level), cutoff, "0.5")
    widened = ", widened" if len(profile.budget) > 2 else ""
    ax.plot([], [], ":", color="0.3", linewidth=0.8, label=f"ends of both intervals{widened}")
    ax.plot(profile.value, 0.0, "o", color=line.get_color(), markersize=4.0, clip_on=False)
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.25 * max(cutoffs.values()))
    ax.set(xlabel=in_lines(profile.name), ylabel="deviance")
    ax.ticklabel_format(axis="x", scilimits=(-3, 4))
    ax.legend(loc="upper center", fontsize="small")
    return ax


def _mark_ends(ax: Axes, ends: Any, cutoff: float, color: Any) -> None:
    """Draw dotted lines up to the cutoff, where an end is finite."""
    finite = [end for end in ends if np.isfinite(end)]
    ax.vlines(finite, 0, cutoff, color=color, linewidth=0.8, linestyle=":")


def _smooth_curve(profile: Profile) -> tuple[Any, Any]:
    """Interpolate psi as a function of the root of the deviance: its slope is known, r / lam."""
    from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

    lam, psi, deviance = profile.curve
    root = np.sign(psi - profile.value) * np.sqrt(deviance)
    slope = np.where(lam == 0, 0.0, root / np.where(lam == 0, 1.0, lam))
    slope[root == 0] = profile.budget["model"]
    along = np.linspace(root[0], root[-1], 400)
    if not np.all(np.isfinite(slope)) or not np.all(np.diff(root) > 0):  # psi at a bound
        root, first = np.unique(root, return_index=True)
        few = root.size < 2
        return (psi, deviance) if few else (PchipInterpolator(root, psi[first])(along), along**2)
    return CubicHermiteSpline(root, psi, slope)(along), along**2


def _window(profile: Profile) -> tuple[float, float]:
    """Frame all ends that are not too far out."""
    level = max(profile.intervals)
    reach = 8 * profile.standard_error * profile._root(level)
    reach = reach if np.isfinite(reach) else np.inf  # psi at a bound has no standard error
    ends = [float(end) for interval in profile.intervals.values() for end in interval]
    shown = [end for end in ends if np.isfinite(end) and abs(end - profile.value) <= reach]
    shown += [profile.value, *(float(end) for end in profile.wald(level) if np.isfinite(end))]
    margin = 0.06 * (max(shown) - min(shown)) or 1.0
    return min(shown) - margin, max(shown) + margin
