"""Caches keyed by an array's value: of one entry, and of the most recent ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

MOST_RESULTS = 5000  # enough for all second differences of 40 parameters
MOST_BYTES = 2**26


Key: TypeAlias = np.ndarray | tuple[np.ndarray, ...]


@dataclass
class LastCache:
    """Results for the last array, or tuple of arrays, by name: those for another one are dropped.

    The arrays are kept as they are, so they must not change later. A pickled cache is empty.
    """

    key: Any = None
    results: dict[str, Any] = field(default_factory=dict)

    def get(self, key: Key, name: str, make: Callable[[], Any]) -> Any:
        """Return the result with this name, made now unless it is known for this key."""
        if not _same(self.key, key):
            self.key, self.results = key, {}
        results = self.results  # of this key, whatever `make` or another thread asks for
        if name not in results:
            results[name] = make()
        return results[name]

    def copied(self) -> "LastCache":
        """Copy the cache, with what it holds so far."""
        return LastCache(self.key, dict(self.results))

    def holds(self, key: Key, name: str) -> bool:
        """Whether the result with this name is known for this key."""
        return name in self.results and _same(self.key, key)

    def __reduce__(self) -> tuple[type["LastCache"], tuple[()]]:
        return LastCache, ()


def _same(known: Key | None, key: Key) -> bool:
    """Compare keys: by identity first, as weights are one object throughout."""
    if known is None or known is key:
        return known is key
    if isinstance(known, tuple) and isinstance(key, tuple):
        return len(known) == len(key) and all(map(_same, known, key))
    return np.array_equal(known, key)


@dataclass
class Recent:
    """The results of one function for the most recent arrays; a pickled one has none."""

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

    def copied(self) -> "Recent":
        """Copy the cache, with what it holds so far."""
        return Recent(dict(self.results))

    def sample(self, key: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Take one array with its result, this one if it is remembered; None without any."""
        name = key.tobytes()
        if name not in self.results:
            name = next(reversed(self.results), b"")
        found = self.results.get(name)
        return None if found is None else (np.frombuffer(name, dtype=key.dtype), found)

    @contextmanager
    def isolated(self, empty: bool) -> Iterator[None]:
        """Drop afterwards what is new; begin with an empty cache if `empty`."""
        kept, self.results = self.results, {} if empty else self.results.copy()
        try:
            yield
        finally:
            self.results = kept

    def __reduce__(self) -> tuple[type["Recent"], tuple[()]]:
        return Recent, ()
