"""Shards on the workers of a Dask cluster: models stay there, only vectors travel."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from implicit_delta.core.arguments import Counter
from implicit_delta.core.optional import optional
from implicit_delta.errors import ImplicitDeltaError, UnsupportedModelError
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import Traffic
from implicit_delta.models.sharded.engine import Change, Engine, added, bytes_of
from implicit_delta.models.sharded.serial import size_of
from implicit_delta.models.sharded.shard import (
    Answer,
    Ask,
    Failed,
    Shard,
    answered,
    built,
    caught,
    label_of,
)

PATIENCE = 30.0  # seconds without any worker after which an answer is given up
GLANCE = 1.0  # seconds between looks at the cluster while an answer is awaited
ONCE = 2**16  # bytes of arguments above which they are sent once to the cluster, not with each ask
SHIPPED = 4  # functions that stay on the cluster: psi, and what is made of it
COPIED = 2**26  # bytes at which a shard is taken for too heavy to be moved to an idle worker


class Packed(NamedTuple):
    """A function of the user, pickled."""

    content: bytes


@dataclass(frozen=True, eq=False)
class Dask(Engine):
    """Shards as results in the memory of workers, which Dask computes again if a worker dies.

    Attributes
    ----------
    client : distributed.Client
    shards : tuple of Future
    labels : tuple of str
    """

    client: Any
    shards: tuple[Any, ...]
    labels: tuple[str, ...]
    counter: Counter = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    shipped: list[tuple[Any, Any]] = field(default_factory=list)  # functions, and where they are

    @property
    def count(self) -> int:
        return len(self.shards)

    def each(
        self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None, name: bool = True
    ) -> Iterator[Any]:
        answers = self._asked(range(self.count), ask, arguments, shares, name)
        answers.reverse()  # the cluster may forget each that has come
        return self.counted(self._awaited(answers.pop(), i) for i in range(self.count))

    def sum(self, ask: Ask, *arguments: Any, shares: Sequence[Any] | None = None) -> Any:
        """Add up on the cluster, in the order of the parts: one answer comes back."""
        started = perf_counter()
        answers = self._asked(range(self.count), ask, arguments, shares, True)
        total = self._awaited(self.client.submit(_added, answers, pure=False), 0)
        self.counter.count += total.passes - 1
        self.counter.called(perf_counter() - started)
        return total.value

    def first(self, ask: Ask, *arguments: Any) -> Any:
        [answer] = self._asked(range(1), ask, arguments, None, False)
        return self._awaited(answer, 0).value

    def changed(self, change: Change, shares: Sequence[Any]) -> "Dask":
        check_open(self.client)
        self.traffic.sent += sum(map(bytes_of, shares))
        made = [
            self.client.submit(_changed, shard, change, share, pure=False)
            for shard, share in zip(self.shards, shares, strict=True)
        ]
        return replace(self, shards=tuple(made))

    def _asked(
        self,
        places: range,
        ask: Ask,
        arguments: tuple[Any, ...],
        shares: Sequence[Any] | None,
        name: bool,
    ) -> list[Any]:
        """Submit a question to some shards."""
        check_open(self.client)
        arguments = tuple(map(self._shipped, arguments))
        size = sum(map(bytes_of, arguments))
        given: Any = arguments
        if size > ONCE and len(places) > 1:
            given = self.client.scatter([arguments], broadcast=False, hash=False)[0]
        asked = []
        for i in places:
            own = () if shares is None else (shares[i],)
            self.traffic.sent += size + sum(map(bytes_of, own))
            future = self.client.submit(_answer, self.shards[i], ask, own, given, name, pure=False)
            asked.append(future)
        return asked

    def _awaited(self, future: Any, i: int) -> Answer:
        """Wait for an answer; what goes wrong on a worker is an error here, and names the part."""
        distributed = optional("distributed", "from_shards(client=)")
        since = None
        while True:
            try:
                answer: Answer | Failed = future.result(timeout=GLANCE)
            except (TimeoutError, distributed.TimeoutError):
                since = self._idle_since(since, self.labels[i])
            except distributed.KilledWorker as error:
                raise ImplicitDeltaError(
                    f"Workers died while they worked on {self.labels[i]}, again and again: {error} "
                    "Usual cause: a part that does not fit into the memory of a worker. Make "
                    "smaller parts, or give workers more memory."
                ) from error
            except (distributed.CancelledError, OSError) as error:
                raise ImplicitDeltaError(
                    f"The Dask cluster has gone while {self.labels[i]} was asked: {error!s:.200} "
                    "Start it again, and make the model again with `from_shards`."
                ) from error
            else:
                if isinstance(answer, Failed):
                    raise answer.error
                self.traffic.received += bytes_of(answer.value)
                return answer

    def _idle_since(self, since: float | None, label: str) -> float | None:
        """Give up when there has been no worker for a while: Dask itself would wait forever."""
        check_open(self.client)
        if self.client.scheduler_info().get("workers"):
            return None
        now = perf_counter()
        if since is not None and now - since > PATIENCE:
            raise ImplicitDeltaError(
                f"The Dask cluster has had no worker for {PATIENCE:.0f} s while {label} was asked: "
                "they died or were stopped. Look at their logs (memory is the usual cause), start "
                "workers, and ask again."
            )
        return since or now

    def _shipped(self, argument: Any) -> Any:
        """Pickle a function of the user, and send one that is large once for all its calls."""
        if not callable(argument):
            return argument
        known = next((there for own, there in self.shipped if own is argument), None)
        if known is not None and getattr(known, "status", "finished") == "finished":
            return known
        packed: Any = packed_of(argument, getattr(argument, "__name__", "psi"))
        self.traffic.sent += len(packed.content)
        if len(packed.content) > ONCE:
            packed = self.client.scatter([packed], broadcast=True, hash=False)[0]
        self.shipped[:] = [*self.shipped[1 - SHIPPED :], (argument, packed)]
        return packed

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to travel: shards already work side by side."""
        raise UnsupportedModelError(
            "A model whose shards live on a Dask cluster cannot be copied to other processes. Use "
            "`n_jobs=1`: its shards work side by side in any case."
        )


