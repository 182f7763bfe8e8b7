"""Jacobian of an evaluation written in NumPy: traced if that holds, else by differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.differentiate import FIRST_STEP, differentiate
from implicit_delta.calculus.functions import Derivative
from implicit_delta.calculus.noise import HIDDEN, constant_beside, flicker
from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.linalg.arrays import ratio

PROBE_STEP, PROBE_TOLERANCE = 1e-3, 1e-4  # in standard errors; relative
FLAT = 1e3  # times the size of a parameter: a standard error that is none
UNCERTAIN = 0.01  # of the length of a gradient, in standard errors
# Of the standard errors of other outputs: a derivative of less that is noise counts as zero. Noise
# moves psi right beside by as much as farther away, a slope by 4e-5 of that.
NEGLIGIBLE, NOISE, LOOKS = 1e-4, 1e-3, 4


def jacobian_of(
    f: Callable[[Array], Any], theta: Array, units: Array, traced: tuple[Array, Array] | None
) -> Array:
    """Differentiate f at theta, (K, d); zero for what is constant but for jumps or noise.

    A parameter that the data hardly determine has a unit of 1e7 or 1e16, over which f may do
    anything. Where that leads nowhere, its unit is the size of the parameter instead.

    Parameters
    ----------
    f : callable
        (d,) to a number or (K,).
    theta : (d,) array
    units : (d,) array
        The standard error of each parameter, the others held fixed: the unit of all steps.
    traced : pair of (K,) and (K, d) arrays, or None
        Value and derivative from `trace`: the latter is returned if differences agree with it.
    """
    size = sizes(theta)
    flat = units > FLAT * size
    within = np.where(flat, size, units)
    scales = [units, within] if np.any(flat) else [units]
    if traced is not None and any(_agrees(*traced, f, theta, scale) for scale in scales):
        return traced[1]
    try:
        return _by_differences(f, theta, units)
    except EvaluationError:
        if len(scales) == 1:
            raise
        return _by_differences(f, theta, within)


def _by_differences(f: Callable[[Array], Any], theta: Array, units: Array) -> Array:
    center = _value(f, theta)

    def value(point: Array) -> Array:
        values = _value(f, point)
        if values.shape != center.shape:
            raise EvaluationError(
                f"psi returned shape {center.shape} at the fitted parameters and {values.shape} "
                "nearby, but must always return the same shape."
            )
        return values

    try:
        rounding = np.spacing(abs(center))
        derivative = differentiate(value, theta, units, noise=rounding).scaled(units)
    except FloatingPointError:
        raise EvaluationError(
            "psi is NaN or infinite right beside the fitted parameters, so it has no derivative "
            "there. Is the estimate at the edge of psi's domain?"
        ) from None
    rows = derivative.value.copy()
    rows[constant_beside(value, theta, units, rows)] = 0.0  # differences of small steps settle
    doubt = ratio(np.linalg.norm(derivative.error, axis=1), np.linalg.norm(rows, axis=1))
    if np.max(doubt) > UNCERTAIN:
        still = _noise(value, theta, units, center, Derivative(rows, derivative.error))
        rows[still], doubt[still] = 0.0, 0.0
        _check_certain(rows, derivative.error, doubt, center)
    return np.asarray(rows / units)


def _value(f: Callable[[Array], Any], point: Array) -> Array:
    return np.atleast_1d(np.asarray(f(point.copy())).astype(np.float64))  # a copy: f may reuse it


def _agrees(
    value: Array, exact: Array, f: Callable[[Array], Any], theta: Array, units: Array
) -> bool:
    """Check a traced derivative, output by output, along one random direction."""
    step = PROBE_STEP * units * np.random.default_rng(0).normal(size=theta.size)
    ahead, behind = _value(f, theta + step), _value(f, theta - step)
    if ahead.shape != value.shape or behind.shape != value.shape:
        return False
    move, rounding = abs(exact) @ abs(step), 1e-14 * abs(ahead)
    right = abs((ahead - behind) / 2 - exact @ step) <= PROBE_TOLERANCE * move + rounding
    same = abs((ahead + behind) / 2 - value) <= move + rounding  # but for the bend of psi
    return bool(np.all(right & same))


def _noise(
    f: Callable[[Array], Array], theta: Array, units: Array, center: Array, found: Derivative
) -> NDArray[np.bool_]:
    """Which outputs only move by noise, and by next to nothing beside the errors of the others."""
    slopes = np.linalg.norm(found.value, axis=1)
    most = slopes + np.linalg.norm(found.error, axis=1)
    steps = units * np.random.default_rng(0).normal(size=(LOOKS, theta.size))
    loud = flicker(f, theta, steps, center) >= NOISE * FIRST_STEP * most
    others = slopes[~loud & (slopes > 0)]
    if not others.size:
        return np.zeros_like(loud)
    limit = np.maximum(NEGLIGIBLE * np.median(others), HIDDEN * np.spacing(abs(center)))
    return np.asarray(loud & (most <= limit))


def _check_certain(rows: Array, errors: Array, doubt: Array, center: Array) -> None:
    """Refuse a gradient, in standard errors, that its own estimate calls uncertain."""
    k = int(np.argmax(doubt))
    if doubt[k] <= UNCERTAIN:
        return
    if np.linalg.norm(errors[k]) <= HIDDEN * np.sqrt(errors.shape[1]) * np.spacing(abs(center[k])):
        raise EvaluationError(
            f"psi (output {k}) is {center[k]:.4g} and moves by about "
            f"{np.linalg.norm(rows[k]):.1g} only within a standard error, of which rounding hides "
            f"{doubt[k]:.1%}. Subtract the constant in it: return the difference to a number near "
            "its value, such as seconds since the first date."
        )
    raise EvaluationError(
        f"The derivative of psi (output {k}) is uncertain by {doubt[k]:.1%}: differences over "
        "shorter and shorter steps do not settle. Usual causes: psi computes in single "
        "precision (float32), is the result of an iteration that stops early, or has kinks or "
        "jumps right here. Compute in float64 or more tightly; for a psi with kinks or jumps "
        "use `Smoothed(psi)` or `Simulation()`."
    )
