"""Shards on the ranks of torch.distributed: every process runs the same program on its rows."""

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from implicit_delta.core.arguments import Counter
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, ImplicitDeltaError, UnsupportedModelError
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import Traffic
from implicit_delta.models.runaway import of_a_part
from implicit_delta.models.sharded.engine import Change, Engine, added, in_double
from implicit_delta.models.sharded.ranks import RankError, Ranks
from implicit_delta.models.sharded.shard import Answer, Ask, Failed, Shard, answered, caught, named
from implicit_delta.models.sharded.units import lives_on_shards

ROUNDED = 1e-6  # of an array: ranks on different machines round differently, and no more
DIVERGED = (
    "The ranks have diverged: rank 0 is at {what}, and rank {rank} at {there} with other numbers. "
    "Usual causes: a seed, weights or settings that differ by rank. Make the same calls on every "
    "rank, with the same seeds, `rng=0`; only rows, their weights and their labels are those of "
    "the rank."
)
OWN_ROWS = (
    "With group= every rank brings its own: give the DataLoader a `DistributedSampler(dataset)`, "
    "or each rank its part, `(X[rank::world], y[rank::world])`."
)
INSIDE = (
    "psi asks the model of all ranks, and it is evaluated on rank 0 alone, where the others do not "
    "answer. Compute psi from the module that it is given."
)


@dataclass
class Inside:
    """Whether rank 0 evaluates psi, and the others wait."""

    psi: bool = False


