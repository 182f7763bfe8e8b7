"""Pictures of estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.estimate.axes import described, new_axes
from implicit_delta.estimate.drawn import drawn
from implicit_delta.estimate.group_plot import group_plot
from implicit_delta.estimate.influence_plot import influence_plot
from implicit_delta.estimate.interval_plot import forest_plot, interval_plot
from implicit_delta.estimate.scales import in_one_line, letters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

FEW, MOST = 30, 2000  # evaluations whose intervals are drawn apart, and whose correlations are


def estimate_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    x: ArrayLike | None = None,
    kind: str | None = None,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    transform: Any = None,
    null: float | None = None,
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
    kind : {"interval", "band", "forest", "groups", "covariance", "influence"}, optional
        A band when ``x`` is given or for more than 2000 evaluations, intervals for up to 30, else
        the correlations.
    confidence_level, simultaneous, transform, null
        As in :meth:`Estimate.plot`.
    **style
        Passed to the function that draws.
    """
    if kind is None and x is None and len(estimate.names) > MOST:
        x = np.arange(len(estimate.names))
    kind = kind or _fitting_kind(estimate, x)
    if kind in ("covariance", "influence"):
        if transform is not None or null is not None:
            raise ValueError(
                f"kind={kind!r} draws no intervals, and takes neither transform nor null: "
                "`est.apply(f)` is an estimate on another scale."
            )
        if kind == "influence":
            return influence_plot(estimate, ax, **style)
        return covariance_plot(estimate, ax, x=x, **style)
    options: dict[str, Any] = {
        "confidence_level": confidence_level,
        "simultaneous": simultaneous,
        "transform": transform,
        "null": null,
    } | style
    rows: dict[str, Any] = {"interval": interval_plot, "forest": forest_plot, "groups": group_plot}
    if kind in rows:
        axes: Axes = rows[kind](estimate, ax, **options)
        return axes
    if kind != "band":
        raise ValueError(
            "kind is 'interval', 'band', 'forest', 'groups', 'covariance' or 'influence', not "
            f"{kind!r}"
        )
    if x is None:
        raise ValueError("kind='band' needs x, the position of each evaluation")
    return band_plot(estimate, x, ax, **options)


def band_plot(
    estimate: Estimate,
    x: ArrayLike,
    ax: Axes | None = None,
    *,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    transform: Any = None,
    null: float | None = None,
    **style: Any,
) -> Axes:
    """Draw the evaluations as a line along x inside a shaded band.

    ``transform`` and ``null`` are those of `Estimate.plot`.
    """
    at = _positions(estimate, x)
    order = np.argsort(at, kind="stable")
    ax = new_axes() if ax is None else ax
    found = drawn(estimate, confidence_level, simultaneous, transform, null).take(order)
    look: dict[str, Any] = {"label": "estimate"} | style
    (line,) = ax.plot(at[order], found.value, **look)
    ax.fill_between(
        at[order],
        found.low,
        found.high,
        color=line.get_color(),
        alpha=0.2,
        linewidth=0,
        label=f"{described(confidence_level, simultaneous, 'pointwise')} band",
    )
    if null is not None:
        ax.axhline(found.null, color="0.6", linewidth=0.8, zorder=0)
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


def _positions(estimate: Estimate, x: ArrayLike) -> np.ndarray[Any, np.dtype[Any]]:
    at = np.asarray(x)
    if at.shape != (len(estimate.names),):
        raise ValueError(
            f"x has shape {at.shape}, but there are {len(estimate.names)} evaluations; "
            "give one number for each"
        )
    return at
