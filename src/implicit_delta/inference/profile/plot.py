"""Picture of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.axes import new_axes
from implicit_delta.estimate.scales import in_lines
from implicit_delta.inference.profile.sides import critical_root

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.inference.profile.result import Profile


def profile_plot(profile: Profile, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the deviance against psi beside the Wald parabola, with the ends of both intervals.

    A curve crosses the line of a confidence level at the ends of its interval, which dotted
    lines mark. Where the interval is widened by the error of an evaluation, curve and parabola
    are those of the model alone, and the ends lie outside of the crossings.
    """
    ax = new_axes() if ax is None else ax
    psi, deviance = _smooth_curve(profile)
    look: dict[str, Any] = {"label": "likelihood ratio", "zorder": 3} | style
    (line,) = ax.plot(psi, deviance, **look)
    cutoffs = {level: _cutoff(level, profile) for level in profile.intervals}
    low, high = _window(profile)
    along = np.linspace(low, high, 200)
    parabola = ((along - profile.value) / profile.budget["model"]) ** 2
    ax.plot(along, parabola, "--", color="0.5", label="Wald (parabola)")
    for level, cutoff in cutoffs.items():
        ax.axhline(cutoff, color="0.8", linewidth=0.8, zorder=0)
        ax.annotate(f"{100 * level:.10g}%", (high, cutoff), va="bottom", ha="right", color="0.4")
        own = [float(end) for piece in profile.pieces[level] for end in piece]
        _mark_ends(ax, own, cutoff, line.get_color())
        _mark_ends(ax, profile.wald(level), cutoff, "0.5")
    widened = ", widened" if len(profile.budget) > 2 else ""
    ax.plot([], [], ":", color="0.3", linewidth=0.8, label=f"ends of both intervals{widened}")
    ax.plot(profile.value, 0.0, "o", color=line.get_color(), markersize=4.0, clip_on=False)
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.25 * max(cutoffs.values()))
    ax.set(xlabel=in_lines(profile.name), ylabel="deviance")
    ax.ticklabel_format(axis="x", scilimits=(-3, 4))
    ax.legend(loc="upper center", fontsize="small")
    return ax


def _mark_ends(ax: Axes, ends: Any, cutoff: float, color: Any) -> None:
    """Draw dotted lines up to the cutoff, where an end is finite."""
    finite = [end for end in ends if np.isfinite(end)]
    ax.vlines(finite, 0, cutoff, color=color, linewidth=0.8, linestyle=":")


def _smooth_curve(profile: Profile) -> tuple[Any, Any]:
    """Interpolate psi as a function of the root of the deviance: its slope is known, r / lam."""
    from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

    lam, psi, deviance = profile.curve
    root = np.sign(psi - profile.value) * np.sqrt(deviance)
    slope = np.where(lam == 0, 0.0, root / np.where(lam == 0, 1.0, lam))
    slope[root == 0] = profile.budget["model"]
    along = np.linspace(root[0], root[-1], 400)
    if not np.all(np.isfinite(slope)) or not np.all(np.diff(root) > 0):  # psi at a bound
        root, first = np.unique(root, return_index=True)
        few = root.size < 2
        return (psi, deviance) if few else (PchipInterpolator(root, psi[first])(along), along**2)
    return CubicHermiteSpline(root, psi, slope)(along), along**2


def _window(profile: Profile) -> tuple[float, float]:
    """Frame all ends that are not too far out."""
    reach = 8 * profile.standard_error * np.sqrt(_cutoff(max(profile.intervals), profile))
    reach = reach if np.isfinite(reach) else np.inf  # psi at a bound has no standard error
    ends = [float(end) for interval in profile.intervals.values() for end in interval]
    near = [end for end in ends if np.isfinite(end) and abs(end - profile.value) <= reach] or [
        profile.value
    ]
    low, high = min(*near, profile.value), max(*near, profile.value)
    wald = profile.wald(max(profile.intervals))
    ends = [float(end) for end in wald if np.isfinite(end)]
    low, high = min([low, *ends]), max([high, *ends])
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _cutoff(level: float, profile: Profile) -> float:
    """Deviance at the ends of an interval: of chi-squared, or of F where df is finite."""
    return critical_root(level, profile.df, profile.side) ** 2
