"""Walk the parts one after the other in this process, with bounded memory."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType, ModuleType
from typing import Any

from implicit_delta.core.arguments import Counter
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import Traffic
from implicit_delta.models.sharded.calls import at, reweighted
from implicit_delta.models.sharded.engine import Change, Engine
from implicit_delta.models.sharded.shard import Answer, Ask, Shard, answered, built, label_of
from implicit_delta.models.user_calls import isolated_cache

KEEP = 2**28  # bytes of arrays in built models that stay in memory
LAST_COUNTS = (at, reweighted)  # what such a change did before does not matter
MOST_OBJECTS = 100_000  # looked at for their size


@dataclass(frozen=True, eq=False)
class Serial(Engine):
    """Shards that are built when they are asked, and kept as far as they fit.

    Attributes
    ----------
    build : callable
    parts : tuple
    keep : float
        Bytes of built models to keep between walks, beside the first; the rest is built again in
        every walk.
    sizes : tuple of int
        Rows of each part when it was first built, if that is known: a part that changes is refused.
    parent, change, shares : optional
        Of an engine that `changed` has made.
    """

    build: Callable[[Any], Any]
    parts: tuple[Any, ...]
    keep: float = KEEP
    sizes: tuple[int, ...] = ()
    parent: "Serial | None" = None
    change: Change | None = None
    shares: tuple[Any, ...] = ()
    counter: Counter = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    kept: dict[int, Shard] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # bytes by part

    @property
    def count(self) -> int:
        return len(self.parts)

    def each(
        self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None, name: bool = True
    ) -> Iterator[Any]:
        def answer(i: int) -> Answer:
            own, shard = () if shares is None else (shares[i],), self.shard(i)
            with isolated_cache(shard.model, empty=False):  # it would grow with the parts
                found = answered(shard, ask, (*own, *arguments), name)
            self._remember(i, shard)
            return found

        return self.counted(map(answer, range(self.count)))

    def first(self, ask: Ask, *arguments: Any) -> Any:
        shard = self.shard(0)
        self._remember(0, shard)
        return answered(shard, ask, arguments, name=False).value

    def changed(self, change: Change, shares: Sequence[Any]) -> "Serial":
        again = change == self.change and change in LAST_COUNTS
        parent = self.parent if again else self
        return replace(self, parent=parent, change=change, shares=tuple(shares), kept={})

    def of_sizes(self, sizes: tuple[int, ...]) -> "Serial":
        return replace(self, sizes=sizes)

    def shard(self, i: int) -> Shard:
        """Take a shard from memory, or build it."""
        if i in self.kept:
            return self.kept[i]
        if self.parent is None:
            return self._built(i)
        assert self.change is not None
        shard = self.parent.shard(i)
        made = self.change(shard, self.shares[i])
        return replace(shard, model=made) if isinstance(made, FittedModel) else made

    def _built(self, i: int) -> Shard:
        shard = built(self.build, self.parts[i], label_of(i, self.parts[i]))
        if self.sizes and shard.model.n != self.sizes[i]:
            raise ValueError(
                f"There are {shard.model.n} rows in {shard.label}, and there were "
                f"{self.sizes[i]} when it was first read: the data have changed, or build is "
                "random. Make the model again with `from_shards`."
            )
        return shard

    def _remember(self, i: int, shard: Shard) -> None:
        """Keep a shard if it fits, and the first one; those made of it share its arrays."""
        if i in self.kept:
            return
        if i not in self.held:
            size = size_of(shard.model)
            if i > 0 and sum(self.held.values()) + size > self.keep:  # psi is asked of the first
                return
            self.held[i] = size
        self.kept[i] = shard

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave built models behind."""
        arguments = (
            self.build, self.parts, self.keep, self.sizes, self.parent, self.change, self.shares,
            self.counter,
        )  # fmt: skip
        return Serial, arguments


def size_of(model: Any) -> int:
    """Add up the bytes of all arrays that a model refers to, each once."""
    seen, total, ahead = {id(model)}, 0, [model]
    while ahead and len(seen) < MOST_OBJECTS:
        item = ahead.pop()
        size = getattr(item, "nbytes", None)
        total += size if isinstance(size, int) else 0
        for other in _referents(item):
            if id(other) not in seen and not isinstance(other, type | ModuleType):
                seen.add(id(other))
                ahead.append(other)
    return total


def _referents(item: Any) -> list[Any]:
    """Objects that an object holds; of a function its closure, not the globals of its module."""
    if isinstance(item, FunctionType):
        return [*(item.__closure__ or ()), item.__defaults__, item.__kwdefaults__]
    if isinstance(item, MethodType):
        return [item.__self__, item.__func__]
    return gc.get_referents(item)
