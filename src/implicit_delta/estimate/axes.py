"""Axes of a picture: new figures, rows, a logarithmic scale, a legend above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.estimate.scales import in_lines, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NARROW = 4.0  # ratio of the ends of a log axis, below which round numbers are as close as on a line


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Make a figure with one pair of axes."""
    _, ax = optional("matplotlib.pyplot", "plot()").subplots(
        figsize=(width, height), layout="compressed"
    )
    axes: Axes = ax
    return axes


def row_axes(names: list[list[str]], width: float = 6.0, height: float = 0.3) -> list[Axes]:
    """Make a figure with a row of this height for each name, in axes one below the other."""
    lines = [sum(1 + 0.5 * in_lines(name).count("\n") for name in group) for group in names]
    ax = new_axes(width=width, height=0.7 + 0.4 * len(names) + height * sum(lines))
    return panels(ax, lines)


def logarithmic(ax: Axes) -> None:
    """Give the x-axis a logarithmic scale with plain numbers at its ticks."""
    ticker = optional("matplotlib.ticker", "plot()")
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    many = high > 1e3 * low
    ax.xaxis.set_major_locator(
        ticker.MaxNLocator(6, steps=[1, 2, 5, 10])
        if high < NARROW * low
        else ticker.LogLocator(subs=(1.0,) if many else (1.0, 2.0, 5.0), numticks=8)
    )
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    digits = max(4, 3 + int(np.ceil(-np.log10(high / low - 1))))  # that tell ticks apart
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:.{digits}g}"))


def mark_null(ax: Axes, null: float) -> None:
    """Draw a thin vertical line behind everything."""
    ax.axvline(null, color="0.6", linewidth=0.8, zorder=0)


def legend_above(ax: Axes, names: list[str]) -> None:
    """Put the legend above the axes, in as many columns as names of this length have room."""
    inches = ax.get_window_extent().width / float(ax.figure.dpi)
    longest = max(len(line) for name in names for line in in_lines(name).split("\n"))
    columns = max(1, min(len(names), int(inches / (0.5 + 0.09 * longest))))
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        fontsize="small",
        frameon=False,
        borderaxespad=0.2,
    )


def described(level: float, simultaneous: bool, otherwise: str = "") -> str:
    """Name the level of an interval or a band."""
    return f"{100 * level:.10g}% {'simultaneous' if simultaneous else otherwise}".rstrip()


def on_axis(ax: Axes, low: Any, high: Any, null: float, reach: float) -> bool:
    """Whether a null is near enough to these ends to be drawn without squeezing them."""
    both = (np.log if ax.get_xscale() == "log" else np.asarray)(
        [np.min(low), np.max(high), null]
    )  # fmt: skip
    span = both[1] - both[0]
    return bool(both[0] - reach * span <= both[2] <= both[1] + reach * span)
