"""Caches keyed by an array's value: of one entry, and of the most recent ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_RESULTS = 5000  # enough for all second differences of 40 parameters
MOST_BYTES = 2**26


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


@dataclass
class Recent:
    """The results of one function for the most recent arrays; a pickled one has none.

    Attributes
    ----------
    function : callable
        Whose results these are.
    units : array, optional
        Lengths that suited it last: a first guess for the next time.
    origin : array, optional
        Where it was differentiated with care.
    """

    function: Callable[..., Any]
    units: np.ndarray | None = None
    origin: np.ndarray | None = None
    results: dict[bytes, np.ndarray] = field(default_factory=dict)

    def get(self, key: np.ndarray, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return a copy of the result for this array, made now unless it is remembered."""
        name = key.tobytes()
        result = self.results.pop(name, None)
        result = make() if result is None else result
        self.results[name] = result
        most = min(MOST_RESULTS, MOST_BYTES // max(result.nbytes, 1))
        while len(self.results) > max(most, 1):
            del self.results[next(iter(self.results))]
        return result.copy()

    def sample(self, key: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Take one array with its result, this one if it is remembered; None without any."""
        name = key.tobytes()
        if name not in self.results:
            name = next(reversed(self.results), b"")
        found = self.results.get(name)
        return None if found is None else (np.frombuffer(name, dtype=key.dtype), found)

    def emptied(self) -> "Recent":
        """Build a memory of the same function without results."""
        return Recent(self.function, self.units, self.origin)

    @contextmanager
    def apart(self, empty: bool) -> Iterator[None]:
        """Forget afterwards what is new, and begin with an empty memory if so told."""
        kept, self.results = self.results, {} if empty else self.results.copy()
        try:
            yield
        finally:
            self.results = kept

    def __reduce__(self) -> tuple[type["Recent"], tuple[Any, ...]]:
        return Recent, (self.function, self.units, self.origin)
