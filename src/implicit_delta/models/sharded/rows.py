"""Rows that are a sum over shards: the models of the parts stay where they are."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.cache import LastCache
from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array
from implicit_delta.models.constraints import Chart
from implicit_delta.models.coordinates import restricted
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.processes import Processes
from implicit_delta.models.refit_fixed import check_unchanged
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import Rows
from implicit_delta.models.sharded import calls
from implicit_delta.models.sharded.alike import Print, check_prints, check_pulls
from implicit_delta.models.sharded.calls import Call, Sum, SumBlocks, plain
from implicit_delta.models.sharded.described import OutputFacts, seen_again
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.noise import log_likelihood_over
from implicit_delta.models.sharded.outputs import SumOutputs
from implicit_delta.models.sharded.resampled import Draw, Drawn
from implicit_delta.models.strongest import Strongest, by_size
from implicit_delta.models.weights import Weights

DRAWN_HERE = 10**7  # rows up to which weights are drawn as in one process, and travel: 80 MB


@dataclass(frozen=True, eq=False)
class Origin:
    """The shards as they were built.

    Attributes
    ----------
    engine : Engine
    prints : tuple of Print
        Sums over the rows of each shard, by which changed data are seen.
    is_penalized : bool
        Whether all shards have the one penalty of the whole.
    """

    engine: Engine
    prints: tuple[Print, ...]
    is_penalized: bool

    def check_unchanged(self, theta: Array) -> None:
        """Compare rows with those of the making, and penalties, which theta may tell apart now."""
        found = list(self.engine.each(seen_again, plain(theta) if self.is_penalized else None))
        check_prints(self.prints, [now for now, _ in found], self.engine.maker)
        if self.is_penalized:
            check_pulls([now.label for now in self.prints], [pull for _, pull in found])


@dataclass(frozen=True, eq=False)
class SumOver:
    """Rows that are stored in shards, each with a model of its part.

    Only vectors of d and K numbers travel, but for rows that are asked for (`influence=True`,
    "HC3", units of an average), which come in the order of the parts. Weights travel once, by `at`;
    with other ones than these the shards are weighted again in every call.

    Attributes
    ----------
    engine : Engine
        Where the shards are. Their models have no penalty.
    sizes : tuple of int
        Rows of each shard.
    theta : (d,) array
        Where the models of the shards are.
    sent : (n,) array
        Weights that they have: recognized by identity.
    origin : Origin or None
        None for several data sets, each with some of the parameters, those of `Shard.places`.
    output_facts : OutputFacts or None
        None without outputs.
    """

    engine: Engine
    sizes: tuple[int, ...]
    theta: Array
    sent: Array
    origin: Origin | None = None
    output_facts: OutputFacts | None = None
    cache: LastCache = field(default_factory=LastCache)

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def d(self) -> int:
        return self.theta.size

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def passes(self) -> int:
        return self.engine.counter.count

    @property
    def processes(self) -> Processes:
        return self.engine.processes

    @property
    def models(self) -> tuple[FittedModel, ...]:
        """Models of the parts, if they are in this process."""
        return self.engine.models

    @property
    def parts(self) -> tuple[FittedModel, ...]:
        """The models that were added; those of shards are not kept."""
        return () if self.origin is not None else self.engine.given

    @property
    def outputs(self) -> SumOutputs | None:
        return None if self.output_facts is None else SumOutputs(self, self.output_facts)

    def at(self, theta: Array, weights: Weights) -> "SumOver":
        rows, point = self.weighted(weights.values), plain(theta)
        if np.array_equal(point, self.theta):
            return rows
        moved: SumOver = rows.changed(calls.at, [point] * self.engine.count, theta=point)
        return moved

    def for_climbing(self) -> "SumOver":
        if self.origin is not None:
            return self
        found: SumOver = self.changed(calls.climbing, [None] * self.engine.count)
        return found

    def weighted(self, weights: Array) -> "SumOver":
        """Send these weights, unless the shards have them."""
        if weights is self.sent:
            return self
        found: SumOver = self.changed(calls.reweighted, self.split(weights), sent=weights)
        return found

    def changed(self, change: Callable[..., Any], shares: Sequence[Any], **others: Any) -> Any:
        """Change every shard, with a share for each; and fields of these rows."""
        engine = self.engine.changed(change, shares)
        return replace(self, engine=engine, cache=LastCache(), **others)

    def within(self, low: Array, high: Array) -> "SumOver":
        found: SumOver = self.changed(calls.within, [(low, high)] * self.engine.count)
        return found

    def along(self, chart: Chart) -> Rows:
        if self.origin is None and not chart.fixes:
            return Restricted(self, chart)
        found: SumOver = self.changed(
            calls.held if self.origin is None else Call(restricted),
            [chart] * self.engine.count,
            theta=chart.coordinates(self.theta),
            origin=self.origin and replace(self.origin, is_penalized=False),
        )
        return found

    def terms(self, theta: Array) -> Array:
        return np.concatenate(list(self.engine.each(Call("rows.terms"), plain(theta))))

    def total(self, theta: Array, weights: Array) -> float:
        return float(self.weighted(weights).engine.sum(Sum("objective"), plain(theta)))

    def score(self, theta: Array, weights: Array) -> Array:
        return np.asarray(self.weighted(weights).engine.sum(Sum("score", like=0), plain(theta)))

    def rough_score(self, theta: Array, weights: Array) -> Array:
        rough = Sum(calls.rough_score, like=0)
        return np.asarray(self.weighted(weights).engine.sum(rough, plain(theta)))

    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        return self.information(theta, weights, v, "hessian")

    def information(self, theta: Array, weights: Array, v: Array, kind: str) -> Array:
        """Minus the Hessian of the weighted sum, or its Gauss-Newton part, times v."""
        engine = self.weighted(weights).engine
        return np.asarray(engine.sum(Sum("information", like=1), plain(theta), plain(v), kind))

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        found = self.engine.each(Call("terms_along"), plain(theta), v)
        starts = self.starts.tolist()
        for start, size, block in zip(starts, self.sizes, found, strict=True):
            yield slice(start, start + size), block

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        columns = map(self._shares, row_arrays)
        shares = [list(own) for own in zip(*columns, strict=True)] or [[]] * self.engine.count
        return self.engine.sum(SumBlocks(reduce), plain(theta), v, shares=shares)

    def _shares(self, array: NDArray[Any]) -> Sequence[Any]:
        """Split an array of rows; the weights that shards have do not travel, nor do constants."""
        if array is self.sent:
            return [None] * self.engine.count
        return [own[0] if np.all(own == own[0]) else own for own in self.split(array)]

    def batch_score(self, theta: Array, weights: Array, rows: NDArray[np.integer[Any]]) -> Array:
        owners = np.searchsorted(np.cumsum(self.sizes), rows, side="right")
        shares = [rows[owners == i] - start for i, start in enumerate(self.starts)]
        engine = self.weighted(weights).engine
        return np.asarray(engine.sum(calls.batch_score, plain(theta), shares=shares))

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        """Combine the standard errors that each shard has for a parameter."""
        rows = self.at(theta, weights)
        found: Array = rows.cache.get(rows.theta, "units", rows._units)
        return found

    def _units(self) -> Array:
        own = np.array(list(self.engine.each(calls.units, self.d)))
        return np.asarray(1 / np.sqrt(np.sum(own**-2.0, axis=0)))

    def tangent(self, theta: Array) -> "SumOver | None":
        if self.output_facts is None:
            return None
        point = plain(theta)
        found: SumOver = self.changed(calls.tangent, [point] * self.engine.count, theta=point)
        bends = found.engine.first(Call(is_network))  # what has no tangent is refused now
        facts = self.output_facts._replace(is_linear=not bends)
        return replace(found, output_facts=facts)

    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "SumOver":
        """Draw new targets, with a seed for each shard: they depend on the sharding."""
        rows = self.at(theta, weights)
        drawn: SumOver = rows.changed(calls.redrawn, self.engine.seeds(rng))
        drawn.engine.first(Call("n"))  # what cannot be drawn is refused now
        return drawn

    def measured_again(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "SumOver":
        if self.origin is not None or 1 not in self.sizes:
            return self
        rows = self.at(theta, weights)
        found: SumOver = rows.changed(calls.measured_again, self.engine.seeds(rng))
        return found

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        engine, facts = self.at(theta, weights).engine, self.output_facts
        if facts is not None and facts.is_estimated:
            return log_likelihood_over(engine)
        return float(engine.sum(Sum(log_likelihood_of)))

    def check_unchanged(self, theta: Array) -> None:
        if self.origin is None:
            list(self.engine.each(Call(check_unchanged)))
        else:
            self.origin.check_unchanged(theta)

    def strongest(
        self, theta: Array, weights: Weights, v: Array, errors: Array, k: int
    ) -> Strongest:
        """Merge the strongest rows of each shard: k of each travel."""
        engine = self.weighted(weights.values).engine
        found = list(engine.each(calls.strongest, plain(theta), v, errors, k))
        numbers = np.concatenate([own.row + at for own, at in zip(found, self.starts, strict=True)])
        influence = np.concatenate([own.influence for own in found])
        order = by_size(influence, errors)[:k]
        labels = [own.label for own in found]
        known = None if None in labels else [text for own in labels for text in own or ()]
        label = None if known is None else tuple(known[i] for i in order)
        return Strongest(numbers[order], influence[order], label)

    def resampled(
        self,
        weights: Weights,
        kind: str,
        rng: np.random.Generator,
        clusters: Clusters | None = None,
    ) -> tuple["SumOver", Weights] | None:
        """Let shards of very many rows draw their own weights: a seed travels, and no row does."""
        if self.n <= DRAWN_HERE:
            return None
        rows, draw = self.weighted(weights.values), Draw(kind, int(rng.integers(2**63)))
        values: Any
        if clusters is None:
            values = Drawn(self.n, partial(draw.of_rows, weights))
            shares = [(draw, int(start)) for start in self.starts]
            drawn = rows.changed(calls.resampled, shares, sent=values)
        else:
            values = Drawn(self.n, partial(draw.by_clusters, weights.values, clusters.codes))
            coded = rows.cache.get(rows.theta, "coded", LastCache)
            coded = coded.get(clusters.codes, "rows", partial(rows._coded, clusters))
            shared = [draw] * self.engine.count
            drawn = coded.changed(calls.resampled_clusters, shared, sent=values)
        return drawn, replace(weights, values=values)

    def _coded(self, clusters: Clusters) -> "SumOver":
        """Send the clusters of the rows once, and not with each draw."""
        found: SumOver = self.changed(calls.coded, self.split(clusters.codes))
        return found

    @property
    def starts(self) -> NDArray[np.intp]:
        """Number of the first row of each shard."""
        ends: NDArray[np.intp] = np.cumsum(self.sizes)
        starts: NDArray[np.intp] = ends - np.asarray(self.sizes)
        return starts

    def split(self, rows: Any) -> list[Any]:
        """Cut an array of rows into those of the shards."""
        return np.split(np.asarray(rows), self.starts[1:])
