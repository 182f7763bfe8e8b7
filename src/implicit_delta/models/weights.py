"""Kinds of observation weights: repetitions, precisions, and shares of a population."""

from typing import Any, get_args

import numpy as np

from implicit_delta._core.arguments import as_weights
from implicit_delta._core.types import Array, WeightKind
from implicit_delta._core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

WHOLE = 1e-9  # relative: a whole number, but for rounding


def observation_weights(weights: Any, n: int, kind: WeightKind, name: str = "weights") -> Array:
    """Check and copy weights and their kind; warn of repetitions that are no whole numbers."""
    if kind not in get_args(WeightKind):
        raise ValueError(
            f"weight_kind is one of {', '.join(map(repr, get_args(WeightKind)))}, not {kind!r}."
        )
    checked = as_weights(weights, n)
    if kind == "frequency":
        _warn_of_fractions(checked, name)
    return checked


def _warn_of_fractions(weights: Array, name: str) -> None:
    fractions = int(np.sum(abs(weights - np.round(weights)) > WHOLE * weights))
    if fractions:
        warn(
            f"{name} counts repetitions of rows, and {fractions} of {weights.size} are not whole "
            f"numbers: their sum, {weights.sum():.6g}, is taken for the number of observations. "
            'If they are one over the variance of each row, give `weight_kind="precision"`; if '
            'they are survey or inverse-probability weights, `weight_kind="sampling"`.',
            ImplicitDeltaWarning,
        )


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


def count_of(weights: Array, kind: WeightKind) -> float:
    """Count the observations."""
    return float(weights.sum() if kind == "frequency" else np.count_nonzero(weights))


def as_mean_one(weights: Array, kind: WeightKind) -> float:
    """Return the factor that makes sampling weights sum to the number of rows; one for others."""
    return np.count_nonzero(weights) / float(weights.sum()) if kind == "sampling" else 1.0
