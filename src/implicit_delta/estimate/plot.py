"""Pictures of estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta._core.optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

__all__ = [
    "band_plot",
    "covariance_plot",
    "estimate_plot",
    "influence_plot",
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
        A band when ``x`` is given, intervals for up to 30 evaluations, else the covariance.
    confidence_level, simultaneous
        As in :meth:`Estimate.confidence_interval`.
    **style
        Passed to the matplotlib function that draws.
    """
    kind = kind or _fitting_kind(estimate, x)
    if kind == "covariance":
        return covariance_plot(estimate, ax, x=x, **style)
    if kind == "influence":
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
    """Draw each evaluation as a point with a horizontal bar, the first on top."""
    K = len(estimate.names)
    ax = new_axes(width=6.0, height=1.1 + 0.3 * K) if ax is None else ax
    value = np.atleast_1d(estimate.value)
    low, high = map(np.atleast_1d, _interval(estimate, confidence_level, simultaneous))
    look: dict[str, Any] = {"fmt": "o", "capsize": 3.0, "markersize": 5.0} | style
    ax.errorbar(value, np.arange(K), xerr=[value - low, high - value], **look)
    ax.set_yticks(np.arange(K), estimate.names)
    ax.set_ylim(K - 0.4, -0.6)
    if low.min() < 0 < high.max():
        ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xlabel(
        f"estimate with {_described(confidence_level, simultaneous and K > 1, '')} interval"
    )
    return ax


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
    estimate: Estimate, ax: Axes | None = None, *, x: ArrayLike | None = None, **style: Any
) -> Axes:
    """Draw the covariance as an image, red above zero and blue below, first evaluation on top."""
    K = len(estimate.names)
    ax = new_axes(width=5.6, height=4.6) if ax is None else ax
    ends = np.abs(estimate.covariance).max() or 1.0
    look: dict[str, Any] = {
        "cmap": "RdBu_r",
        "vmin": -ends,
        "vmax": ends,
        "rasterized": True,
    } | style
    at = np.arange(K) if x is None else _positions(estimate, x)
    order = np.argsort(at, kind="stable")
    image = ax.pcolormesh(at[order], at[order], estimate.covariance[np.ix_(order, order)], **look)
    ax.figure.colorbar(image, ax=ax, label="covariance")
    ax.set_aspect("equal")
    ax.invert_yaxis()
    if x is not None:
        ax.set(xlabel="x", ylabel="x")
    elif K <= FEW:
        ax.set_xticks(at, estimate.names, rotation=90)
        ax.set_yticks(at, estimate.names)
    else:
        ax.set(xlabel="evaluation", ylabel="evaluation")
    return ax


def influence_plot(estimate: Estimate, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the influence of every training row, with the numbers of the ten largest."""
    top = estimate.top_influence(10)
    rows = np.asarray(estimate.influence)
    ax = new_axes(width=6.4) if ax is None else ax
    look: dict[str, Any] = {"marker": ".", "linestyle": "none", "markersize": 3.0} | style
    for k, name in enumerate(estimate.names):
        ax.plot(np.arange(len(rows)), rows[:, k], label=name, **look)
    for row in top.row:
        k = int(np.argmax(np.abs(rows[row])))
        up = rows[row, k] >= 0
        ax.annotate(
            f"{row}",
            (row, rows[row, k]),
            (0, 3 if up else -3),
            textcoords="offset points",
            ha="center",
            va="bottom" if up else "top",
            fontsize="x-small",
        )
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.margins(y=0.12)
    ax.set(xlabel="training row", ylabel="influence of one more copy")
    if len(estimate.names) > 1:
        ax.legend()
    return ax


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


def new_axes(width: float = 6.0, height: float = 4.0) -> Axes:
    """Make a figure with one pair of axes."""
    _, ax = optional("matplotlib.pyplot", "plot()").subplots(
        figsize=(width, height), layout="compressed"
    )
    axes: Axes = ax
    return axes
