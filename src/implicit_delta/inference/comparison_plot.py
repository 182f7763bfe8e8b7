"""Picture of a comparison of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.plot import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.inference.comparison import Comparison


def comparison_plot(comparison: Comparison, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the interval of each method, one group of bars per evaluation."""
    methods, names = comparison.methods, comparison.names
    count = len(methods) * len(names)
    ax = (
        new_axes(width=6.0, height=1.3 + 0.3 * count + 0.2 * (len(names) - 1)) if ax is None else ax
    )
    look: dict[str, Any] = {"fmt": "o", "capsize": 3.0, "markersize": 5.0} | style
    for m, method in enumerate(methods):
        rows = [row for row in comparison.rows if row.method == method]
        y = np.array([names.index(row.term) * (len(methods) + 1) + m for row in rows])
        value, low, high = (
            np.array([getattr(row, what) for row in rows]) for what in ("estimate", "low", "high")
        )
        spread = np.nan_to_num([value - low, high - value], nan=0.0, posinf=0.0)
        ax.errorbar(value, y, xerr=np.maximum(spread, 0.0), **look, color=f"C{m}")
    ticks = [k * (len(methods) + 1) + m for k in range(len(names)) for m in range(len(methods))]
    labels = [f"{name}: {m}" if len(names) > 1 else m for name in names for m in methods]
    ax.set_yticks(ticks, labels)
    ax.set_ylim(max(ticks) + 0.6, -0.6)
    ax.set_xlabel(f"estimate with {100 * comparison.confidence_level:.10g}% interval")
    return ax
