"""Noise variance of squared error over all shards: sums of squares and triangles travel."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import FittedModel
from implicit_delta.models.loglik import LoglikModel
from implicit_delta.models.noise import Noise, noise_variance
from implicit_delta.models.residuals import WORDING, GaussianResiduals, spectrum_of
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.weights import as_mean_one, count_of

UNKNOWN = (
    "{kind} has estimated a noise variance from {label} alone, and those of the parts cannot be "
    "joined. Give the variance as a number, or build the parts with `from_residuals`."
)
UNDER = (
    "With constraints the noise variance of all parts is not estimated: give it as a number, "
    "`from_residuals(..., variance=...)`."
)


@dataclass(frozen=True, eq=False)
class Squares:
    """Sum of squared residuals of a shard, and the triangle of their slopes, (d, d)."""

    squares: float
    triangle: Array
    rule: str


def squares(shard: Shard) -> Squares:
    """Add up the squares of a shard, in the unit of the data."""
    model = shard.model
    rows = model.loglik if isinstance(model, LoglikModel) else None
    if not isinstance(rows, GaussianResiduals):
        raise UnsupportedModelError(
            UNKNOWN.format(kind=model.maker or type(model).__name__, label=shard.label)
        )
    if model.constraints is not None:
        raise UnsupportedModelError(UNDER)
    problem, theta = rows.problem, np.asarray(model.theta)
    slopes = np.sqrt(model.weights)[:, None] * problem.jacobian(theta)
    total = float(model.weights @ problem.residuals(theta) ** 2)
    return Squares(total, np.asarray(np.linalg.qr(slopes, mode="r")), str(problem.variance))


def noise_of(found: list[Squares], weights: Array, kind: Any, l2: float) -> Noise:
    """Estimate the variance from all shards."""
    triangle = np.vstack([own.triangle for own in found])
    total = sum(own.squares for own in found) * as_mean_one(weights, kind)
    rule, d = found[0].rule, triangle.shape[1]
    counted = rule == "unbiased" or l2 > 0
    spectrum = spectrum_of(triangle, l2) if counted else None
    return noise_variance(total, count_of(weights, kind), spectrum, l2, rule, d, WORDING)


def with_noise(shard: Shard, noise: Noise) -> FittedModel:
    """Plug the variance of all shards in."""
    model = shard.model
    assert isinstance(model, LoglikModel)
    rows = model.loglik
    assert isinstance(rows, GaussianResiduals)
    made = rows.problem.model(model.theta, noise.variance)
    return replace(
        model,
        loglik=made.loglik,
        row_scores=made.row_scores,
        gauss_newton=made.gauss_newton,
        residuals=made.residuals,
        df=noise.df,
    )
