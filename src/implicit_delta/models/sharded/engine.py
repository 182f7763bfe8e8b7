"""Transport between the coordinator and the shards: the one thing that an engine provides."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from implicit_delta.core.arguments import Counter
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import Processes
from implicit_delta.models.sharded.shard import Answer, Ask, Shard

Change = Callable[..., FittedModel | Shard]  # change(shard, share): its model, or all of it


class Engine(Processes, ABC):
    """Shards that live somewhere, in a fixed order.

    A question is a function ``ask(shard, *arguments)`` of a module, or a value of `calls`, so that
    it may travel by name; arguments and answers are NumPy arrays of the size of parameters or
    evaluations, or rows where these are asked for. Sums are in float64, in the order of the parts.

    An engine has three members: `count`, `each` and `changed`; one that can reduce on the way, as
    an all-reduce does, has its own `sum`. It is the `processes` of its rows.

    Attributes
    ----------
    counter : Counter
        Passes over the data, shared with the engines made from this one, as is `traffic`.
    """

    counter: Counter

    @property
    def maker(self) -> str:
        """The function that makes such models."""
        return "from_shards"

    @property
    def models(self) -> tuple[FittedModel, ...]:
        """Models of the shards, if they are kept in this process."""
        return ()

    @property
    def given(self) -> tuple[FittedModel, ...]:
        """These models as they were given."""
        return ()

    @property
    def processes(self) -> Processes:
        """The processes that work on the shards."""
        return self

    def seeds(self, rng: np.random.Generator) -> list[Any]:
        """Draw a seed for each shard."""
        return [int(seed) for seed in rng.integers(2**62, size=self.count)]

    @property
    def own_rows(self) -> str:
        """A line that gives every shard its own rows, if this is the engine's business."""
        return ""

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

    def counted(self, answers: Iterator[Answer]) -> Iterator[Any]:
        """Count the passes of a walk over all shards: as many as the busiest has made."""
        started, most = perf_counter(), 0
        for number, answer in enumerate(answers, 1):
            most = max(most, answer.passes)
            if number == self.count:
                self.counter.count += most - 1
                self.counter.called(perf_counter() - started)
            yield answer.value

    def sum(self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None) -> Any:
        """Add up the answers: arrays, or whatever else can be added."""
        return added(self.each(ask, *arguments, shares=shares))

    def first(self, ask: Ask, *arguments: Any) -> Any:
        """Ask the first shard alone, for what does not depend on rows."""
        return next(self.each(ask, *arguments, name=False))

    def any(self, ask: Ask, *arguments: Any) -> Any:
        """Ask some shard, for what is the same in all."""
        return self.first(ask, *arguments)


def bytes_of(value: Any) -> int:
    """Add up the bytes of the arrays in an argument or an answer."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    if isinstance(value, int | float):
        return 8
    return int(getattr(value, "nbytes", 0))


def added(answers: Iterable[Any]) -> Any:
    """Add up one after the other, arrays in float64."""
    total: Any = None
    for answer in answers:
        value = in_double(answer)
        total = value if total is None else total + value
    return total


def in_double(answer: Any) -> Any:
    """Take a number or an array as one of float64, and leave anything else."""
    plain = isinstance(answer, np.ndarray | np.generic | float | int)
    return np.asarray(answer, dtype=np.float64) if plain else answer
