"""Questions that are put to one shard, and changes of one: functions that travel by name."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.precision import Precision
from implicit_delta._core.types import Array, Psi, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models import rough_scores
from implicit_delta.models.base import Curvature, FittedModel, RowNumbers, Strongest, Whitened
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.facts import Facts, Host
from implicit_delta.models.loglik_model import LoglikModel, isolated_cache
from implicit_delta.models.named_theta import Layout
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.runaway import level_ways
from implicit_delta.models.sharded.alike import Looks, Print, looks_of, print_of, pull_at, pulls
from implicit_delta.models.sharded.resampled import Draw
from implicit_delta.models.sharded.shard import Shard


@dataclass(frozen=True, eq=False)
class Described:
    """All that has to be alike in the shards, or is added up once.

    `weights` is None where all are one; `value` is the log-likelihood of these rows, and
    `level` are directions in which these rows hold nothing.
    """

    label: str
    kind: str
    precision: Precision
    n: int
    theta: Array
    names: tuple[str, ...] | None
    layout: Layout | None
    penalty: Penalty
    has_function: bool
    pull: Array
    weight_kind: WeightKind
    weights: Array | None
    curvature: Curvature
    constraints: Constraints | None
    fixed: dict[int, float]
    bends: bool
    facts: Facts
    value: float
    seen: Print
    looks: Looks
    level: frozenset[tuple[int, int]]


def described(shard: Shard) -> Described:
    """Describe a shard as `build` has made it, with its penalty."""
    model = shard.model
    if obstacle := _obstacle(model):
        raise UnsupportedModelError(f"This model is no part of a sum over parts: {obstacle}.")
    theta = np.asarray(model.theta, dtype=np.float64)
    rule = model.facts.noise_rule or ("unbiased" if np.isfinite(model.facts.df) else None)
    host = Host(drift_causes=model.facts.host.drift_causes)
    return Described(
        shard.label,
        model.maker or type(model).__name__,
        model.precision,
        model.n,
        theta,
        model.names,
        model.layout,
        replace(model.penalty, functions=()),
        bool(model.penalty.functions),
        pulls(model, theta),
        model.weights.kind,
        None if np.all(model.weights.values == 1) else model.weights.values,
        model.curvature,
        model.constraints,
        dict(model.fixed),
        model.bends,
        Facts(model.facts.training, host, noise_rule=rule),
        float(model.with_penalty(NO_PENALTY).objective(theta)),
        print_of(model, shard.label),
        looks_of(model, shard.label),
        level_ways(model) if isinstance(model, LoglikModel) else frozenset(),
    )


def _obstacle(model: FittedModel) -> str:
    """Tell why a model is no sum over rows, if it is not."""
    if model.sandwiched:
        return "it is known by influences alone and has no log-likelihood"
    if model.facts.no_rows:
        return "its terms are not those of rows"
    if model.chart is not None or len(model.strata) > 1:
        return "it is itself made of several models"
    covariance = model.facts.host.covariance
    if covariance is not None:
        return f"its covariance ({covariance.name}) is that of a fit to this part alone"
    return ""


def seen_again(shard: Shard, theta: Array | None) -> tuple[Print, Array | None]:
    """Print of the rows as they are now, and the gradient of the penalty at theta, if given."""
    model = shard.model
    with isolated_cache(model):  # a remembered value would hide data that have changed
        return print_of(model, shard.label), None if theta is None else pull_at(model, theta)


def value(shard: Shard) -> float:
    """Log-likelihood of the rows at the theta of the shard."""
    return float(shard.model.with_penalty(NO_PENALTY).objective(np.asarray(shard.model.theta)))


def objective(shard: Shard, theta: Array) -> Any:
    """Objective of the shard; without any weight the penalty is left."""
    model = shard.model
    return -model.penalty.value(theta) if shard.silent else model.objective(theta)


def score(shard: Shard, theta: Array) -> Any:
    """Gradient of the objective, (d,)."""
    model = shard.model
    return -model.penalty.score(theta) if shard.silent else model.score(theta)


def rough_score(shard: Shard, theta: Array) -> Any:
    """Gradient of the objective, roughly, (d,)."""
    model = shard.model
    return -model.penalty.score(theta) if shard.silent else rough_scores.rough_score(model, theta)


def information(shard: Shard, theta: Array, v: Array, curvature: Curvature) -> Any:
    """Curvature times v, (d, k)."""
    model = shard.model
    if shard.silent:
        return model.penalty.curvature(theta, v)
    return model.information(theta, v, curvature)


def terms(shard: Shard, theta: Array) -> Array:
    """Terms of the rows, (n,)."""
    return shard.model.terms(theta)


def terms_along(shard: Shard, theta: Array, v: Array) -> Array:
    """Derivatives of the terms, (n, k)."""
    return shard.model.terms_along(theta, v)


def whitened(shard: Shard, theta: Array, v: Array) -> list[Whitened]:
    """Whitened rows."""
    return list(shard.model.whitened(theta, v))


def squared_residuals(shard: Shard) -> Array | None:
    """Squared whitened residuals, (n,)."""
    return shard.model.squared_residuals()


def scatter(shard: Shard, theta: Array, v: Array) -> Any:
    """Sum of outer products, (k, k)."""
    return 0.0 * (v.T @ v) if shard.silent else shard.model.scatter(theta, v)


def cluster_sums(
    shard: Shard, codes: NDArray[np.intp], theta: Array, v: Array
) -> tuple[NDArray[np.intp], Array]:
    """Sums of weighted influences by cluster: the codes that are here, (g,), and (g, k)."""
    model = shard.model
    if shard.silent:
        return np.zeros(0, dtype=np.intp), np.zeros((0, v.shape[1]))
    found, places = np.unique(codes, return_inverse=True)
    sums = np.zeros((found.size, v.shape[1]))
    np.add.at(sums, places, model.weights.counts[:, None] * model.influences(theta, v))
    return found, sums


def strongest(shard: Shard, theta: Array, v: Array, errors: Array, k: int) -> Strongest:
    """Rows of largest influence, with their numbers in this shard."""
    counted = shard.silent and shard.model.weights.kind != "frequency"
    return shard.model.strongest(theta, 0.0 * v if counted else v, errors, k)


def batch_score(shard: Shard, rows: RowNumbers, theta: Array, scale: float) -> Array:
    """Score of some rows of the shard, times a factor, less the penalty, (d,)."""
    model, pull = shard.model, shard.model.penalty.score(theta)
    if not len(rows) or shard.silent:
        return -pull
    own = model.batch_score(theta, rows) + pull
    return np.asarray(own * (scale * len(rows) / model.n) - pull)


def units(shard: Shard) -> Array:
    """Standard errors of single parameters, from these rows, (d,)."""
    return shard.model.units


def log_likelihood(shard: Shard) -> float:
    """Log-likelihood with all its constants."""
    return 0.0 if shard.silent else shard.model.log_likelihood()


def evaluate(shard: Shard, psi: Psi, theta: Array) -> Any:
    """Psi at theta."""
    return shard.model.evaluate(psi, theta)


def evaluate_tangent(shard: Shard, psi: Psi, theta: Array, delta: Array) -> Any:
    """Psi of the tangent."""
    return shard.model.evaluate_tangent(psi, theta, delta)


def jacobian(shard: Shard, psi: Psi, theta: Array) -> Array:
    """Jacobian of psi, (K, d)."""
    return shard.model.jacobian(psi, theta)


def of_penalty(shard: Shard, member: str, *arguments: Array) -> Any:
    """Value or a derivative of the penalty."""
    return getattr(shard.model.penalty, member)(*arguments)


def reads_psi(shard: Shard) -> bool:
    """Whether `doubt_of` reads psi at all."""
    return getattr(shard.model, "watch", None) is not None


def doubt_of(shard: Shard, psi: Any) -> str:
    """Describe what psi most likely gets wrong."""
    return shard.model.doubt_of(psi)


def pseudo(shard: Shard) -> str:
    """Options with which terms are no log-densities."""
    return shard.model.pseudo


def with_functions(shard: Shard, kept: bool) -> FittedModel:
    """Leave ridges out, which are those of the whole, and keep functions in one shard."""
    functions = shard.model.penalty.functions if kept else ()
    return shard.model.with_penalty(Penalty(functions=functions))


def reweighted(shard: Shard, weights: Array) -> Shard:
    """Weigh the rows otherwise; without any weight the shard is silent."""
    if not np.any(weights):
        return replace(shard, silent=True)
    return replace(shard, model=shard.model.reweighted(weights), silent=False)


def resampled(shard: Shard, share: tuple[Draw, int]) -> Shard:
    """Draw weights of rows by their numbers, which begin here."""
    draw, start = share
    if shard.silent:
        return shard
    model, numbers = shard.model, np.arange(start, start + shard.model.n)
    return reweighted(shard, draw.reweighted(model.weights.values, model.weights.counts, numbers))


def coded(shard: Shard, codes: NDArray[np.intp]) -> Shard:
    """Keep the clusters of the rows."""
    return replace(shard, codes=codes)


def resampled_clusters(shard: Shard, draw: Draw) -> Shard:
    """Draw weights of clusters by their numbers."""
    if shard.silent:
        return shard
    assert shard.codes is not None
    return reweighted(shard, draw.by_clusters(shard.model.weights.values, shard.codes))


def at(shard: Shard, theta: Array) -> FittedModel:
    """Move to another theta."""
    return shard.model.at(theta)


def curvature_noise(shard: Shard, seed: int, theta: Array, count: int) -> Array | None:
    """Vectors with the Gauss-Newton matrix of the shard as covariance, (d, count)."""
    return shard.model.curvature_noise(theta, np.random.default_rng(seed), count)


def along(shard: Shard, chart: Chart) -> FittedModel:
    """Take the coordinates of a chart."""
    return shard.model.along(chart)


def redrawn(shard: Shard, seed: int) -> FittedModel:
    """Draw new targets."""
    return shard.model.redrawn(np.random.default_rng(seed))


def tangent(shard: Shard, share: None) -> FittedModel:
    """Take the tangent of a network."""
    return shard.model.tangent()
