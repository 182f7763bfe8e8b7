"""Fits from several starts: the best maximum, and how many there are."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.core.labels import near_match
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, ImplicitDeltaError
from implicit_delta.models.constraints import box
from implicit_delta.models.named_theta import flattened
from implicit_delta.models.restarts import best_draws, draw_starts

SAME, NEAR = 1e-3, 0.1  # of the objective, and in natural units: one and the same optimum

logger = logging.getLogger("implicit_delta")


@dataclass(frozen=True, eq=False)
class Optimum:
    """A maximum: where, how high, and from how many starts it was found."""

    theta: Array
    objective: float
    count: int = 1
    lost: int = 0  # starts that led to no maximum, told with the best


def first_start(theta: Any, start: Any, starts: Any) -> tuple[Any, Any]:
    """Check the starts; return the one that names and shapes are taken from, and all as given."""
    if starts is None:
        return start, ()
    if theta is not None:
        raise ValueError("theta= is the maximum itself: give starts=, or theta=, but not both.")
    if isinstance(starts, bool | str | Mapping) or not isinstance(
        starts, int | np.integer | Iterable
    ):
        raise TypeError(
            "starts is a whole number of random starts, `starts=20`, or a list of starts, and not "
            f"{starts!r:.60}."
        )
    if isinstance(starts, int | np.integer):
        if starts < 1 or start is None:
            raise ValueError(
                f"starts={starts} random starts are drawn around start=: give that too, and at "
                "least one of them."
            )
        return start, int(starts)
    listed = [*([] if start is None else [start]), *starts]
    if not listed:
        raise ValueError("starts is an empty list: give a number, or one start at least.")
    return listed[0], listed


def points_of(given: int | Sequence[Any], model: Any) -> list[Array]:
    """Make the starts, (d,) each."""
    if isinstance(given, int):
        return [np.array(model.theta), *_drawn(model, given - 1)]
    return [_checked(start, number, model) for number, start in enumerate(given)]


def best_of(
    search: Callable[[Array], tuple[Array, float]],
    points: Sequence[Array],
    units: Callable[[Array], Array],
) -> tuple[Optimum, ...]:
    """Search from each point, for theta and its height: the maxima, the best first.

    A start that leads nowhere is counted; if none leads anywhere, its error is raised.
    """
    found: list[Optimum] = []
    failures: list[ImplicitDeltaError] = []
    with progress("starts", total=len(points), unit="fit") as bar:
        for point in points:
            try:
                found.append(Optimum(*search(point)))
            except (ImplicitDeltaError, ArithmeticError) as error:
                if len(points) == 1:
                    raise
                failures.append(_as_failure(error))
            bar.update()
    if not found:
        raise failures[0]
    if len(points) == 1:
        return tuple(found)
    found.sort(key=lambda optimum: -optimum.objective)
    optima = _distinct(found, units(found[0].theta))
    optima = (replace(optima[0], lost=len(failures)), *optima[1:])
    logger.info("%s from %d starts", spelled_optima(optima), len(points))
    return optima


def spelled_optima(optima: Sequence[Optimum]) -> str:
    """Write how many optima there are, and how far below the best the next one is."""
    fits = sum(optimum.count for optimum in optima)
    lost = optima[0].lost
    text = f"{len(optima)} found in {fits} fits, the best in {optima[0].count}"
    if lost:
        text += f" ({lost} more start{'s' * (lost > 1)} led to no maximum)"
    twins = sum(_as_high(optima[0], other) for other in optima[1:])
    if twins:
        text += (
            f"; {twins} of the others as high as the best: usually the same maximum with "
            "components exchanged, or a sign or a phase changed; a bound or a constraint, such as "
            "m1 <= m2, leaves one of them"
        )
    rest = [other for other in optima[1:] if not _as_high(optima[0], other)]
    if rest:
        text += f"; the next is lower by {optima[0].objective - rest[0].objective:.3g}"
    return text


def _as_high(best: Optimum, other: Optimum) -> bool:
    """Whether a maximum is as high as the best, elsewhere."""
    return abs(best.objective - other.objective) < SAME


def _checked(start: Any, number: int, model: Any) -> Array:
    values, layout = flattened(start, f"starts[{number}]")
    if layout is not None and model.space.names is not None and layout.names != model.space.names:
        if set(layout.names) != set(model.space.names):
            others = [name for name in layout.names if name not in model.space.names]
            wrong = [
                f" {x!r} is no parameter: {near_match(x, model.space.names)}" for x in others[:1]
            ]
            raise ValueError(
                f"starts[{number}] has the names {', '.join(layout.names)}, and the first "
                f"{', '.join(model.space.names)}.{''.join(wrong)}"
            )
        values = np.asarray(values)[[layout.names.index(name) for name in model.space.names]]
    point = np.array(values, dtype=np.float64).reshape(-1)
    if point.size != model.d or not np.all(np.isfinite(point)):
        raise ValueError(f"starts[{number}] must be {model.d} finite numbers, not {start!r:.60}.")
    return point


def _drawn(model: Any, count: int) -> list[Array]:
    """Draw points in the scale of the terms, and keep the highest that are within the bounds."""
    start = np.array(model.theta)
    low, high = np.full(model.d, -np.inf), np.full(model.d, np.inf)
    if model.space.constraints is not None:
        low, high = box(model.space.constraints, start)
    points, _ = draw_starts(model.rows.terms, start, low, high, count)
    return best_draws(model.objective, points, count)


def _distinct(found: list[Optimum], units: Array) -> tuple[Optimum, ...]:
    """Count the maxima that are the same, the best first."""
    optima: list[Optimum] = []
    for new in found:
        for k, known in enumerate(optima):
            close = np.max(abs(new.theta - known.theta) / units) < NEAR
            if close and abs(new.objective - known.objective) < SAME:
                optima[k] = replace(known, count=known.count + 1)
                break
        else:
            optima.append(new)
    return tuple(optima)


def _as_failure(error: Exception) -> ImplicitDeltaError:
    return error if isinstance(error, ImplicitDeltaError) else ConvergenceError(str(error))
