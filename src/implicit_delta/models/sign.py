"""Minus log-likelihoods, as minimizers take them, given where a log-likelihood is expected."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaError, ImplicitDeltaWarning
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.constraints import box
from implicit_delta.models.coordinates import start_text
from implicit_delta.models.objective import objective_of

FAR_UP = 10.0  # times the size of the log-likelihood at the start, and the number of terms
ASK = (
    "Is this *minus* the log-likelihood? Its negative has a maximum in the ordinary place, "
    "{theta}. `from_loglik` maximizes: return the terms with their sign, "
    "`lambda th: -nll_terms(th)`."
)


@dataclass(frozen=True, eq=False)
class Negated:
    """Minus a function."""

    function: Callable[[Array], Any]

    def __call__(self, theta: Array) -> Any:
        """Evaluate."""
        return -np.asarray(self.function(theta))


def warn_of_sign(climbing: Any, fitted: Any) -> None:
    """Ask for the sign where a fit ran off upwards, or into bounds with every parameter."""
    question = sign_question(climbing) if _suspicious(climbing, fitted.theta) else ""
    if question:
        warn(
            "The log-likelihood has its maximum far off, or with every parameter at a bound. "
            + question,
            ImplicitDeltaWarning,
        )


def sign_question(climbing: Any) -> str:
    """Ask whether the sign is wrong, if minus the objective has a maximum within the bounds."""
    scores = climbing.rows.scores
    negated = climbing.rows.of(
        loglik=Negated(climbing.rows.loglik),
        scores=None if scores is None else Negated(scores),
    )
    other = replace(climbing, rows=negated)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theta = constrained_maximum(other)
            ordinary = _is_peak(other, theta) and not _suspicious(other, theta)
    except (ImplicitDeltaError, ArithmeticError, ValueError):
        return ""
    return ASK.format(theta=start_text(climbing, theta)) if ordinary else ""


def _is_peak(model: Any, theta: Array) -> bool:
    """Whether theta is inside of the bounds, and the objective falls to all sides."""
    units = objective_of(model).units
    matrix = model.information(theta, np.diag(units)) * units[:, None]
    return not _at_bounds(model, theta).any() and np.linalg.eigvalsh(symmetric(matrix))[0] > 0


def _suspicious(climbing: Any, theta: Array) -> bool:
    first, top = climbing.objective(climbing.theta), climbing.objective(theta)
    return bool(top > FAR_UP * (abs(first) + climbing.n)) or bool(_at_bounds(climbing, theta).all())


def _at_bounds(model: Any, theta: Array) -> Any:
    if model.space.constraints is None:
        return np.zeros(theta.size, dtype=bool)
    low, high = box(model.space.constraints, theta)
    near = 1e-6 * np.maximum(abs(theta), sizes(model.theta))
    return (theta - low <= near) | (high - theta <= near)
