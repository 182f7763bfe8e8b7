"""Columns of a table with a null and a transform, of the interval or of what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.checks import checked_null
from implicit_delta.estimate.held import covariance_of
from implicit_delta.estimate.quantiles import deviations, two_sided
from implicit_delta.estimate.transforms import Shown, Transform, on_scale

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

ON_SCALE = ("log", "logit")  # transforms of the interval, and with it of the test
SHOWN = {"log": "exp", "logit": "expit"}


def columns_of(
    estimate: Estimate, level: float, *, null: Any = None, transform: Transform | None = None
) -> dict[str, list[Any]]:
    """Return the columns of `Estimate.to_dict`, also with the transforms of an interval.

    With ``"log"`` and ``"logit"`` interval and test are made on that scale, so that they agree: the
    null is 1 or one half unless given. A pair of functions is the scale of the interval alone.
    """
    if transform is None or transform in ("identity", *SHOWN.values()):
        return estimate.to_dict(level, null=null, transform=transform)  # type: ignore[arg-type]
    if not isinstance(transform, str) or transform not in ON_SCALE:
        return _with_ends(estimate, level, transform, estimate.to_dict(level, null=null))
    shown = Shown(SHOWN[transform])
    nulls = checked_null(shown.null if null is None else null, len(estimate.names))
    value, errors = np.atleast_1d(estimate.value), deviations(covariance_of(estimate))
    center, error = on_scale(transform, value, errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(error > 0, (center - shown.back(nulls)) / error, np.nan)
    columns = {
        **estimate.to_dict(level),
        "statistic": statistic.tolist(),
        "p_value": np.atleast_1d(two_sided(statistic, estimate.df)).tolist(),
        "null": nulls.tolist(),
    }
    return _with_ends(estimate, level, transform, columns)


def _with_ends(
    estimate: Estimate, level: float, transform: Transform, columns: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    low, high = map(np.atleast_1d, estimate.confidence_interval(level, transform=transform))
    return {**columns, "conf_low": low.tolist(), "conf_high": high.tolist()}
