"""Panels of a picture: evaluations whose intervals fit on one axis share one."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Widths of intervals in one unit rarely jump by more; those in two units rarely by less.
JUMP = 20.0
# A bar of a thousandth of the axis is thinner than a pixel: whatever the unit, it is not seen.
UNSEEN = 1000.0
LINE = 28  # characters of a label, which leave room for the axis in a picture of four inches
LINES = 3


def scales(low: ArrayLike, high: ArrayLike) -> list[list[int]]:
    """Group intervals by their size, so that none vanishes beside the others of its group.

    Groups are in the order of their first members, and members keep their order.

    Examples
    --------
    >>> scales(low=[1e5, 0.001, 2e5, 0.003], high=[2e5, 0.002, 3e5, 0.004])
    [[0, 2], [1, 3]]
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    reach = _positive(np.maximum(np.abs(low), np.abs(high)))
    width = _positive(high - low)
    by_width = _cut(np.arange(len(low)), width, JUMP, UNSEEN)
    groups = [part for group in by_width for part in _cut(group, reach, UNSEEN, np.inf)]
    return sorted((sorted(int(k) for k in group) for group in groups), key=min)


def _positive(size: Any) -> Any:
    """Replace sizes that are zero or unknown by the smallest one: they fit anywhere."""
    known = np.isfinite(size) & (size > 0)
    return np.where(known, size, size[known].min() if known.any() else 1.0)


def _cut(members: Any, size: Any, jump: float, spread: float) -> list[Any]:
    """Cut at the largest jump, again and again, until neither limit is exceeded."""
    order = members[np.argsort(size[members], kind="stable")]
    logs = np.log(size[order])
    if len(order) < 2 or (np.diff(logs).max() <= np.log(jump) and np.ptp(logs) <= np.log(spread)):
        return [order]
    at = int(np.argmax(np.diff(logs))) + 1
    return [*_cut(order[:at], size, jump, spread), *_cut(order[at:], size, jump, spread)]


def panels(ax: Axes, rows: list[float]) -> list[Axes]:
    """Replace the only axes of a figure by one below the other, with room for so many rows each."""
    if len(rows) == 1:
        return [ax]
    figure: Any = ax.figure
    figure.clear()
    grid = {"height_ratios": [count + 0.5 for count in rows]}
    return list(figure.subplots(len(rows), 1, gridspec_kw=grid))


def label_rows(ax: Axes, at: ArrayLike, names: list[str]) -> None:
    """Write names along the y-axis, in lines and letters that fit, and short numbers along x."""
    from matplotlib.ticker import ScalarFormatter

    labels = [in_lines(name) for name in names]
    lines = sum(label.count("\n") + 1 for label in labels)
    ax.set_yticks(at, labels, fontsize=letters(ax, lines))
    if isinstance(ax.xaxis.get_major_formatter(), ScalarFormatter):
        ax.ticklabel_format(axis="x", scilimits=(-3, 4))


def in_lines(name: str) -> str:
    """Break a long name into lines, and leave out what does not fit."""
    lines = wrap(name, LINE) or [name]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"... {lines[-1]}"]
    return "\n".join(lines)


def in_one_line(name: str) -> str:
    """Shorten a long name in its middle."""
    return name if len(name) <= LINE else f"{name[: LINE // 2]} ... {name[-LINE // 3 :]}"


def letters(ax: Axes, lines: int) -> float:
    """Size of letters, in points, with which so many lines fit beside the axes."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    usual = FontProperties(size=rcParams["ytick.labelsize"]).get_size_in_points()
    height = 72 * ax.get_window_extent().height / float(ax.figure.dpi)
    return float(np.clip(height / (1.25 * max(lines, 1)), 4.0, usual))
