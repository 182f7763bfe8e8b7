"""Whether the training of a network has ended at the maximum, by the gain of a Newton step."""

from collections.abc import Callable

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.inference.leverage import inverse_root
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import displacement, is_formable, is_network

FINISHED = 1.0  # twice the gain of a Newton step; the drift of each psi is checked as well
FLAT = 1e-10  # of the steepest curvature met
STEPS = 100  # of conjugate gradients at most: usually the first few decide


def stopped_early(model: FittedModel) -> bool:
    """Return whether `infer` without a method takes this model as a training that stopped early.

    Never of one that did not leave its start, or that is tied to it already.
    """
    is_training = (
        is_network(model) and not model.penalty.early_stop and bool(np.any(displacement(model)))
    )
    return is_training and gain_of(model) > FINISHED


def gain_of(model: FittedModel) -> float:
    """Twice the gain of the objective by a Newton step; at least so much without the matrix.

    That is :math:`s' A^{-1} s`, with s the score. By Cauchy and Schwarz no psi would move by more
    than the root of it, in standard errors, if training were finished.
    """
    score = model.score(model.theta)
    if not np.any(score):
        return 0.0
    if is_formable(model):
        root = inverse_root(model.information(model.theta, np.eye(model.d), "ggn"))
        return float(np.sum((root.T @ score) ** 2))
    product = lambda v: model.information(model.theta, v, "ggn")  # noqa: E731
    return _quadratic(product, score, model.penalty.floor)


def _quadratic(product: Callable[[Array], Array], b: Array, floor: float) -> float:
    """Bound b' A^-1 b from below by conjugate gradients, until it is known to be finished or not.

    With r what is left of b, it is at most ``|r|^2 / floor`` more.
    """
    residual, direction, found, steepest = b, b, 0.0, 0.0
    for _ in range(STEPS):
        square = float(residual @ residual)
        if found > FINISHED or found * floor + square <= FINISHED * floor:
            break
        ahead = product(direction)
        curved, length = float(direction @ ahead), float(direction @ direction)
        steepest = max(steepest, curved / length)
        if curved <= FLAT * steepest * length:
            break  # rounding, or a flat direction, which is judged elsewhere
        found += square**2 / curved
        residual = residual - square / curved * ahead
        direction = residual + float(residual @ residual) / square * direction
    return found
