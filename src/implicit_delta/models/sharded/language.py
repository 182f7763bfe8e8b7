"""Psi of a model over shards: evaluated on the first, or where its rows are."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from implicit_delta.core.types import Array, Psi
from implicit_delta.models.constraints import Chart
from implicit_delta.models.coordinates import restricted
from implicit_delta.models.moments import Moments
from implicit_delta.models.sharded import calls
from implicit_delta.models.sharded.calls import Call, plain
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.units import (
    Everywhere,
    count_of_rows,
    jacobian_of_rows,
    jacobian_of_sums,
    jacobian_of_total,
    lives_on_shards,
    moments_on,
    on_shards,
)


@dataclass(frozen=True, eq=False)
class ShardLanguage:
    """Psi gets what it gets of the model of the first shard.

    Rows of an average that are evaluated `on_shards` are put together, or added up there.
    """

    engine: Engine

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        theta = plain(theta)
        if (found := self.moments(psi, theta)) is not None:
            value = found.mean * (found.rows if psi.summary.total else 1)  # type: ignore[attr-defined]
            return value[0] if found.flat else value
        if lives_on_shards(psi) is not None:
            return psi(Everywhere(self.engine, theta))
        return self.engine.first(Call("evaluate"), psi, theta)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        return self.engine.first(Call("space.language.evaluate_tangent"), psi, plain(theta), delta)

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        """Differentiate in the units of the first shard."""
        theta = plain(theta)
        if (on := lives_on_shards(psi)) is not None:
            return self._jacobian_of_rows(on, psi, theta)
        return np.asarray(self.engine.first(Call("jacobian"), psi, theta))

    def _jacobian_of_rows(self, on: on_shards, psi: Any, theta: Array) -> Array:
        """Differentiate where the rows are: a mean or a total is a sum over shards, too."""
        if hasattr(psi, "k"):  # one of several values
            return self._jacobian_of_rows(on, psi.psi, theta)[psi.k : psi.k + 1]
        if not hasattr(psi, "coefficients"):
            return np.vstack(list(self.engine.each(jacobian_of_rows, on.h, theta)))
        sizes = list(self.engine.each(count_of_rows, on.h, theta))
        if getattr(psi, "plain", False):
            total = np.asarray(self.engine.sum(jacobian_of_total, on.h, theta, shares=sizes))
            return total if psi.summary.total else total / sum(sizes)
        own = np.split(psi.coefficients(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        return np.asarray(self.engine.sum(jacobian_of_sums, on.h, theta, shares=own))

    def moments(self, psi: Any, theta: Array) -> Moments | None:
        """Add up the rows of an average where they live, if it is a plain one of rows on shards."""
        on = lives_on_shards(psi)
        if on is None or not getattr(psi, "plain", False):
            return None
        found: Moments = reduce(Moments.joined, self.engine.each(moments_on, on.h, plain(theta)))
        return found

    def psi_warning(self, psi: Any) -> str:
        if not self.engine.first(calls.reads_psi):  # which may be large
            return ""
        return str(self.engine.first(Call("space.language.psi_warning"), psi))

    def at(self, theta: Array) -> "ShardLanguage":
        return self._changed(calls.at, plain(theta))

    def along(self, chart: Chart) -> "ShardLanguage":
        return self._changed(Call(restricted), chart)

    def tangent(self, theta: Array) -> "ShardLanguage":
        return self._changed(calls.tangent, plain(theta))

    def _changed(self, change: Callable[..., Any], share: Any) -> "ShardLanguage":
        return replace(self, engine=self.engine.changed(change, [share] * self.engine.count))
