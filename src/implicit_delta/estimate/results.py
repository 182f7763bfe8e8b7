"""Small results: an interval, a test."""

from typing import NamedTuple

from implicit_delta.core.types import Array


class Interval(NamedTuple):
    """Lower and upper ends: floats for a scalar evaluation, (K,) arrays otherwise."""

    low: float | Array
    high: float | Array


class WaldTest(NamedTuple):
    """Test statistic and its p-value: floats, or (K,) arrays with one test per evaluation."""

    statistic: float | Array
    p_value: float | Array
