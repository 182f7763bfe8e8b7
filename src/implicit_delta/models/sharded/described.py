"""A shard as `build` has made it: what all have to have alike, and what is added up once."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from implicit_delta.core.types import Array, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.facts import Facts, Host
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import (
    is_network,
)
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.printing import name_of_model
from implicit_delta.models.rows import DifferencedRows
from implicit_delta.models.runaway import level_ways
from implicit_delta.models.sharded.alike import Looks, Print, looks_of, print_of, pull_at, pulls
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.sources import strata_of
from implicit_delta.models.space import Space
from implicit_delta.models.user_calls import isolated_cache


class OutputFacts(NamedTuple):
    """Attributes of `Outputs` that all shards have alike.

    `noise` is the variance of Gaussians, and `is_estimated` whether it is from all shards.
    """

    is_linear: bool
    size: int
    pseudo: str
    can_be_overdispersed: bool
    noise: float | None
    is_estimated: bool = False


@dataclass(frozen=True, eq=False)
class Described:
    """All that has to be alike in the shards, or is added up once.

    `weights` is None where all are one; `value` is the log-likelihood of these rows, and
    `level` are directions in which these rows hold nothing.
    """

    label: str
    kind: str
    n: int
    theta: Array
    space: Space
    facts: Facts
    outputs: OutputFacts | None
    penalty: Penalty
    has_function: bool
    pull: Array
    weight_kind: WeightKind
    weights: Array | None
    value: float
    seen: Print
    looks: Looks
    level: frozenset[tuple[int, int]]


def described(shard: Shard) -> Described:
    """Describe a shard, with its penalty."""
    model = shard.model
    if obstacle := _obstacle(model):
        raise UnsupportedModelError(f"This model is no part of a sum over parts: {obstacle}.")
    theta = np.asarray(model.theta, dtype=np.float64)
    return Described(
        shard.label,
        name_of_model(model),
        model.n,
        theta,
        replace(model.space, language=VectorLanguage()),
        _facts(model),
        outputs_of_shard(model),
        replace(model.penalty, functions=()),
        bool(model.penalty.functions),
        pulls(model, theta),
        model.weights.kind,
        None if np.all(model.weights.values == 1) else model.weights.values,
        float(replace(model, penalty=NO_PENALTY).objective(theta)),
        print_of(model, shard.label),
        looks_of(model, shard.label),
        level_ways(model) if isinstance(model.rows, DifferencedRows) else frozenset(),
    )


def _obstacle(model: FittedModel) -> str:
    """Tell why a model is no sum over rows, if it is not."""
    if not model.rows.symmetric:
        return "it is known by influences alone and has no log-likelihood"
    if model.facts.no_rows:
        return "its terms are not those of rows"
    if model.space.chart is not None or len(strata_of(model)) > 1:
        return "it is itself made of several models"
    covariance = model.facts.host.covariance
    if covariance is not None:
        return f"its covariance ({covariance.name}) is that of a fit to this part alone"
    return ""


def _facts(model: FittedModel) -> Facts:
    """Facts of the whole; a noise variance of a part is estimated again from all."""
    known = model.facts
    rule = known.noise_rule or known.host.scale_rule
    rule = rule or ("unbiased" if np.isfinite(known.df) else None)
    return Facts(
        training=known.training,
        host=Host(drift_causes=known.host.drift_causes),
        noise_rule=rule,
        curvature=model.facts.curvature,
        precision=model.facts.precision,
    )


def outputs_of_shard(model: FittedModel) -> OutputFacts | None:
    """Describe the outputs of a model, if it has any."""
    own = model.rows.outputs
    if own is None:
        return None
    noise = own.likelihood.noise if isinstance(own.likelihood, Gaussian) else None
    return OutputFacts(not is_network(model), own.size, own.pseudo, own.can_be_overdispersed, noise)


def seen_again(shard: Shard, theta: Array | None) -> tuple[Print, Array | None]:
    """Print of the rows as they are now, and the gradient of the penalty at theta, if given."""
    model = shard.model
    with isolated_cache(model):  # a remembered value would hide data that have changed
        return print_of(model, shard.label), None if theta is None else pull_at(model, theta)