def dask_engine(build: Callable[[Any], Any], parts: Any, client: Any) -> Dask:
    """Build the shards on the workers that hold the parts."""
    optional("distributed", "from_shards(client=)")
    if not callable(getattr(client, "submit", None)) or not hasattr(client, "scheduler_info"):
        raise TypeError(
            f"client is a `distributed.Client`, not {type(client).__name__}: "
            "`from dask.distributed import Client; client = Client()`."
        )
    if getattr(client, "asynchronous", False):
        raise TypeError("client is asynchronous: give a `Client(..., asynchronous=False)`.")
    check_open(client)
    listed, packed = _parts(parts), packed_of(build, "build")
    labels = tuple(label_of(i, part) for i, part in enumerate(listed))
    where = [_on_cluster(client, part) for part in listed]
    made = [
        _submitted(client, packed, part, label) for part, label in zip(where, labels, strict=True)
    ]
    return Dask(client, tuple(made), labels)


def _parts(parts: Any) -> list[Any]:
    """Take the partitions of a Dask collection, or the parts as they are."""
    dask = optional("dask", "from_shards(client=)")
    if not dask.is_dask_collection(parts):
        return list(parts)
    blocks = parts.to_delayed()
    shape: tuple[int, ...] = getattr(blocks, "shape", (len(blocks),))
    if max(shape[1:], default=1) > 1:
        raise ValueError(
            f"The Dask array has {shape[1]} chunks across its columns, and a part is some rows "
            "with all columns: `array.rechunk({0: 'auto', 1: -1})`."
        )
    return list(blocks.ravel() if hasattr(blocks, "ravel") else blocks)


def _on_cluster(client: Any, part: Any) -> Any:
    """Compute what is delayed on the cluster, and leave it there."""
    dask = optional("dask", "from_shards(client=)")
    delayed, _ = dask.base.unpack_collections(part)
    return client.compute(dask.delayed(part)) if delayed else part


