"""Parameters that a fit has driven to where the log-likelihood levels off.

A log-variance, the logit of a fraction or the logarithm of a rate has no finite maximum where the
variance, the fraction or the rate is zero: a search stops where the slope is lost in rounding, at
some -28, and that point means nothing.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.warn import warn
from implicit_delta.errors import ConvergenceError, ImplicitDeltaWarning
from implicit_delta.models.coordinates import satisfies_constraints
from implicit_delta.models.objective import objective_of

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

AS_FAR = (0.1, 1.0, 8.0)  # times the size of a parameter, or its unit: looks farther out
MOVES = 0.5  # length of the moves of all terms over the first of these: none of them is level
LEVEL, FALLS = 1e-3, 0.1  # of the log-likelihood: none, and some that is no rounding error


# Of rows that are a part of the data nothing follows: the other parts may hold the parameters.
OF_A_PART: ContextVar[bool] = ContextVar("OF_A_PART", default=False)


@contextmanager
def of_a_part() -> Iterator[None]:
    """Build a model of a part of the data while the context lasts."""
    token = OF_A_PART.set(True)
    try:
        yield
    finally:
        OF_A_PART.reset(token)


def check_runaways(model: "FittedModel", fitted: bool) -> None:
    """Warn of parameters along which the log-likelihood is level on one side, and falls behind.

    A fit of which every parameter runs away has found nothing, and is refused.
    """
    found = {} if OF_A_PART.get() else dict(_runaways(model))
    if not found:
        return
    names = model.space.names or tuple(f"theta[{j}]" for j in range(model.d))
    told = ", ".join(
        f"{names[j]} = {model.theta[j]:.4g} (toward {'+' if side > 0 else '-'}infinity)"
        for j, side in found.items()
    )
    low = any(side < 0 for side in found.values())
    what = "a variance, rate or fraction of zero" if low else "a fraction of one"
    text = (
        f"The log-likelihood has no finite maximum: it levels off along {told}, where the search "
        f"ended for want of a slope. Usual causes: {what} on a logarithmic or logit scale, an "
        "empty cell, separated classes. The value there means nothing, nor does a standard error. "
        "Fit the quantity itself with its bound, for example `from_loglik(loglik, start=..., "
        "bounds=[(0, None), ...])` of the variance instead of its logarithm, and ask for "
        "`limit(model, psi)`; or add a penalty (`l2=`)."
    )
    if fitted and len(found) == model.d:
        raise ConvergenceError(text)
    warn(text, ImplicitDeltaWarning)


def _runaways(model: "FittedModel") -> Iterator[tuple[int, int]]:
    """Positions and directions; one evaluation nearby for a parameter that does not run."""
    top = model.objective(model.theta)
    for j in np.flatnonzero(~_sensitive_parameters(model)).tolist():
        x = model.theta[j]
        ways = (1, -1) if x > 0 else (-1, 1)
        way = next((way for way in ways if _levels_off(model, j, way, top)), 0)
        if way and _fall(model, j, -way * AS_FAR[-1] * max(_sizes(model, j)), top) > FALLS:
            yield j, way


def _sensitive_parameters(model: Any) -> NDArray[np.bool_]:
    """Parameters whose score rows show that the terms change nearby, (d,); False is unknown."""
    if getattr(model.rows, "scores", None) is None:
        return np.zeros(model.d, dtype=bool)
    objective: Any = objective_of(model)  # of a function, with derivatives of its terms
    rows = objective.counted_rows(model.theta, model.weights.values)
    slopes = np.sqrt(np.einsum("ij,ij,i->j", rows, rows, model.weights.values))
    lengths = np.maximum(AS_FAR[0] * abs(model.theta), objective.units)
    return np.asarray(slopes * lengths > MOVES)


def level_ways(model: "FittedModel") -> frozenset[tuple[int, int]]:
    """Positions and directions in which the log-likelihood is level: of a part, none may matter."""
    top = model.objective(model.theta)
    ways = ((j, way) for j in range(model.d) for way in (1, -1))
    return frozenset((j, way) for j, way in ways if _levels_off(model, j, way, top))


def _levels_off(model: "FittedModel", j: int, way: int, top: float) -> bool:
    """Whether the log-likelihood is level ahead: nearby first, as far out it may be expensive."""
    return all(
        _fall(model, j, way * far * size, top) < LEVEL
        for size in _sizes(model, j)
        for far in AS_FAR
    )


def _sizes(model: "FittedModel", j: int) -> Iterator[float]:
    """Its own size and its unit: beside a maximum a tenth of that is a fall of 0.005."""
    if model.theta[j]:
        yield abs(float(model.theta[j]))
    yield float(objective_of(model).units[j])


def _fall(model: "FittedModel", j: int, step: float, top: float) -> float:
    """Size of the change of the objective; infinite where it or theta is not allowed."""
    theta = model.theta.copy()
    theta[j] += step
    if not satisfies_constraints(model, theta):
        return np.inf
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fall = top - float(model.objective(theta))
    except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError):
        return np.inf
    return abs(fall) if fall == fall else np.inf
