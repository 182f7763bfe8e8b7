"""Ranks of torch.distributed: collectives with patience, in a group of their own.

Objects travel by pickle between the ranks of the user's own job, and never from a file.
"""

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import distributed

from implicit_delta.core.types import Array
from implicit_delta.models.processes import Traffic

PATIENCE = 60.0  # seconds to wait for a rank, and at least
SLOWER = 10.0  # times the own seconds for the same work: shards are uneven
VARIABLE = "IMPLICIT_DELTA_PATIENCE"
GONE = (
    "A process of the group is gone, or was not at {what} within {seconds:.0f} s. Usual causes: it "
    "was killed (memory), it raised an error outside of this library, or the call stands behind "
    "`if rank == 0:`, while every rank has to make the same calls in the same order. Look at the "
    "log of the other ranks; if one is only slow, {variable}=600 waits longer. "
    "(torch.distributed: {error})"
)


class RankError(RuntimeError):
    """A rank that is gone, or at another place of the program.

    It is none of the package's errors, which are about one fit, so that a bootstrap or a search
    that goes on after a fit has failed does not go on after this.
    """


@dataclass(frozen=True, eq=False)
class Ranks:
    """The processes of a group, and what they say to each other.

    All collectives are in a gloo group of the same ranks: sums are of NumPy vectors in float64,
    and never mix with the user's own collectives.
    """

    group: Any
    rank: int
    count: int
    traffic: Traffic = field(default_factory=Traffic)

    def most(self, numbers: list[float], what: str, seconds: float = 0.0) -> list[float]:
        """Take the largest of each number over all ranks; the first thing in which all meet."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        options = distributed.AllreduceOptions()
        options.reduceOp = distributed.ReduceOp(distributed.ReduceOp.MAX)
        self._wait(lambda: self.group.allreduce([tensor], options), options, what, seconds)
        return [float(number) for number in tensor]

    def added(self, value: Array, what: str) -> Array:
        """Add arrays of one shape up on the first rank: the same bits for all."""
        tensor = torch.from_numpy(np.array(value, dtype=np.float64))
        options = distributed.ReduceOptions()
        options.rootRank = 0
        self._wait(lambda: self.group.reduce([tensor], options), options, what)
        self._broadcast(tensor, what)
        self._count(tensor.numel() * 8, tensor.numel() * 8)
        return tensor.numpy()

    def gathered(self, value: Any, what: str) -> list[Any]:
        """Exchange objects, in the order of the ranks."""
        own = pickle.dumps(value)
        [longest] = self.most([float(len(own))], what)
        head = len(own).to_bytes(8, "little")
        tensor = _bytes(head + own, 8 + int(longest))
        found = [torch.empty_like(tensor) for _ in range(self.count)]
        gather = distributed.all_gather
        self._wait(lambda: gather(found, tensor, self.group, async_op=True), None, what)
        self._count(len(own), sum(map(_length, found)))
        return [_loaded(one) for one in found]

    def from_first(self, value: Any, what: str) -> Any:
        """Take the object of the first rank."""
        own = pickle.dumps(value) if self.rank == 0 else b""
        [longest] = self.most([float(len(own))], what)
        tensor = _bytes(len(own).to_bytes(8, "little") + own, 8 + int(longest))
        self._broadcast(tensor, what)
        size = _length(tensor)
        self._count(*((size, 0) if self.rank == 0 else (0, size)))
        return _loaded(tensor)

    def _broadcast(self, tensor: Any, what: str) -> None:
        options = distributed.BroadcastOptions()
        options.rootRank = 0
        self._wait(lambda: self.group.broadcast([tensor], options), options, what)

    def _wait(self, start: Callable[[], Any], options: Any, what: str, own: float = 0.0) -> None:
        """Wait for the others, but not forever."""
        seconds = max(patience(), SLOWER * own)
        if options is not None:
            options.timeout = timedelta(seconds=seconds)
        try:
            start().wait()
        except RuntimeError as error:
            raise RankError(
                GONE.format(what=what, seconds=seconds, variable=VARIABLE, error=f"{error!s:.200}")
            ) from error

    def _count(self, sent: int, received: int) -> None:
        self.traffic.sent += sent
        self.traffic.received += received


def ranks_of(group: Any) -> Ranks:
    """Check the group that a user gave, and make one of the same ranks."""
    if not distributed.is_initialized():
        raise ValueError(
            "group is given, and torch.distributed is not initialized: start the script by "
            "`torchrun` and call `torch.distributed.init_process_group()` before."
        )
    if not isinstance(group, distributed.ProcessGroup):
        raise TypeError(
            "group is a process group that this rank is a member of, such as "
            f"`torch.distributed.group.WORLD`, not {group!r:.60}."
        )
    own = _own_group(group)
    return Ranks(own, distributed.get_rank(own), distributed.get_world_size(own))


@lru_cache(maxsize=8)
def _own_group(group: Any) -> Any:
    """Make a gloo group of the same ranks."""
    members = distributed.get_process_group_ranks(group)
    seconds = patience()
    try:
        return distributed.new_group(
            members, timedelta(seconds=seconds), "gloo", use_local_synchronization=True
        )
    except RuntimeError as error:
        what = "from_torch(group=)"
        raise RankError(
            GONE.format(what=what, seconds=seconds, variable=VARIABLE, error=f"{error!s:.200}")
        ) from error


def patience() -> float:
    """Seconds to wait for other ranks, by the environment."""
    given = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(given) if given else PATIENCE
    except ValueError:
        seconds = np.nan
    if not 0 < seconds < np.inf:
        raise ValueError(f"The environment variable {VARIABLE} is {given!r}: give seconds, 600.")
    return seconds


def _bytes(content: bytes, size: int) -> Any:
    return torch.frombuffer(bytearray(content.ljust(size, b"\0")), dtype=torch.uint8)


def _length(tensor: Any) -> int:
    return int.from_bytes(tensor[:8].numpy().tobytes(), "little")


def _loaded(tensor: Any) -> Any:
    return pickle.loads(tensor[8 : 8 + _length(tensor)].numpy().tobytes())
