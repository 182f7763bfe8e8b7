"""Noise variances of data sets that are fitted together, each estimated at the joint maximum."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from implicit_delta.core.types import Array
from implicit_delta.models.constraints import Constraints, Linear
from implicit_delta.models.coordinates import active_constraints
from implicit_delta.models.noise import with_noise_again, with_scale_again
from implicit_delta.models.objective import objective_of
from implicit_delta.models.parametrization import LinearMap
from implicit_delta.models.penalty import NO_PENALTY, InChart, Penalty, Ridge
from implicit_delta.models.space import Space

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def with_noises_again(model: Any) -> tuple[Any, float]:
    """Estimate the noise variance of each data set at the joint theta, by its own rule.

    What is fixed or follows from active constraints does not count as a parameter of any. Returned
    is also the ratio to the variance before, that which is farthest from one.
    """
    if not any(source.is_scaled for source in model.facts.sources):
        return model, 1.0
    free = _free_directions(model)
    found = [_again(shard, free) for shard in model.rows.engine.shards]
    shards = [shard for shard, _ in found]
    whole = _with_shards(model, shards)
    return whole, max((ratio for _, ratio in found), key=lambda ratio: abs(np.log(ratio)))


def with_rule(model: Any, rule: str) -> Any:
    """Build the same sum with another rule for all variances that are estimated."""
    return _with_shards(model, [_ruled(shard, rule) for shard in model.rows.engine.shards])


def has_rule(model: Any, rule: str) -> bool:
    """Whether all noise variances that are estimated are estimated by this rule."""
    facts = [shard.part.facts for shard in model.rows.engine.shards]
    return all({own.noise_rule, own.host.scale_rule} <= {None, rule} for own in facts)


def joint_penalty(
    models: Sequence["FittedModel"], places: Sequence[NDArray[np.intp]], d: int
) -> Penalty:
    """Add the penalties up, each one of its own parameters."""
    ridges: list[Ridge] = []
    functions: list[Any] = []
    for model, where in zip(models, places, strict=True):
        own = LinearMap.selecting(where, d)
        ridges += [own.ridge(ridge) for ridge in model.penalty.ridges]
        if model.penalty.functions:
            functions.append(InChart(replace(model.penalty, ridges=()), own))
    return Penalty(tuple(ridges), tuple(functions))


def _with_shards(model: Any, shards: list[Any]) -> Any:
    parts = [shard.part for shard in shards]
    before = [shard.part.penalty for shard in model.rows.engine.shards]
    penalty = model.penalty
    if any(part.penalty is not old for part, old in zip(parts, before, strict=True)):
        penalty = joint_penalty(parts, [shard.places for shard in shards], model.d)
    rows = model.rows.changed(lambda _, shard: shard, shards)
    facts = replace(model.facts, df=min(part.facts.df for part in parts))
    return replace(model, rows=rows, penalty=penalty, facts=facts)


def _again(shard: Any, free: Array | None) -> tuple[Any, float]:
    """Estimate the variance of one data set again; with its ratio to the one before."""
    rules = shard.part.facts.noise_rule, shard.part.facts.host.scale_rule
    if rules == (None, None):
        return shard, 1.0
    own, space = shard.model, Space()
    if free is not None:
        held = _held(np.asarray(own.theta), free[shard.places], objective_of(own).units)
        if held is not None and len(held.low) == own.d:  # no parameter is free to fit the data
            own = _with_rules(own, *("mle" if rule else None for rule in rules))
        else:
            space = Space(constraints=held)
    found, noise = with_noise_again(replace(own, penalty=shard.part.penalty, space=space))
    found, scale = with_scale_again(found)
    return _moved(shard, _with_rules(found, *rules)), noise * scale


def _moved(shard: Any, found: Any) -> Any:
    """Let a shard, and the model that was given, have the rows, penalty and facts of another."""
    part = replace(shard.part, rows=found.rows, penalty=found.penalty, facts=found.facts)
    model = replace(found, penalty=NO_PENALTY, space=shard.model.space).at(found.theta)
    return replace(shard, part=part, model=model)


def _ruled(shard: Any, rule: str) -> Any:
    own = shard.part.facts
    rules = own.noise_rule and rule, own.host.scale_rule and rule
    return replace(
        shard, part=_with_rules(shard.part, *rules), model=_with_rules(shard.model, *rules)
    )


def _with_rules(model: Any, noise_rule: str | None, scale_rule: Any) -> Any:
    facts = replace(model.facts, noise_rule=noise_rule).with_host(scale_rule=scale_rule)
    return replace(model, facts=facts)


def _free_directions(model: Any) -> Array | None:
    """Directions that active constraints leave to theta, (d, k); None for all of them."""
    active = active_constraints(model)
    chart = None if active is None else active.chart(model.theta, objective_of(model).units)
    return None if chart is None else np.asarray(chart.slope(np.asarray(model.theta)))


def _held(theta: Array, free: Array, units: Array) -> Constraints | None:
    """Equalities that hold what the free directions leave as it is, if there is any."""
    steps = free / units[:, None]
    lengths = np.linalg.norm(steps, axis=0)
    steps = steps / np.where(lengths > 0, lengths, 1.0)
    rows = (null_space(steps.T) if steps.size else np.eye(theta.size)).T / units
    if not len(rows):
        return None
    values, every = rows @ theta, np.ones(len(rows), dtype=bool)
    labels = tuple(f"held {number}" for number in range(len(rows)))
    return Constraints((Linear(rows),), values, values, labels, every)
