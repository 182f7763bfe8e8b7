"""Fall of a least-squares objective along the valley that leads to another value of psi.

Where the valley is curved, a straight step of half a standard error ends high on its wall, however
good the standard error is: Gauss-Newton depends on the tangent alone. With all other directions at
their best (the profile of psi) the fall is that of a parabola, or the standard error is wrong.
"""

import numpy as np

from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.inference.checks.case import Case
from implicit_delta.methods.base import PROBE
from implicit_delta.models.maximum import squares_of
from implicit_delta.optimize import Objective, Squares, climb

STIFF = 100.0  # standard errors: psi stays short of its value by a ten-thousandth
MOST_CALLS = 300  # of each side


def falls_in_valley(case: Case, k: int) -> tuple[float, float] | None:
    """Falls of the objective where psi_k is half a standard error away; None if not known."""
    try:
        ahead, behind = (_fall(case, k, way) for way in (1.0, -1.0))
    except (ImplicitDeltaError, ArithmeticError, ValueError):
        return None
    return None if ahead is None or behind is None else (ahead, behind)


def _fall(case: Case, k: int, way: float) -> float | None:
    evaluation, response = case.evaluation, case.response
    model, squares = evaluation.model, squares_of(evaluation.model)
    if squares is None or response.directions is None:
        return None
    error = float(np.sqrt(response.covariance.diagonal()[k]))
    center = float(evaluation.value[k])

    def moved(theta: np.ndarray) -> float:
        return (float(evaluation(theta)[k]) - center) / error

    def residuals(theta: np.ndarray) -> np.ndarray:
        return np.append(squares.residuals(theta), STIFF * (moved(theta) - way * PROBE))

    def jacobian(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, doubt = squares.jacobian(theta)
        slope = STIFF / error * evaluation.jacobian(theta)[k]
        return np.vstack([rows, slope]), doubt

    start = model.theta + way * PROBE / error * response.directions[:, k]
    objective = Objective(residuals=Squares(residuals, jacobian, 1.0))
    found = climb(objective, start, max_calls=MOST_CALLS)
    if not found.converged:
        return None
    fall = model.objective(model.theta) - model.objective(found.x)
    return float(fall * (PROBE / moved(found.x)) ** 2)
