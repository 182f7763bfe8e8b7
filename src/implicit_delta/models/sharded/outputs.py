"""Outputs of rows that are stored in shards."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.noise import Noise
from implicit_delta.models.outputs import squared_residuals
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.rows import Whitened
from implicit_delta.models.sharded import calls
from implicit_delta.models.sharded.calls import Call, plain
from implicit_delta.models.sharded.described import OutputFacts
from implicit_delta.models.sharded.noise import noise_over, with_noise
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.sharded.rows import SumOver


@dataclass(frozen=True, eq=False)
class SumOutputs:
    """Outputs of the rows of all shards."""

    rows: "SumOver"
    facts: OutputFacts

    @property
    def is_linear(self) -> bool:
        return self.facts.is_linear

    @property
    def size(self) -> int:
        return self.facts.size

    @property
    def pseudo(self) -> str:
        return self.facts.pseudo

    @property
    def can_be_overdispersed(self) -> bool:
        return self.facts.can_be_overdispersed

    @property
    def likelihood(self) -> Gaussian | None:
        """That of Gaussian noise; others are known to the shards alone."""
        return None if self.facts.noise is None else Gaussian(self.facts.noise)

    def gauss_newton(self, theta: Array, weights: Array, v: Array) -> Array:
        return self.rows.information(theta, weights, v, "ggn")

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        for rows in self.rows.engine.each(calls.whitened, plain(theta), v, name=False):
            yield from rows

    def squared_residuals(self, theta: Array) -> Array | None:
        """Squares of the whitened residuals at the theta of the shards: one number of a row."""
        parts = list(self.rows.engine.each(Call(squared_residuals)))
        return None if any(part is None for part in parts) else np.concatenate(parts)

    def noise(
        self, theta: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array | None:
        """Add up draws of the shards, each with a seed of its own."""
        engine, seeds = self.rows.weighted(weights).engine, self.rows.engine.seeds(rng)
        own = list(engine.each(calls.noise, plain(theta), count, shares=seeds))
        return None if any(drawn is None for drawn in own) else np.sum(own, axis=0)

    def with_likelihood(self, likelihood: Any) -> "SumOver":
        noise = Noise(likelihood.noise, np.inf)
        facts = self.facts._replace(noise=likelihood.noise, is_estimated=True)
        found: SumOver = self.rows.changed(
            with_noise, [noise] * self.rows.engine.count, output_facts=facts
        )
        return found

    def estimated_noise(self, theta: Array, weights: Weights, penalty: Penalty, rule: Any) -> Noise:
        """Estimate the variance from all shards, by this rule or the one that these have."""
        rows = self.rows.at(theta, weights)
        return noise_over(rows.engine, rows.d, weights, penalty, rule)
