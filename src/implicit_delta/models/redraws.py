"""The same model with other weights, with new data, or on the way to its maximum."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.rows import ClimbingRows, LocalRows, MeasuredRows, RedrawableRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def reweight(model: "FittedModel", weights: Any) -> "FittedModel":
    """Build the same model at the same theta with these weights instead of its own."""
    fresh, rows = model.weights.replaced(weights), model.rows
    same = np.array_equal(fresh.values, model.weights.values)
    return replace(
        model,
        rows=rows.at(model.theta, fresh) if isinstance(rows, LocalRows) else rows,
        weights=fresh,
        facts=model.facts if same else model.facts.with_host(covariance=None),
    )


def on_the_way(model: "FittedModel") -> "FittedModel":
    """Build the same model for a climb, where derivatives may be uncertain."""
    rows = model.rows
    return replace(model, rows=rows.for_climbing()) if isinstance(rows, ClimbingRows) else model


def influences_of(model: "FittedModel", theta: Array, v: Array) -> Array:
    """Derivative of the weighted term of each *observation* along v: (d, k) to (n, k).

    Of a row that stands for several, `Weights.counts`, that of each of them.
    """
    return model.weights.per_observation(model.terms_along(theta, v))


def redraw(model: "FittedModel", rng: np.random.Generator) -> "FittedModel":
    """Build the same model at the same theta with data that are drawn from it."""
    model.facts.require_terms()
    if not isinstance(model.rows, RedrawableRows):
        raise cannot_draw("its rows have no `redraw`", model.n)
    rows = model.rows.redraw(model.theta, model.weights, rng)
    other = rows.n != model.n  # a simulation of another number of events
    weights = replace(model.weights, values=np.ones(rows.n)) if other else model.weights
    return replace(model, rows=rows, weights=weights, facts=model.facts.with_host(covariance=None))


def redraw_measurements(model: "FittedModel", rng: np.random.Generator) -> "FittedModel":
    """Build the same model with new draws of what was measured once."""
    if not isinstance(model.rows, MeasuredRows):
        return model
    rows = model.rows.measured_again(model.theta, model.weights, rng)
    return model if rows is model.rows else replace(model, rows=rows)


def cannot_draw(reason: str, n: int = 2) -> UnsupportedModelError:
    """Explain why there are no draws from a model of n terms."""
    advice = (
        'Use `Bootstrap(kind="resample")`, which draws rows; `from_residuals`, `from_statsmodels` '
        "and `from_sklearn` know the distribution of most models, so do `from_torch` and "
        "`from_jax` with a likelihood such as `Poisson()`, and `from_loglik` has `simulate=`."
        if n > 1
        else "Give `simulate=` to from_loglik, or use `infer(model, psi)`, by the curvature."
    )
    return UnsupportedModelError(
        f'Bootstrap(kind="parametric") cannot draw new data from this model: {reason}. {advice}'
    )
