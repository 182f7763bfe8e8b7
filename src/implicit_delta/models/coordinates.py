"""A model in the coordinates of its constraints, and the units of its parameters."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import NotAMaximumError, SaddlePointError, UnsupportedModelError
from implicit_delta.models.constraints import Active, Chart, Constraints, refuse_no_freedom
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import displacement, is_network
from implicit_delta.models.prediction import InCoordinates
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import ComposableRows, DifferencedRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

ONE_SIDED = 1e-5  # of the size of a parameter: a step to the inside
NO_CURVATURE = 1e-6  # of a redundant direction, by rounding on either side of zero


def active_constraints(model: "FittedModel", strict: bool = False) -> Active | None:
    """Find the constraints that hold theta where it is; None without any constraints."""
    constraints, chart = model.space.constraints, model.space.chart
    if constraints is None or chart is not None:
        return None if chart is None else chart.active
    return constraints.active(
        model.theta, partial(slope_inside, model), objective_of(model).units, strict
    )


def in_free_coordinates(model: "FittedModel") -> "FittedModel":
    """Build the same model in coordinates along its active constraints, if there are any."""
    active = None if model.space.chart is not None else active_constraints(model)
    chart = None if active is None else active.chart(model.theta, objective_of(model).units)
    if active is None or chart is None:
        return model
    if not chart.free.size:
        refuse_no_freedom(active)
    return restricted(model, chart)


def restricted(model: "FittedModel", chart: Chart) -> "FittedModel":
    """Build the same model in the coordinates of a chart."""
    rows, host, start = model.rows, model.facts.host, model.facts.training.start
    known = host.covariance
    facts = model.facts.with_training(
        before=None, start=None if start is None else chart.coordinates(start)
    ).with_host(
        predictor=host.predictor and InCoordinates(host.predictor, chart),
        covariance=known and replace(known, covariance=chart.part(known.covariance)),
    )
    return replace(
        model,
        theta=chart.coordinates(model.theta),
        rows=rows.along(chart) if isinstance(rows, ComposableRows) else Restricted(rows, chart),
        penalty=model.penalty.along(chart),
        space=model.space.along(chart, model),
        facts=facts,
    )


def satisfies_constraints(model: "FittedModel", theta: Array) -> bool:
    """Whether theta satisfies the constraints."""
    constraints, chart = model.space.constraints, model.space.chart
    if constraints is None:
        return True
    return constraints.holds(theta if chart is None else chart.point(theta))


def slope_inside(model: "FittedModel", theta: Array) -> Array:
    """Gradient of L, (d,); one-sided where L ends together with what the bounds allow."""
    try:
        return model.score(theta)
    except UnsupportedModelError:
        if not isinstance(model.rows, DifferencedRows):
            raise
        units = objective_of(model).units
        return inner_slope(model.objective, theta, units, model.space.constraints)


def inner_slope(
    objective: Any, theta: Array, units: Array, constraints: Constraints | None
) -> Array:
    """Differentiate by second-order differences that stay within the bounds, (d,)."""
    slope = np.zeros(theta.size)
    for j, size in enumerate(ONE_SIDED * units):
        step = size * np.eye(theta.size)[j]
        if constraints is not None and not constraints.holds(theta + step):
            step = -step
        rises = [objective(theta + times * step) - objective(theta) for times in (1, 2)]
        slope[j] = (4 * rises[0] - rises[1]) / (2 * step[j])
    return slope


def start_text(model: "FittedModel", theta: Array) -> str:
    """Write all parameters as a user would give them as `start=`."""
    chart, layout = model.space.chart, model.space.layout
    point = theta if chart is None else chart.point(theta)
    numbers = [f"{value:.6g}" for value in point]
    if layout is None or layout.arrays:
        return f"[{', '.join(numbers)}]"
    pairs = zip(layout.names, numbers, strict=True)
    return "{" + ", ".join(f"{name!r}: {number}" for name, number in pairs) + "}"


def explain(model: "FittedModel", error: NotAMaximumError) -> NotAMaximumError:
    """Name the parameters that an error is about, or what to do about a network."""
    if isinstance(error, SaddlePointError) and is_network(model) and np.any(displacement(model)):
        return error.of_network()
    names, fitted_here = model.space.names, isinstance(model.rows, DifferencedRows)
    known = fitted_here and model.space.layout is not None
    if isinstance(error, SaddlePointError) and fitted_here and error.curvature < -NO_CURVATURE:
        return error.of_function()
    if names is None or not known or abs(error.curvature) > NO_CURVATURE:
        return error.named(names)
    return error.of_own(names, np.asarray(model.theta).tolist())


def approached(model: "FittedModel", limits: Limits = None) -> "FittedModel | None":
    """Build the model close to its maximum, where that can be had cheaply."""
    near = objective_of(model).approached(limits)
    return None if near is None else replace(model, theta=near)