def _submitted(client: Any, packed: Packed, part: Any, label: str) -> Any:
    try:
        return client.submit(_build, packed, part, label, pure=False)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise TypeError(
            f"{label} cannot be sent to the workers: {error.__cause__ or error!s:.200}. Give "
            "paths, slices, tables or delayed objects."
        ) from error


def check_open(client: Any) -> None:
    """Refuse a client that is closed."""
    if client.status in ("closed", "closing"):
        raise ImplicitDeltaError(
            "The Dask client of this model is closed, and its shards are gone with it. Keep it "
            "open as long as the model is used, or make the model again with `from_shards` and a "
            "new `Client`."
        )


def packed_of(function: Any, name: str) -> Packed:
    """Pickle a function; one that cannot travel is refused by name."""
    try:
        return Packed(optional("cloudpickle", "from_shards(client=)").dumps(function))
    except Exception as error:
        raise TypeError(
            f"{name} cannot be sent to the workers of the Dask cluster: {error}. It holds what "
            "lives in this process alone (a lock, a connection, an open file, a generator): make "
            f"that inside of {name}, where it is used."
        ) from error


def _opened(argument: Any) -> Any:
    return pickle.loads(argument.content) if isinstance(argument, Packed) else argument


def _build(build: Packed, part: Any, label: str) -> "Shard | Failed":
    _weigh_shards()
    shard: Shard | Failed = _sendable(caught(lambda: built(_opened(build), part, label)))
    return shard


def _changed(shard: "Shard | Failed", change: Change, share: Any) -> "Shard | Failed":
    if isinstance(shard, Failed):
        return shard
    made: Shard | FittedModel | Failed = _sendable(caught(lambda: change(shard, share)))
    return replace(shard, model=made) if isinstance(made, FittedModel) else made


def _answer(
    shard: "Shard | Failed", ask: Ask, own: Any, arguments: Any, name: bool
) -> "Answer | Failed":
    if isinstance(shard, Failed):
        return shard

    def answer() -> Answer:
        return answered(shard, ask, (*own, *map(_opened, arguments)), name)

    found: Answer | Failed = caught(answer)
    of_user = any(isinstance(argument, Packed) for argument in arguments)
    sent: Answer | Failed = _sendable_answer(found) if of_user else _sendable(found)
    return sent


def _sendable_answer(answer: "Answer | Failed") -> "Answer | Failed":
    """Replace what a function of the user returned by an error, if it cannot travel."""
    if isinstance(answer, Failed) or _travels(answer):
        sent: Answer | Failed = _sendable(answer)
        return sent
    kind = type(np.asarray(answer.value).flat[0]).__name__
    return Failed(TypeError(f"psi returned what cannot be sent from a worker: {kind}."))


def _sendable(result: Any) -> Any:
    """Replace an error that cannot travel by one without causes, or by its text."""
    if not isinstance(result, Failed) or _travels(result):
        return result
    error = result.error
    error.__cause__ = error.__context__ = None
    text = ImplicitDeltaError(f"{type(error).__name__}: {error}")
    return result if _travels(result) else Failed(text)


def _travels(result: Any) -> bool:
    try:
        pickle.loads(optional("cloudpickle", "from_shards(client=)").dumps(result))
    except Exception:
        return False
    return True


def _added(answers: "list[Answer | Failed]") -> "Answer | Failed":
    failed = next((answer for answer in answers if isinstance(answer, Failed)), None)
    if failed is not None:
        return failed
    passes = max(answer.passes for answer in answers if isinstance(answer, Answer))
    return Answer(added(answer.value for answer in answers if isinstance(answer, Answer)), passes)


def _weigh_shards() -> None:
    """Tell Dask what a shard weighs, so that it brings work to models and not models to work."""
    sizeof = optional("dask.sizeof", "from_shards(client=)").sizeof
    sizeof.register(Shard, lambda shard: COPIED + size_of(shard.model))
