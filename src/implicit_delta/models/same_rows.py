"""Rows that two models share: those of one function, or those with equal terms."""

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.inside import Inside
from implicit_delta.models.named_theta import Spoken
from implicit_delta.models.objective import objective_of

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

PARALLEL = 1e-6  # of one less the cosine: rows that differ by a thousandth, not by differences
BY_CHANCE = 1e-2  # probability of equal rows above which nothing is said


def source_of(model: "FittedModel") -> Any:
    """Return the function that the user has given, or the rows of a backend."""
    function = getattr(model.rows, "loglik", model.rows)
    while True:
        if hasattr(function, "problem"):  # residuals
            function = function.problem.function
        elif isinstance(function, Spoken | Inside):
            function = function.function
        else:
            return function


def have_equal_rows(one: "FittedModel", other: "FittedModel") -> bool:
    """Whether the rows of two models have equal terms, in the same order.

    Compared are derivatives along the parameters that both have, at the same values of these, up to
    a common factor: constants of a log-likelihood and a noise variance make no difference. False
    if other rows of the same kinds could agree by chance.
    """
    names, others = one.space.names or (), other.space.names or ()
    pairs = [(names.index(name), others.index(name)) for name in names if name in others]
    if one.n != other.n or not pairs:
        return False
    here, there = map(list, zip(*pairs, strict=True))
    steps = objective_of(one).units * np.random.default_rng(0).uniform(0.5, 1.5, one.d)
    v, w, theta = np.zeros((one.d, 1)), np.zeros((other.d, 1)), np.array(other.theta)
    v[here, 0] = w[there, 0] = steps[here]
    theta[there] = np.asarray(one.theta)[here]
    try:
        x = one.terms_along(np.asarray(one.theta), v)[:, 0]
        y = other.terms_along(theta, w)[:, 0]
    except (ImplicitDeltaError, ArithmeticError, ValueError):  # outside of what the other allows
        return False
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return bool(x @ y > (1 - PARALLEL) * lengths > 0 and _chance(x) < BY_CHANCE)


def _chance(values: Array) -> float:
    """Probability that a draw with replacement from some rows has each where it is."""
    counts = np.unique(np.round(values / np.abs(values).max(), 6), return_counts=True)[1]
    return float(np.exp(counts @ np.log(counts / values.size)))
