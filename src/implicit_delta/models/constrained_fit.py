"""Maximize the objective of a model under its constraints, to the end."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares, minimize

from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import ConvergenceError, ImplicitDeltaError, NotAMaximumError
from implicit_delta.models.constraints import Active, Chart, Constraints, box, is_single
from implicit_delta.models.coordinates import active_constraints, restricted, slope_inside
from implicit_delta.models.maximum import maximum_of, nearby_maximum
from implicit_delta.models.objective import objective_of
from implicit_delta.models.runaway import OF_A_PART

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

MOST_ROUNDS = 20  # sets of active constraints that are tried
STARTS, FEASIBLE = 3, 1e-6  # beside the given one; standard errors that a finish removes
HUGE = 1e300  # stands for an objective that is not defined
STEPS = {"maxiter": 100, "ftol": 1e-13}  # a search that rounding stalls is finished otherwise
STEEP = 1e-2  # of the steepest slope, in natural units: one that leads to a bound
SHORT = 1e-12  # of a step: nothing is left of it


@np.errstate(all="ignore")
def constrained_maximum(model: "FittedModel") -> Array:
    """Climb from the model's theta to its maximum, under its constraints if it has any: (d,).

    A maximum of the objective alone that satisfies them is taken as it is, so that constraints
    which do not bind change nothing.
    """
    constraints = model.space.constraints
    if constraints is None:
        return maximum_of(model)[0]
    free = None
    if not constraints.equal.any():
        free = _unconstrained(model, box(constraints, model.theta))
        free = _unconstrained(model) if free is None else free
    found = free
    if free is None or not constraints.holds(free):
        try:
            found = _finished(model, _sequential(model, constraints))
        except (ConvergenceError, NotAMaximumError):
            found = None if free is None else _along_violated(model, constraints, free)
            if found is None:
                raise
    assert found is not None
    return np.clip(found, *box(constraints, found))  # rounding errors


@np.errstate(all="ignore")
def maximum_along(model: "FittedModel") -> Array:
    """Climb from a theta that satisfies the constraints, along those that are active: (d,)."""
    constraints = model.space.constraints
    if constraints is None or not constraints.holds(model.theta):
        return constrained_maximum(model)
    try:
        found = _finished(model, np.array(model.theta))
    except ConvergenceError:
        return constrained_maximum(model)
    return np.clip(found, *box(constraints, found))


def checked_under_constraints(model: "FittedModel") -> "FittedModel":
    """Refuse a theta that violates the constraints, or is no maximum under them."""
    if model.space.constraints is not None:
        model.space.constraints.check(model.theta, lambda: objective_of(model).units)
        # A maximum of the whole is none of a part, and is looked at again for the whole.
        active_constraints(model, strict=not OF_A_PART.get())
    return model


def _unconstrained(model: "FittedModel", limits: Limits = None) -> Array | None:
    """Find the maximum without constraints; None where there is none, or the way leads astray."""
    try:
        # Without slopes of its own a search that runs away takes thousands of calls.
        differenced = getattr(model.rows, "scores", True) is None
        if differenced:
            return nearby_maximum(model, limits)
        return maximum_of(model, limits=limits)[0]
    except (ImplicitDeltaError, ArithmeticError, ValueError):
        return None


def _along_violated(model: "FittedModel", constraints: Constraints, free: Array) -> Array | None:
    """Hold what the unconstrained maximum violates, and finish from there; None if that fails.

    A search in natural units goes astray where these are far from those of the curvature, such as
    in a polynomial of calendar years.
    """
    rows = np.flatnonzero(constraints.violation(free) > 0)
    value = constraints.value(free)[rows]
    sides = np.where(value < constraints.low[rows], -1, 1)
    active = Active(constraints, rows, sides, np.zeros(rows.size))
    try:
        here = _placed(model, free)
        chart = active.chart(free, objective_of(here).units)
        if chart is None or not chart.free.size:
            return None
        theta = chart.point(maximum_of(restricted(_placed(model, _onto(here, chart)), chart))[0])
        return _finished(model, theta) if constraints.holds(theta) else None
    except (ImplicitDeltaError, ArithmeticError, ValueError):
        return None


def _onto(model: "FittedModel", chart: Chart) -> Array:
    """Point of a chart that costs least of the objective, to second order."""
    point = chart.point(chart.coordinates(model.theta))
    along = chart.push(point, np.eye(chart.size))
    pulled = along.T @ model.information(model.theta, np.column_stack([along, model.theta - point]))
    z = np.linalg.solve(pulled[:, :-1], pulled[:, -1])
    return chart.point(chart.coordinates(point) + z)


def _sequential(model: "FittedModel", constraints: Constraints) -> Array:
    """Run scipy's sequential quadratic programming, in natural units: close to the maximum."""
    theta = _minimized(
        model, constraints, _feasible(constraints, model.theta, objective_of(model).units)
    )
    constraints.check_slopes(theta)  # at a start of zeros a wrong one may be right
    beyond = constraints.violation(theta)
    worst = int(np.argmax(beyond))
    if not _nearly_holds(constraints, theta, objective_of(model).units):
        raise ConvergenceError(
            "No maximum under the constraints was found: the search has ended where "
            f"{constraints.labels[worst]} is violated by {beyond[worst]:.2g}. Give another "
            "`start=`, or the solution of your own fit as `theta=`."
        )
    return theta


