"""The way to a maximum: from one start or several, by what is known of the objective."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from implicit_delta.core.calls import Limited
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.optimize.least_squares import least_squares
from implicit_delta.optimize.objective import Maximum, Objective

ALIKE, CLOSE = 1e-3, 0.1  # nats, and units: two maxima are one and the same


def climb(
    objective: Objective,
    start: Array,
    *,
    starts: Sequence[Array] = (),
    max_calls: int | None = None,
    tolerance: float = 0.01,
) -> Maximum:
    """Climb from a start, and from others, to the highest maximum that they lead to.

    Residuals by Levenberg-Marquardt with geodesic acceleration.

    Parameters
    ----------
    objective : Objective
    start : (d,) array
    starts : sequence of (d,) arrays
        Further starts. What they lead to is in `others` of the result, lower maxima last.
    max_calls : int, optional
        Evaluations of the objective, or of its residuals, from each start.
    tolerance : float
        Standard errors that may be left where noise allows no better: beyond, the search has not
        converged.

    Examples
    --------
    >>> x = np.arange(4.0)
    >>> squares = Squares(lambda b: 3 - b[0] * np.exp(-x), lambda b: (-np.exp(-x)[:, None], 0.0))
    >>> climb(Objective(residuals=squares), np.ones(1)).x.round(4)
    array([4.0717])
    """
    found = [_climbed(objective, point, max_calls, tolerance) for point in (start, *starts)]
    return found[0] if len(found) == 1 else highest(found, np.full(start.size, np.inf))


def highest(found: Sequence[Maximum], units: Array) -> Maximum:
    """Keep the highest maximum, with the others that differ from it, lower ones last.

    What has not converged counts only where nothing has.
    """
    ordered = sorted(found, key=lambda m: (m.converged, m.value), reverse=True)
    distinct: list[Maximum] = []
    for other in ordered:
        if not any(is_same(other, known, units) for known in distinct):
            distinct.append(other)
    return replace(distinct[0], others=tuple(m for m in distinct[1:] if m.converged))


def is_same(one: Maximum, other: Maximum, units: Array) -> bool:
    """Whether two maxima are one: as high, and within a fraction of a unit, (d,)."""
    close = np.max(abs(one.x - other.x) / units) < CLOSE
    return bool(close and abs(one.value - other.value) < ALIKE)


def _climbed(
    objective: Objective, start: Array, max_calls: int | None, tolerance: float
) -> Maximum:
    assert objective.residuals is not None
    limited = Limited(objective.residuals.residuals, max_calls or math.inf, _height)
    try:
        with np.errstate(all="ignore"):
            return least_squares(replace(objective.residuals, residuals=limited), start)
    except ConvergenceError as error:
        if limited.made < limited.most:
            raise
        return Maximum(
            x=np.asarray(limited.theta), value=limited.best, converged=False, message=str(error)
        )


def _height(x: Array, residuals: Array) -> float:
    return -float(residuals @ residuals) / 2
