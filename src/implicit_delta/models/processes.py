"""The processes that work on a model: this one alone, or a coordinator with shards."""

from typing import Any


class Processes:
    """One process that has all rows; engines of shards override what differs.

    Attributes
    ----------
    count : int
        Number of shards; 0 without any.
    is_primary : bool
        False on ranks other than 0, which print nothing.
    """

    count: int = 0
    is_primary: bool = True

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent to shards and received from them so far."""
        return 0, 0

    def broadcast_seed(self, seed: int) -> int:
        """Return the seed of rank 0 on all ranks."""
        return seed

    def gather_labels(self, labels: Any, name: str = "clusters") -> Any:
        """Concatenate labels of rows that ranks have given, each for its own rows."""
        return labels


ONE_PROCESS = Processes()
