"""Hold some parameters of a model at given values, release them again, and constrain others.

A fixed parameter is an equality among the constraints, so that everything downstream (free
coordinates, intervals, bootstraps) is what it is for constraints, and psi still sees all of theta.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import check_finite_terms
from implicit_delta.core.labels import near_match
from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.linalg.solvers import stiffened
from implicit_delta.models.constraints import Constraints, Linear, box, constraints_of
from implicit_delta.models.named_theta import Layout
from implicit_delta.models.redraws import on_the_way
from implicit_delta.models.rows import BoundedRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

Fixed = Mapping[int, float]  # values by place

UNDEFINED = (ImplicitDeltaError, ArithmeticError, ValueError)
DAMPED = (1.0, 0.5, 0.25)  # parts of a step along the curvature


def fixed_at(model: Any, values: Any, named: Mapping[str, Any], everything: bool = False) -> Any:
    """Place the model at the values, with equalities that keep it there; it is not yet fitted."""
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(
            f"fix takes names or positions with their values, `model.fix(mu=5.0)` or "
            f"`model.fix({{0: 5.0}})`, and not a {type(values).__name__}."
        )
    for name in named:
        if name in (values or {}):
            raise ValueError(f"{name!r} is there twice: in the dictionary, and by its own name.")
    found = _by_place(model, {**(values or {}), **named})
    if not found:
        raise ValueError("Give a parameter to fix, such as `model.fix(mu=5.0)`.")
    if model.space.limits is not None:
        _check_limits(model.space.limits, found, model.theta)
    fixed = {**model.space.fixed, **found}
    if len(fixed) == model.d and not everything:
        raise ValueError(
            f"Fixing all {model.d} parameters leaves nothing to fit. Leave one free; a test of the "
            "point is `likelihood_ratio(values, model)` with a dictionary of them all, and the "
            "log-likelihood there `model.objective(theta)`."
        )
    return _holding(model, fixed)


def released_from(model: Any, names: Iterable[Any]) -> Any:
    """Take away the equalities of these parameters, or of all; it is not yet fitted."""
    layout = _layout(model)
    held = {layout.names[j] for j in model.space.fixed}
    if not held:
        raise ValueError("No parameter of this model is fixed: there is nothing to release.")
    places = {j for name in names for j in _places(layout, name)} or set(model.space.fixed)
    loose = [layout.names[j] for j in places if j not in model.space.fixed]
    if loose:
        raise ValueError(f"{loose[0]!r} is not fixed: fixed are {', '.join(sorted(held))}.")
    return _holding(model, {j: v for j, v in model.space.fixed.items() if j not in places})


def _holding(model: Any, fixed: Fixed) -> Any:
    theta = _start(model, fixed)
    told = ", ".join(f"{_layout(model).names[j]} = {value:g}" for j, value in fixed.items())
    with np.errstate(all="ignore"):
        terms = model.rows.terms(theta)
    opening = f"The log-likelihood is {{term}} for observation {{row}} with {told} fixed"
    causes = "or is this value outside of what is possible?"
    check_finite_terms(terms, opening, causes)
    limits = model.space.limits
    under = with_equalities(limits, fixed, _layout(model), theta)
    facts = model.facts.with_training(before=None)
    space = replace(model.space, constraints=under, unfixed=limits, fixed=fixed)
    facts = facts.with_host(covariance=None)
    return on_the_way(replace(model, theta=theta, space=space, facts=facts))


def _start(model: Any, fixed: Fixed) -> Array:
    """Place the fixed parameters at their values and the others nearby, (d,).

    The others follow along the curvature, all of the way or a part of it: where the objective is
    highest. They stay where they are if it is nowhere defined, or has no maximum.
    """
    shift = np.zeros(model.d)
    for j, value in fixed.items():
        shift[j] = value - model.theta[j]
    here = np.array(model.theta + shift)
    here[list(fixed)] = list(fixed.values())  # rounding
    if not shift.any() or len(fixed) == model.d or model.d > CHEAP_LIMIT:
        return here
    limits = model.space.limits
    low, high = (-np.inf, np.inf) if limits is None else box(limits, here)
    try:
        step = _following(model, shift, np.setdiff1d(np.arange(model.d), list(fixed)))
    except UNDEFINED:
        return here
    points = [here, *(np.clip(here + part * step, low, high) for part in DAMPED)]
    return max(points, key=lambda theta: _height(model, theta))


def _following(model: Any, shift: Array, free: NDArray[np.intp]) -> Array:
    r"""Step of the free parameters, :math:`-A_{ff}^{-1} A_{f\cdot} \delta`, of all (d,)."""
    curvature = symmetric(model.information(model.theta, np.eye(model.d)))
    step = np.zeros(model.d)
    step[free] = -stiffened(curvature[np.ix_(free, free)]).solve(curvature[free] @ shift)
    return step


def _height(model: Any, theta: Array) -> float:
    """Objective, or minus infinity where it is not defined."""
    try:
        with np.errstate(all="ignore"):
            value = float(model.objective(theta))
    except UNDEFINED:
        return -np.inf
    return value if np.isfinite(value) else -np.inf


def constrained_by(model: Any, bounds: Any, constraints: Any) -> Any:
    """Add bounds and constraints to those of the model; it is not yet fitted."""
    layout, point = _layout(model), np.array(model.theta)
    added = constraints_of(bounds, constraints, point, layout)
    if added is None:
        raise ValueError(
            "Give bounds or constraints, such as "
            f"`model.constrain(bounds={{{layout.spoken[0]!r}: (0, None)}})`."
        )
    before = model.space.limits
    limits = Constraints.joined([own for own in (before, added) if own is not None])
    under = with_equalities(limits, model.space.fixed, layout, point)
    rows = model.rows
    rows = rows.within(*box(added, point)) if isinstance(rows, BoundedRows) else rows
    facts = model.facts.with_training(before=None).with_host(covariance=None)
    space = replace(model.space, constraints=under, unfixed=limits)
    return on_the_way(replace(model, rows=rows, space=space, facts=facts))


def without_constraints(model: "FittedModel") -> "FittedModel":
    """Build the model without any limits."""
    return replace(model, space=replace(model.space, constraints=None))


def with_equalities(
    limits: Constraints | None, fixed: Fixed, layout: Layout, theta: Array
) -> Constraints | None:
    """Add equalities; limits of these parameters alone say nothing beside them."""
    if not fixed:
        return limits
    places = sorted(fixed)
    values = theta[places]
    mine = Linear(np.eye(theta.size)[places])
    labels = tuple(layout.names[j] for j in places)
    if limits is None:
        return Constraints((mine,), values, values, labels, np.ones(len(places), dtype=bool))
    parts, kept = _without(limits, places, theta)
    return Constraints(
        parts=(*parts, mine),
        low=np.concatenate([limits.low[kept], values]),
        high=np.concatenate([limits.high[kept], values]),
        labels=(*(limits.labels[row] for row in np.flatnonzero(kept)), *labels),
        linear=np.concatenate([limits.linear[kept], np.ones(len(places), dtype=bool)]),
    )


def _without(limits: Constraints, places: list[int], theta: Array) -> tuple[list[Any], Any]:
    """Leave out linear rows that are about the given places alone: parts, and which rows stay."""
    parts: list[Any] = []
    stays = np.ones(limits.low.size, dtype=bool)
    first = 0
    for part in limits.parts:
        if not isinstance(part, Linear):
            parts.append(part)
            first += part.value(theta).size
            continue
        matrix, rows = part.matrix, slice(first, first + len(part.matrix))
        stays[rows] = np.any(np.delete(matrix, places, axis=1) != 0, axis=1)
        if stays[rows].any():
            parts.append(Linear(matrix[stays[rows]]))
        first = rows.stop
    return parts, stays


def _check_limits(limits: Constraints, found: Fixed, theta: Array) -> None:
    """Refuse a value that the bounds of its parameter exclude."""
    point = np.array(theta)
    for j, value in found.items():
        point[j] = value
    rows = limits.slope(point)
    alone = limits.linear & (np.count_nonzero(rows, axis=1) == 1)
    for row in map(int, np.flatnonzero(alone & (limits.violation(point) > 0))):
        j = int(np.flatnonzero(rows[row])[0])
        if j in found:
            side = -1 if limits.value(point)[row] < limits.low[row] else 1
            raise ValueError(
                f"{limits.labels[row]} cannot be fixed at {found[j]:g}: its bounds say "
                f"{limits.spelled(row, side)}."
            )


def _by_place(model: Any, values: Mapping[Any, Any]) -> Fixed:
    """Find the places of names or positions, and check the values."""
    layout = _layout(model)
    found: dict[int, float] = {}
    for name, value in values.items():
        places = _places(layout, name)
        try:
            numbers = np.broadcast_to(np.asarray(value, dtype=np.float64).ravel(), (len(places),))
        except (TypeError, ValueError):
            raise TypeError(
                f"{name!r} cannot be fixed at {value!r:.60}: give a number"
                + (f", or {len(places)} of them." if len(places) > 1 else ".")
            ) from None
        if not np.all(np.isfinite(numbers)):
            raise ValueError(f"{name!r} cannot be fixed at {value!r:.60}, which is not finite.")
        if any(j in found for j in places):
            raise ValueError(f"{name!r} is there twice.")
        found.update(zip(places, map(float, numbers), strict=True))
    return found


def _layout(model: Any) -> Layout:
    names = model.space.names or tuple(f"theta[{j}]" for j in range(model.d))
    return model.space.layout or Layout(names)


def _places(layout: Layout, name: Any) -> list[int]:
    d = len(layout.names)
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and -d <= name < d:
        return [int(name) % d]
    if not isinstance(name, str) or name not in layout.blocks:
        raise ValueError(
            f"{name!r} is no parameter: {near_match(str(name), layout.spoken)} Positions are "
            f"0 to {d - 1}, `model.fix({{0: 5.0}})`."
        )
    return [int(j) for j in layout.places(name)]
