"""A memory of one argument."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Last:
    """What was made for the array asked for last, by name. The array must not change later."""

    asked: np.ndarray | None = None
    made: dict[str, Any] = field(default_factory=dict)

    def get(self, asked: np.ndarray, name: str, make: Callable[[], Any]) -> Any:
        """Return what has this name, made now if the array is another or it is the first time."""
        if self.asked is None or not np.array_equal(self.asked, asked):
            self.asked = asked
            self.made.clear()
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]
