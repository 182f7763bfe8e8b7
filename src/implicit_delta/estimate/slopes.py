"""Derivative and bend of a function of estimated values."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.noise import constant_beside
from implicit_delta.calculus.tracing import trace
from implicit_delta.calculus.units import sizes
from implicit_delta.core.factored import Covariance, Factored, check_bytes, scaled
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.rounding import is_repeated
from implicit_delta.core.thresholds import BEND_REFUSES, BEND_WARNS
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError, NonlinearityWarning
from implicit_delta.estimate.combination import combine
from implicit_delta.estimate.quantiles import deviations
from implicit_delta.linalg.arrays import ratio

HALF = 0.5  # of a standard error: where the bend is looked at, as in `infer`
UNCERTAIN = 0.01  # of the length of a gradient, in standard errors
MOST_PROBED = 64  # outputs, and directions of the values
TRACE_STEP, TRACE_TOLERANCE = 1e-3, 1e-4  # in standard errors; relative
# Of a function that is flat at the values: a move within 2 standard errors of one value, or in 4 of
# 100 draws of all of them, is no rarity (2.3 % of draws lie beyond 2 standard errors).
FAR, DRAWS, FEW = (1.0, 2.0), 100, 4
IN_PSI = (
    "The same holds for the derivative of a function of so many values: make it a part of psi, "
    "`infer(model, lambda m: f(psi(m)))`, or apply it to some of them, `est[:1000].apply(f)`."
)
ROUNDING = 1e-9  # relative: a change that counts as none


@dataclass(frozen=True)
class Slopes:
    """Value of a function, (K,) or a number, its Jacobian (K, L) and its bend."""

    value: Array
    jacobian: Array
    bend: float


def slopes_of(f: Callable[[Array], Any], x: Array, V: Covariance, *, strict: bool = True) -> Slopes:
    """Differentiate f at values x with covariance V, and check that it is straight there.

    Parameters
    ----------
    f : callable
        (L,) to a number or (K,).
    x : (L,) array
    V : (L, L) array
    strict : bool
        Refuse an f that bends so much that one end does not move.
    """
    value = checked_result(f(x.copy()), "at the values")
    again = checked_result(f(x.copy()), "at the values")
    if value.shape != again.shape or not is_repeated(value, again):
        raise EvaluationError(
            "f is random: it returned two different values for the same numbers. Fix its seed "
            "inside of f."
        )
    check_bytes(int(np.sqrt(float(value.size) * x.size)), IN_PSI)
    bounded = _Same(f, value.shape)
    J = _jacobian(f, bounded, x, V)
    bend = _bend(bounded, x, V, J, np.atleast_1d(value))
    report([_bent(bend)], strict)
    return Slopes(value, J, bend)


def checked_result(result: Any, where: str) -> Array:
    """Return what f returned as numbers, () or (K,)."""
    value = np.asarray(result)
    if value.dtype == object and all(isinstance(entry, Real) for entry in value.ravel()):
        value = value.astype(np.float64)
    if value.dtype.kind not in "fiub" or value.ndim > 1 or value.size == 0:
        raise EvaluationError(
            f"f returned {type(result).__name__} of shape {value.shape} and {value.dtype} {where}: "
            "it must return a number, or a list or array of K numbers."
        )
    if not np.all(np.isfinite(value)):
        raise EvaluationError(
            f"f is NaN or infinite {where}: {result!r:.60}. Usual causes: a division by zero, the "
            "logarithm of a number that is not positive."
        )
    return value.astype(np.float64)


@dataclass(frozen=True)
class _Same:
    """F as (K,), of the shape that it has at the values; NaN where it fails."""

    f: Callable[[Array], Any]
    shape: tuple[int, ...]

    def __call__(self, point: Array) -> Array:
        count = int(np.prod(self.shape, dtype=int))
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(self.f(point.copy()), dtype=np.float64)
        except (ArithmeticError, ValueError, TypeError):
            return np.full(count, np.nan)
        if found.shape != self.shape:
            raise EvaluationError(
                f"f returned shape {self.shape} at the values and {found.shape} nearby, but must "
                "always return the same shape."
            )
        return np.atleast_1d(found)


def _jacobian(f: Callable[[Array], Any], same: _Same, x: Array, V: Covariance) -> Array:
    """Trace f, and difference it where that fails, in steps of the standard errors."""
    errors = deviations(V)
    units = np.where(errors > 0, errors, 1e-3 * sizes(x))
    with np.errstate(all="ignore"):
        traced = trace(f, x)
    if traced is not None and _agrees(*traced, same, x, units):
        return traced[1]
    check_bytes(x.size, IN_PSI)
    try:
        found = differentiate(same, x, units, noise=np.spacing(abs(same(x)))).scaled(units)
        constant = constant_beside(same, x, units, found.value)
    except FloatingPointError:
        raise EvaluationError(
            "f is NaN or infinite right beside the values, so it has no derivative there. Are "
            "they at the edge of its domain?"
        ) from None
    rows = np.where(constant[:, None], 0.0, found.value)
    doubt = ratio(np.linalg.norm(found.error, axis=1), np.linalg.norm(rows, axis=1))
    if np.max(doubt) > UNCERTAIN:
        raise EvaluationError(
            f"The derivative of f (output {int(np.argmax(doubt))}) is uncertain by "
            f"{np.max(doubt):.1%}: differences over shorter and shorter steps do not settle. Usual "
            "causes: single precision (float32), or a kink or jump right here (abs, max, rank). "
            "Such a function has no error by the delta method; ask `infer` for it with "
            "`Simulation()` or `Bootstrap()`."
        )
    return np.asarray(rows / units)


def _agrees(value: Array, J: Array, same: _Same, x: Array, units: Array) -> bool:
    """Check a traced derivative along one random direction."""
    step = TRACE_STEP * units * np.random.default_rng(0).normal(size=x.size)
    ahead, behind = same(x + step), same(x - step)
    if value.shape != ahead.shape or not np.all(np.isfinite([ahead, behind])):
        return False
    size, rounding = np.abs(J) @ np.abs(step), 1e-14 * np.abs(ahead)
    right = np.abs((ahead - behind) / 2 - J @ step) <= TRACE_TOLERANCE * size + rounding
    return bool(np.all(right) and is_repeated(value, same(x)))


def _bend(f: _Same, x: Array, V: Covariance, J: Array, value: Array) -> float:
    """Return the largest bend of an output within half a standard error.

    Along its own response, where ahead and behind are compared with each other and with the
    derivative, and along the axes of V, where it should bend little beside its standard error.
    """
    errors = deviations(combine(J, V))
    bends = [0.0]
    for k in _spread(np.flatnonzero(errors > 0)):
        step = HALF / errors[k] * (V @ J[k])
        ahead, behind = f(x + step)[k] - value[k], value[k] - f(x - step)[k]
        bends.append(_along(ahead, behind, HALF * errors[k]))
    axes = _axes(V)
    if not axes.size:
        return max(bends)
    ends = [(f(x + HALF * u), f(x - HALF * u)) for u in axes]
    curves = np.array([ahead + behind - 2 * value for ahead, behind in ends]) / HALF**2
    size = np.abs(value) * ROUNDING  # a zero is exactly that: it has no unit
    moves = np.max([np.abs([a - value, b - value]).max(axis=0) for a, b in ends], axis=0)
    still = errors == 0
    moving = still & ~(moves <= size)
    if np.any(still & ~moving):
        moving |= still & _moves_further(f, x, V, axes[:-2], value, size)
    if np.any(moving):
        raise EvaluationError(
            f"Output {int(np.argmax(moving))} of f moves with the values, but its derivative is "
            "exactly zero: f is at a turning point (a square at 0), jumps (a count, a rank) or has "
            "a kink (a maximum). The delta method has no error for it. Test the values themselves, "
            "`est.test(null, joint=True)`, or use `Bootstrap()`."
        )
    whole = np.linalg.norm(curves[:-2], axis=0) / 4
    if not np.all(np.isfinite(whole)):
        return np.inf
    return max(*bends, float(np.max(ratio(np.where(still, 0.0, whole), errors))))


def _moves_further(
    f: _Same, x: Array, V: Covariance, axes: Array, value: Array, size: Array
) -> NDArray[np.bool_]:
    """Look for moves of each output, (K,), within two standard errors: a step, a kink, a bump."""
    errors = deviations(V)
    places = np.flatnonzero(errors > 0)[:MOST_PROBED]
    alone = (V.rows(places) if isinstance(V, Factored) else V[places]) / errors[places, None]
    steps = [sign * far * u for u in alone for far in FAR for sign in (1, -1)]
    drawn = np.random.default_rng(0).normal(size=(DRAWS, len(axes))) @ axes
    near, wide = (
        np.array([np.abs(f(x + step) - value) > size for step in some]) for some in (steps, drawn)
    )
    return np.asarray(np.any(near, axis=0) | (np.sum(wide, axis=0) >= FEW))


def _along(ahead: float, behind: float, expected: float) -> float:
    """Compare the moves ahead and behind, and both with what the derivative expects."""
    if not np.isfinite(ahead + behind):
        return np.inf
    rise = ahead + behind
    if rise <= 0:
        return np.inf
    mismatch = abs(rise - 2 * expected) / min(rise, 2 * expected)
    return float(max(abs(ahead - behind) / rise, mismatch))


def _axes(V: Covariance) -> Array:
    """Principal axes of V, one standard error long, the longest ones, and two mixtures of them."""
    errors = deviations(V)
    units = np.where(errors > 0, errors, 1.0)
    unit = scaled(V, 1 / units)
    values, vectors = unit.spectrum() if isinstance(unit, Factored) else np.linalg.eigh(unit)
    kept = np.flatnonzero(values > 1e-12 * max(values[-1], 0.0))[::-1][:MOST_PROBED]
    if not kept.size or not np.any(errors):
        return np.zeros((0, len(V)))
    axes = (units[:, None] * vectors[:, kept] * np.sqrt(values[kept])).T
    mixed = np.random.default_rng(0).normal(size=(2, len(axes))) @ axes
    return np.concatenate([axes, mixed])


def _spread(numbers: NDArray[np.intp]) -> list[int]:
    places = np.linspace(0, max(len(numbers) - 1, 0), min(len(numbers), MOST_PROBED)).astype(int)
    return [int(numbers[place]) for place in places]


def _bent(bend: float) -> Finding | None:
    if not bend > BEND_WARNS:
        return None
    return Finding(
        "refuse" if bend > BEND_REFUSES else "warn",
        "bend",
        f"The function bends within half a standard error of the values (nonlinearity {bend:.2g}, "
        "where 0 is a straight line), so a symmetric interval is doubtful.",
        number=bend,
        remedies=(
            "Apply one that is closer to linear and carry its interval over: the logarithm of a "
            "ratio, as in `est.apply(lambda v: np.log(v[0] / v[1])).summary(transform='exp')`.",
            "Or ask for it as a psi: `profile(model, psi)`, `infer(model, psi, Bootstrap())`.",
        ),
        error=ConvergenceError,
        warning=NonlinearityWarning,
    )
