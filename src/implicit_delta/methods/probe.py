"""Probe half a standard error to either side along the response: the course of psi and of L."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.noise import flicker
from implicit_delta.core.factored import Covariance
from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.base import PROBE, first_of, refuse_flat
from implicit_delta.models.model import FittedModel

MOST_PROBES = 16  # pairs of points at which psi is evaluated
# Of more evaluations some are probed along their response, and all of them are looked at there and
# at random points; the rest of the pairs is for those that bend most.
SPREAD, DRAWS = 8, 3
FEW = 3  # evaluations along whose response the objective is probed too
FARTHEST = 4.0  # standard errors, along all directions together: weights of networks go astray
ROUNDINGS = 16  # of psi: moves by less tell nothing
RESOLVED = 256  # roundings of psi: bends of an evaluation with a smaller error are not seen
STATIONARY = 100.0  # standard errors: within a few of them, what has a slope moves by a few
# Noise moves an evaluation as much right beside as farther away, and is worth no refusal where it
# is less than this part of the errors of the others.
NOISE, NEGLIGIBLE = 0.1, 1e-4
NONE: Mapping[int, tuple[float, float]] = {}

Draw = Callable[[Array], Array]  # standard normal numbers (d,) to a step of theta
Pair = tuple[Array, Array]  # psi ahead and behind


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
    findings: tuple[Finding, ...] = ()


def probe(
    evaluation: Evaluation,
    jacobian: Array,
    directions: Array,
    covariance: Covariance,
    score: Array,
    exact: bool,
    draw: Draw,
) -> Probe:
    r"""Compare both sides of the maximum.

    Psi should move in proportion to the root r of twice the fall of the objective, which does not
    depend on the parametrization, and by one standard error for r = 1. Where the directions do not
    solve with the objective's own curvature, r is the length of the step instead. Of a ratio it is
    the logarithm that should.
    """
    model, errors = evaluation.model, np.sqrt(covariance.diagonal())
    moving = np.flatnonzero(errors > RESOLVED * np.spacing(abs(evaluation.value)))
    many = moving.size > MOST_PROBES

    def push(k: int) -> Array:
        return np.asarray(PROBE / errors[k] * directions[:, k])

    try:
        few = spread_out(moving, SPREAD if many else MOST_PROBES)
        pairs = {k: _pair(evaluation, push(k)) for k in few}
        if many:
            seen = [(push(k), pairs[k]) for k in pairs] + _drawn(evaluation, draw)
            bends = _bends(evaluation, jacobian, seen, errors)
            rest = np.setdiff1d(moving, few)
            worst = rest[np.argsort(bends[rest])[SPREAD + DRAWS - MOST_PROBES :]]
            pairs |= {int(k): _pair(evaluation, push(k)) for k in worst}
    except EvaluationError:
        return Probe(np.inf)
    still = first_of(_negligible(evaluation, errors, list(pairs.values()), draw))
    moves: dict[int, tuple[float, float]] = {}
    for k, (ahead, behind) in pairs.items():
        points = np.array([ahead[k], evaluation.value[k], behind[k]])
        high, value, low = evaluation.on_scale(points, k)
        moves[k] = float(high - value), float(value - low)
    own = np.where(evaluation.logs, ratio(errors, evaluation.value), errors)
    straight = np.broadcast_to(evaluation.straight, errors.shape)
    plain = {k: _bend(moves[k], (PROBE, PROBE), own[k]) for k in moves}
    if not exact or not moves:
        return _most(plain, still)
    top = model.objective(model.theta)
    crooked = max(plain, key=lambda k: round(plain[k], 6))  # not by the rounding of straight ones
    chosen = dict.fromkeys([int(np.argmax(errors)), crooked])
    chosen |= dict.fromkeys(spread_out(np.array(list(moves)), FEW))
    falls = {k: falls_along(model, push(k), score, top) for k in chosen if k in moves}
    roots = {k: (PROBE, PROBE) if straight[k] else _roots(falls[k]) for k in falls}
    return _most({k: _bend(moves[k], roots[k], own[k]) for k in falls}, still, falls)


def _pair(evaluation: Evaluation, step: Array) -> Pair:
    theta = evaluation.model.theta
    return evaluation(theta + step), evaluation(theta - step)


def _drawn(evaluation: Evaluation, draw: Draw) -> list[tuple[Array, Pair]]:
    """Evaluate a standard error or so away, along all directions together."""
    steps = [draw(z) for z in np.random.default_rng(0).standard_normal((DRAWS, evaluation.model.d))]
    return [(step, pair) for step in steps for pair in _within(evaluation, step, nearest=1.0)]


def _within(evaluation: Evaluation, step: Array, nearest: float = 1 / 16) -> list[Pair]:
    """Evaluate a step to either side, or nearer if psi ends before; none if there is none."""
    share = 1.0
    while share >= nearest:
        try:
            with np.errstate(all="ignore"):
                return [_pair(evaluation, share * step)]
        except Exception:  # of any kind: psi was not made for so far away
            share /= 4
    return []


def _bends(
    evaluation: Evaluation, jacobian: Array, seen: list[tuple[Array, Pair]], errors: Array
) -> Array:
    """Largest distance of each evaluation from its tangent at the points seen, (K,)."""
    center, found = evaluation.center(), np.zeros_like(errors)
    for step, (ahead, behind) in seen:
        move = jacobian @ step
        for off in (abs(ahead - center - move), abs(behind - center + move)):
            found = np.maximum(found, off - ROUNDINGS * _rounding(evaluation))
    return np.asarray(ratio(found, errors))


def _rounding(evaluation: Evaluation) -> Array:
    rounding = np.spacing(abs(evaluation.value))
    return rounding if evaluation.blur is None else np.maximum(rounding, evaluation.blur)


def _most(
    bends: Mapping[int, float],
    findings: tuple[Finding, ...],
    falls: Mapping[int, tuple[float, float]] = NONE,
) -> Probe:
    if not bends:
        return Probe(findings=findings)
    k = max(bends, key=lambda k: bends[k])
    return Probe(bends[k], k, falls, findings)


def falls_along(model: FittedModel, step: Array, score: Array, top: float) -> tuple[float, float]:
    """Fall of the objective a step ahead and behind; from the tangent, short of the maximum."""
    slope = float(score @ step)
    ahead, behind = model.objective(model.theta + step), model.objective(model.theta - step)
    return top - ahead + slope, top - behind - slope


def spread_out(numbers: NDArray[Any], most: int) -> list[int]:
    """Choose at most so many of some numbers."""
    if numbers.size <= most:
        return [int(number) for number in numbers]
    places = np.linspace(0, numbers.size - 1, most).astype(int)
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


def _negligible(
    evaluation: Evaluation, errors: Array, pairs: list[Pair], draw: Draw
) -> Finding | None:
    """Find evaluations with a derivative of zero, up to rounding, that move by their noise.

    Those that move by more are refused.
    """
    still = errors <= RESOLVED * np.spacing(abs(evaluation.value))
    if not np.any(still) or not np.any(errors):
        return None
    model, center = evaluation.model, evaluation.center()
    z = np.random.default_rng(1).standard_normal((5, model.d))
    steps = [draw(row * min(1.0, FARTHEST / float(np.linalg.norm(row)))) for row in z]
    pairs = pairs + _within(evaluation, steps[0])
    if not pairs:
        return None
    move = np.max([abs(end - center) for pair in pairs for end in pair], axis=0)
    moves = still & (move > STATIONARY * errors)
    if not np.any(moves):
        return None
    loud = flicker(evaluation, model.theta, np.array(steps[1:]), center)
    rounds = move <= ROUNDINGS * _rounding(evaluation)
    noise = (loud >= NOISE * move) & (move <= NEGLIGIBLE * np.median(errors[errors > 0]))
    jumping = np.flatnonzero(moves & ~rounds & ~noise)
    if jumping.size:
        what = (
            f"{evaluation.names[jumping[0]]} moves, but its derivative is exactly zero: it is at "
            "its minimum or maximum (a square, an absolute value), or has steps."
        )
        refuse_flat(what, model)
    hidden = rounds & (loud == 0) & ((evaluation.blur is None) | (evaluation.blur == 0))
    for k in np.flatnonzero(moves & (hidden | (noise & ~rounds)))[:1]:
        return Finding(
            "warn",
            "negligible_move",
            f"{evaluation.names[k]} is {evaluation.value[k]:.4g} and moves by {move[k]:.1g} only, "
            "which is its rounding or noise: a standard error of zero stands for less than that.",
            number=float(move[k]),
            remedies=(
                "Leave out what is constant; if it is not, subtract the constant in it, or "
                "compute it more tightly.",
            ),
        )
    return None
