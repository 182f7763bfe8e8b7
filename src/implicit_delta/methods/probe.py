"""Probe half a standard error to either side along the response: the course of psi and of L."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.factored import Covariance
from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import PROBE, refuse_flat
from implicit_delta.models.base import FittedModel

MOST_PROBES = 16  # evaluations along whose response psi is probed
FEW = 3  # and the objective too
NONE: Mapping[int, tuple[float, float]] = {}


@dataclass(frozen=True)
class Probe:
    """The course of psi along its responses.

    Attributes
    ----------
    nonlinearity : float
        The largest relative difference between psi on the two sides.
    most : int or None
        The evaluation that has it.
    falls : mapping of int to (float, float)
        By evaluation: the fall of the objective ahead and behind.
    """

    nonlinearity: float = 0.0
    most: int | None = None
    falls: Mapping[int, tuple[float, float]] = field(default_factory=dict)


def probe(
    evaluation: Evaluation, directions: Array, covariance: Covariance, score: Array, exact: bool
) -> Probe:
    r"""Compare both sides of the maximum.

    Psi should move in proportion to the root r of twice the fall of the objective, which does not
    depend on the parametrization, and by one standard error for r = 1. Where the directions do not
    solve with the objective's own curvature, r is the length of the step instead. Of a ratio it is
    the logarithm that should.
    """
    model, errors = evaluation.model, np.sqrt(covariance.diagonal())
    moves: dict[int, tuple[float, float]] = {}
    for k in spread_out(np.flatnonzero(errors > 0), MOST_PROBES):
        step = PROBE / errors[k] * directions[:, k]
        try:
            ahead, behind = evaluation(model.theta + step), evaluation(model.theta - step)
        except EvaluationError:
            return Probe(np.inf)
        _check_still(evaluation, errors, ahead - behind)
        high, value, low = evaluation.on_scale(np.array([ahead[k], evaluation.value[k], behind[k]]))
        moves[k] = float(high - value), float(value - low)
    own = errors / evaluation.value if evaluation.scale == "log" else errors
    plain = {k: _bend(moves[k], (PROBE, PROBE), own[k]) for k in moves}
    if not exact or not moves:
        return _most(plain)
    top, steps = model.objective(model.theta), PROBE * directions / np.where(errors > 0, errors, 1)
    chosen = dict.fromkeys([int(np.argmax(errors)), max(plain, key=lambda k: plain[k])])
    chosen |= dict.fromkeys(spread_out(np.array(list(moves)), FEW))
    falls = {k: falls_along(model, steps[:, k], score, top) for k in chosen if k in moves}
    return _most({k: _bend(moves[k], _roots(falls[k]), own[k]) for k in falls}, falls)


def _most(bends: Mapping[int, float], falls: Mapping[int, tuple[float, float]] = NONE) -> Probe:
    if not bends:
        return Probe()
    k = max(bends, key=lambda k: bends[k])
    return Probe(bends[k], k, falls)


def falls_along(model: FittedModel, step: Array, score: Array, top: float) -> tuple[float, float]:
    """Fall of the objective a step ahead and behind; from the tangent, short of the maximum."""
    slope = float(score @ step)
    ahead, behind = model.objective(model.theta + step), model.objective(model.theta - step)
    return top - ahead + slope, top - behind - slope


def spread_out(numbers: NDArray[Any], most: int) -> list[int]:
    """Choose at most so many of some numbers."""
    if not numbers.size:
        return []
    places = np.linspace(0, numbers.size - 1, min(numbers.size, most)).astype(int)
    return [int(k) for k in numbers[places]]


def _roots(falls: tuple[float, float]) -> tuple[float, float]:
    """Roots of twice the falls; the length of the step where there is no fall."""
    return tuple(np.sqrt(2 * f) if f > 0 else PROBE for f in falls)  # type: ignore[return-value]


def _bend(moves: tuple[float, float], roots: tuple[float, float], error: float) -> float:
    """Relative difference of the two slopes, or that of the rise to what the derivative expects.

    An objective that falls faster than a parabola makes a symmetric interval too long, but not
    crooked: so only the slopes are taken against its fall.
    """
    ahead, behind = moves[0] / roots[0], moves[1] / roots[1]
    rise, expected = sum(moves), error * 2 * PROBE
    between = abs(ahead - behind) / abs(ahead + behind) if ahead + behind else 0.0
    mismatch = abs(rise - expected) / min(rise, expected) if rise > 0 else np.inf
    return float(max(between, mismatch))


def _check_still(evaluation: Evaluation, errors: Array, move: Array) -> None:
    jumping = np.flatnonzero((errors == 0) & (abs(move) > 1e-9 * abs(evaluation.value)))
    if jumping.size:
        what = f"{evaluation.names[jumping[0]]} moves, but its derivative is exactly zero."
        refuse_flat(what, evaluation.model)
