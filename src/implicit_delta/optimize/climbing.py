"""Climb to a maximum by what is known of the objective."""

import math
from dataclasses import replace

import numpy as np

from implicit_delta.core.calls import Limited
from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import ConvergenceError
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.derivative_free import nelder_mead
from implicit_delta.optimize.least_squares import least_squares
from implicit_delta.optimize.objective import Maximum, Objective
from implicit_delta.optimize.rounds import in_rounds


def climb(
    objective: Objective,
    start: Array,
    *,
    max_calls: int | None = None,
    tolerance: float = 0.01,
    maximizer: Maximizer | None = None,
    limits: Limits = None,
) -> Maximum:
    """Climb from a start to the maximum that it leads to.

    Residuals by Levenberg-Marquardt with geodesic acceleration; with a gradient in rounds of
    L-BFGS, each scaled by the curvature where the last one ended, or beyond `CHEAP_LIMIT` variables
    by Newton-Krylov; and with values alone by Nelder and Mead.

    Parameters
    ----------
    objective : Objective
    start : (d,) array
    max_calls : int, optional
        Evaluations of the objective, or of its residuals.
    tolerance : float
        Standard errors that may be left where noise allows no better: beyond, the search has not
        converged.
    maximizer : Maximizer, optional
        For the rounds, in place of those.
    limits : tuple of two (d,) arrays, optional
        Bounds of x, beyond which the objective counts as undefined and is not evaluated. A maximum
        at a bound is not found.

    Examples
    --------
    >>> from implicit_delta.optimize import Squares
    >>> x = np.arange(4.0)
    >>> squares = Squares(lambda b: 3 - b[0] * np.exp(-x), lambda b: (-np.exp(-x)[:, None], 0.0))
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2), lambda x: -2.0 * (x - 1.0))
    >>> climb(hill, np.zeros(2)).x.round(6)
    array([1., 1.])
    >>> climb(Objective(residuals=squares), np.ones(1)).x.round(4)
    array([4.0298])
    """
    most = max_calls or math.inf
    if objective.residuals is None:
        limited = Limited(objective.value, most, _as_it_is, limits=limits)
        objective = replace(objective, value=limited)
    else:
        limited = Limited(objective.residuals.residuals, most, _height, limits=limits)
        objective = replace(objective, residuals=replace(objective.residuals, residuals=limited))
    try:
        with np.errstate(all="ignore"):
            found = _searched(objective, start, maximizer)
    except ConvergenceError as error:
        if limited.made < limited.most:
            raise
        return Maximum(x=np.asarray(limited.theta), value=limited.best, message=str(error))
    within = not found.distance > tolerance or found.hidden
    return replace(found, evaluations=limited.made, converged=found.converged and within)


def _searched(objective: Objective, start: Array, maximizer: Maximizer | None) -> Maximum:
    if objective.residuals is not None:
        return least_squares(objective.residuals, start)
    if objective.gradient is not None:
        return in_rounds(objective, start, maximizer)
    return (maximizer or nelder_mead).maximize(objective, start)


def _height(x: Array, residuals: Array) -> float:
    return -float(residuals @ residuals) / 2


def _as_it_is(x: Array, value: Array) -> float:
    return float(value)
