"""Contour: the joint region of two quantities, its area, a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.special import fdtri

from implicit_delta.core.types import Array
from implicit_delta.estimate.tables import aligned, as_html, data_frame, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

SMOOTH = 400  # points of a drawn boundary


@dataclass(frozen=True, eq=False, repr=False)
class Contour:
    """Joint likelihood-ratio regions of two quantities, by confidence level.

    Attributes
    ----------
    value : (2,) array
        The two quantities at the maximum.
    covariance : (2, 2) array
        Of the Wald ellipse.
    angles : (m,) array
        Of the rays, in coordinates in which that ellipse is a circle.
    radii : mapping of float to (m,) array
        By confidence level: how far the region extends along each ray, in standard errors.
    names : tuple of str
    df : float
        Degrees of freedom of the noise variance: F instead of chi-squared if finite.
    bounded : bool
        Whether inequalities may cut the region, which then has corners.
    """

    value: Array
    covariance: Array
    angles: Array
    radii: Mapping[float, Array]
    names: tuple[str, ...]
    df: float = np.inf
    bounded: bool = False

    @property
    def levels(self) -> tuple[float, ...]:
        """The confidence levels."""
        return tuple(self.radii)

    def points(self, confidence_level: float | None = None) -> Array:
        """Return the boundary, (m, 2); by default that of the first level."""
        return self._places(self.angles, self.radii[self._level(confidence_level)])

    def outline(self, confidence_level: float | None = None) -> Array:
        """Return the boundary between the rays too, (m, 2)."""
        angles = np.linspace(0, 2 * np.pi, SMOOTH)
        return self._places(angles, self.radius(angles, confidence_level))

    def radius(self, angle: ArrayLike, confidence_level: float | None = None) -> Array:
        """Interpolate how far the region extends at some angles, in standard errors."""
        radii, turn = self.radii[self._level(confidence_level)], 2 * np.pi
        asked = np.mod(np.asarray(angle, dtype=np.float64), turn)
        around, values = np.append(self.angles, turn), np.append(radii, radii[0])
        if self.bounded:
            return _on_chords(asked, around, values)
        return np.asarray(CubicSpline(around, values, bc_type="periodic")(asked))

    def contains(self, point: ArrayLike, confidence_level: float | None = None) -> Any:
        """Tell whether a pair of values, (2,), or each of several, (m, 2), is in the region."""
        given = np.asarray(point, dtype=np.float64)
        if given.shape[-1:] != (2,) or given.ndim > 2:
            raise ValueError(f"Give one point, (2,), or several, (m, 2), not shape {given.shape}.")
        eta = np.linalg.solve(self._half, (given - self.value).T)
        inside = np.hypot(*eta) <= self.radius(np.arctan2(eta[1], eta[0]), confidence_level)
        return bool(inside) if given.ndim == 1 else np.asarray(inside)

    def area(self, confidence_level: float | None = None) -> float:
        """Return the area, by the trapezoidal rule in the angle."""
        radii = self.radii[self._level(confidence_level)]
        return float(np.pi * np.mean(radii**2) * np.linalg.det(self._half))

    def ellipse(self, confidence_level: float | None = None) -> Array:
        """Return the boundary of the symmetric (Wald) region of the same level, (m, 2)."""
        level = self._level(confidence_level)
        return self._places(self.angles, np.full(self.angles.size, self._wald(level)))

    def ellipse_area(self, confidence_level: float | None = None) -> float:
        """Return the area of the ellipse."""
        radius = self._wald(self._level(confidence_level))
        return float(np.pi * radius**2 * np.linalg.det(self._half))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the boundaries as columns: the level and the two quantities."""
        found = [(level, *point) for level in self.levels for point in self.points(level)]
        columns = ("conf_level", *self.names)
        return {name: [row[k] for row in found] for k, name in enumerate(columns)}

    def to_frame(self) -> DataFrame:
        """Return the boundaries as a pandas data frame."""
        return data_frame("pandas", self.to_dict())

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        return as_html(self._cells(), "Joint likelihood-ratio region of two quantities")

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the boundaries, the Wald ellipses (dashed) and the estimate.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        **style
            Passed to matplotlib's ``plot`` for the boundaries.
        """
        from implicit_delta.estimate.axes import new_axes

        ax = new_axes() if ax is None else ax
        angles = np.linspace(0, 2 * np.pi, SMOOTH)
        for level in self.levels:
            look: dict[str, Any] = {"label": f"{percent(level)} joint", "zorder": 3} | style
            (line,) = ax.plot(*self._places(angles, self.radius(angles, level)).T, **look)
            circle = np.full(SMOOTH, self._wald(level))
            ax.plot(*self._places(angles, circle).T, "--", color="0.5", linewidth=0.8)
            style = {"color": line.get_color()} | style
        ax.plot(*self.value, "+", color="0.2")
        ax.plot([], [], "--", color="0.5", linewidth=0.8, label="Wald")
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        ax.legend()
        return ax

    @property
    def _half(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    def _wald(self, level: float) -> float:
        """Radius of the ellipse, in standard errors."""
        if np.isinf(self.df):
            return float(np.sqrt(-2 * np.log1p(-level)))
        return float(np.sqrt(2 * fdtri(2, self.df, level)))

    def _places(self, angles: Array, radii: Array) -> Array:
        circle = np.stack([np.cos(angles), np.sin(angles)])
        return np.asarray(self.value + (self._half @ (radii * circle)).T)

    def _level(self, level: float | None) -> float:
        if level is None:
            return self.levels[0]
        if level not in self.radii:
            raise ValueError(
                f"The contour has the confidence levels {list(self.levels)}, not {level!r}: give "
                "all levels to `contour(model, psi, confidence_level=[...])`."
            )
        return level

    def _cells(self) -> list[list[str]]:
        rows = [["", "conf_level", "estimate", "low", "high", "wald_low", "wald_high"]]
        for level in self.levels:
            points, wald = self.points(level), self.ellipse(level)
            for k, name in enumerate(self.names):
                ends = [f(side[:, k]) for side in (points, wald) for f in (np.min, np.max)]
                numbers = [f"{float(x):.4g}" for x in (self.value[k], *ends)]
                rows.append([name, percent(level), *numbers])
        return rows


def _on_chords(asked: Array, angles: Array, radii: Array) -> Array:
    """Distance of the polygon through all points at some angles: walls are straight."""
    k = np.clip(np.searchsorted(angles, asked, side="right") - 1, 0, angles.size - 2)
    (a, b), (r, s) = (angles[k], angles[k + 1]), (radii[k], radii[k + 1])
    across = r * np.sin(asked - a) + s * np.sin(b - asked)
    return np.asarray(r * s * np.sin(b - a) / np.where(across > 0, across, 1.0))
