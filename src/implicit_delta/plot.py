"""Drawing functions behind the `plot` methods, for axes of your own."""

from implicit_delta.estimate.group_plot import group_plot
from implicit_delta.estimate.influence_plot import influence_plot
from implicit_delta.estimate.interval_plot import forest_plot, interval_plot
from implicit_delta.estimate.plot import (
    band_plot,
    covariance_plot,
    estimate_plot,
)

__all__ = [
    "band_plot",
    "covariance_plot",
    "estimate_plot",
    "forest_plot",
    "group_plot",
    "influence_plot",
    "interval_plot",
]
