"""Calls of the model of one shard, and changes of it: values that travel by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models import batches
from implicit_delta.models.constraints import Chart
from implicit_delta.models.coordinates import restricted
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import curvature_noise, tangent_model, whitened_rows
from implicit_delta.models.parametrization import Held
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.redraws import on_the_way, redraw, reweight
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import BoundedRows, Whitened
from implicit_delta.models.sharded.resampled import Draw
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.strongest import Strongest
from implicit_delta.models.strongest import strongest as strongest_of

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


@dataclass(frozen=True)
class Call:
    """Call of a member of the model of a shard, or of a function of that model.

    Arrays among the arguments are theta, or directions of it.

    Attributes
    ----------
    member : str or callable
        Its name, with dots for a member of a part; or a function of a module.
    """

    member: str | Callable[..., Any]

    @property
    def __name__(self) -> str:
        return self.member if isinstance(self.member, str) else self.member.__name__

    def __call__(self, shard: Shard, *arguments: Any) -> Any:
        own = map(shard.own, arguments)
        if not isinstance(self.member, str):
            return self.member(shard.model, *own)
        found = attrgetter(self.member)(shard.model)
        return found(*own) if callable(found) else found


@dataclass(frozen=True)
class Sum(Call):
    """Call whose results are added up; a silent shard adds zeros.

    Attributes
    ----------
    like : int or None
        Which argument has the shape of the result; None if that is a number.
    """

    like: int | None = None

    def __call__(self, shard: Shard, *arguments: Any) -> Any:
        zeros = np.zeros(() if self.like is None else arguments[self.like].shape)
        if shard.silent if self.like is None else shard.is_idle:
            return zeros
        found = super().__call__(shard, *arguments)
        return found if self.like is None else shard.spread(found, zeros)


@dataclass(frozen=True)
class SumBlocks:
    """`Rows.sum_blocks` of a shard, with its part of the row arrays.

    None stands for its weights, and a number for an array of it.
    """

    reduce: Callable[..., Any]
    __name__ = "sum_blocks"

    def __call__(self, shard: Shard, row_arrays: list[Any], theta: Array, v: Array) -> Any:
        model = shard.model
        if shard.silent:
            empty = [np.zeros(0, np.intp)] * len(row_arrays)
            return self.reduce(np.zeros((0, v.shape[1])), *empty)
        arrays = [
            model.weights.values if one is None else np.broadcast_to(one, (model.n,))
            for one in row_arrays
        ]
        theta, v = shard.own(theta), shard.own(v)
        return objective_of(model).sum_blocks(theta, v, self.reduce, *arrays)


def rough_score(model: "FittedModel", theta: Array) -> Array:
    """Gradient of the objective, roughly, (d,)."""
    return objective_of(model).rough_score(theta)


def batch_score(shard: Shard, rows: NDArray[np.integer[Any]], theta: Array) -> Array:
    """Gradient of the weighted sum of the terms of some rows, (d,)."""
    zeros = np.zeros_like(theta)
    if not len(rows) or shard.is_idle:
        return zeros
    share = len(rows) / shard.model.n
    return shard.spread(share * batches.batch_score(shard.model, shard.own(theta), rows), zeros)


def units(shard: Shard, d: int) -> Array:
    """Standard errors of single parameters, from these rows, (d,)."""
    none = np.full(d, np.inf)
    return shard.spread(objective_of(shard.model).units, none) if shard.model.d else none


def whitened(shard: Shard, theta: Array, v: Array) -> list[Whitened]:
    """Whitened rows."""
    return list(whitened_rows(shard.model, shard.own(theta), shard.own(v)))


def noise(shard: Shard, seed: int, theta: Array, count: int) -> Array | None:
    """Draw vectors with the Gauss-Newton matrix of the shard as covariance, (d, count)."""
    rng, zeros = np.random.default_rng(seed), np.zeros((theta.size, count))
    if shard.is_idle:
        return zeros
    found = curvature_noise(shard.model, shard.own(theta), rng, count)
    return None if found is None else shard.spread(found, zeros)


def strongest(shard: Shard, theta: Array, v: Array, errors: Array, k: int) -> Strongest:
    """Find the rows of largest influence, with their numbers in this shard."""
    counted = shard.silent and shard.model.weights.kind != "frequency"
    return strongest_of(
        shard.model, shard.own(theta), shard.own(0.0 * v if counted else v), errors, k
    )


def of_penalty(shard: Shard, member: str, *arguments: Array) -> Any:
    """Value or a derivative of the penalty functions."""
    return getattr(replace(shard.model.penalty, ridges=()), member)(*arguments)


def reads_psi(shard: Shard) -> bool:
    """Whether the language looks at psi, which need not travel otherwise."""
    return getattr(shard.model.space.language, "watch", None) is not None


def at(shard: Shard, theta: Array) -> Shard:
    """Take another theta; a shard without parameters has none."""
    return replace(shard, model=shard.model.at(shard.own(theta))) if shard.model.d else shard


def climbing(shard: Shard, share: None) -> Shard:
    """Allow derivatives that are uncertain, on the way to a maximum."""
    return replace(shard, model=on_the_way(shard.model))


def within(shard: Shard, share: tuple[Array, Array]) -> Shard:
    """Continue functions of the rows beyond bounds of the parameters."""
    rows = shard.model.rows
    if not isinstance(rows, BoundedRows):
        return shard
    return replace(shard, model=replace(shard.model, rows=rows.within(*map(shard.own, share))))


def held(shard: Shard, chart: Chart) -> Shard:
    """Hold the parameters of a shard that are none of the coordinates of all."""
    assert shard.places is not None
    known = np.isin(shard.places, chart.free)
    point = chart.point(chart.coordinates(chart.around))[shard.places]
    own: Any = Held(point, np.flatnonzero(known))
    model = shard.model
    if known.any() and not known.all():
        model = restricted(model, own)
    elif not known.any():  # a function of no parameters has no differences, but those along none
        model = replace(model, theta=np.zeros(0), rows=Restricted(model.rows, own))
    return replace(shard, model=model, places=np.searchsorted(chart.free, shard.places[known]))


def reweighted(shard: Shard, weights: Array) -> Shard:
    """Weigh the rows otherwise; without any weight the shard is silent."""
    if not np.any(weights):
        return replace(shard, silent=True)
    return replace(shard, model=reweight(shard.model, weights), silent=False)


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


def with_penalty(shard: Shard, penalty: Penalty) -> "FittedModel":
    """Replace the penalty, which is subtracted once."""
    return replace(shard.model, penalty=penalty)


def redrawn(shard: Shard, seed: int | np.random.Generator) -> "FittedModel":
    """Draw new targets, as many."""
    drawn = redraw(shard.model, np.random.default_rng(seed))
    if drawn.n != shard.model.n:
        raise UnsupportedModelError(
            f"The simulated parts have {drawn.n} terms, and the data {shard.model.n}: simulate as "
            "many."
        )
    return drawn


def measured_again(shard: Shard, seed: int | np.random.Generator) -> "FittedModel | Shard":
    """Draw what was measured once, which is a single term."""
    return redrawn(shard, seed) if shard.model.n == 1 else shard


def tangent(shard: Shard, theta: Array) -> "FittedModel":
    """Linearize a network at theta."""
    return tangent_model(shard.model.at(shard.own(theta)))


def plain(theta: Array) -> Array:
    """Leave names behind: shards put them back."""
    return np.array(theta, dtype=np.float64)
