"""Penalty functions of a user, which every shard has alike."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.sharded import calls
from implicit_delta.models.sharded.calls import plain
from implicit_delta.models.sharded.engine import Engine


@dataclass(frozen=True, eq=False)
class OfFirstShard:
    """Penalty functions of the first shard, or of each rank its own, as it was built."""

    engine: Engine
    name: str = ""

    def value(self, theta: Array) -> float:
        return float(self._asked("value", theta))

    def score(self, theta: Array) -> Array:
        return np.asarray(self._asked("score", theta))

    def curvature(self, theta: Array, v: Array) -> Array:
        return np.asarray(self._asked("curvature", theta, v))

    def _asked(self, member: str, theta: Array, *arguments: Array) -> Any:
        return self.engine.any(calls.of_penalty, member, plain(theta), *arguments)
