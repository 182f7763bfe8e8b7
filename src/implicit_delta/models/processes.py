"""The processes that work on a model: this one alone, or a coordinator with shards."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Traffic:
    """Bytes that have left the coordinator for shards, and come from them."""

    sent: int = 0
    received: int = 0


class Processes:
    """One process that has all rows; engines of shards override what differs.

    Attributes
    ----------
    traffic : Traffic
        Bytes sent to shards and received from them so far.
    """

    traffic: Traffic = Traffic()

    @property
    def count(self) -> int:
        """Number of shards; 0 without any."""
        return 0

    @property
    def is_primary(self) -> bool:
        """False on ranks other than 0, which print nothing."""
        return True

    @property
    def is_collective(self) -> bool:
        """True if all ranks have to make the same calls, and printing makes none."""
        return False

    def broadcast_seed(self, seed: int) -> int:
        """Return the seed of rank 0 on all ranks."""
        return seed

    def gather_labels(self, labels: Any, name: str = "clusters") -> Any:
        """Concatenate labels of rows that ranks have given, each for its own rows."""
        return labels

    def check_order(self, units: Any) -> None:
        """Raise if units of the training rows may be in another order than the model's rows."""

    def check_series(self, what: str) -> None:
        """Raise if the rows, which are taken for a series, are not in the order of the data."""


ONE_PROCESS = Processes()


def processes_of(model: Any) -> Processes:
    """Return the processes that work on the rows of a model: this one, unless the rows say so."""
    found: Processes = getattr(model.rows, "processes", ONE_PROCESS)
    return found
