"""Noise variance of squared error over all shards: sums of squares and of slopes travel."""

from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models import early_stop, residuals
from implicit_delta.models.base import FittedModel
from implicit_delta.models.loglik_model import LoglikModel
from implicit_delta.models.model import ComposedModel
from implicit_delta.models.noise import Noise, noise_by_rule, noise_variance
from implicit_delta.models.noise import with_noise as plugged_in
from implicit_delta.models.residuals import WORDING, GaussianResiduals, spectrum_of
from implicit_delta.models.rows import TrainableRows
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.shard import Shard

UNKNOWN = (
    "{kind} has estimated a noise variance from these rows alone, and such variances of parts are "
    "not joined. Build the parts with `from_residuals`, or with `from_torch` or `from_jax` and "
    "`Gaussian()`; or fit with a variance that is given as a number."
)
UNDER = (
    "With constraints the noise variance of all parts is not estimated: give it as a number, "
    "`from_residuals(..., variance=...)`."
)


@dataclass(frozen=True)
class Squares:
    """Sum of squared residuals of a shard, in the unit of the data, and the rule it stands for."""

    total: float
    outputs: int
    rule: str | None
    network: bool


def is_network(model: FittedModel) -> TypeGuard[ComposedModel]:
    """Whether the rows are those of a module or a pytree."""
    return isinstance(model, ComposedModel) and isinstance(model.rows, TrainableRows)


def squares(shard: Shard) -> Squares:
    """Add up the squared residuals of a shard."""
    model = shard.model
    if is_network(model) and model.facts.noise_rule is not None:
        rule = None if model.facts.noise_rule == "None" else model.facts.noise_rule
        unweighed = -2.0 * model.outputs.likelihood.noise * model.terms(model.theta)
        total = 0.0 if shard.silent else float(model.weights.values @ unweighed)
        return Squares(total, model.outputs.size, rule, True)
    rows = model.loglik if isinstance(model, LoglikModel) else None
    if not isinstance(rows, GaussianResiduals):
        raise UnsupportedModelError(UNKNOWN.format(kind=model.maker or type(model).__name__))
    if model.constraints is not None:
        raise UnsupportedModelError(UNDER)
    apart = rows.problem.residuals(np.asarray(model.theta)) - rows.targets
    total = 0.0 if shard.silent else float(model.weights.values @ apart**2)
    return Squares(total, 1, str(rows.problem.variance), False)


def triangle(shard: Shard) -> tuple[Array, Array]:
    """Triangle R of the slopes J of residuals, J'J = R'R: those of parts stack; their error."""
    model = shard.model
    assert isinstance(model, LoglikModel)
    assert isinstance(model.loglik, GaussianResiduals)
    weights = (not shard.silent) * model.weights.values
    slopes, error = model.loglik.problem.weighted_slopes(np.asarray(model.theta), weights)
    return np.asarray(np.linalg.qr(slopes, mode="r")), error


def unit_gram(shard: Shard) -> Array:
    """Gauss-Newton matrix of a network for a noise variance of one, (d, d)."""
    model = shard.model
    assert is_network(model)
    matrix = model.outputs.gauss_newton(model.theta, model.weights.values, np.eye(model.d))
    return np.asarray((not shard.silent) * model.outputs.likelihood.noise * matrix)


def noise_over(engine: Engine, model: FittedModel) -> Noise:
    """Estimate the variance from all shards of a model, by the rule of the first."""
    found, total, count = _totals(engine, model)
    rule, l2 = found.rule, model.penalty.floor
    if not found.network:
        spectrum = None
        if rule == "unbiased" or l2 > 0:
            triangles, errors = zip(*engine.each(triangle), strict=True)
            spectrum = spectrum_of(np.vstack(triangles), l2, np.linalg.norm(errors, axis=0))
        return noise_variance(total, count, spectrum, l2, str(rule), model.d, WORDING)

    def matrix() -> Array:
        return engine.sum(unit_gram) + l2 * np.eye(model.d)

    return noise_by_rule(rule, model, total, count, None if model.penalty.functions else matrix)


def mean_square_over(engine: Engine, model: FittedModel) -> Noise:
    """Take the mean squared residual of all shards as the noise variance."""
    _, total, count = _totals(engine, model)
    return Noise(total / count, np.inf)


def _totals(engine: Engine, model: FittedModel) -> tuple[Squares, float, float]:
    """Squares of the first shard, the sum of all, and the number of residuals."""
    found: list[Squares] = list(engine.each(squares))
    total = sum(own.total for own in found) * model.weights.mean_one
    return found[0], total, model.weights.count * found[0].outputs


def scale_of_weights(shard: Shard, weights: Array) -> float:
    """Mean of the weights of all rows, of a network and where these have no scale."""
    model = shard.model
    if not is_network(model):
        return 1.0
    whole = replace(model, weights=replace(model.weights, values=weights))
    return early_stop.scale_of_weights(whole)


def with_noise(shard: Shard, noise: Noise) -> FittedModel:
    """Plug the variance of all shards in."""
    model = shard.model
    if is_network(model):
        plugged: FittedModel = plugged_in(model, noise, model.facts.noise_rule)
        return plugged
    assert isinstance(model, LoglikModel)
    return residuals.with_noise(model, noise)