@dataclass(frozen=True, eq=False)
class Distributed(Engine):
    """One shard on each rank; vectors are replicated, and sums are the same bits on all ranks.

    Attributes
    ----------
    ranks : Ranks
    own : Shard or Failed
        That of this process.
    strided : bool
        Whether rank r of several, R, has the rows r, r + R, ... of a dataset.
    """

    ranks: Ranks
    own: "Shard | Failed"
    strided: bool = False
    counter: Counter = field(default_factory=Counter)
    inside: Inside = field(default_factory=Inside)

    @classmethod
    def of(cls, ranks: Ranks, build: Callable[[], Shard]) -> "Distributed":
        """Build the shard of this rank; an error is raised by all in the first question."""
        with of_a_part():
            own = caught(build)
        if isinstance(own, Failed):
            own = Failed(named(own.error, f"On rank {ranks.rank}"))
        return cls(ranks, own)

    @property
    def traffic(self) -> Traffic:  # type: ignore[override]
        return self.ranks.traffic

    @property
    def count(self) -> int:
        return self.ranks.count

    @property
    def maker(self) -> str:
        return "from_torch"

    @property
    def own_rows(self) -> str:
        return OWN_ROWS

    @property
    def is_primary(self) -> bool:
        return self.ranks.rank == 0

    @property
    def is_collective(self) -> bool:
        return True

    def check_order(self, units: Any) -> None:
        if self.count > 1 and lives_on_shards(units) is None:
            raise EvaluationError(
                "The rows of this model are in the order of the ranks, not of your dataset, and "
                'with sample="training" row i of h has to be row i of the model. Evaluate the '
                "rows where they are: `on_shards(h)`, with a function `h(module, data)` of the "
                "data that the rank has given."
            )

    def check_series(self, what: str) -> None:
        if self.strided:
            raise UnsupportedModelError(
                f"{what} takes the rows for a series, and the DistributedSampler has dealt them "
                "out to the ranks one by one. Give each rank a part of the series, in order: "
                "`from_torch(net, (X[part], y[part]), ..., group=group)`."
            )

    def each(
        self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None, name: bool = True
    ) -> Iterator[Any]:
        """Exchange the answers at once, not when they are walked: a walk may be left early."""
        answer = self._answer(ask, arguments, shares, name)
        return iter(self.ranks.gathered(answer.value, _name(ask)))

    def sum(self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None) -> Any:
        value = in_double(self._answer(ask, arguments, shares, True).value)
        if not isinstance(value, np.ndarray):
            return added(self.ranks.gathered(value, _name(ask)))
        largest, least = self.ranks.most([value.size, -value.size], _name(ask))
        if largest != -least:
            raise RankError(
                f"The answers to {_name(ask)} have up to {largest:.0f} numbers, and {-least:.0f} "
                "on another rank: the ranks have different models."
            )
        return self.ranks.added(value, _name(ask))

    def first(self, ask: Ask, *arguments: Any) -> Any:
        """Ask on rank 0 alone: psi may differ by rank, and so may what it uses."""
        arguments = self._agreed(ask, arguments)
        answer: Answer | Failed | None = None
        if self.is_primary:
            self.inside.psi = True
            try:
                answer = self._local(ask, arguments, False)
            finally:
                self.inside.psi = False
        found = self.ranks.from_first(_sendable(answer), _name(ask))
        return _raised(answer if isinstance(answer, Failed) else found).value

    def any(self, ask: Ask, *arguments: Any) -> Any:
        """Ask the own shard: nothing travels."""
        return _raised(self._local(ask, arguments, False)).value

    def changed(self, change: Change, shares: Sequence[Any]) -> "Distributed":
        """Change the own shard; what goes wrong is raised by all in the next question."""
        [shares] = self._agreed(change, (list(shares),))
        own: Any = self.own
        if isinstance(own, Shard):
            made = caught(lambda: change(own, shares[self.ranks.rank]))
            own = replace(own, model=made) if isinstance(made, FittedModel) else made
        return replace(self, own=own)

    def broadcast_seed(self, seed: int) -> int:
        return int(self.ranks.from_first(seed, "a seed"))

    def gather_labels(self, labels: Any, name: str = "clusters") -> Any:
        if isinstance(labels, tuple) and len(labels) == 2 and all(map(_is_column, labels)):
            return tuple(map(self.gather_labels, labels))
        answer = self._answer(labels_of, (name,), [labels] * self.count, True)
        return np.concatenate(self.ranks.gathered(answer.value, name))

    def _answer(self, ask: Ask, arguments: Any, shares: Sequence[Any] | None, name: bool) -> Answer:
        """Ask the own shard; all ranks go on, or all raise the error of the first that failed."""
        if shares is not None and ask is not labels_of:
            [shares] = self._agreed(ask, (list(shares),))
        own = () if shares is None else (shares[self.ranks.rank],)
        arguments = self._agreed(ask, arguments)
        started = perf_counter()
        answer = self._local(ask, (*own, *arguments), name)
        seconds = perf_counter() - started
        passes = answer.passes if isinstance(answer, Answer) else 0
        failed, most = self.ranks.most(
            [float(isinstance(answer, Failed)), float(passes)], _name(ask), seconds
        )
        if failed:
            self._raise(answer, _name(ask))
        assert isinstance(answer, Answer)
        self.counter.count += int(most) - 1
        self.counter.called(perf_counter() - started)
        return answer

    def _local(self, ask: Ask, arguments: tuple[Any, ...], name: bool) -> "Answer | Failed":
        """Ask the own shard."""
        own = self.own
        if isinstance(own, Failed):
            return own
        answer: Answer | Failed = caught(lambda: answered(own, ask, arguments, name))
        return answer

    def _raise(self, answer: "Answer | Failed", what: str) -> None:
        """Raise the error of the first rank that has one, on all ranks."""
        mine = answer if isinstance(answer, Failed) else None
        found = self.ranks.gathered(_sendable(mine), what)
        first = next(i for i, failed in enumerate(found) if failed is not None)
        raise (mine if mine is not None and first == self.ranks.rank else found[first]).error

    def _agreed(self, ask: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Meet with all ranks at one question with the same numbers; those of rank 0 count."""
        if self.inside.psi:
            raise UnsupportedModelError(INSIDE)
        what = _name(ask)
        found = float(digest(_numbers(values), zlib.crc32(what.encode())))
        largest, least = self.ranks.most([found, -found], what)
        if largest == -least:
            return values
        every = self.ranks.gathered((what, _numbers(values)), what)
        for rank, other in enumerate(every):
            if not _alike(every[0], other):
                raise RankError(DIVERGED.format(what=every[0][0], rank=rank, there=other[0]))
        return _with_numbers(values, iter(every[0][1]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to travel: ranks already work side by side."""
        raise UnsupportedModelError(
            "A model whose rows are on several ranks cannot be copied to other processes. Use "
            "`n_jobs=1`: the ranks work side by side in any case."
        )


def labels_of(shard: Shard, labels: Any, name: str) -> Array:
    """Check that there is a label for each row of this rank."""
    found = np.asarray(labels)
    if len(found) != shard.model.n:
        raise ValueError(
            f"{name} has {len(found)} labels, and this rank has {shard.model.n} rows: give on "
            "every rank the labels of its own rows, in their order."
        )
    return found


def digest(values: Any, start: int) -> int:
    """Reduce arrays, numbers and texts to one number."""
    for value in values:
        array = np.ascontiguousarray(value)
        start = zlib.crc32(f"{array.shape}{array.dtype}".encode(), start)
        plain = array.dtype.kind in "fiub"
        start = zlib.crc32(array.data if plain else repr(array.tolist()).encode(), start)
    return start


def _numbers(values: Any) -> list[Any]:
    """List the arrays and numbers in arguments, one after the other."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += [len(value), *_numbers(value)]
        elif _is_number(value):
            found.append(value)
    return found


def _with_numbers(values: Any, numbers: Iterator[Any]) -> Any:
    """Put other arrays and numbers in the places of those in arguments."""
    made: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            next(numbers)
            made.append(_with_numbers(value, numbers))
        else:
            made.append(next(numbers) if _is_number(value) else value)
    return made if isinstance(values, list) else tuple(made)


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float | str)


def _alike(first: tuple[str, list[Any]], other: tuple[str, list[Any]]) -> bool:
    """Compare arguments up to rounding."""
    if first[0] != other[0] or len(first[1]) != len(other[1]):
        return False
    return all(map(_close, first[1], other[1]))


def _close(one: Any, two: Any) -> bool:
    a, b = np.asarray(one), np.asarray(two)
    if a.shape != b.shape or a.dtype.kind != "f" or b.dtype.kind != "f":
        return a.shape == b.shape and bool(np.all(a == b))
    return bool(np.all(abs(a - b) <= ROUNDED * np.max(abs(a), initial=0.0)))


def _is_column(labels: Any) -> bool:
    return not isinstance(labels, str | bytes) and hasattr(labels, "__len__")


def _name(ask: Callable[..., Any]) -> str:
    return f"`{ask.__name__}`"


def _raised(answer: "Answer | Failed") -> Answer:
    if isinstance(answer, Failed):
        raise answer.error
    return answer


def _sendable(answer: Any) -> Any:
    """Replace an error that cannot travel by its text."""
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception as error:
        if not isinstance(answer, Failed):
            return Failed(TypeError(f"psi returned what cannot be sent to other ranks: {error}"))
        return Failed(ImplicitDeltaError(f"{type(answer.error).__name__}: {answer.error}"))
    return answer
