"""A fitted model that is a sum over shards: methods see no difference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from implicit_delta._core.arguments import as_parameters
from implicit_delta._core.cache import LastCache
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.precision import DOUBLE, Precision
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import NotAMaximumError, UnsupportedModelError
from implicit_delta.models.base import (
    Curvature,
    FittedModel,
    RowNumbers,
    Strongest,
    Whitened,
    by_size,
)
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.evidence import evidence_of
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.loglik_model import SADDLE
from implicit_delta.models.moments import Moments
from implicit_delta.models.named_theta import Layout, as_named
from implicit_delta.models.noise import Noise
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.rough_scores import rough_score
from implicit_delta.models.sharded import asks
from implicit_delta.models.sharded.alike import Print, check_prints, check_pulls
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.noise import (
    mean_square_over,
    noise_over,
    scale_of_weights,
    with_noise,
)
from implicit_delta.models.sharded.resampled import Draw
from implicit_delta.models.sharded.units import (
    Everywhere,
    count_of_rows,
    jacobian_of_rows,
    jacobian_of_sums,
    jacobian_of_total,
    lives_on_shards,
    moments_of,
    on_shards,
)
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.arrays import symmetric

DRAWN_HERE = 10**7  # rows up to which weights are drawn as in one process, and travel: 80 MB
NOT_FIXED = (
    "Parameters of a model over shards are fixed where it is built: write the number into the "
    "log-likelihood that `build(part)` makes, and leave the parameter out of theta."
)


@dataclass(frozen=True, eq=False, repr=False)
class ShardedModel(FittedModel):
    """The sum of the models of all shards; made by `from_shards`.

    Only vectors of d and K numbers travel between shards and this object, but for rows that are
    asked for (`influence=True`, "HC3", units of an average), which come in the order of the parts.
    The penalty is that of the first shard, or of a mean loss the sum of all.

    Attributes
    ----------
    engine : Engine
        Where the shards live.
    sizes : tuple of int
        Rows of each shard.
    prints : tuple of Print
        Sums over the rows of each shard as it was built, by which changed data are seen.
    origin : Engine
        The shards as they were built.
    given : Weights
        Those before any are drawn.
    drawn : callable, optional
        Makes the weights that shards have drawn for themselves, (n,).
    """

    engine: Engine
    origin: Engine
    sizes: tuple[int, ...]
    prints: tuple[Print, ...]
    theta: Array
    given: Weights
    drawn: Callable[[], Array] | None = None
    ridges: Penalty = NO_PENALTY  # subtracted here
    has_function: bool = False  # subtracted by the first shard
    names: tuple[str, ...] | None = None
    layout: Layout | None = None
    curvature: Curvature = "hessian"
    noise: float = np.nan  # variance that all shards have estimated by that rule
    constraints: Constraints | None = None
    chart: Chart | None = None
    whole: FittedModel | None = None
    fixed: Mapping[int, float] = field(default_factory=dict)
    bends: bool = False
    facts: Facts = NO_FACTS
    precision: Precision = DOUBLE
    kind: str = ""
    _sent: LastCache = field(init=False, default_factory=LastCache)

    def __post_init__(self) -> None:
        """Name theta."""
        if self.layout is not None and self.chart is None:
            object.__setattr__(self, "theta", as_named(self.theta, self.layout))

    @cached_property
    def weights(self) -> Weights:  # type: ignore[override]
        return self.given if self.drawn is None else replace(self.given, values=self.drawn())

    @property
    def penalty(self) -> Penalty:  # type: ignore[override]
        first = (OfFirstShard(self.engine),) if self.has_function else ()
        return replace(self.ridges, functions=(*self.ridges.functions, *first))

    def with_penalty(self, penalty: Penalty, **others: Any) -> "ShardedModel":
        """As of any model; the functions of the first shard stay there, or are left out."""
        own = [part for part in penalty.functions if not isinstance(part, OfFirstShard)]
        kept, engine = len(own) < len(penalty.functions), self.engine
        if self.has_function and not kept:
            engine = engine.changed(asks.with_functions, [False] * self.shards)
        ridges = replace(penalty, functions=tuple(own))
        return replace(self, engine=engine, ridges=ridges, has_function=kept, **others)

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def passes(self) -> int:
        return self.engine.counter.count

    @property
    def shards(self) -> int:  # type: ignore[override]
        return self.engine.count

    @property
    def travelled_bytes(self) -> tuple[int, int]:
        return self.engine.traffic.sent, self.engine.traffic.received

    @property
    def follows(self) -> bool:
        return self.engine.follows

    def agreed(self, seed: int) -> int:
        return int(self.engine.agreed(seed))

    def joined(self, labels: Any) -> Any:
        return self.engine.joined(labels)

    def joined_units(self, units: Any, labels: Any, name: str) -> Any:
        if labels is None or lives_on_shards(units) is None:
            return labels
        return self.engine.joined(labels, name)

    def objective(self, theta: Array) -> float:
        return float(self.engine.sum(asks.objective, _plain(theta))) - self.ridges.value(theta)

    def score(self, theta: Array) -> Array:
        return self.engine.sum(asks.score, _plain(theta)) - self.ridges.score(theta)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        own = self.engine.sum(asks.information, _plain(theta), np.asarray(v), curvature)
        return own + self.ridges.curvature(theta, v)

    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        """Add up, over rows or over clusters: those that span shards are added up by label."""
        if clusters is None:
            return self.engine.sum(asks.scatter, _plain(theta), v)
        sums = np.zeros((clusters.count + 1, v.shape[1]))  # the last for rows without weight
        codes = self._split(clusters.codes)
        for found, own in self.engine.each(asks.cluster_sums, _plain(theta), v, shares=codes):
            sums[found] += own
        return np.asarray(sums[:-1].T @ sums[:-1])

    def terms(self, theta: Array) -> Array:
        return np.concatenate(list(self.engine.each(asks.terms, _plain(theta))))

    def terms_along(self, theta: Array, v: Array) -> Array:
        return np.concatenate(list(self.engine.each(asks.terms_along, _plain(theta), v)))

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        for rows in self.engine.each(asks.whitened, _plain(theta), v, name=False):
            yield from rows

    def strongest(self, theta: Array, v: Array, errors: Array, k: int) -> Strongest:
        """Merge the strongest rows of each shard: k of each travel."""
        found = list(self.engine.each(asks.strongest, _plain(theta), v, errors, k))
        starts = np.cumsum(self.sizes) - self.sizes
        numbers = np.concatenate([own.row + at for own, at in zip(found, starts, strict=True)])
        influence = np.concatenate([own.influence for own in found])
        labels = [own.label for own in found]
        order = by_size(influence, errors)[:k]
        known = None if None in labels else [text for own in labels for text in own or ()]
        label = None if known is None else tuple(known[i] for i in order)
        rows = self.facts.host.labels
        if rows is not None:
            label = tuple(str(rows[i]) for i in numbers[order])
        return Strongest(numbers[order], influence[order], label)

    def squared_residuals(self) -> Array | None:
        parts = list(self.engine.each(asks.squared_residuals))
        return None if any(part is None for part in parts) else np.concatenate(parts)

    def moments(self, psi: Any, theta: Array) -> Moments | None:
        """Add up the rows of an average where they live, if it is a plain one of rows on shards."""
        on = lives_on_shards(psi)
        if on is None or not getattr(psi, "plain", False):
            return None
        found: Moments = reduce(Moments.joined, self.engine.each(moments_of, on.h, _plain(theta)))
        return found

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        if (found := self.moments(psi, theta)) is not None:
            value = found.mean * (found.rows if psi.summary.total else 1)  # type: ignore[attr-defined]
            return value[0] if found.flat else value
        if lives_on_shards(psi) is not None:
            return psi(Everywhere(self.engine, _plain(theta)))
        return self.engine.first(asks.evaluate, psi, theta)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        return self.engine.first(asks.evaluate_tangent, psi, theta, delta)

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        on = lives_on_shards(psi)
        if on is None:
            return np.asarray(self.engine.first(asks.jacobian, psi, theta))
        return self._jacobian_of_rows(on, psi, _plain(theta))

    def _jacobian_of_rows(self, on: on_shards, psi: Any, theta: Array) -> Array:
        """Differentiate where the rows are: a mean or a total is a sum over shards, too."""
        if hasattr(psi, "k"):  # one of several values
            return self._jacobian_of_rows(on, psi.psi, theta)[psi.k : psi.k + 1]
        if not hasattr(psi, "coefficients"):
            return np.vstack(list(self.engine.each(jacobian_of_rows, on.h, theta)))
        sizes = list(self.engine.each(count_of_rows, on.h, theta))
        if getattr(psi, "plain", False):
            total = self.engine.sum(jacobian_of_total, on.h, theta, shares=sizes)
            return total if psi.summary.total else total / sum(sizes)
        own = np.split(psi.coefficients(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        return self.engine.sum(jacobian_of_sums, on.h, theta, shares=own)

    @cached_property
    def units(self) -> Array:
        own = np.array(list(self.engine.each(asks.units)))
        return np.asarray(1 / np.sqrt(np.sum(own**-2.0, axis=0)))

    def reweighted(self, weights: Array) -> "ShardedModel":
        checked = self.given.replaced(weights)
        engine = self.engine.changed(asks.reweighted, self._split(checked.values))
        return replace(self, engine=engine, given=checked, drawn=None)

    def resampled(
        self, kind: str, rng: np.random.Generator, clusters: Clusters | None = None
    ) -> "ShardedModel | None":
        """Let shards of very many rows draw their own weights: a seed travels, and no row does."""
        if self.n <= DRAWN_HERE:
            return None
        draw = Draw(kind, int(rng.integers(2**63)))
        if clusters is not None:
            engine = self._coded(clusters).changed(asks.resampled_clusters, [draw] * self.shards)
            return replace(self, engine=engine, drawn=partial(_of_clusters, self, draw, clusters))
        starts = np.cumsum(self.sizes) - self.sizes
        engine = self.engine.changed(asks.resampled, [(draw, int(start)) for start in starts])
        return replace(self, engine=engine, drawn=partial(_of_rows, self, draw))

    def _coded(self, clusters: Clusters) -> Engine:
        """Send the clusters of the rows once, and not with each draw."""
        found: Engine = self._sent.get(
            clusters.codes,
            "coded",
            lambda: self.engine.changed(asks.coded, self._split(clusters.codes)),
        )
        return found

    def at(self, theta: Array) -> "ShardedModel":
        point = as_parameters(theta)
        engine = self.engine.changed(asks.at, [point] * self.engine.count)
        facts = self.facts.moved(point - _plain(self.theta))
        return replace(self, engine=engine, theta=point, facts=facts)

    def along(self, chart: Chart) -> "ShardedModel":
        engine = self.engine.changed(asks.along, [chart] * self.engine.count)
        return replace(
            self,
            engine=engine,
            theta=chart.coordinates(self.theta),
            ridges=self.ridges.along(chart),
            names=self.names and tuple(self.names[j] for j in chart.free),
            facts=self.facts.with_training(before=None),
            chart=chart,
            whole=self,
        )

    def redrawn(self, rng: np.random.Generator) -> "ShardedModel":
        """Draw new targets, with a seed for each shard: they depend on the sharding."""
        engine = self.engine.changed(asks.redrawn, self._seeds(rng))
        engine.first(asks.value)  # what cannot be drawn is refused now
        return replace(self, engine=engine)

    def tangent(self) -> "ShardedModel":
        engine = self.engine.changed(asks.tangent, [None] * self.engine.count)
        engine.first(asks.value)
        return replace(self, engine=engine)

    def tethered(self) -> "ShardedModel":
        """Tie the model to its start by the evidence of all shards; see `early_stopped`."""
        if not self.bends:
            return super().tethered()
        model = self.with_noise(mean_square_over) if self.facts.noise_rule else self
        scale = float(self.engine.first(scale_of_weights, self.weights.values))
        tie = evidence_of(model, scale)
        facts = model.facts.with_training(effective=tie.effective)
        held = model.penalty.stopped_early(scale * tie.strength, facts.training.start)
        return model.with_penalty(held, facts=facts, curvature="ggn")

    def with_noise(self, rule: Callable[[Engine, FittedModel], Noise]) -> "ShardedModel":
        """Plug a noise variance of all shards in."""
        noise = rule(self.engine, self)
        engine = self.engine.changed(with_noise, [noise] * self.shards)
        facts = replace(self.facts, df=noise.df)
        return replace(self, engine=engine, facts=facts, noise=noise.variance)

    def renoised(self) -> "tuple[ShardedModel, float]":
        if self.facts.noise_rule is None or self.penalty.early_stop:
            return self, 1.0
        fresh = self.with_noise(noise_over)
        return fresh, fresh.noise / self.noise

    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        """Add up draws of the shards, each with a seed of its own, and of the ridges."""
        seeds = self._seeds(rng)
        own = list(self.engine.each(asks.curvature_noise, _plain(theta), count, shares=seeds))
        if any(noise is None for noise in own):
            return None
        ridges = (ridge.noise(rng, self.d, count) for ridge in self.ridges.ridges)
        return np.asarray(sum(ridges, np.sum(own, axis=0)))

    def _seeds(self, rng: np.random.Generator) -> list[int]:
        return [int(seed) for seed in rng.integers(2**62, size=self.shards)]

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        ends = np.cumsum(self.sizes)
        owners = np.searchsorted(ends, rows, side="right")
        starts = ends - self.sizes
        shares = [rows[owners == i] - starts[i] for i in range(len(ends))]
        scale = self.n / len(rows)
        own = self.engine.sum(asks.batch_score, _plain(theta), scale, shares=shares)
        return own - self.ridges.score(theta)

    @property
    def pseudo(self) -> str:
        return str(self.engine.first(asks.pseudo))

    def check_unchanged(self) -> None:
        """Compare rows with those of the making, and penalties, which theta may tell apart now."""
        compared = self.penalty.given and not self.penalty.by_rows and self.chart is None
        theta = _plain(self.theta) if compared else None
        found = list(self.origin.each(asks.seen_again, theta))
        check_prints(self.prints, [now for now, _ in found], self.maker)
        if compared:
            check_pulls([now.label for now in self.prints], [pull for _, pull in found])

    def check_maximum(self) -> None:
        if self.curvature == "hessian" or self.penalty.early_stop:
            return
        units = self.units
        matrix = symmetric(units[:, None] * self.information(self.theta, np.diag(units)))
        least = np.linalg.eigvalsh(matrix)[0] if np.isfinite(matrix).all() else 0.0
        if least < SADDLE:
            raise NotAMaximumError.saddle(float(least))

    def doubt_of(self, psi: Any) -> str:
        if not self.engine.first(asks.reads_psi):  # which may be large
            return ""
        return str(self.engine.first(asks.doubt_of, psi))

    def fix(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> "FittedModel":
        raise UnsupportedModelError(NOT_FIXED)

    def release(self, *names: Any) -> "FittedModel":
        raise UnsupportedModelError(NOT_FIXED)

    def log_likelihood(self) -> float:
        if self.facts.noise_rule:  # whose variance maximizes the sum, and not those of the shards
            return np.nan
        return float(self.engine.sum(asks.log_likelihood))

    @property
    def maker(self) -> str:
        return self.engine.maker

    def describe(self) -> dict[str, str]:
        rows = f"{min(self.sizes)} to {max(self.sizes)} rows each"
        return {"shards": f"{self.engine.count} of {self.kind}, {rows}", **super().describe()}

    def _split(self, rows: Any) -> Sequence[Any]:
        """Cut an array of rows into those of the shards."""
        return np.split(rows, np.cumsum(self.sizes)[:-1])


@dataclass(frozen=True, eq=False)
class OfFirstShard:
    """Penalty functions of the first shard."""

    engine: Engine
    name: str = ""

    def value(self, theta: Array) -> float:
        return float(self.engine.first(asks.of_penalty, "value", _plain(theta)))

    def score(self, theta: Array) -> Array:
        return np.asarray(self.engine.first(asks.of_penalty, "score", _plain(theta)))

    def curvature(self, theta: Array, v: Array) -> Array:
        return np.asarray(self.engine.first(asks.of_penalty, "curvature", _plain(theta), v))


def _of_rows(model: ShardedModel, draw: Draw) -> Array:
    return draw.reweighted(model.weights.values, model.weights.counts, np.arange(model.n))


def _of_clusters(model: ShardedModel, draw: Draw, clusters: Clusters) -> Array:
    return draw.by_clusters(model.weights.values, clusters.codes)


def _plain(theta: Array) -> Array:
    """Leave names behind: shards put them back."""
    return np.array(theta, dtype=np.float64)


@rough_score.register
def _(model: ShardedModel, theta: Array) -> Array:
    return model.engine.sum(asks.rough_score, _plain(theta)) - model.ridges.score(theta)
