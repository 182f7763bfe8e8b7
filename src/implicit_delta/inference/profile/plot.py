"""Picture of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.plot import new_axes
from implicit_delta.inference.profile.sides import two_sided

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.inference.profile.result import Profile


def profile_plot(profile: Profile, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw the deviance against psi, the parabola of the Wald interval, and the ends."""
    ax = new_axes() if ax is None else ax
    psi, deviance = _smooth_curve(profile)
    look: dict[str, Any] = {"label": "deviance", "zorder": 3} | style
    (line,) = ax.plot(psi, deviance, **look)
    quantiles = {level: _quantile(two_sided(level, profile.side)) for level in profile.intervals}
    low, high = _window(profile)
    along = np.linspace(low, high, 200)
    parabola = ((along - profile.value) / profile.budget["model"]) ** 2
    ax.plot(along, parabola, "--", color="0.5", label="Wald")
    for level, quantile in quantiles.items():
        ax.axhline(quantile, color="0.8", linewidth=0.8, zorder=0)
        ax.annotate(f"{100 * level:.10g}%", (high, quantile), va="bottom", ha="right", color="0.4")
        pieces = profile.pieces[level]
        ends = [float(end) for piece in pieces for end in piece if np.isfinite(end)]
        ax.vlines(ends, 0, quantile, color=line.get_color(), linewidth=0.8, linestyle=":")
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.25 * max(quantiles.values()))
    ax.set(xlabel=profile.name, ylabel="deviance")
    ax.legend()
    return ax


def _smooth_curve(profile: Profile) -> tuple[Any, Any]:
    """Interpolate psi as a function of the root of the deviance: its slope is known, r / lam."""
    from scipy.interpolate import CubicHermiteSpline

    lam, psi, deviance = profile.curve
    root = np.sign(psi - profile.value) * np.sqrt(deviance)
    slope = np.where(lam == 0, 0.0, root / np.where(lam == 0, 1.0, lam))
    slope[root == 0] = profile.budget["model"]
    along = np.linspace(root[0], root[-1], 400)
    return CubicHermiteSpline(root, psi, slope)(along), along**2


def _window(profile: Profile) -> tuple[float, float]:
    """Frame all ends that are not too far out."""
    reach = (
        8
        * profile.standard_error
        * np.sqrt(_quantile(two_sided(max(profile.intervals), profile.side)))
    )
    ends = [float(end) for interval in profile.intervals.values() for end in interval]
    near = [end for end in ends if abs(end - profile.value) < reach] or [profile.value]
    low, high = min(*near, profile.value), max(*near, profile.value)
    wald = profile.wald(max(profile.intervals))
    ends = [float(end) for end in wald if np.isfinite(end)]
    low, high = min(low, *ends), max(high, *ends)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _quantile(level: float) -> float:
    """The quantile of chi-squared with one degree of freedom."""
    from scipy.special import chdtri

    return float(chdtri(1, 1 - level))
