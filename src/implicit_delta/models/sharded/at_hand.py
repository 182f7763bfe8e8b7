"""Data sets whose models are in this process, those of ``m1 + m2``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from implicit_delta.core.arguments import Counter
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import ONE_PROCESS, Processes, Traffic, processes_of
from implicit_delta.models.sharded.engine import Change, Engine
from implicit_delta.models.sharded.shard import Ask, Shard, answered


@dataclass(frozen=True, eq=False)
class AtHand(Engine):
    """Models that are kept, with what they have cached; any of them may have shards itself."""

    shards: tuple[Shard, ...]
    counter: Counter = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def count(self) -> int:
        return len(self.shards)

    @property
    def maker(self) -> str:
        return "combine"

    @property
    def processes(self) -> Processes:
        own = map(processes_of, self.models)
        return next((found for found in own if found.count), ONE_PROCESS)

    @property
    def models(self) -> tuple[FittedModel, ...]:
        return tuple(shard.model for shard in self.shards)

    @property
    def given(self) -> tuple[FittedModel, ...]:
        return tuple(shard.part for shard in self.shards)

    def seeds(self, rng: np.random.Generator) -> list[Any]:
        """Let all draw from one generator, in their order."""
        return [rng] * self.count

    def each(
        self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None, name: bool = True
    ) -> Iterator[Any]:
        first = [()] * self.count if shares is None else [(share,) for share in shares]
        asked = zip(self.shards, first, strict=True)
        return self.counted(answered(own, ask, (*one, *arguments), name) for own, one in asked)

    def changed(self, change: Change, shares: Sequence[Any]) -> "AtHand":
        made = (change(*both) for both in zip(self.shards, shares, strict=True))
        shards = (
            replace(old, model=new) if isinstance(new, FittedModel) else new
            for old, new in zip(self.shards, made, strict=True)
        )
        return replace(self, shards=tuple(shards))
