"""Climb by gradients in rounds, each scaled by the curvature where the last one ended."""

import math
from dataclasses import replace

import numpy as np

from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.linalg.solvers import Factor, factorize, stiffened
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.newton import newton_krylov
from implicit_delta.optimize.objective import Maximum, Objective
from implicit_delta.optimize.quasi_newton import lbfgs

MOST_ROUNDS = 20
IN_ROUNDS = lbfgs(max_iterations=200)  # rather a new scale than more steps
FINISHED = 1e-7  # of a standard error: what is left for the worst evaluation to move
STALLED = 1e-4  # of a standard error: what rounding in the objective may leave
MOST_STEPS = 10  # of Newton's method, with one curvature
SHRINKS = 0.5  # what a Newton step leaves, at most
PARTS = 0.5 ** np.arange(6)  # of a Newton step
CONVEX = "the gradient vanishes where the objective curves upward."


def in_rounds(objective: Objective, start: Array, maximizer: Maximizer | None) -> Maximum:
    """Climb, with Newton steps at the end; without a scale beyond `CHEAP_LIMIT` variables."""
    assert objective.gradient is not None
    if maximizer is None:
        maximizer = IN_ROUNDS if start.size <= CHEAP_LIMIT else newton_krylov
    x, iterations, evaluations = start, 0, 0
    for _ in range(MOST_ROUNDS):
        scale, at_maximum = _scale(objective, x)
        if scale is not None and at_maximum:
            end, left = finished(objective, x, scale, max(FINISHED, objective.noise))
            if left < STALLED:
                return _ended(objective, end, left, iterations, evaluations)
            x = _far_newton_step(objective, x, scale, maximizer.max_distance)
        found = maximizer.maximize(replace(objective, scale=scale), x)
        stuck = np.array_equal(x, found.x)
        x, iterations = found.x, iterations + found.iterations
        evaluations += found.evaluations
        if not found.converged:
            if stuck and scale is not None and at_maximum:
                left = float(np.linalg.norm(scale.half_transpose(objective.gradient(x))))
                if left**2 / 2 <= objective.error_of(objective.value(x)):
                    return _ended(objective, x, left, iterations, evaluations)
            if stuck:
                break
            continue
        if scale is None:
            return replace(found, iterations=iterations, evaluations=evaluations)
        if at_maximum and found.gradient_norm < STALLED:
            end, left = finished(objective, x, scale)
            return _ended(objective, end, left, iterations, evaluations)
    left = found.gradient_norm if found.converged and at_maximum else math.nan
    message = CONVEX if found.converged and not at_maximum else found.message
    return replace(found, iterations=iterations, converged=False, message=message, distance=left)


def _far_newton_step(objective: Objective, x: Array, scale: Factor, reach: float) -> Array:
    """Take Newton's step where it is too long for a round, or the first part that rises enough.

    A parabola rises by half of what its slope promises for the whole step, so a quarter is enough.
    """
    assert objective.gradient is not None
    slope = objective.gradient(x)
    size = float(np.linalg.norm(scale.half_transpose(slope)))
    if not reach < size < math.inf:
        return x
    step, here = scale.solve(slope), objective.value(x)
    for part in PARTS:
        if objective.value(x + part * step) - here >= part * size**2 / 4:
            return np.asarray(x + part * step)
    return x


def finished(
    objective: Objective, x: Array, scale: Factor, most: float = math.inf
) -> tuple[Array, float]:
    """Newton steps with the curvature at hand, as long as each shrinks the gradient.

    Returns x and the standard errors that are left; infinite if there are more than `most`.
    """
    assert objective.gradient is not None
    slope = objective.gradient(x)
    size = float(np.linalg.norm(scale.half_transpose(slope)))
    if not size < most:
        return x, math.inf
    for _ in range(MOST_STEPS):
        ahead = x + scale.solve(slope)
        slope = objective.gradient(ahead)
        smaller = float(np.linalg.norm(scale.half_transpose(slope)))
        if not smaller < SHRINKS * size:
            break
        x, size = ahead, smaller
    return np.asarray(x), size


def _scale(objective: Objective, x: Array) -> tuple[Factor | None, bool]:
    """Factorize the curvature; away from a maximum only the size of its diagonal is of use."""
    if x.size > CHEAP_LIMIT or objective.curvature is None:
        return None, False
    matrix = symmetric(objective.curvature(x, np.eye(x.size)))
    try:
        return stiffened(matrix), True
    except NotAMaximumError:
        size = abs(np.diag(matrix))
        return factorize(np.diag(np.maximum(size, 1e-8 * size.max() + 1e-12))), False


def _ended(
    objective: Objective, x: Array, left: float, iterations: int, evaluations: int
) -> Maximum:
    return Maximum(
        x=x,
        value=math.nan,
        iterations=iterations,
        evaluations=evaluations,
        converged=True,
        message="The Newton step is short.",
        distance=left,
    )
