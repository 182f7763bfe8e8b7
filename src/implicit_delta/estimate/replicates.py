"""Intervals read off replicates of psi: percentile, basic and BCa."""

import numpy as np
from scipy.special import ndtr, ndtri

from implicit_delta.core.factored import Covariance
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.types import Array
from implicit_delta.estimate.quantiles import deviations

NO_BCA = (
    "only Bootstrap computes it, and for psi itself, not for combinations. Use "
    "`infer(model, psi, Bootstrap(1000))` or `bootstrap(fit, data, psi, replicates=1000)`"
)
KINDS = ("percentile", "basic", "bca")


def replicate_ends(
    kind: str,
    level: float,
    value: Array,
    draws: Array,
    acceleration: Array | None,
    reason: str = "",
) -> tuple[Array, Array]:
    """Return both ends, (K,) each, of the interval of this kind.

    ``"percentile"`` takes the quantiles of the replicates, ``"basic"`` reflects these at the value
    (a replicate is to the value as the value is to the truth), and ``"bca"`` moves their levels for
    median bias and for a standard error that changes along psi (Efron 1987). Without an
    acceleration there is no BCa interval, for the reason given.
    """
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if kind == "bca":
        if acceleration is None:
            raise ValueError(
                "kind='bca' needs the influence of each observation, and there is none here: "
                f"{reason or NO_BCA}. kind='percentile' and kind='basic' need none."
            )
        levels = _bca_levels(tails, value, draws, acceleration)
        ends = [np.quantile(column, at) for column, at in zip(draws.T, levels, strict=True)]
        low, high = np.array(ends).T
        return low, high
    low, high = np.quantile(draws, tails, axis=0)
    return (2 * value - high, 2 * value - low) if kind == "basic" else (low, high)


def _bca_levels(tails: Array, value: Array, draws: Array, acceleration: Array) -> Array:
    """Levels (K, 2) at which the replicates are read."""
    below = np.mean(draws < value, axis=0) + np.mean(draws == value, axis=0) / 2
    if np.any((below == 0) | (below == 1)):
        raise ValueError(
            "All replicates lie on one side of the estimate, so their bias cannot be corrected. "
            "Use kind='percentile' or kind='normal', or more replicates."
        )
    bias = ndtri(below)[:, None]
    shifted = bias + ndtri(tails)
    slowed = 1 - acceleration[:, None] * shifted
    if np.any(slowed <= 0):
        raise ValueError(
            "The influences are so skewed, or the replicates so far to one side, that the levels "
            "of kind='bca' have no end. Use kind='percentile', or a smaller confidence level."
        )
    levels = ndtr(bias + shifted / slowed)
    beyond = np.minimum(levels, 1 - levels) * len(draws) < 1
    report([_beyond(float(levels[beyond][0]), len(draws)) if np.any(beyond) else None])
    return np.asarray(levels)


def _beyond(level: float, count: int) -> Finding:
    return Finding(
        "warn",
        "few_draws",
        f"kind='bca' reads the replicates at the level {level:.2g}, beyond the outermost of "
        f"{count}, so that the interval ends there.",
        number=level,
        remedies=("Use more replicates.",),
    )


def check_replicates(
    kind: str, draws: Array | None, covariance: Covariance, names: tuple[str, ...], method: str
) -> Array:
    """Return the replicates if there are any to take quantiles of; explain otherwise."""
    if draws is None or len(draws) < 2:
        raise ValueError(
            f"kind={kind!r} takes quantiles of replicates, and {method} makes none. "
            "Use the method Simulation or Bootstrap, or kind='normal'."
        )
    errors = deviations(covariance)
    still = (np.ptp(draws, axis=0) <= 1e-9 * errors) & (errors > 0)
    if still.any():
        raise ValueError(
            f"All replicates of {names[int(np.argmax(still))]!r} are equal: its error is "
            "that of the evaluation alone, of which there are none. Use kind='normal'."
        )
    return draws
