"""Other starts for a fit that has ended at a doubtful point, in the scale of the problem."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.units import moving_lengths
from implicit_delta.core.types import Array

SEED = 0  # the same call has the same answer
CLIMBS, DRAWS = 4, 10  # points that are climbed from, and looked at for each of these
FARTHER = (1.0, 0.3, 3.0, 10.0)  # lengths: parameters are known to an order of magnitude
NO_EFFECT = (
    "At `start=` {names} {have} no effect: no slope shows where to go. Start where every parameter "
    "matters, an amplitude or a rate not at zero, a peak within the data."
)


def draw_starts(
    rows: Callable[[Array], Array], start: Array, low: Array, high: Array, climbs: int = CLIMBS
) -> tuple[list[Array], NDArray[np.bool_]]:
    """Draw points around a start and around zero, and tell which parameters matter at the start.

    In lengths over which the rows, (d,) to (n,), move by their typical size: those of the start,
    where all parameters are moved by these. So one that had no effect there has a length, too.
    """

    def tried(theta: Array) -> Array:
        try:
            return np.asarray(rows(theta), dtype=np.float64)
        except (ArithmeticError, ValueError, RuntimeError):  # a point that nobody asked for
            return np.full(center.size, np.nan)

    rng, center = np.random.default_rng(SEED), np.asarray(rows(start))
    spread = np.full(center.size, np.sqrt(np.mean(center**2)))
    with np.errstate(all="ignore"):
        first = moving_lengths(tried, start, spread)
        moved = np.array([tried(start + step) != center for step in np.diag(first)])
        aside = np.clip(start + first, low, high)
        known = np.all(np.isfinite(tried(aside)))
        second = moving_lengths(tried, aside, spread) if known else first
    matters = np.asarray(np.any(moved, axis=1))
    scales = np.where(matters, first, second), np.maximum(first, second)
    boxed, points = np.isfinite(low) & np.isfinite(high), []
    for k in range(DRAWS * climbs):  # around the start and around zero, by each scale and distance
        step = FARTHER[k // 2 % 4] * scales[k // 8 % 2] * rng.standard_normal(start.size)
        within = rng.uniform(np.where(boxed, low, 0.0), np.where(boxed, high, 1.0))
        point = np.where(boxed & (k % 3 == 0), within, (start if k % 2 else 0.0) + step)
        points.append(np.asarray(np.clip(point, low, high), dtype=np.float64))
    return points, matters


def idle_at(rows: Callable[[Array], Array], start: Array, names: tuple[str, ...] | None) -> str:
    """Name the parameters that have no effect at the start; nothing if there are none."""
    anywhere = np.full(start.size, np.inf)
    try:
        return without_effect(draw_starts(rows, start, -anywhere, anywhere)[1], names)
    except (ArithmeticError, ValueError, RuntimeError):
        return ""


def best_draws(
    objective: Callable[[Array], float], points: list[Array], climbs: int = CLIMBS
) -> list[Array]:
    """Keep the highest of some points, the best first."""
    values = []
    for point in points:
        try:
            with np.errstate(all="ignore"):
                values.append(float(objective(point)))
        except (ArithmeticError, ValueError, RuntimeError):
            values.append(-np.inf)
    order = np.argsort(-np.nan_to_num(np.array(values), nan=-np.inf), kind="stable")
    return [points[k] for k in order[:climbs] if np.isfinite(values[k])]


def without_effect(matters: NDArray[np.bool_], names: tuple[str, ...] | None) -> str:
    """Name the parameters that have no effect at the start; nothing if there are none."""
    idle = [names[j] if names else f"theta[{j}]" for j in np.flatnonzero(~matters)]
    if not idle:
        return ""
    return NO_EFFECT.format(names=", ".join(idle), have="have" if len(idle) > 1 else "has")
