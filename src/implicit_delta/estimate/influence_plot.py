"""Picture of the influence of the training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.axes import legend_above, new_axes
from implicit_delta.estimate.influential import check_kept
from implicit_delta.estimate.scales import in_lines, in_one_line, panels, scales

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

INDEXED = "training row (position); labels: index"
COLORS = 10  # of matplotlib's cycle: beyond, a legend names nothing
# Places of a label around its point, the nearest first and away from zero: points and angles.
NEAR = 7
AROUND = [(r, np.pi * a / 4) for r in range(NEAR, 120, 6) for a in (2, 1, 3, 0, 4, -1, -3, -2)]
LEADER = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.5", "shrinkA": 0, "shrinkB": 0}


def influence_plot(estimate: Estimate, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the influence of every training row, with the labels of the ten largest.

    Along the axis is the position of a row in the training data, from 0. Labels are those of the
    index of the data frame; positions if it had none, or counts 0, 1, 2, ...

    In a new figure, evaluations of other sizes get axes of their own, as in `interval_plot`.
    """
    check_kept(estimate)
    top = estimate.top_influence(10)
    rows = np.asarray(estimate.influence)
    groups = [list(range(len(estimate.names)))] if ax is not None else scales(*_range(rows))
    if ax is None:
        ax = new_axes(width=6.4, height=max(4.0, 2.2 * len(groups)))
    axes = panels(ax, [1] * len(groups))
    look: dict[str, Any] = {"marker": ".", "linestyle": "none", "markersize": 3.0} | style
    for panel, group in zip(axes, groups, strict=True):
        for k in group:
            panel.plot(np.arange(len(rows)), rows[:, k], label=in_lines(estimate.names[k]), **look)
        panel.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        panel.margins(y=0.15)
        panel.set_ylabel("influence of\none more copy")
        if 1 < len(estimate.names) <= COLORS:
            legend_above(panel, [estimate.names[k] for k in group])
    labeled = "training row (position)" if top.label is None else INDEXED
    axes[-1].set_xlabel(labeled)
    for panel, group in zip(axes, groups, strict=True):
        _label_points(panel, top, rows[:, group])
    return axes[0]


def _label_points(ax: Axes, top: Any, rows: Any) -> None:
    """Write the label of each row of `top` beside its point, where no other label is."""
    figure: Any = ax.figure
    figure.draw_without_rendering()  # the layout decides what is free
    frame = ax.get_window_extent()
    taken: list[Any] = []
    labels = map(str, top.row) if top.label is None else map(in_one_line, top.label)
    for row, label in zip(top.row, labels, strict=True):
        value = float(rows[row, np.argmax(np.abs(rows[row]))])
        for radius, angle in AROUND:
            offset = radius * np.cos(angle), np.copysign(radius, value) * np.sin(angle)
            text = _label(ax, label, row, value, offset, None)
            box = text.get_window_extent().padded(0.5)
            if _inside(frame, box) and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()
        else:
            continue  # no room left: a label on top of others would name no point
        if radius > NEAR:
            text.remove()
            _label(ax, label, row, value, offset, LEADER)


def _inside(frame: Any, box: Any) -> bool:
    return bool(frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1)


def _label(
    ax: Axes, label: str, row: int, value: float, offset: Any, line: dict[str, Any] | None
) -> Any:
    return ax.annotate(
        label,
        (row, value),
        offset,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize="x-small",
        arrowprops=line,
    )


def _range(rows: Any) -> tuple[Any, Any]:
    """Ends of the influences of each evaluation, zero included."""
    return np.minimum(rows.min(axis=0), 0.0), np.maximum(rows.max(axis=0), 0.0)
