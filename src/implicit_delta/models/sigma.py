"""Standard deviations of observations, or their covariance: division of residuals by them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from implicit_delta.core.rounding import is_symmetric
from implicit_delta.core.types import Array

SINGULAR = 1e-12  # smallest squared pivot of a correlation matrix that is no rounding error
NO_WEIGHTS = (
    "sigma= is a covariance of all rows, and weights= are those of single rows. Put both into the "
    "covariance: `sigma=sigma / np.sqrt(np.outer(weights, weights))` for precisions."
)
MIXED = (
    "With a covariance of the observations as sigma= the terms of the log-likelihood are those of "
    "independent combinations of rows, and not of the rows: there are no influences of rows, no "
    "robust or clustered errors, and nothing to resample. Use `infer(model, psi)`, which has the "
    'covariance in it, or `Bootstrap(kind="parametric")`, which draws from it.'
)


@dataclass(frozen=True, eq=False)
class Scale:
    """Standard deviations, (n,), or the lower root of a covariance, (n, n)."""

    root: Array

    @property
    def mixes(self) -> bool:
        """Whether division combines rows."""
        return self.root.ndim == 2

    @property
    def logarithms(self) -> Array:
        """Logarithms of the scale of each row, (n,), which its log-density is lower by."""
        return np.log(np.diag(self.root) if self.mixes else self.root)

    def divide(self, rows: Array) -> Array:
        """Divide residuals (n,), or their derivatives (n, d), by the scale."""
        if not self.mixes:
            return np.asarray((rows.T / self.root).T)
        if not np.all(np.isfinite(rows)):
            return np.full_like(rows, np.nan)
        return np.asarray(solve_triangular(self.root, rows, lower=True, check_finite=False))


def scale_of(sigma: Any, n: int) -> Scale:
    """Check standard deviations (one, or n), or a covariance (n, n); see `curve_fit` of scipy."""
    try:
        given = np.array(sigma, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sigma is {sigma!r:.60}: give standard deviations, (n,).") from None
    if given.shape not in ((), (n,), (n, n)):
        raise ValueError(
            f"sigma has shape {given.shape}, but there are {n} residuals: give one standard "
            f"deviation for each, ({n},), one for all, or their covariance, ({n}, {n})."
        )
    if not np.all(np.isfinite(given)):
        raise ValueError(
            "sigma is not finite everywhere. A row that says nothing is left out of the residuals."
        )
    deviations = np.diag(given) if given.ndim == 2 else given
    if not np.all(deviations > 0):
        raise ValueError("sigma must be positive: it is divided by.")
    if given.ndim < 2:
        return Scale(np.broadcast_to(given, n))
    return Scale(_root(given))


def _root(covariance: Array) -> Array:
    """Lower root of a covariance, found on the scale of correlations."""
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    if not is_symmetric(covariance):
        raise ValueError("sigma of shape (n, n) is a covariance, and this one is not symmetric.")
    try:
        root = cholesky(correlation, lower=True)
    except LinAlgError:
        root = np.zeros((1, 1))
    if np.min(np.diag(root)) ** 2 <= SINGULAR:
        raise ValueError(
            "sigma of shape (n, n) is a covariance, and this one is not positive definite: some "
            "combination of rows would be known exactly. Usual causes: a systematic error without "
            "the statistical ones on the diagonal, or standard deviations that were not squared."
        )
    return np.asarray(deviations[:, None] * root)
