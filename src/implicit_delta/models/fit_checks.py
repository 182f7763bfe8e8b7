"""Checks of a log-likelihood around a fit: terms that change in steps, derivatives gone wrong."""

from typing import Any

import numpy as np

from implicit_delta.calculus.noise import constant_beside
from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, ImplicitDeltaError
from implicit_delta.models.checks import Beside, mixture
from implicit_delta.models.constraints import box
from implicit_delta.models.coordinates import satisfies_constraints
from implicit_delta.models.objective import objective_of

BESIDE, STILL = 1e-5, 0.5  # of a unit; share of the terms that do not move over it
ALONE = 0.05  # of a unit: one term alone is level at the maximum
IN_STEPS = (
    "No maximum was found: the log-likelihood changes in steps. Right beside the point where the "
    "search ended, and may have started, most of its terms stay exactly the same, and farther away "
    "they do not: there is no slope to follow, and no standard error. Usual causes: rounding or "
    "counting of something that depends on theta (`np.floor`, `np.round`, `.astype(int)`, "
    "`np.digitize`, `y < th[0]`). Write it without, or ask for a bootstrap of your own fit: "
    "`bootstrap(fit, data, psi)`."
)
CERTAIN = 1e-3  # nats for each row: log-likelihoods that are probabilities of one
SEPARATED = (
    "No maximum was found: the terms have risen to zero, a probability of one for every row, and "
    "stay there. Usual cause: perfectly separated classes, whose likelihood has no finite maximum: "
    "the parameters run to infinity. Leave out the column that tells the classes apart, or add a "
    "penalty (`l2=1.0`)."
)


def check_steps(model: Any) -> None:
    """Refuse terms that change in jumps alone: no slope has led to where they are.

    One evaluation right beside; only rows that move farther away count, and if most of them
    do not move at all, two more directions decide.
    """
    theta, units, terms = np.asarray(model.theta), objective_of(model).units, model.rows.recalled
    with np.errstate(all="ignore"):
        center = terms(theta)
        reach = BESIDE if center.size > 1 else ALONE
        beside = terms(theta + reach * units)
    told = abs(center) * np.finfo(float).eps < BESIDE**2 / 10  # rounding hides nothing
    if np.mean((beside == center) & told) <= STILL:
        return
    with np.errstate(all="ignore"):
        moves = told & _moved(model, theta, units, center)
        still = constant_beside(terms, theta, units)[moves]
    if still.size and np.mean(still) > STILL:
        certain = np.max(center) <= 0 and np.mean(center) > -CERTAIN
        raise ConvergenceError(SEPARATED if certain else IN_STEPS)


def _moved(model: Any, theta: Array, units: Array, center: Array) -> Any:
    """Which terms are others at some distance, (n,)."""
    steps = (units, -units, sizes(theta), -sizes(theta))
    found = [
        model.rows.recalled(theta + step)
        for step in steps
        if satisfies_constraints(model, theta + step)
    ]
    return np.any([(far != center) & np.isfinite(far) for far in found], axis=0)


def cause_beside(model: Any) -> str:
    """Tell why given derivatives may be wrong beside theta; nothing if they are not."""
    theta, rows = np.array(model.theta), model.rows
    try:
        step = objective_of(model).units * mixture(model.d)
        if model.space.constraints is not None:  # a log-likelihood may end there, a score may raise
            low, high = box(model.space.constraints, theta)
            step = np.where(high - low > 2 * abs(step), step, 0.0)
            inside = np.clip(theta, low + abs(step), high - abs(step))
            theta = np.where(step == 0, theta, inside)
        return Beside(rows.recalled, rows.score_rows, model.weights.values, theta, step).cause()
    except (ImplicitDeltaError, ArithmeticError, ValueError):  # not defined on both sides
        return ""
