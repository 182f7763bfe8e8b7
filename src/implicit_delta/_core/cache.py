"""One-entry cache keyed by an array's value."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class LastCache:
    """Results for the last array only, by name: whatever was made for another array is dropped.

    The array is kept as it is, so it must not change later. A pickled cache is empty.
    """

    key: np.ndarray | None = None
    results: dict[str, Any] = field(default_factory=dict)

    def get(self, key: np.ndarray, name: str, make: Callable[[], Any]) -> Any:
        """Return the result with this name, made now unless it is known for this array."""
        if self.key is None or not np.array_equal(self.key, key):
            self.key = key
            self.results.clear()
        if name not in self.results:
            self.results[name] = make()
        return self.results[name]

    def holds(self, key: np.ndarray, name: str) -> bool:
        """Whether the result with this name is known for this array."""
        return name in self.results and self.key is not None and np.array_equal(self.key, key)

    def __reduce__(self) -> tuple[type["LastCache"], tuple[()]]:
        return LastCache, ()
