"""Critical values of one interval and of many at once, and the joint test."""

from numbers import Real
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtri

from implicit_delta._core.types import Array

INDEFINITE = 1e-8  # times K: an eigenvalue of a correlation that rounding can make negative


def checked_level(level: Any) -> float:
    """Validate a confidence level."""
    if isinstance(level, Real) and 0 < float(level) < 1:
        return float(level)
    percent = isinstance(level, Real) and 1 < float(level) < 100
    raise ValueError(
        f"confidence_level is a number between 0 and 1, such as 0.95, not {level!r}"
        + (f": for {level:g} % give {float(level) / 100:.10g}" if percent else "")
    )


def normal_quantile(level: float) -> float:
    """Return z with ``P(|Z| < z) = level`` for Z standard normal."""
    return float(-ndtri((1 - level) / 2))


def sidak_quantile(V: Array, level: float) -> float:
    """Return the quantile of ``max_k |Z_k|`` for as many independent Z as can move.

    No correlation makes it larger (Sidak's inequality).
    """
    return normal_quantile(level ** (1 / max(int(np.count_nonzero(np.diag(V))), 1)))


def sup_t_quantile(
    V: Array, level: float, rng: int | np.random.Generator | None, draws: int = 100_000
) -> float:
    """Return the quantile of ``max_k |Z_k|`` for Z normal with the correlation of V.

    The simulated quantile is kept between those of one normal and of K independent ones, which
    are the extremes for any correlation (Sidak's inequality).
    """
    moving = np.diag(V) > 0
    K = int(moving.sum())
    one, independent = normal_quantile(level), sidak_quantile(V, level)
    if K <= 1:
        return one
    root = _correlation_root(V[np.ix_(moving, moving)])
    generator = np.random.default_rng(0 if rng is None else rng)
    # 2 million numbers at a time: memory does not grow with K
    chunk = max(1, 2_000_000 // K)
    sizes = [min(chunk, draws - start) for start in range(0, draws, chunk)]
    largest = [
        np.abs(generator.standard_normal((size, root.shape[1])) @ root.T).max(axis=1)
        for size in sizes
    ]
    return float(np.clip(np.quantile(np.concatenate(largest), level), one, independent))


def _correlation_root(V: Array) -> Array:
    """Return R, (K, r), with ``R R'`` the correlation of V up to 1e-8 in every entry."""
    size, vectors = _correlation_spectrum(V)
    kept = np.cumsum(size) > 1e-8
    root: Array = vectors[:, kept] * np.sqrt(size[kept])
    return root


def _correlation_spectrum(V: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, ascending and not negative, and eigenvectors of the correlation."""
    error = deviations(V)
    size, vectors = np.linalg.eigh(V / np.outer(error, error))
    if size[0] < -INDEFINITE * len(V):
        raise ValueError(
            f"The covariance is not positive semi-definite: its correlation has the eigenvalue "
            f"{size[0]:.3g}. Nothing has such a covariance, so there is neither a joint test nor a "
            "simultaneous interval; look at the evaluations one at a time."
        )
    return np.maximum(size, 0.0), vectors


def joint_test(gap: Array, V: Array) -> tuple[float, float]:
    """Test that K gaps with covariance V are all zero: chi-squared statistic and p-value."""
    moving = np.diag(V) > 0
    if not moving.any():
        raise ValueError("no evaluation has any variance, so there is nothing to test against")
    size, vectors = _correlation_spectrum(V[np.ix_(moving, moving)])
    # on the correlation scale, so that units do not decide what counts as no variance
    kept = size > 1e-10 * size[-1]
    along = vectors[:, kept].T @ (gap[moving] / deviations(V)[moving])
    statistic = float(np.sum(along**2 / size[kept]))
    return statistic, float(chdtrc(kept.sum(), statistic))


def deviations(V: Array) -> Array:
    """Return the standard errors in a covariance."""
    return np.sqrt(np.diag(V))
