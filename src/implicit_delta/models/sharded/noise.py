"""Noise variance of squared error over all shards: sums of squares and of slopes travel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.noise import Noise, noise_by_rule, noise_variance
from implicit_delta.models.noise import with_noise as plugged_in
from implicit_delta.models.outputs import outputs_of
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.models.rows import TrainableRows
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.squares import WORDING, GaussianResiduals, spectrum_of
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

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


def is_network(model: "FittedModel") -> bool:
    """Whether the rows are those of a module or a pytree."""
    return isinstance(model.rows, TrainableRows)


def squares(shard: Shard) -> Squares:
    """Add up the squared residuals of a shard."""
    model = shard.model
    if is_network(model) and model.facts.noise_rule is not None:
        rule = None if model.facts.noise_rule == "None" else model.facts.noise_rule
        unweighed = -2.0 * outputs_of(model).likelihood.noise * model.rows.terms(model.theta)
        total = 0.0 if shard.silent else float(model.weights.values @ unweighed)
        return Squares(total, outputs_of(model).size, rule, True)
    rows = _gaussian(model)
    if rows is None:
        raise UnsupportedModelError(UNKNOWN.format(kind=model.facts.source or type(model).__name__))
    if model.space.constraints is not None:
        raise UnsupportedModelError(UNDER)
    apart = rows.problem.residuals(_point(model)) - rows.targets
    total = 0.0 if shard.silent else float(model.weights.values @ apart**2)
    return Squares(total, 1, str(rows.problem.variance), False)


def triangle(shard: Shard) -> tuple[Array, Array]:
    """Triangle R of the slopes J of residuals, J'J = R'R: those of parts stack; their error.

    In the coordinates of a chart along unit directions at right angles.
    """
    model = shard.model
    rows = _gaussian(model)
    assert rows is not None
    weights = (not shard.silent) * model.weights.values
    slopes, error = rows.problem.weighted_slopes(_point(model), weights)
    if model.space.chart is not None:
        along = np.linalg.qr(model.space.chart.slope(_point(model)))[0]
        slopes, error = slopes @ along, error @ abs(along)
    return np.asarray(np.linalg.qr(slopes, mode="r")), error


def unit_gram(shard: Shard) -> Array:
    """Gauss-Newton matrix of a network for a noise variance of one, (d, d)."""
    model = shard.model
    assert is_network(model)
    matrix = outputs_of(model).gauss_newton(model.theta, model.weights.values, np.eye(model.d))
    return np.asarray((not shard.silent) * outputs_of(model).likelihood.noise * matrix)


class Fit(NamedTuple):
    """Number of parameters and their penalty, which the rule of a noise variance depends on."""

    d: int
    penalty: Penalty


def noise_over(
    engine: Engine, d: int, weights: Weights, penalty: Penalty, by: str | None = None
) -> Noise:
    """Estimate the variance from all shards, by this rule or that of the first."""
    found: list[Squares] = list(engine.each(squares))
    first, l2, rule = found[0], penalty.floor, by or found[0].rule
    total = sum(own.total for own in found) * weights.mean_one
    count = weights.count * first.outputs
    if not first.network:
        spectrum = None
        if rule == "unbiased" or l2 > 0:
            triangles, errors = zip(*engine.each(triangle), strict=True)
            spectrum = spectrum_of(np.vstack(triangles), l2, np.linalg.norm(errors, axis=0))
        return noise_variance(total, count, spectrum, l2, str(rule), d, WORDING)

    def matrix() -> Array:
        return np.asarray(engine.sum(unit_gram) + l2 * np.eye(d))

    formed = None if penalty.functions else matrix
    return noise_by_rule(rule, Fit(d, penalty), total, count, formed)


def own_maximum(shard: Shard) -> Array:
    """Log-likelihood with a variance of the shard's own, observations, and squared residuals."""
    if shard.silent or _gaussian(shard.model) is None:
        return np.array([0.0 if shard.silent else np.nan, 0.0, 0.0])
    own = log_likelihood_of(shard.model), shard.model.weights.count, squares(shard).total
    return np.array(own)


def log_likelihood_over(engine: Engine) -> float:
    r"""Log-likelihood of all shards with one variance: :math:`-\frac n2 \log s^2` and constants."""
    found = np.array(list(engine.each(own_maximum)))
    with np.errstate(all="ignore"):  # NaN for a part that is fitted exactly
        value, count, total = found[found[:, 1] > 0].T
        apart = value.sum() + count @ np.log(total / count) / 2
        return float(apart - count.sum() / 2 * np.log(total.sum() / count.sum()))


def with_noise(shard: Shard, noise: Noise) -> "FittedModel":
    """Plug the variance of all shards in."""
    plugged: FittedModel = plugged_in(shard.model, noise, shard.model.facts.noise_rule)
    return plugged


def _gaussian(model: "FittedModel") -> GaussianResiduals | None:
    """Residuals of least squares; None for other models."""
    outputs = model.rows.outputs
    return outputs.gaussian if isinstance(outputs, ResidualOutputs) else None


def _point(model: "FittedModel") -> Array:
    """All parameters."""
    theta, chart = np.asarray(model.theta), model.space.chart
    return theta if chart is None else chart.point(theta)
