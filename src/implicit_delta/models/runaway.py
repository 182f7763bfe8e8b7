"""Parameters that a fit has driven to where the log-likelihood levels off.

A log-variance, the logit of a fraction or the logarithm of a rate has no finite maximum where the
variance, the fraction or the rate is zero: a search stops where the slope is lost in rounding, at
some -28, and that point means nothing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import ConvergenceError, ImplicitDeltaWarning
from implicit_delta.models.base import FittedModel

AS_FAR = 8.0  # times the size of a parameter, or one: a look farther out, and as far back
LEVEL, FALLS = 1e-3, 0.1  # of the log-likelihood: none, and some that is no rounding error


def check_runaways(model: FittedModel, fitted: bool) -> None:
    """Warn of parameters along which the log-likelihood is level on one side, and falls behind.

    A fit of which every parameter runs away has found nothing, and is refused.
    """
    found = dict(_runaways(model))
    if not found:
        return
    names = model.names or tuple(f"theta[{j}]" for j in range(model.d))
    told = ", ".join(
        f"{names[j]} = {model.theta[j]:.4g} (toward {'+' if side > 0 else '-'}infinity)"
        for j, side in found.items()
    )
    low = any(side < 0 for side in found.values())
    what = "a variance, rate or fraction of zero" if low else "a fraction of one"
    text = (
        f"The log-likelihood has no finite maximum: it levels off along {told}, where the search "
        f"ended for want of a slope. Usual causes: {what} on a logarithmic or logit scale, an "
        "empty cell, separated classes. The value there means nothing, nor does a standard error. "
        "Fit the quantity itself with its bound, for example `from_loglik(loglik, start=..., "
        "bounds=[(0, None), ...])` of the variance instead of its logarithm, and ask for "
        "`limit(model, psi)`; or add a penalty (`l2=`)."
    )
    if fitted and len(found) == model.d:
        raise ConvergenceError(text)
    warn(text, ImplicitDeltaWarning)


def _runaways(model: FittedModel) -> Iterator[tuple[int, int]]:
    """Positions and directions; one evaluation a parameter unless there are some."""
    theta, top = model.theta, model.objective(model.theta)
    for j in range(theta.size):
        step = np.zeros(theta.size)
        step[j] = AS_FAR * max(abs(theta[j]), 1.0)
        side = 1 if theta[j] > 0 else -1
        for way in (side, -side):
            ahead = _fall(model, theta + way * step, top)
            if ahead < LEVEL and _fall(model, theta - way * step, top) > FALLS:
                yield j, way
                break
            if not ahead < LEVEL and theta[j] != 0:
                break


def _fall(model: Any, theta: Array, top: float) -> float:
    """Fall of the objective; infinite where it or theta is not allowed."""
    if not model.allows(theta):
        return np.inf
    try:
        with np.errstate(all="ignore"):
            fall = top - float(model.objective(theta))
    except (ArithmeticError, ValueError):
        return np.inf
    return abs(fall) if fall == fall else np.inf
