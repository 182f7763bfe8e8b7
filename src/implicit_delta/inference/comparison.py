"""Comparison: answers side by side in a table and a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate import Estimate
from implicit_delta.estimate.tables import aligned, as_html, data_frame, decimals, number, percent
from implicit_delta.inference.profile.result import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Row:
    """The answer of one method to one evaluation, and its cost.

    Attributes
    ----------
    method, term : str
        The method and the evaluation.
    estimate, std_error, low, high : float
        NaN where a method has none; a profile has no standard error.
    seconds : float
        For all evaluations of the method together.
    passes : int
        Over the data, likewise.
    time_ratio : float
        Seconds, relative to the fastest method.
    """

    method: str
    term: str
    estimate: float
    std_error: float
    low: float
    high: float
    seconds: float
    passes: int
    time_ratio: float = math.nan

    def against(self, fastest: float) -> Row:
        """Return the same row with its time relative to that of the fastest."""
        return Row(**{**asdict(self), "time_ratio": self.seconds / fastest})


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Value, standard error, interval and cost by several methods.

    Attributes
    ----------
    rows : tuple of Row
        One for each method and evaluation.
    results : mapping of str to Estimate or tuple of Profile
        The full result of each method that has one.
    failures : mapping of str to str
        Why the others have none.
    confidence_level : float
        Of the intervals.
    """

    rows: tuple[Row, ...]
    results: Mapping[str, Estimate | tuple[Profile, ...]]
    failures: Mapping[str, str]
    confidence_level: float

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order given."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def names(self) -> list[str]:
        """Names of the evaluations."""
        return list(dict.fromkeys(row.term for row in self.rows))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as columns."""
        names = {"low": "conf_low", "high": "conf_high"}
        records = [asdict(row) for row in self.rows]
        return {names.get(key, key): [r[key] for r in records] for key in records[0]}

    def to_frame(self) -> DataFrame:
        """Return the table as a pandas data frame, one row per method and evaluation."""
        return data_frame("pandas", self.to_dict()).set_index(["method", "term"])

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the interval of each method and return the axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        **style
            Passed to matplotlib's ``errorbar``.
        """
        from implicit_delta.inference.comparison_plot import comparison_plot

        return comparison_plot(self, ax, **style)

    def report(
        self,
        path: str | os.PathLike[str],
        title: str | None = None,
        question: str | None = None,
    ) -> Path:
        """Write a page to show: that of the first estimate, with all methods side by side.

        Parameters
        ----------
        path : str or path
            A file that ends in ``.html`` or ``.htm``; one that is there is overwritten.
        title, question : str, optional
            The heading, and the question in your words.
        """
        from implicit_delta.inference.comparison_report import comparison_report

        return comparison_report(self, path, title, question)

    def __repr__(self) -> str:
        reasons = [f"{method}: {reason}" for method, reason in self.failures.items()]
        return "\n".join([aligned(self._cells()), *reasons])

    def _repr_html_(self) -> str:
        return as_html(self._cells(), f"{percent(self.confidence_level)} confidence intervals")

    def _cells(self) -> list[list[str]]:
        header = list(self.to_dict())
        several = len(self.names) > 1
        places = _decimals(self.rows, self.names)
        body = [_cells(row, places[row.term], several) for row in self.rows]
        return [["", *header[1 if several else 2 :]], *body]


def _decimals(rows: Sequence[Row], names: Sequence[str]) -> dict[str, int]:
    found = {}
    for name in names:
        errors = [row.std_error for row in rows if row.term == name and row.std_error > 0]
        values = [row.estimate for row in rows if row.term == name]
        found[name] = decimals([min(errors, default=0.0)], [np.nan_to_num(values[0])])[0]
    return found


def _cells(row: Row, places: int, several: bool) -> list[str]:
    numbers = (row.estimate, row.std_error, row.low, row.high)
    return [
        row.method,
        *([row.term] if several else []),
        *("" if math.isnan(x) else number(x, places) for x in numbers),
        f"{row.seconds:.3g}",
        str(row.passes),
        f"{row.time_ratio:.3g}",
    ]