def _feasible(constraints: Constraints, start: Array, units: Array) -> Array:
    """Find a point that satisfies the constraints: the start itself, or one close to it.

    Where the gradients of the constraints vanish a search goes nowhere, so it starts beside, too.
    """
    beside = np.random.default_rng(0).standard_normal((STARTS, start.size))
    points = [start, *(start + units * beside)]
    for point in points:
        theta = point if constraints.holds(point) else _projected(constraints, point, units)
        if _nearly_holds(constraints, theta, units):
            return theta
    constraints.check_slopes(theta)
    beyond = constraints.violation(theta)
    worst = int(np.argmax(beyond))
    raise ConvergenceError(
        "No parameters were found that satisfy the constraints: "
        f"{constraints.labels[worst]} is violated by {beyond[worst]:.2g}. Usual causes: "
        "constraints that contradict each other, or a start far away. Give a `start=` that "
        "satisfies them."
    )


def _nearly_holds(constraints: Constraints, theta: Array, units: Array) -> bool:
    """Whether theta satisfies the constraints, but for a minute part of a standard error."""
    near = FEASIBLE * constraints.lengths(theta, units)
    return bool(np.all(constraints.violation(theta) <= near))


def _projected(constraints: Constraints, point: Array, units: Array) -> Array:
    """Minimize the violation, from a point on."""
    lengths = constraints.lengths(point, units)
    lengths[lengths == 0] = 1.0

    def beyond(x: Array) -> Array:
        value = constraints.value(x * units)
        return (value - np.clip(value, constraints.low, constraints.high)) / lengths

    def slope(x: Array) -> Array:
        rows = constraints.slope(x * units) * units / lengths[:, None]
        return np.where(beyond(x)[:, None] != 0, rows, 0.0)

    found = least_squares(beyond, point / units, slope, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return np.asarray(found.x * units)


def _minimized(model: "FittedModel", constraints: Constraints, start: Array) -> Array:
    units, limits = objective_of(model).units, box(constraints, start)

    def placed(x: Array) -> Array:
        return np.asarray(np.clip(x * units, *limits))  # rounding leads outside

    def fall(x: Array) -> float:
        with np.errstate(all="ignore"):
            value = -model.objective(placed(x))
        return value if np.isfinite(value) else HUGE

    found = minimize(
        fall,
        start / units,
        jac=lambda x: -slope_inside(model, placed(x)) * units,
        method="SLSQP",
        bounds=[(low / u, high / u) for low, high, u in zip(*limits, units, strict=True)],
        constraints=scaled(constraints, start, units),
        options=STEPS,
    )
    return np.asarray(found.x * units)


def scaled(constraints: Constraints, theta: Array, units: Array) -> list[dict[str, Any]]:
    """Write constraints as scipy's dicts, of parameters in natural units around theta.

    Limits of single parameters are left to `box`: those that scipy has twice stall its search.
    The rows are in natural units too: scipy's tolerance is absolute.
    """
    equal, lengths = constraints.equal, constraints.lengths(theta, units)
    lengths[lengths == 0] = 1.0
    rest = ~is_single(constraints, theta)
    limits = [
        ("eq", equal & rest, 1.0, constraints.low),
        ("ineq", ~equal & rest & np.isfinite(constraints.low), 1.0, constraints.low),
        ("ineq", ~equal & rest & np.isfinite(constraints.high), -1.0, constraints.high),
    ]
    return [
        {
            "type": kind,
            "fun": lambda x, r=rows, s=sign, e=end: (
                s * ((constraints.value(x * units) - e) / lengths)[r]
            ),
            "jac": lambda x, r=rows, s=sign: (
                s * (constraints.slope(x * units) * units / lengths[:, None])[r]
            ),
        }
        for kind, rows, sign, end in limits
        if rows.any()
    ]


def _finished(model: "FittedModel", theta: Array) -> Array:
    """Maximize along the active constraints, until these are the right ones.

    A step ends at the first constraint that it would violate, which then is a candidate too.
    """
    constraints, before = model.space.constraints, None
    assert constraints is not None
    for _ in range(MOST_ROUNDS):
        here = _placed(model, theta)
        active = active_constraints(here)
        assert active is not None
        if before is not None and np.array_equal(active.rows, before):
            return theta
        chart = active.chart(theta, objective_of(here).units)
        if chart is None:
            goal, before = _goal(here, constraints), active.rows
        else:
            z = chart.coordinates(theta)
            if chart.free.size:
                z = maximum_of(restricted(here, chart))[0]
            goal, before = chart.point(z), active.rows
        if _nearly_holds(constraints, goal, objective_of(here).units):
            theta = goal
        else:
            theta, before = _first_stop(constraints, theta, goal), None
    raise ConvergenceError(
        "No maximum under the constraints was found: the set of active ones keeps changing. Usual "
        "causes: a log-likelihood that is flat along a constraint, or constraints that nearly "
        "coincide. Give another `start=`, or the solution of your own fit as `theta=`."
    )


def _goal(model: "FittedModel", constraints: Constraints) -> Array:
    """Find the maximum; where there is none (no event: L is a line) the corner that L rises to."""
    try:
        return maximum_of(model)[0]
    except ConvergenceError:
        rise = slope_inside(model, model.theta) * objective_of(model).units
        low, high = box(constraints, model.theta)
        steep = abs(rise) > STEEP * max(abs(rise).max(), STEEP)
        corner = np.where(steep, np.where(rise > 0, high, low), model.theta)
        if not np.all(np.isfinite(corner)) or not constraints.holds(corner):
            raise
        there = _placed(model, np.asarray(corner))
        still = slope_inside(there, there.theta) * np.sign(rise) >= 0
        if not (np.all(still[steep]) and there.objective(corner) > model.objective(model.theta)):
            raise
        return np.asarray(corner)


def _placed(model: "FittedModel", theta: Array) -> Any:
    """Put a model on the way to its maximum elsewhere."""
    return replace(model, theta=theta)


def _first_stop(constraints: Constraints, theta: Array, goal: Array) -> Array:
    """Go as far toward the goal as the constraints allow: bisection, since these may be curved."""
    low, high = 0.0, 1.0
    while high - low > SHORT:
        middle = (low + high) / 2
        inside = constraints.holds(theta + middle * (goal - theta))
        low, high = (middle, high) if inside else (low, middle)
    return np.asarray(theta + low * (goal - theta))
