"""Critical values of one interval and of many at once, and the joint test."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, fdtr, fdtrc, fdtri, ndtri, stdtr, stdtrit

from implicit_delta.core.factored import Covariance, Factored, scaled
from implicit_delta.core.types import Array

# Of a maximum: the critical value is as exact as from this many draws, to 0.1 %. The length of each
# draw is integrated, so that fewer directions do it: 4 000 for 4 000 evaluations of rank 20.
DRAWS, PILOT = 100_000, 2_000  # and those that tell how many do
FEWEST_DRAWS, MOST_PRODUCTS = 10_000, 3e10  # where directions times roots take more than seconds
TILE = 512  # directions, and evaluations, whose products are in the processor's cache
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


def t_quantile(level: float, df: float | Array = np.inf) -> Array:
    """Return t with ``P(|T| < t) = level`` for T Student's; normal for infinite `df`."""
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isinf(df), -ndtri(tail), -stdtrit(df, tail)))


def likelihood_ratio_root(level: float, df: float, side: str = "both") -> float:
    r"""Return the root of the deviance up to which values belong to an interval, or to a limit.

    The deviance of a value on one side of the estimate is zero in half of all samples, a mixture
    :math:`\tfrac12 \chi^2_0 + \tfrac12 \chi^2_1`: its 95 % quantile is 2.71, that of
    :math:`\chi^2_1` at 90 %.
    """
    if side == "both":
        return float(t_quantile(level, df))
    if level <= 0.5:
        raise ValueError(
            f"A limit of confidence level {level:g} is on the other side of the estimate: give "
            "one above 0.5, such as 0.95."
        )
    return float(t_quantile(2 * level - 1, df))


def joint_root(level: float, df: float) -> float:
    """Return the root of the deviance for two quantities at once: chi-squared, or F."""
    if np.isinf(df):
        return float(np.sqrt(-2 * np.log1p(-level)))
    return float(np.sqrt(2 * fdtri(2, df, level)))


def two_sided(statistic: Array, df: float | Array = np.inf) -> Array:
    """Return ``P(|T| > |statistic|)`` for T Student's with `df` degrees of freedom."""
    return np.asarray(2 * stdtr(df, -np.abs(statistic)))


