"""Check rows and what they can do."""

from typing import Any

import numpy as np

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.core.rounding import is_repeated
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import tangent_model
from implicit_delta.models.redraws import reweight
from implicit_delta.models.reducers import Outer
from implicit_delta.models.rows import (
    FormedOutputs,
    NormalizedRows,
    Outputs,
    RedrawableRows,
    RootRows,
    Rows,
    ScaledRows,
    StoredRows,
    TangentRows,
    sum_of_blocks,
)
from implicit_delta.testing.comparing import close, require

DRAWS = 200
SEED = 0, 7919  # hardly that of the data, whose noise would be drawn again
FAR = 6.0  # standard errors


def check_rows(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    """Check the rows of a model, its outputs if it has any, and optional abilities."""
    rows, weights = model.rows, model.weights.values
    require(rows.n == weights.size and rows.d == theta.size, "n and d must fit theta and weights")
    _check_blocks(rows, theta, block)
    _check_sums(model, theta, block, rtol)
    if rows.outputs is not None:
        _check_outputs(rows, rows.outputs, theta, weights, block, rtol)
    _check_abilities(model, theta, rtol)
    if np.array_equal(theta, model.theta):
        _check_random(rows, model, theta, block)


def _check_blocks(rows: Rows, theta: Array, block: Array) -> None:
    done = 0
    for span, part in rows.terms_along(theta, block):
        require(span.start == done, "terms_along must go through the rows in order")
        require(part.shape == (span.stop - span.start, block.shape[1]), "blocks must be (b, k)")
        done = span.stop
    require(done == rows.n, f"terms_along must yield all {rows.n} rows, not {done}")


def _check_sums(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    rows, weights = model.rows, model.weights
    score = rows.score(theta, weights.values)
    summed = weights.values @ model.terms_along(theta, block)
    close(score @ block, summed, rtol, 1.0, "score is not the weighted sum of terms_along")
    arrays = weights.counts, weights.factors
    expected = sum_of_blocks(rows, theta, block, Outer(), *arrays)
    found = rows.sum_blocks(theta, block, Outer(), *arrays)
    close(found, expected, rtol, 1.0, "sum_blocks is not the sum over the blocks of terms_along")


def _check_outputs(
    rows: Rows, outputs: Outputs, theta: Array, weights: Array, block: Array, rtol: float
) -> None:
    parts = [*outputs.whitened(theta, block)]
    slopes = np.concatenate([part.rows for part in parts])
    residuals = np.concatenate([part.residuals for part in parts])
    n, p, k = slopes.shape
    require((n, k) == (rows.n, block.shape[1]), "whitened must yield (b, p, k) of all n rows")
    require(residuals.shape == (n, p), "the whitened residuals must have shape (b, p)")
    spread = np.concatenate([part.spread for part in parts])
    require(spread.shape == (n, p), "the spread must have shape (b, p)")
    require(np.all((spread > 0) & np.isfinite(spread)), "the spread must be positive and finite")
    require(p == outputs.size, f"outputs.size is {outputs.size}, and whitened rows have {p}")
    along = np.concatenate([part for _, part in rows.terms_along(theta, block)])
    text = "the whitened residuals do not reproduce terms_along"
    close(np.einsum("ipk,ip->ik", slopes, residuals), along, rtol, 1.0, text)
    expected = np.einsum("i,ipk,ipl->kl", weights, slopes, slopes)
    found = block.T @ outputs.gauss_newton(theta, weights, block)
    close(found, expected, rtol, 1.0, "gauss_newton is not the sum of squares of whitened rows")
    if isinstance(outputs, FormedOutputs):
        part = outputs.gauss_newton_part(theta, weights, 10**9)
        if part is not None:
            rest = np.linalg.eigvalsh(expected - block.T @ part @ block)
            require(np.all(rest >= -rtol), "gauss_newton_part is more than gauss_newton")


def _check_random(rows: Rows, model: FittedModel, theta: Array, block: Array) -> None:
    """Check draws of data and of vectors with the Gauss-Newton matrix as covariance."""
    if isinstance(rows, RedrawableRows):
        _check_redraw(rows, model, theta, block)
    if rows.outputs is None:
        return
    weights = model.weights.values
    draws = rows.outputs.noise(theta, weights, np.random.default_rng(SEED), DRAWS)
    if draws is not None:
        require(draws.shape == (theta.size, DRAWS), "noise must have shape (d, count)")
        expected = np.sum(block * rows.outputs.gauss_newton(theta, weights, block), axis=0)
        ratio = np.mean((block.T @ draws) ** 2, axis=1) / expected
        text = "the covariance of noise is not gauss_newton"
        require(np.all(abs(ratio - 1) <= FAR * np.sqrt(2 / DRAWS)), text)


def _check_abilities(model: FittedModel, theta: Array, rtol: float) -> None:
    rows, weights = model.rows, model.weights
    value = weights.total(rows.terms(theta))
    size = float(np.sum(abs(rows.terms(theta)))) + 1.0
    if isinstance(rows, StoredRows):
        text = "total is not the weighted sum of the terms"
        close(rows.total(theta, weights.values), value, 1e-6, size, text)
    if isinstance(rows, ScaledRows):
        units = rows.units(theta, weights, model.penalty)
        right = units.shape == (rows.d,) and np.all((units > 0) & np.isfinite(units))
        require(right, "units must be positive and finite, (d,)")
    if isinstance(rows, NormalizedRows) and model.facts.noise_rule is None:
        found = rows.log_likelihood(theta, weights)
        require(np.ndim(found) == 0, "log_likelihood must be a number")
        _check_log_likelihood(rows, model, theta, rtol)
    if isinstance(rows, TangentRows):
        _check_tangent(model, rtol)


def _check_log_likelihood(
    rows: NormalizedRows, model: FittedModel, theta: Array, rtol: float
) -> None:
    """Its constants may be anything; what depends on theta is the weighted sum of the terms."""
    weights, other = model.weights, theta + objective_of(model).units / 2
    rise = rows.log_likelihood(other, weights) - rows.log_likelihood(theta, weights)
    if np.isfinite(rise):
        ends = (weights.total(model.rows.terms(point)) for point in (other, theta))
        expected = next(ends) - next(ends)
        close(rise, expected, rtol, 1.0, "log_likelihood is not the weighted sum of the terms")


def _check_tangent(model: FittedModel, rtol: float) -> None:
    try:
        tangent = tangent_model(model)
    except UnsupportedModelError:
        return
    theta, other = np.asarray(model.theta), np.asarray(tangent.theta)
    close(
        tangent.rows.terms(other), model.rows.terms(theta), rtol, 1.0, "the tangent has other terms"
    )
    close(tangent.score(other), model.score(theta), rtol, 1.0, "the tangent has another score")


def _check_redraw(rows: RedrawableRows, model: FittedModel, theta: Array, block: Array) -> None:
    """Check redraws by the generator, and by Bartlett's identities.

    At the theta that data are drawn from, the score has mean zero, and its covariance is the
    expected information.
    """
    try:
        drawn = [rows.redraw(theta, model.weights, np.random.default_rng(s)) for s in (1, 1, 2)]
    except UnsupportedModelError:
        return
    terms = [found.terms(theta) for found in drawn]
    require(is_repeated(terms[0], terms[1]), "redraw must depend on the generator alone")
    differ = terms[0].shape != terms[2].shape or np.any(terms[0] != terms[2])
    require(differ or not np.any(model.weights.values), "redraw must use the generator")
    if model.rows.outputs is not None and model.rows.outputs.pseudo:
        return
    rng, w = np.random.default_rng(SEED), model.weights.values
    again = [rows.redraw(theta, model.weights, rng) for _ in range(DRAWS)]
    scores = np.array([found.score(theta, w) @ block for found in again])
    outputs = model.rows.outputs
    if outputs is None:
        curved = np.mean([found.curvature(theta, w, block) for found in again], axis=0)
    else:
        curved = outputs.gauss_newton(theta, w, block)
    errors = scores.std(axis=0) / np.sqrt(DRAWS)
    centered = np.all(abs(scores.mean(axis=0)) <= FAR * errors)
    require(centered, "the score at the theta that data are drawn from must have mean zero")
    ratio = np.mean(scores**2, axis=0) / np.sum(block * curved, axis=0)
    text = "the variance of the score of drawn data is not the information"
    require(np.all((ratio > 0.5) & (ratio < 2)), text)


def check_equations(model: Any, generator: np.random.Generator, rtol: float) -> None:
    """Check rows that have no objective: sums, their Jacobian, and responses to it."""
    units = np.array(objective_of(model).units)
    near = model.theta + 0.3 * units * generator.normal(size=model.d)
    weights = generator.integers(1, 4, size=model.n).astype(np.float64)
    for other in (model, model.at(near), reweight(model, weights)):
        theta, v = np.asarray(other.theta), generator.normal(size=(other.d, 3))
        _check_blocks(other.rows, theta, v)
        _check_sums(
            other, theta, v / np.maximum(abs(other.terms_along(theta, v)).sum(0), 1e-300), rtol
        )
        if isinstance(other.rows, RootRows):
            root = other.rows.root(theta, other.weights)
            B = differentiate(other.score, theta, directions=np.diag(units)).value
            gradients = generator.normal(size=(other.d, 2)) / units[:, None]
            found = -(root.duals(gradients).T @ B)
            text = "duals do not solve with the Jacobian of the summed equations"
            close(found, gradients.T * units, rtol, 1.0, text)
