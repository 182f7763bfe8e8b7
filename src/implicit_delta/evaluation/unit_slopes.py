"""Slopes of a statistic in its units, smoothed row by row: for networks too large for draws.

A statistic such as an accuracy jumps where a row passes a threshold. Its slope in the score of one
row, over the width by which the model leaves that score open, is a difference of two values of
the function, at no cost of the network. With these slopes c the statistic responds like the smooth
psi ``c' units``: one derivative, and one solve.
"""

from collections.abc import Callable

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import ratio

DIRECTIONS = 3  # in which the scores of a row mostly move
MOST_CALLS = 20_000  # of the function; beyond, rows are moved several at a time
SEED = 0


def slopes_in_units(
    function: Callable[[Array, Array], Array], units: Array, weight: Array, moves: Array
) -> Array:
    """Differentiate T(units, weight) over the width of each row's moves: (m, p, K).

    Parameters
    ----------
    function : callable
        (m * p,) scores and (m,) weights to (K,).
    units : (m, p) array
    weight : (m,) array
    moves : (P, m, p) array
        Draws of the moves of the units.
    """
    steps = _principal(moves)
    groups = _groups(len(units), len(steps))
    rng = np.random.default_rng(SEED)
    slopes: Array | None = None
    for step in steps:
        signs = rng.choice([-1.0, 1.0], size=len(units))
        size = np.sum(step**2, axis=1)
        for rows in groups:
            signed = signs[rows, None] * step[rows]
            ahead, behind = units.copy(), units.copy()
            ahead[rows] += signed
            behind[rows] -= signed
            half = (function(ahead.ravel(), weight) - function(behind.ravel(), weight)) / 2
            if slopes is None:
                slopes = np.zeros((*units.shape, half.size))
            # Along orthogonal steps the slopes add; other rows of a group cancel on average.
            slopes[rows] += ratio(signed, size[rows, None])[..., None] * half
    assert slopes is not None
    return slopes


def _principal(moves: Array) -> Array:
    """Steps of one standard deviation in the main directions of each row, (r, m, p)."""
    draws, _, p = moves.shape
    if p == 1:
        return np.asarray(np.sqrt(np.mean(moves**2, axis=0))[None])
    _, sizes, axes = np.linalg.svd(np.swapaxes(moves, 0, 1), full_matrices=False)
    count = min(DIRECTIONS, sizes.shape[1])
    steps = (sizes / np.sqrt(draws))[:, :count, None] * axes[:, :count]
    return np.asarray(np.swapaxes(steps, 0, 1))


def _groups(rows: int, steps: int) -> list[Array]:
    """Cut rows into random groups to be moved at the same time: of one row, if that is cheap."""
    count = min(rows, max(1, MOST_CALLS // (2 * steps)))
    order = np.random.default_rng(SEED).permutation(rows)
    return [np.asarray(group) for group in np.array_split(order, count)]
