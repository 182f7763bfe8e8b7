"""Intervals under the names and in the shapes that statsmodels has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


def interval_array(estimate: Estimate, alpha: float) -> Array:
    """Return both ends of the interval of level 1 - alpha, (K, 2)."""
    return np.column_stack(estimate.confidence_interval(_level(alpha)))


def prediction_frame(estimate: Estimate, alpha: float) -> Any:
    """Return mean, standard error and both ends as `get_prediction().summary_frame()` does."""
    low, high = interval_array(estimate, alpha).T
    columns = {
        "mean": np.atleast_1d(estimate.value),
        "mean_se": np.atleast_1d(estimate.standard_error),
        "mean_ci_lower": low,
        "mean_ci_upper": high,
    }
    pandas = optional("pandas", "summary_frame()")
    return pandas.DataFrame(columns, index=list(estimate.names))


def _level(alpha: float) -> float:
    """Turn an error probability into a confidence level; one above a half is likely the latter."""
    level = 1 - float(alpha)
    if not 0 < level < 1:
        raise ValueError(f"alpha is between 0 and 1, such as 0.05 for 95% intervals, not {alpha!r}")
    if level < 0.5:
        warn(
            f"alpha={alpha:g} makes intervals that cover {level:.10g} of the time. For the "
            f"confidence level {alpha:g} give `alpha={level:.10g}`, or use "
            f"`confidence_interval({alpha:g})`.",
            ImplicitDeltaWarning,
        )
    return level
