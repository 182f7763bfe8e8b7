"""Ends of the intervals of an estimate: normal, simultaneous, transformed or of replicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.estimate.held import covariance_of
from implicit_delta.estimate.quantiles import (
    deviations,
    sidak_quantile,
    sup_t_quantile,
    t_quantile,
)
from implicit_delta.estimate.replicates import KINDS, check_replicates, replicate_ends
from implicit_delta.estimate.transforms import IDENTITY, Transform, ends_on_scale

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

KEPT = "_critical"  # values of simultaneous intervals, by level and seed: an estimate is frozen


def ends_of(
    estimate: Estimate,
    level: float,
    transform: Transform | None,
    simultaneous: bool,
    kind: str,
    rng: int | np.random.Generator | None,
) -> tuple[Array, Array]:
    """Return both ends, (K,) each; see `Estimate.confidence_interval`."""
    if kind in KINDS:
        return _replicate_ends(estimate, kind, level, transform, simultaneous)
    if kind != "normal":
        raise ValueError(f"kind is 'normal', 'percentile', 'basic' or 'bca', not {kind!r}")
    V = covariance_of(estimate)
    critical = _of_all(estimate, level, rng) if simultaneous else t_quantile(level, estimate.df)
    value, error = np.atleast_1d(estimate.value), deviations(V)
    if transform is not None and transform != IDENTITY:
        return ends_on_scale(transform, value, error, critical, estimate.names)
    ends = value - critical * error, value + critical * error
    logs = on_log_scale(estimate)
    if transform == IDENTITY or not np.any(logs):
        return ends
    positive = np.where(logs, value, 1.0)
    low, high = ends_on_scale("log", positive, error, critical, estimate.names)
    return np.where(logs, low, ends[0]), np.where(logs, high, ends[1])


def _of_all(
    estimate: Estimate, level: float, rng: int | np.random.Generator | None
) -> float | Array:
    """Return the critical value of all evaluations at once; the draws of a seed are made once."""
    V, df = covariance_of(estimate), least_df(estimate)
    if estimate.errors_add:
        return sidak_quantile(V, level, df)
    if not (rng is None or isinstance(rng, int)):
        return sup_t_quantile(V, level, rng, df)
    known: dict[tuple[float, int], float] = vars(estimate).setdefault(KEPT, {})
    key = level, rng or 0
    if key not in known:
        known[key] = sup_t_quantile(V, level, rng, df)
    return known[key]


def on_log_scale(estimate: Estimate) -> NDArray[np.bool_]:
    """Whether each evaluation is a ratio, whose interval and test are those of its logarithm."""
    return np.broadcast_to(np.asarray(estimate.scale) == "log", len(estimate.names))


def least_df(estimate: Estimate) -> float:
    """Return the smallest degrees of freedom among what moves: those of all of it together."""
    moving = covariance_of(estimate).diagonal() > 0
    return float(np.min(np.broadcast_to(estimate.df, moving.shape), where=moving, initial=np.inf))


def _replicate_ends(
    estimate: Estimate, kind: str, level: float, transform: Transform | None, simultaneous: bool
) -> tuple[Array, Array]:
    draws = check_replicates(
        kind, estimate.draws, covariance_of(estimate), estimate.names, estimate.method
    )
    if (transform is not None and transform != IDENTITY) or simultaneous:
        raise ValueError(
            f"kind={kind!r} takes neither transform nor simultaneous: quantiles of one "
            "evaluation need no scale and ignore the other evaluations. Use kind='normal'."
        )
    reason = str(estimate.diagnostics.notes.get("no_bca", ""))
    value = np.atleast_1d(estimate.value)
    return replicate_ends(kind, level, value, draws, estimate.acceleration, reason)
