"""Budget of passes over the data: count what is spent, refuse to spend more, foretell a cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from implicit_delta.errors import ConvergenceError


@dataclass
class Budget:
    """Passes over the data that may be spent; None for as many as it takes."""

    most: float | None = None
    spent: float = 0.0

    def spend(self, passes: float, known: str | Callable[[], str] = "") -> None:
        """Count some passes; raise with what is known so far if they exceed the budget."""
        self.spent += passes
        if self.most is not None and self.spent > self.most:
            text = known if isinstance(known, str) else known()
            raise ConvergenceError.over_budget(self.most, self.spent, text)


def check_budget(budget: Any) -> None:
    """Refuse a budget that is no positive number of passes."""
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if budget is not None and not (number and budget > 0 and math.isfinite(budget)):
        raise ValueError(
            f"budget is a positive number of passes over the data, or None, not {budget!r}."
        )


def foretold(steps: float, passes: float, seconds: float) -> str:
    """Write a cost that is expected."""
    return f"about {steps:.2g} steps, {passes:.2g} passes over the data, {seconds:.2g} s"
