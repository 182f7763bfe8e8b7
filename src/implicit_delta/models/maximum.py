"""Maximize the objective of a model to the end."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from implicit_delta.core.budget import Budget
from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    UnsupportedModelError,
)
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.linalg.solvers import Factor, stiffened
from implicit_delta.models.coordinates import approached
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outer_products import OuterProducts, outer_products
from implicit_delta.models.outputs import is_network
from implicit_delta.models.penalty import InChart, Penalty, Ridge
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.optimize import (
    Maximizer,
    Maximum,
    Objective,
    Squares,
    climb,
    lbfgs,
)

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

MOST_METRICS = 20
IN_SHORT_ROUNDS = lbfgs(tolerance=1e-4, max_iterations=30)  # a new metric costs but one score
NEARBY = 1e-2  # of a standard error: Newton steps lead to the maximum
SLOPE_NOISE = 32.0  # times noise: four standard deviations of a slope, if noise is known to a half
SHORT, MOST_STEPS = 1e-6, 10  # a step of this length leaves its square
STALLED = 1e-4  # of a standard error: what rounding in the objective may leave

UNPENALIZED = ", an unpenalized network"
NOISY = (
    " The objective is noisy: from one theta to the next it changes by a standard deviation of "
    "{noise:.1g} that no slope explains. Compute it more tightly: lower the tolerances of a solver "
    "inside of it, use more random numbers, or float64."
)
BENDS = (
    " A network with kinks (ReLU) seldom has a maximum that can be found: `infer(model, psi)` "
    "takes a training as it stopped, and `polish(model, tangent=True)` finds the maximum of the "
    "tangent."
)

Done: TypeAlias = Callable[[Array, Array], bool]  # theta and the step ahead, (d,): whether to stop


def maximum_of(
    model: "FittedModel",
    maximizer: Maximizer | None = None,
    *,
    done: Done | None = None,
    budget: float | None = None,
    spent: float = 0.0,
    limits: Limits = None,
) -> tuple[Array, int]:
    """Climb from the model's theta to the maximum: theta (d,) and the number of iterations.

    Beyond limits of the parameters the objective is not evaluated, except for differences.

    Only beyond `CHEAP_LIMIT` parameters, `done` may end it early. The budget is in passes over the
    data, of which some may be spent.
    """
    near = nearby_maximum(model, limits) if maximizer is None else None
    if near is not None:
        return near, 1
    search = _Search(model, Budget(budget, spent), done, model.rows.passes)
    with progress("maximizing", total=budget, unit="pass") as bar, np.errstate(all="ignore"):
        known = _by_scores(search, bar) if maximizer is None and limits is None else None
        if known is not None:
            return known
        hill = search.objective(None, bar)
        found = climb(hill, model.theta, maximizer=maximizer, limits=limits)
    if not found.converged:
        noise = objective_of(replace(model, theta=found.x)).noise
        advice = NOISY.format(noise=noise) if noise else ""
        raise ConvergenceError(_advice(found, is_network(model)) + advice)
    return found.x, found.iterations


def nearby_maximum(model: "FittedModel", limits: Limits = None) -> Array | None:
    """Climb by residuals, or from where rough slopes lead; None unless that ends at a maximum."""
    with np.errstate(all="ignore"):
        near = _least_squares(model, limits)
        return _from_nearby(model, limits) if near is None else near


def _least_squares(model: "FittedModel", limits: Limits) -> Array | None:
    """Climb by residuals, where the objective is a sum of their squares; None if that fails."""
    squares = squares_of(model)
    if squares is None:
        return None
    try:
        found = climb(Objective(residuals=squares), model.theta, limits=limits)
    except (UnsupportedModelError, ArithmeticError, ValueError):
        return None
    return found.x if found.converged and found.distance < STALLED else None


def squares_of(model: "FittedModel") -> Squares | None:
    """Residuals of least squares in units of their noise, with the rows of ridges; None without."""
    outputs = getattr(model.rows, "outputs", None)
    if not isinstance(outputs, ResidualOutputs) or not _has_rows(model.penalty):
        return None
    root = np.sqrt(model.weights.values)

    def residuals(theta: Array) -> Array:
        return np.append(-root * outputs.residuals(theta), _ridge_rows(model.penalty, theta)[0])

    def jacobian(theta: Array) -> tuple[Array, Array]:
        rows = root[:, None] * outputs.slopes(theta)
        return np.vstack([rows, _ridge_rows(model.penalty, theta)[1]]), np.zeros(theta.size)

    return Squares(residuals, jacobian, 1.0)


def _has_rows(penalty: Penalty) -> bool:
    """Whether a penalty is half of a sum of squares."""
    return all(
        _has_rows(part.penalty) if isinstance(part, InChart) else isinstance(part, Ridge)
        for part in penalty.parts
    )


def _ridge_rows(penalty: Penalty, theta: Array) -> tuple[Array, Array]:
    """Rows whose squares are twice the penalty, (k,), with their slopes, (k, d)."""
    values, slopes = [np.zeros(0)], [np.zeros((0, theta.size))]
    for part in penalty.parts:
        if isinstance(part, InChart):
            point = part.chart.point(theta)
            value, slope = _ridge_rows(part.penalty, point)
            slope = slope @ part.chart.push(point, np.eye(theta.size))
        else:
            assert isinstance(part, Ridge)
            value, slope = part.rows(theta)
        values, slopes = [*values, value], [*slopes, slope]
    return np.concatenate(values), np.vstack(slopes)


def _from_nearby(model: "FittedModel", limits: Limits) -> Array | None:
    """Finish from where a cheap climb has ended, if that was close to a maximum."""
    try:
        near = approached(model, limits)
        if near is None or near.d > CHEAP_LIMIT:
            return None
        scale = stiffened(symmetric(near.information(near.theta, np.eye(near.d))))
        return _by_newton(near, near.theta, scale)
    except (ImplicitDeltaError, ArithmeticError, ValueError):  # L need not be defined everywhere
        return None


def _by_scores(climb: "_Search", bar: Any) -> tuple[Array, int] | None:
    """Climb in the metric of the score rows, renewed on the way; None unless that ends well."""
    model, iterations = climb.model, 0
    theta, scale = model.theta, objective_of(model).metric(model.theta)
    for _ in range(MOST_METRICS):
        if scale is None:
            return None
        hill = replace(climb.objective(scale, bar), gradient=objective_of(model).swift_score)
        found = IN_SHORT_ROUNDS.maximize(hill, theta)
        theta, iterations = found.x, iterations + found.iterations
        scale = objective_of(model).metric(theta)
        if scale is None or not found.converged:
            continue
        try:
            known = outer_products(scale, objective_of(model).swift_score, theta)
            end = None if known is None else _by_newton(model, theta, known)
        except (ImplicitDeltaError, ArithmeticError, ValueError):
            return None
        return None if end is None else (end, iterations)
    return None


def _by_newton(model: "FittedModel", theta: Array, scale: Factor | OuterProducts) -> Array | None:
    """Newton steps with one curvature; the last one is so short that it needs no proof.

    Noise of the objective may hide the last steps, and end a climb farther away.
    """
    local = objective_of(model)
    slopes = local.noise * np.diag(SLOPE_NOISE / local.units) if local.noise else None
    hidden = 0.0 if slopes is None else float(np.linalg.norm(scale.half_transpose(slopes)))
    size = NEARBY if slopes is None else 1.0
    for _ in range(MOST_STEPS):
        slope = objective_of(model).swift_score(theta)
        before, size = size, float(np.linalg.norm(scale.half_transpose(slope)))
        if not size < before:
            return theta if before < hidden else None
        if size < max(SHORT, hidden) and local.carries_derivatives:
            return theta
        theta = theta + scale.solve(slope)
        if size < SHORT:
            return theta
    return None


@dataclass
class _Search:
    """An objective that counts its passes, and knows how far it has risen when these run out."""

    model: "FittedModel"
    budget: Budget
    done: Done | None
    seen: int
    first: float = math.nan
    best: float = -math.inf

    def objective(self, scale: Factor | None, bar: Any) -> Objective:
        model = self.model

        def value(theta: Array) -> float:
            self._spend(bar)
            found = model.objective(theta)
            self.first = found if math.isnan(self.first) else self.first
            self.best = max(self.best, found)
            return found

        def curve(theta: Array, v: Array) -> Array:
            self._spend(bar)
            return model.information(theta, v)

        # The rounding of single precision hides how short the last steps are.
        noise = NEARBY if model.facts.precision.is_single else 0.0
        return Objective(value, model.score, curve, scale, self.done, noise=noise)

    def _spend(self, bar: Any) -> None:
        """Count the passes since the last call, whoever made them."""
        before, self.seen = self.seen, self.model.rows.passes
        bar.update(self.seen - before)
        self.budget.spend(self.seen - before, self._known)

    def _known(self) -> str:
        if not math.isfinite(self.best - self.first):
            return "Nothing but the curvature at the start was looked at so far."
        return f"The objective has risen by {self.best - self.first:.4g} so far."


def _advice(found: Maximum, bends: bool) -> str:
    if np.isfinite(found.distance):
        return (
            f"The search has stopped {found.distance:.2g} standard errors from the maximum, "
            "within the tolerance of the maximizer. Lower its tolerance, or leave `maximizer=` out."
        )
    message = "the search got stuck." if "ABNORMAL" in found.message else found.message
    return (
        f"No maximum was found: {message} Usual causes: the objective has no finite maximum "
        f"(perfectly separated classes, a variance that goes to zero{UNPENALIZED * bends}: add "
        "`l2=`), redundant parameters, or a start far away (give another `start=` or fit it "
        "yourself and give `theta=`)."
    ) + (BENDS if bends else "")
