"""Pictures with one row per evaluation: intervals, and the forest plot of coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.axes import described, logarithmic, mark_null, on_axis, row_axes
from implicit_delta.estimate.drawn import SHOWN, Drawn, drawn
from implicit_delta.estimate.scales import label_rows, letters, scales
from implicit_delta.estimate.transforms import IDENTITY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

POINT = {"marker": "o", "linestyle": "none"}
MOST_ROWS = 200  # of a new figure, which is then 60 inches high
FAR = 20.0  # times the width of all intervals: a null further away would make them dots


def interval_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    transform: Any = None,
    null: float | None = None,
    **style: Any,
) -> Axes:
    """Draw each evaluation as a point with a horizontal bar, the first on top.

    In a new figure, evaluations of other sizes (dollars and shares, say) get an axis of their own
    below; the first axes are returned, and ``ax.figure.axes`` has all. In axes that are given,
    everything is drawn on their one scale. ``transform`` and ``null`` are those of `Estimate.plot`.
    """
    check_rows(len(estimate.names), ax, "interval")
    found = drawn(estimate, confidence_level, simultaneous, transform, null)
    axes = _rows(estimate, ax, found, style, numbers=False, reach=0.0 if null is None else np.inf)
    axes[-1].set_xlabel(interval_label(estimate, confidence_level, simultaneous, transform))
    return axes[0]


def forest_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    transform: Any = None,
    null: float | None = None,
    sort: bool = False,
    numbers: bool = True,
    **style: Any,
) -> Axes:
    """Draw coefficients as in a paper: a line at "no effect", and the numbers at the right.

    Leave an intercept out by selection, ``est[["x", "z"]].plot(kind="forest")``.

    Parameters
    ----------
    estimate : Estimate
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure unless given.
    confidence_level, simultaneous, transform, null
        As in `Estimate.plot`; ``transform="exp"`` has a logarithmic axis and the line at 1.
    sort : bool
        The largest on top, instead of the first.
    numbers : bool
        Write value and interval at the right of each row.
    **style
        Passed to matplotlib's ``errorbar``.
    """
    check_rows(len(estimate.names), ax, "forest")
    found = drawn(estimate, confidence_level, simultaneous, transform, null)
    order = np.argsort(-found.value, kind="stable") if sort else np.arange(len(found.value))
    reach = reach_of(null, transform)
    axes = _rows(estimate, ax, found, style, numbers=numbers, reach=reach, order=order)
    axes[-1].set_xlabel(interval_label(estimate, confidence_level, simultaneous, transform))
    return axes[0]


def check_rows(count: int, ax: Axes | None, kind: str, labels: str = "") -> None:
    """Refuse to make a figure of more rows than anybody looks at."""
    if ax is None and count > MOST_ROWS:
        raise ValueError(
            f"kind={kind!r} makes a figure with one row for each of {count}, some "
            f"{0.3 * count:.0f} inches high, and up to {MOST_ROWS} rows are drawn. Take some, "
            f"`est[:50].plot(kind={kind!r}{labels})`, draw all as a band, "
            "`est.plot(x=range(len(est)))`, or give axes of your own, `ax=`."
        )


def _rows(
    estimate: Estimate,
    ax: Axes | None,
    found: Drawn,
    style: dict[str, Any],
    *,
    numbers: bool,
    reach: float,
    order: Any = None,
) -> list[Axes]:
    """Draw one row for each evaluation, in panels by size; return their axes."""
    order = np.arange(len(found.value)) if order is None else order
    names = [estimate.names[k] for k in order]
    found = found.take(order)
    groups = scales(*found.sizes) if ax is None else [list(range(len(names)))]
    width = 7.5 if numbers else 6.0
    axes = [ax] if ax is not None else row_axes([[names[k] for k in g] for g in groups], width)
    for panel, group in zip(axes, groups, strict=True):
        part = found.take(group)
        draw_bars(panel, part, np.arange(len(group)), style)
        finish_rows(panel, part, reach)
        panel.set_ylim(len(group) - 0.4, -0.6)
        label_rows(panel, np.arange(len(group)), [names[k] for k in group])
        if numbers:
            _write_numbers(panel, part)
    return axes


def reach_of(null: float | None, transform: Any) -> float:
    """Distance, in widths of all intervals, at which "no effect" is still drawn.

    Any if it is asked for; none on scales of the interval such as "log", which never get there.
    """
    on_scale = transform is not None and transform not in (*SHOWN, IDENTITY)
    return np.inf if null is not None else 0.0 if on_scale else FAR


def draw_bars(ax: Axes, part: Drawn, y: Any, style: dict[str, Any]) -> None:
    """Draw points with horizontal bars at these heights."""
    point = {} if "fmt" in style else POINT  # which is marker and line in one
    look: dict[str, Any] = {**point, "capsize": 3.0, "markersize": 5.0, **style}
    ends = np.maximum([part.value - part.low, part.high - part.value], 0.0)  # but for rounding
    ax.errorbar(part.value, y, xerr=ends, **look)


def finish_rows(ax: Axes, part: Drawn, reach: float) -> None:
    """Mark the null where it is in reach, in widths of the intervals, and set the scale."""
    if part.logarithmic:
        ax.set_xscale("log")
    inside = part.low.min() < part.null < part.high.max()
    if inside or (reach > 0 and on_axis(ax, part.low, part.high, part.null, reach)):
        mark_null(ax, part.null)
    if part.logarithmic:
        logarithmic(ax)


def _write_numbers(ax: Axes, part: Drawn) -> None:
    """Write value and interval of each row beside the axes, at the right."""
    beside = ax.secondary_yaxis("right")
    size = letters(ax, len(part.value))
    beside.set_yticks(np.arange(len(part.value)), part.texts(), fontsize=size)
    beside.tick_params(length=0)
    beside.spines["right"].set_visible(False)


def interval_label(estimate: Estimate, level: float, simultaneous: bool, transform: Any) -> str:
    """Name the axis along which intervals are drawn."""
    what = {"exp": "exp(estimate)", "expit": "expit(estimate)"}.get(
        transform if isinstance(transform, str) else "", "estimate"
    )
    return f"{what}, {described(level, simultaneous and len(estimate.names) > 1)} interval"
