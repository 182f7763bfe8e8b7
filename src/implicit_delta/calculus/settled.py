"""Jacobian of a function whose coordinates have no known unit: steps shrink until it settles."""

import numpy as np

from implicit_delta.calculus.derivatives import Derivative, Function, differentiate
from implicit_delta.core.types import Array

SETTLED = 1e-5  # of a column's length: far above what rounding or an ODE solver leave
MOST_DECADES = 15  # from a place at 1e6 to a width of 1e-9
ROUGH = 0.1  # of a column's length: beyond it the step is too long, not the function noisy
SHORTEST = 1 / 8  # of a step: the shortest difference of most extrapolations
MOST_WORSE = 2  # steps in a row that settle less: what is left is noise, or a kink


def settled_jacobian(f: Function, x: Array, steps: Array) -> Derivative:
    """Differentiate f at x, (m, d), with steps as given or, where they are too long, shorter.

    A step that is far longer than f is smooth gives differences that do not settle as it is
    halved, or none at all: zero. Such a column is tried again with a tenth of it, and so on.
    The error includes the rounding of f, which extrapolation does not show where it is the same
    in a few short steps.
    """
    rounding = np.spacing(abs(f(x)))[:, None]
    columns = [_column(f, x, j, step, rounding) for j, step in enumerate(steps)]
    value = np.concatenate([column.value for column in columns], axis=1)
    return Derivative(value, np.concatenate([column.error for column in columns], axis=1))


def _column(f: Function, x: Array, j: int, step: float, rounding: Array) -> Derivative:
    best: Derivative | None = None
    doubt, worse = np.inf, 0
    for _ in range(MOST_DECADES):
        found = _along(f, x, j, step)
        if found is not None and (best is None or _doubt(found) < doubt):
            best = Derivative(found.value / step, (found.error + rounding / SHORTEST) / step)
            doubt, worse = _doubt(found), 0
        elif doubt < ROUGH:
            worse += 1
        if doubt <= SETTLED or worse == MOST_WORSE:
            break
        step /= 10
    if best is None:
        raise FloatingPointError("the function is not finite on both sides of the point")
    return best


def _along(f: Function, x: Array, j: int, step: float) -> Derivative | None:
    direction = np.zeros((x.size, 1))
    direction[j] = step
    try:
        return differentiate(f, x, direction)
    except FloatingPointError:  # the domain ends nearby
        return None


def _doubt(found: Derivative) -> float:
    """Relate the error of a column to its length; nothing at all is no derivative yet."""
    length = float(np.linalg.norm(found.value))
    return float(np.linalg.norm(found.error)) / length if length > 0 else np.inf
