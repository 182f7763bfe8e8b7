"""A memory of one theta."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from implicit_delta._typing import Array


@dataclass
class Last:
    """What was made for the theta asked for last, by name. The array must not change later."""

    theta: Array | None = None
    made: dict[str, Any] = field(default_factory=dict)

    def get(self, theta: Array, name: str, make: Callable[[], Any]) -> Any:
        """Return what has this name, made now if theta is another or it is the first time."""
        if self.theta is None or not np.array_equal(self.theta, theta):
            self.theta = theta
            self.made.clear()
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]
