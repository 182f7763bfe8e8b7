"""Transport between the coordinator and the shards: the one thing that an engine provides."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta._core.arguments import Counter
from implicit_delta._core.types import Array
from implicit_delta.models.base import FittedModel
from implicit_delta.models.sharded.shard import Ask, Shard

Change = Callable[..., FittedModel | Shard]  # change(shard, share): its model, or all of it


@dataclass
class Traffic:
    """Bytes that have left the coordinator for shards, and come from them."""

    sent: int = 0
    received: int = 0


class Engine(ABC):
    """Shards that live somewhere, in a fixed order.

    A question is a function ``ask(shard, *arguments)`` of a module, so that it may travel by name;
    arguments and answers are NumPy arrays of the size of parameters or evaluations, or rows where
    these are asked for. Sums are in float64, in the order of the parts.

    An engine has three members: `count`, `each` and `changed`; one that can reduce on the way, as
    an all-reduce does, has its own `sum`.

    Attributes
    ----------
    counter : Counter
        Passes over the data, shared with the engines made from this one.
    traffic : Traffic
        Shared in the same way.
    """

    counter: Counter
    traffic: Traffic

    @property
    def maker(self) -> str:
        """The function that makes such models."""
        return "from_shards"

    @property
    def own_rows(self) -> str:
        """A line that gives every shard its own rows, if this is the engine's business."""
        return ""

    @property
    def follows(self) -> bool:
        """Whether another process tells what is to be told."""
        return False

    def agreed(self, value: Any) -> Any:
        """Return the value that the first process has, of several."""
        return value

    def joined(self, rows: Any, name: str = "clusters") -> Any:
        """Put values of rows together that processes have given, each of its own."""
        return rows

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of shards."""

    @abstractmethod
    def each(
        self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None, name: bool = True
    ) -> Iterator[Any]:
        """Ask every shard, and yield the answers in the order of the parts.

        Parameters
        ----------
        ask : callable
        *arguments : object
            The same for all shards.
        shares : sequence, optional
            One further argument for each shard, which comes first: its part of an array of rows.
        name : bool
            Whether an error names the part.
        """

    @abstractmethod
    def changed(self, change: Change, shares: Sequence[Any]) -> "Engine":
        """Build an engine of changed shards: ``change(shard, share)`` of each."""

    def of_sizes(self, sizes: tuple[int, ...]) -> "Engine":
        """Expect so many rows in each shard, where it may be built again."""
        return self

    def sum(self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None) -> Array:
        """Add up the answers."""
        return added(self.each(ask, *arguments, shares=shares))

    def first(self, ask: Ask, *arguments: Any) -> Any:
        """Ask the first shard alone, for what does not depend on rows."""
        return next(self.each(ask, *arguments, name=False))


def bytes_of(value: Any) -> int:
    """Add up the bytes of the arrays in an argument or an answer."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    if isinstance(value, int | float):
        return 8
    return int(getattr(value, "nbytes", 0))


def added(answers: Iterable[Any]) -> Array:
    """Add arrays up in float64, one after the other."""
    total: Any = None
    for answer in answers:
        value = np.asarray(answer, dtype=np.float64)
        total = value if total is None else total + value
    return np.asarray(total)
