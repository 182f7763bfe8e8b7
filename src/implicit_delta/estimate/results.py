"""Small results: an interval, a test, the rows that matter most."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.types import Array


class Interval(NamedTuple):
    """Lower and upper ends: floats for a scalar evaluation, (K,) arrays otherwise."""

    low: float | Array
    high: float | Array


class Influential(NamedTuple):
    """Training rows that move the estimate most: their numbers (k,) and influences (k, K)."""

    row: NDArray[np.intp]
    influence: Array


class WaldTest(NamedTuple):
    """Test statistic and its p-value: floats, or (K,) arrays with one test per evaluation."""

    statistic: float | Array
    p_value: float | Array
