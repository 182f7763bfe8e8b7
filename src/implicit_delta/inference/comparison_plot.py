"""Picture of a comparison of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.axes import row_axes
from implicit_delta.estimate.scales import label_rows, scales

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.inference.comparison import Comparison


def comparison_plot(comparison: Comparison, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the interval of each method, one group of bars per evaluation.

    In a new figure, evaluations of other sizes get an axis of their own below; the first axes are
    returned, and ``ax.figure.axes`` has all.
    """
    names = list(comparison.names)
    parts = [[names[k] for k in group] for group in _scales(comparison)] if ax is None else [names]
    labels = [[label for _, label in _rows(comparison, part)] for part in parts]
    axes = row_axes(labels) if ax is None else [ax]
    for panel, part in zip(axes, parts, strict=True):
        _draw(panel, comparison, part, style)
    axes[-1].set_xlabel(f"estimate, {100 * comparison.confidence_level:.10g}% interval")
    return axes[0]


def _scales(comparison: Comparison) -> list[list[int]]:
    """Group the evaluations by the widest of their intervals."""
    low, high = [], []
    for name in comparison.names:
        ends = [(r.low, r.high) for r in comparison.rows if r.term == name and np.isfinite(r.high)]
        widest = max(ends, key=lambda pair: pair[1] - pair[0], default=(np.nan, np.nan))
        low.append(widest[0])
        high.append(widest[1])
    return scales(low, high)


def _rows(comparison: Comparison, names: list[str]) -> list[tuple[int, str]]:
    """Places and labels of the bars: methods side by side, evaluations apart."""
    methods, several = comparison.methods, len(comparison.names) > 1
    return [
        (k * (len(methods) + 1) + m, f"{name}: {method}" if several else method)
        for k, name in enumerate(names)
        for m, method in enumerate(methods)
    ]


def _draw(ax: Axes, comparison: Comparison, names: list[str], style: dict[str, Any]) -> None:
    look: dict[str, Any] = {"fmt": "o", "capsize": 3.0, "markersize": 5.0} | style
    methods = comparison.methods
    for m, method in enumerate(methods):
        rows = [row for row in comparison.rows if row.method == method and row.term in names]
        y = np.array([names.index(row.term) * (len(methods) + 1) + m for row in rows])
        value, low, high = (
            np.array([getattr(row, what) for row in rows]) for what in ("estimate", "low", "high")
        )
        spread = np.nan_to_num([value - low, high - value], nan=0.0, posinf=0.0)
        ax.errorbar(value, y, xerr=np.maximum(spread, 0.0), **look, color=f"C{m}")
    places, labels = zip(*_rows(comparison, names), strict=True)
    label_rows(ax, places, list(labels))
    ax.set_ylim(max(places) + 0.6, -0.6)
