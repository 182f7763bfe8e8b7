"""Pictures of estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta._core.optional import optional
from implicit_delta.estimate.scales import (
    in_lines,
    in_one_line,
    label_rows,
    letters,
    panels,
    scales,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

__all__ = [
    "band_plot",
    "covariance_plot",
    "estimate_plot",
    "interval_plot",
]

FEW = 30


def estimate_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    x: ArrayLike | None = None,
    kind: str | None = None,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    **style: Any,
) -> Axes:
    """Draw an estimate in the way that fits it; see :meth:`Estimate.plot`.

    Parameters
    ----------
    estimate : Estimate
        What to draw.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure unless given.
    x : (K,) array, optional
        Position of each evaluation.
    kind : {"interval", "band", "covariance", "influence"}, optional
        A band when ``x`` is given, intervals for up to 30 evaluations, else the correlations.
    confidence_level, simultaneous
        As in :meth:`Estimate.confidence_interval`.
    **style
        Passed to the matplotlib function that draws.
    """
    kind = kind or _fitting_kind(estimate, x)
    if kind == "covariance":
        return covariance_plot(estimate, ax, x=x, **style)
    if kind == "influence":
        from implicit_delta.estimate.influence_plot import influence_plot

        return influence_plot(estimate, ax, **style)
    levels: dict[str, Any] = {"confidence_level": confidence_level, "simultaneous": simultaneous}
    if kind == "interval":
        return interval_plot(estimate, ax, **levels, **style)
    if kind != "band":
        raise ValueError(f"kind is 'interval', 'band', 'covariance' or 'influence', not {kind!r}")
    if x is None:
        raise ValueError("kind='band' needs x, the position of each evaluation")
    return band_plot(estimate, x, ax, **levels, **style)


def interval_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    **style: Any,
) -> Axes:
    """Draw each evaluation as a point with a horizontal bar, the first on top.

    In a new figure, evaluations of other sizes (dollars and shares, say) get an axis of their own
    below; the first axes are returned, and ``ax.figure.axes`` has all. In axes that are given,
    everything is drawn on their one scale.
    """
    K = len(estimate.names)
    value = np.atleast_1d(estimate.value)
    low, high = map(np.atleast_1d, _interval(estimate, confidence_level, simultaneous))
    groups = scales(low, high) if ax is None else [list(range(K))]
    axes = [ax] if ax is not None else row_axes([[estimate.names[k] for k in g] for g in groups])
    for panel, group in zip(axes, groups, strict=True):
        _draw_intervals(panel, value[group], low[group], high[group], style)
        label_rows(panel, np.arange(len(group)), [estimate.names[k] for k in group])
    axes[-1].set_xlabel(
        f"estimate, {_described(confidence_level, simultaneous and K > 1, '')} interval"
    )
    return axes[0]


def _draw_intervals(ax: Axes, value: Any, low: Any, high: Any, style: dict[str, Any]) -> None:
    look: dict[str, Any] = {"fmt": "o", "capsize": 3.0, "markersize": 5.0} | style
    ax.errorbar(value, np.arange(len(value)), xerr=[value - low, high - value], **look)
    ax.set_ylim(len(value) - 0.4, -0.6)
    if low.min() < 0 < high.max():
        ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)


def band_plot(
    estimate: Estimate,
    x: ArrayLike,
    ax: Axes | None = None,
    *,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    **style: Any,
) -> Axes:
    """Draw the evaluations as a line along x inside a shaded band."""
    at = _positions(estimate, x)
    order = np.argsort(at, kind="stable")
    ax = new_axes() if ax is None else ax
    low, high = map(np.atleast_1d, _interval(estimate, confidence_level, simultaneous))
    look: dict[str, Any] = {"label": "estimate"} | style
    (line,) = ax.plot(at[order], np.atleast_1d(estimate.value)[order], **look)
    ax.fill_between(
        at[order],
        low[order],
        high[order],
        color=line.get_color(),
        alpha=0.2,
        linewidth=0,
        label=f"{_described(confidence_level, simultaneous, 'pointwise')} band",
    )
    ax.margins(x=0)
    ax.set_xlabel("x")
    ax.set_ylabel("estimate")
    ax.legend()
    return ax


def covariance_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    x: ArrayLike | None = None,
    correlation: bool | None = None,
    **style: Any,
) -> Axes:
    """Draw the covariance as an image, red above zero and blue below, first evaluation on top.

    Correlations are drawn unless ``x`` is given: evaluations along x have one unit, others need
    not. ``correlation=True`` or ``False`` decides otherwise. What has no error has no correlation,
    and is left white.
    """
    K = len(estimate.names)
    ax = new_axes(width=5.6, height=4.6) if ax is None else ax
    scaled = x is None if correlation is None else correlation
    shown = _correlation(estimate.covariance) if scaled else estimate.covariance
    ends = 1.0 if scaled else np.abs(shown).max() or 1.0
    look: dict[str, Any] = {
        "cmap": "RdBu_r",
        "vmin": -ends,
        "vmax": ends,
        "rasterized": True,
    } | style
    at = np.arange(K) if x is None else _positions(estimate, x)
    order = np.argsort(at, kind="stable")
    # Centers do not tell the size of a single cell; edges do.
    edges = at[order] if x is not None and K > 1 else np.arange(K + 1) - 0.5 + (at[0] if K else 0)
    image = ax.pcolormesh(edges, edges, shown[np.ix_(order, order)], **look)
    ax.figure.colorbar(image, ax=ax, label="correlation" if scaled else "covariance")
    ax.set_aspect("equal")
    ax.invert_yaxis()
    if x is not None:
        ax.set(xlabel="x", ylabel="x")
    elif K <= FEW:
        _label_cells(ax, at, [in_one_line(name) for name in estimate.names])
    else:
        ax.set(xlabel="evaluation", ylabel="evaluation")
    return ax


def _label_cells(ax: Axes, at: Any, names: list[str]) -> None:
    """Write names along both axes, then shrink them to the cells that they left room for."""
    ax.set_xticks(at, names, rotation=90)
    ax.set_yticks(at, names)
    figure: Any = ax.figure
    figure.draw_without_rendering()
    size = letters(ax, len(names))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_tick_params(labelsize=size)


def _correlation(covariance: Any) -> Any:
    error = np.sqrt(np.diag(covariance))
    product = np.outer(error, error)
    known = np.where(product > 0, product, 1.0)
    return np.ma.masked_where(product <= 0, np.clip(covariance / known, -1.0, 1.0))


def _fitting_kind(estimate: Estimate, x: ArrayLike | None) -> str:
    if x is not None:
        return "band"
    return "interval" if len(estimate.names) <= FEW else "covariance"


def _interval(estimate: Estimate, level: float, simultaneous: bool) -> tuple[Any, Any]:
    return estimate.confidence_interval(level, simultaneous=simultaneous)


def _described(level: float, simultaneous: bool, otherwise: str) -> str:
    return f"{100 * level:.10g}% {'simultaneous' if simultaneous else otherwise}".rstrip()


def _positions(estimate: Estimate, x: ArrayLike) -> np.ndarray[Any, np.dtype[Any]]:
    at = np.asarray(x)
    if at.shape != (len(estimate.names),):
        raise ValueError(
            f"x has shape {at.shape}, but there are {len(estimate.names)} evaluations; "
            "give one number for each"
        )
    return at


def row_axes(names: list[list[str]]) -> list[Axes]:
    """Make a figure with a row for each name, in axes one below the other."""
    lines = [sum(1 + 0.5 * in_lines(name).count("\n") for name in group) for group in names]
    ax = new_axes(width=6.0, height=0.7 + 0.4 * len(names) + 0.3 * sum(lines))
    return panels(ax, lines)


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Make a figure with one pair of axes."""
    _, ax = optional("matplotlib.pyplot", "plot()").subplots(
        figsize=(width, height), layout="compressed"
    )
    axes: Axes = ax
    return axes
