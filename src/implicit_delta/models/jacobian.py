"""Jacobian of an evaluation written in NumPy: traced if that holds, else by differences."""

from collections.abc import Callable
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.numerics.derivatives import constant_beside, differentiate

PROBE_STEP, PROBE_TOLERANCE = 1e-3, 1e-4  # in standard errors; relative


def jacobian_of(
    f: Callable[[Array], Any], theta: Array, units: Array, traced: Array | None
) -> Array:
    """Differentiate f at theta, (K, d); zero for what is piecewise constant.

    Parameters
    ----------
    f : callable
        (d,) to a number or (K,).
    theta : (d,) array
    units : (d,) array
        The standard error of each parameter, the others held fixed: the unit of all steps.
    traced : (K, d) array or None
        The derivative from `traced_jacobian`: returned if differences agree with it.
    """
    if traced is not None and _agrees(traced, f, theta, units):
        return traced
    shape = _value(f, theta).shape

    def value(point: Array) -> Array:
        values = _value(f, point)
        if values.shape != shape:
            raise EvaluationError(
                f"psi returned shape {shape} at the fitted parameters and {values.shape} nearby, "
                "but must always return the same shape."
            )
        return values

    try:
        rows = differentiate(value, theta, np.diag(units)).value / units
        rows[constant_beside(value, theta, units)] = 0.0
    except FloatingPointError:
        raise EvaluationError(
            "psi is NaN or infinite right beside the fitted parameters, so it has no derivative "
            "there. Is the estimate at the edge of psi's domain?"
        ) from None
    return rows


def _value(f: Callable[[Array], Any], point: Array) -> Array:
    return np.atleast_1d(np.asarray(f(point.copy()), dtype=np.float64))


def _agrees(exact: Array, f: Callable[[Array], Any], theta: Array, units: Array) -> bool:
    """Check a traced derivative along one random direction: two evaluations."""
    step = PROBE_STEP * units * np.random.default_rng(0).normal(size=theta.size)
    ahead, behind = _value(f, theta + step), _value(f, theta - step)
    if ahead.shape != exact.shape[:1] or behind.shape != ahead.shape:
        return False
    rise, expected = (ahead - behind) / 2, exact @ step
    rounding = 1e-14 * np.max(abs(ahead))
    return bool(np.max(abs(rise - expected)) <= PROBE_TOLERANCE * np.max(abs(expected)) + rounding)