def welch_df(variances: Sequence[Array], dfs: Sequence[float | Array]) -> Array:
    """Return the degrees of freedom of a sum of variances (Welch and Satterthwaite), (K,).

    A variance of zero takes no part, and one with infinite degrees of freedom is known.
    """
    total = np.sum(variances, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        doubt = sum(np.where(V > 0, V**2 / df, 0.0) for V, df in zip(variances, dfs, strict=True))
        return np.asarray(np.where(doubt > 0, total**2 / doubt, np.inf))


def sidak_quantile(V: Covariance, level: float, df: float = np.inf) -> float:
    """Return the quantile of ``max_k |T_k|`` for as many independent evaluations as can move.

    No correlation makes it larger (Sidak's inequality).
    """
    each = level ** (1 / max(int(np.count_nonzero(V.diagonal())), 1))
    return float(t_quantile(each, df))


def sup_t_quantile(
    V: Covariance,
    level: float,
    rng: int | np.random.Generator | None,
    df: float = np.inf,
    draws: int = DRAWS,
) -> float:
    """Return the quantile of ``max_k |T_k|`` for T multivariate t with the correlation of V.

    A draw ``T = R z`` is its direction times its length: ``|z|`` has a known distribution, so that
    a direction with the largest ``|R_k u| = m`` is covered with probability ``P(|z| < c / m)``, and
    the mean of these over directions is solved for c. It is kept between the quantiles of one T
    and of K independent ones, which are the extremes for any correlation (Sidak's inequality).
    """
    moving = V.diagonal() > 0
    one, independent = float(t_quantile(level, df)), sidak_quantile(V, level, df)
    if np.count_nonzero(moving) <= 1:
        return one
    root = _correlation_root(_taken(V, moving)).astype(np.float32)  # an error of 1e-7
    most = min(draws, max(FEWEST_DRAWS, int(MOST_PRODUCTS / root.size)))
    generator = np.random.default_rng(0 if rng is None else rng)
    largest = _largest(generator, root, min(PILOT, most))
    found = _solved(largest, root.shape[1], df, level, one, independent)
    spread = float(np.var(_covered(found, largest, root.shape[1], df)))
    more = min(most, int(draws * spread / (level * (1 - level)))) - len(largest)
    if more <= 0:
        return found
    largest = np.concatenate([largest, _largest(generator, root, more)])
    return _solved(largest, root.shape[1], df, level, one, independent)


def _largest(generator: np.random.Generator, root: Any, count: int) -> Array:
    """Return the largest ``|root @ u|`` for each of some random directions u, a tile at a time."""
    found = np.zeros(count)
    for start in range(0, count, TILE):
        z = generator.standard_normal((min(TILE, count - start), root.shape[1]))
        u = (z / np.linalg.norm(z, axis=1, keepdims=True)).T.astype(np.float32)
        high = found[start : start + TILE]
        for k in range(0, len(root), TILE):
            product = root[k : k + TILE] @ u
            np.maximum(high, np.abs(product, out=product).max(axis=0), out=high)
    return found


def _covered(c: float, largest: Array, rank: int, df: float) -> Array:
    """Return the probability that the largest of T is below c, in each direction."""
    square = (c / largest) ** 2
    return np.asarray(chdtr(rank, square) if np.isinf(df) else fdtr(rank, df, square / rank))


def _solved(largest: Array, rank: int, df: float, level: float, low: float, high: float) -> float:
    """Return the c between two bounds that covers at the level, or the bound that is nearest."""
    from scipy.optimize import brentq  # which takes longer to load than all of this

    def gap(c: float) -> float:
        return float(np.mean(_covered(c, largest, rank, df))) - level

    if gap(low) >= 0:
        return low
    return high if gap(high) <= 0 else float(brentq(gap, low, high, xtol=1e-9))


def _taken(V: Covariance, moving: NDArray[np.bool_]) -> Covariance:
    return V.taken(moving) if isinstance(V, Factored) else V[np.ix_(moving, moving)]


def _correlation_root(V: Covariance) -> Array:
    """Return R, (K, r), with ``R R'`` the correlation of V up to 1e-8 in every entry."""
    size, vectors = _correlation_spectrum(V)
    kept = np.cumsum(size) > 1e-8
    root: Array = vectors[:, kept] * np.sqrt(size[kept])
    return root


def _correlation_spectrum(V: Covariance) -> tuple[Array, Array]:
    """Return the eigenvalues, ascending and not negative, and eigenvectors of the correlation."""
    correlation = scaled(V, 1 / deviations(V))
    size, vectors = (
        correlation.spectrum() if isinstance(correlation, Factored) else np.linalg.eigh(correlation)
    )
    if size[0] < -INDEFINITE * len(V):
        raise ValueError(
            f"The covariance is not positive semi-definite: its correlation has the eigenvalue "
            f"{size[0]:.3g}. Nothing has such a covariance, so there is neither a joint test nor a "
            "simultaneous interval; look at the evaluations one at a time."
        )
    return np.maximum(size, 0.0), vectors


def joint_test(
    gap: Array, V: Covariance, df: float = np.inf, *, several: bool = False
) -> tuple[float, float]:
    """Test that K gaps with covariance V are all zero: chi-squared or F, and its p-value.

    One scale that was estimated makes it F. Where each variance has degrees of freedom of its own,
    V is estimated as a whole, and the test is Hotelling's with the fewest of them.
    """
    moving = V.diagonal() > 0
    if not moving.any():
        raise ValueError("no evaluation has any variance, so there is nothing to test against")
    size, vectors = _correlation_spectrum(_taken(V, moving))
    # on the correlation scale, so that units do not decide what counts as no variance
    kept = size > 1e-10 * size[-1]
    along = vectors[:, kept].T @ (gap[moving] / deviations(V)[moving])
    statistic, rank = float(np.sum(along**2 / size[kept])), int(kept.sum())
    if np.isinf(df):
        return statistic, float(chdtrc(rank, statistic))
    if not several:
        return statistic / rank, float(fdtrc(rank, df, statistic / rank))
    left = df - rank + 1
    if left <= 0:
        raise ValueError(
            f"A joint test of {rank} evaluations needs more degrees of freedom than the {df:.3g} "
            "there are: too few clusters or rows. Test fewer at a time."
        )
    F = statistic * left / (df * rank)
    return F, float(fdtrc(rank, left, F))


def deviations(V: Covariance) -> Array:
    """Return the standard errors in a covariance."""
    return np.sqrt(V.diagonal())
