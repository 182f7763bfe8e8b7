"""Parameters that mean nothing under a null hypothesis: the place of a peak of height zero.

Without them the likelihood ratio is the largest of many dependent ones, over all values that they
may have, and no chi-squared distribution (Davies, 1977; the look-elsewhere effect of physics).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.coordinates import satisfies_constraints
from implicit_delta.models.objective import objective_of

SMALL = 1e-5  # of the size of a parameter: a step for a derivative
STEPS = (0.1, -0.1, 0.01, -0.01, 1e-3, -1e-3)  # of the size of a parameter: a move that is seen
COLLINEAR = 1e-3  # of the largest singular value: a direction to look at; a move decides
NOTHING = 1e-4  # of what the same move changes elsewhere

Terms = Callable[[Array], Array]


class Vanished(NamedTuple):
    """Places of the parameters that mean nothing, and of those whose values make them so."""

    places: list[int]
    causes: list[int]


def vanished(model: Any, point: Array, held: Array, basis: Array, terms: Terms) -> Vanished | None:
    """Find directions along which the terms are constant at a point, and not beside it.

    Parameters
    ----------
    model : FittedModel
        The larger one; moves stay within its constraints.
    point : (d,) array
        Parameters of the smaller model.
    held : (d,) array of bool
        Those that it holds.
    basis : (d, k) array
        Directions in which the larger model is free.
    terms : callable
        Of the larger model, (n,).
    """
    size = np.maximum(abs(point), abs(np.array(model.theta)))
    size = np.maximum(
        size, np.minimum(objective_of(model).units, 1.0)
    )  # units are huge where L is flat
    move = _Moves(model, terms)
    places: set[int] = set()
    causes: set[int] = set()
    for way in _flat_ways(move, point, basis * size[:, None]):
        part = abs(way) > COLLINEAR * size * np.max(abs(way) / size)
        cause = held & ~part
        beside = next(move.steps(point, np.where(cause, size, 0.0)), None)
        if not cause.any() or beside is None:
            continue
        here, there = (move.change(start, way) for start in (point, beside[0]))
        if here < NOTHING * there:
            places.update(map(int, np.flatnonzero(part)))
            causes.update(map(int, np.flatnonzero(cause)))
    return Vanished(sorted(places), sorted(causes - places)) if places else None


class _Moves(NamedTuple):
    """Moves that the constraints allow, to where the terms are finite."""

    model: Any
    terms: Terms

    def steps(self, start: Array, way: Array, sizes: tuple[float, ...] = STEPS) -> Any:
        """Yield points along a way, the size of each step, and the terms there."""
        for step in sizes:
            point = start + step * way
            if satisfies_constraints(self.model, point):
                with np.errstate(all="ignore"):
                    found = self.terms(point)
                if np.all(np.isfinite(found)):
                    yield point, step, found

    def change(self, start: Array, way: Array) -> float:
        """Measure the terms' change along a way, for one unit of it; NaN where none is allowed."""
        found = next(self.steps(start, way), None)
        if found is None:
            return np.nan
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(found[2] - self.terms(start)) / abs(found[1]))


def _flat_ways(move: _Moves, point: Array, ways: Array) -> list[Array]:
    """Combine ways, (d, k), to directions along which no term has a slope."""
    with np.errstate(all="ignore"):
        here = move.terms(point)
    slopes, kept = [], []
    for way in ways.T:
        found = next(move.steps(point, way, (SMALL, -SMALL)), None)
        if found is not None:
            slopes.append((found[2] - here) / found[1])
            kept.append(way)
    if not kept:
        return []
    matrix = np.array(slopes).T
    norms = np.linalg.norm(matrix, axis=0)
    flat = norms <= SMALL * norms.max()
    single = [way for way, alone in zip(kept, flat, strict=True) if alone]
    if flat.all():
        return single
    rest = np.array(kept)[~flat] / norms[~flat, None]
    _, values, rows = np.linalg.svd(matrix[:, ~flat] / norms[~flat])
    values = np.append(values, np.zeros(len(rows) - len(values)))
    return [*single, *(rows[values < COLLINEAR * values[0]] @ rest)]
