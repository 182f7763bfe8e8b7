"""Observation weights: repetitions, precisions, and shares of a population."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr

from implicit_delta.core.arguments import as_weights
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

Points: TypeAlias = list[NDArray[np.intp]]  # row numbers by design point
WHOLE, ROUNDED = 1e-9, 1e-15  # of a whole number, absolute and relative: rounding errors
MANY = 4.0  # repetitions on average: they halve a standard error if there are none
MOST, SCATTERS = 0.5, 10.0  # share of all repetitions; times the variance within design points
FILLED = 4  # rows of a design point that show a lattice
UNUSUAL = 0.005  # tail of chi-squared: a sum of squares that sigma does not explain


@dataclass(frozen=True, eq=False)
class Weights:
    """Weight of each row, and what it means.

    Attributes
    ----------
    values : (n,) array
        Factors of the terms in the objective.
    kind : {"frequency", "precision", "sampling"}
        Repetitions of a row, its precision, or how much of a population it stands for.
    """

    values: Array
    kind: WeightKind = "frequency"

    @property
    def counts(self) -> Array:
        """Number of observations that each row stands for, (n,)."""
        if self.kind == "frequency":
            return self.values
        return (self.values > 0).astype(np.float64)

    @property
    def count(self) -> float:
        """Number of observations."""
        if self.kind == "frequency":
            return float(self.values.sum())
        return float(np.count_nonzero(self.values))

    @property
    def shares(self) -> Array:
        """Weight of each row in an average over the training rows, (n,)."""
        return self.counts if self.kind == "precision" else self.values

    @property
    def mean_one(self) -> float:
        """Factor that makes sampling weights sum to the number of rows; one for other kinds."""
        return self.count / float(self.values.sum()) if self.kind == "sampling" else 1.0

    def total(self, terms: Array) -> float:
        """Weighted sum of terms, (n,); one of weight zero is left out, even minus infinity."""
        values = self.values
        return float(values @ (terms if values.all() else np.where(values == 0, 0.0, terms)))

    def mean_one_sum(self, squares: Array) -> float:
        """Weighted sum, (n,) to a number, that the unit of sampling weights leaves alone."""
        return self.mean_one * float(self.values @ squares)

    @property
    def factors(self) -> Array:
        """Factors that scale derivatives of terms to those of one observation, (n,)."""
        return np.ones_like(self.values) if self.kind == "frequency" else self.values

    def per_observation(self, rows: Array, part: slice = slice(None)) -> Array:
        """Scale derivatives of terms, (n, k), to those of one observation."""
        return rows if self.kind == "frequency" else self.values[part, None] * rows

    def of_batch(self, rows: NDArray[np.integer[Any]]) -> Array:
        """Weights with which a batch of rows stands for all n, (n,)."""
        n = self.values.size
        return self.values * np.bincount(rows, minlength=n) * (n / len(rows))

    def equal(self, other: "Weights") -> bool:
        """Whether values and kind are the same."""
        return self.kind == other.kind and np.array_equal(self.values, other.values)

    def replaced(self, values: Any) -> "Weights":
        """Check other weights of the same kind."""
        return replace(self, values=as_weights(values, self.values.size))


def observation_weights(weights: Any, n: int, kind: WeightKind, name: str = "weights") -> Weights:
    """Check and copy weights and their kind; warn of repetitions that are no whole numbers."""
    if kind not in get_args(WeightKind):
        raise ValueError(
            f"weight_kind is one of {', '.join(map(repr, get_args(WeightKind)))}, not {kind!r}."
        )
    checked = as_weights(weights, n)
    if kind == "frequency":
        _warn_of_fractions(checked, name)
    return Weights(checked, kind)


def _fractions(weights: Array) -> int:
    gaps = abs(weights - np.round(weights))
    return int(np.sum(gaps > WHOLE * np.minimum(weights, 1.0) + ROUNDED * weights))


def _warn_of_fractions(weights: Array, name: str) -> None:
    fractions = _fractions(weights)
    if fractions:
        warn(
            f"{name} counts repetitions of rows, and {fractions} of {weights.size} are not whole "
            f"numbers: their sum, {weights.sum():.6g}, is taken for the number of observations. "
            'If they are one over the variance of each row, give `weight_kind="precision"`; if '
            'they are survey or inverse-probability weights, `weight_kind="sampling"`.',
            ImplicitDeltaWarning,
        )


def look_repeated(weights: Array) -> bool:
    """Whether weights are whole numbers, four on average or more."""
    used = weights[weights > 0]
    return bool(used.mean() >= MANY) and not _fractions(used)


def warn_of_precisions(weights: Array, residuals: Array, slopes: Array) -> None:
    r"""Warn of whole numbers that count repetitions, where residuals show precisions.

    Rows of equal slopes, (n, d), are repetitions of one design point. Noise makes observations
    there differ: if most that are repeated have one residual each, and these scatter more than
    observations of one design point do, they are no repetitions. Or
    :math:`\sum w_i r_i^2` is chi-squared, as weights :math:`1 / \sigma_i^2` make it, and residuals
    of a design point do not fill a lattice, as those of a table do.
    """
    used = weights > 0
    w, r = weights[used], residuals[used]
    points = _design_points(slopes[used])
    tail = float(chdtr(max(w.size - slopes.shape[1], 1), np.sum(w * r**2)))
    explained = UNUSUAL < tail < 1 - UNUSUAL
    if _lone(w, r, points, slopes.shape[1]) or (explained and not _on_lattice(r, points)):
        warn(
            f"weights counts repetitions of rows, {w.sum():.6g} observations in {w.size} rows, but "
            "the residuals are as if they were one over the variance of each row: standard errors "
            f"would then be {np.sqrt(w.mean()):.3g} times too small. Give `sigma=` (standard "
            'deviations) or `weight_kind="precision"`; if rows are repeated, '
            '`weight_kind="frequency"`.',
            ImplicitDeltaWarning,
        )


def _design_points(slopes: Array) -> Points:
    """Row numbers by design point: slopes that agree to nine digits."""
    size = np.max(abs(slopes), axis=0)
    rounded = np.round(slopes / np.where(size > 0, size, 1.0), 9) + 0.0
    _, labels = np.unique(rounded, axis=0, return_inverse=True)
    return [np.flatnonzero(labels.ravel() == k) for k in range(labels.max() + 1)]


def _lone(w: Array, r: Array, points: Points, d: int) -> bool:
    """Whether most repetitions are of a lone residual, which scatters more than others do."""
    repeated = sum(float(np.sum(w[rows])) - 1 for rows in points)
    lone = sum(float(w[rows[0]]) - 1 for rows in points if rows.size == 1)
    if not lone > MOST * repeated:
        return False
    means = [np.average(r[rows], weights=w[rows]) for rows in points]
    pure = sum(w[rows] @ (r[rows] - m) ** 2 for rows, m in zip(points, means, strict=True))
    between = float(np.sum(w * r**2) - pure) / max(len(points) - d, 1)
    return bool(between > SCATTERS * pure / repeated)


def _on_lattice(r: Array, points: Points) -> bool:
    """Whether residuals of design points with four rows or more fill most of a lattice."""
    gaps = [np.diff(np.sort(r[rows])) for rows in points if rows.size >= FILLED]
    return bool(gaps) and all(np.median(gap) <= 1.5 * np.min(gap) for gap in gaps)


def warn_of_rates(y: Array, weights: Array, name: str, instead: str) -> None:
    """Warn of repetitions of a row whose count is not whole: it is a proportion, or a rate."""
    repeated = (weights > 1) & (y != np.round(y))
    if np.any(repeated):
        warn(
            f"{name} counts repetitions of rows, but {int(np.sum(repeated))} of the rows that it "
            "repeats have outcomes that are not whole numbers: proportions of so many trials, or "
            "rates of so much exposure, are one observation each. Robust errors would be too "
            f"small. {instead}",
            ImplicitDeltaWarning,
        )
