"""Assertions about arrays."""

from typing import Any

import numpy as np


def close(actual: Any, expected: Any, rtol: float, size: float, text: str) -> None:
    """Raise unless arrays agree, relative to the largest entry or to a size."""
    gap = float(np.max(abs(np.asarray(actual) - np.asarray(expected)), initial=0.0))
    limit = rtol * max(size, float(np.max(abs(np.asarray(expected)), initial=0.0)))
    require(gap <= limit, f"{text}: they differ by {gap:.3g}, more than {limit:.3g}")


def require(condition: Any, text: str) -> None:
    """Raise an AssertionError unless a condition holds."""
    if not condition:
        raise AssertionError(text)
