"""Acceleration of BCa intervals by leaving units out in turn."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.outcomes import Outcome

GROUPS = 50  # left out in turn: the acceleration is then known up to 0.4 / 50, from normal rows


@dataclass(frozen=True)
class Acceleration:
    r"""Skewness over six, :math:`\sum f^3 / 6 (\sum f^2)^{3/2}`, of jackknife influences f."""

    value: Array | None = None
    reason: str = ""

    @classmethod
    def of(
        cls,
        outcomes: list[Outcome],
        groups: list[NDArray[np.intp]],
        count: int,
        kind: str,
        without: bool,
    ) -> "Acceleration":
        if kind == "bayesian":
            return cls(reason='smooth weights are skewed themselves; use `kind="resample"`')
        if not outcomes or without:
            return cls(
                reason="`bootstrap` leaves out rows in turn for it, unless `jackknife=False` or "
                "where the same rows do not give the same value"
            )
        failed = [outcome.failure for outcome in outcomes if outcome.psi is None]
        if failed:
            return cls(reason=f"a fit without some of the rows failed ({failed[0]})")
        values = np.array([outcome.psi for outcome in outcomes])
        left = np.array([count - group.size for group in groups])[:, None]
        influences = left * (np.average(values, axis=0) - values)
        influences -= influences.mean(axis=0)
        cubes, squares = np.sum(influences**3, axis=0), np.sum(influences**2, axis=0)
        if np.any(squares == 0):
            return cls(reason="psi is the same whatever row is left out: it moves in steps")
        return cls(ratio(cubes, 6 * squares**1.5))


def left_out_groups(count: int, stream: np.random.SeedSequence) -> list[NDArray[np.intp]]:
    """Split the units, in random order, into groups of nearly one size."""
    order = np.random.default_rng(stream).permutation(count)
    return np.array_split(order, min(count, GROUPS))
