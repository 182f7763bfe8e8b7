"""A limit on the calls of a user's function that a search may make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import ConvergenceError, UnsupportedModelError

FEWEST, HESSIANS = 3000, 30  # calls, and second differences of d parameters, that a search may take


def most_calls(given: Any, d: int) -> int:
    """Check ``max_calls=``; by default what leaves nearly all searches alone."""
    if given is None:
        return max(FEWEST, HESSIANS * d * (d + 1))
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise ValueError(f"max_calls is a positive whole number, or None, not {given!r}.")
    return int(given)


@dataclass(eq=False)
class Limited:
    """A function of the parameters, (d,) to an array, that may be called a limited number of times.

    Attributes
    ----------
    function : callable
    most : int
    height : callable
        Of the parameters and what the function returns: the objective, which tells the best point.
    name : str
        What the function is called in messages.
    limits : tuple of two arrays (d,), optional
        Bounds of the parameters. Beyond them the function is not called: it may not be defined
        there, or take forever, and a search backs off from nan.
    """

    function: Callable[[Array], Any]
    most: float
    height: Callable[[Array, Array], float]
    name: str = "the function"
    limits: Limits = None
    made: int = 0
    first: float = -np.inf
    best: float = -np.inf
    theta: Array | None = None
    shape: tuple[int, ...] = ()

    @property
    def left(self) -> float:
        """Calls that may still be made."""
        return self.most - self.made

    def __call__(self, theta: Array) -> Any:
        """Call the function, unless the calls are spent."""
        if self.made >= self.most:
            raise self.spent()
        self.made += 1
        if self.theta is not None and self._is_beyond(theta):
            return np.full(self.shape, np.nan)
        found = self.function(theta)
        if isinstance(theta, np.ndarray):
            self._note(np.array(theta), found)
        return found

    def _is_beyond(self, theta: Array) -> bool:
        if self.limits is None or not isinstance(theta, np.ndarray):
            return False
        return bool(np.any(theta < self.limits[0]) or np.any(theta > self.limits[1]))

    def _note(self, theta: Array, found: Any) -> None:
        values = np.asarray(found, dtype=np.float64)
        if self.theta is not None and values.shape != self.shape:
            raise UnsupportedModelError(
                f"{self.name[0].upper()}{self.name[1:]} returned {values.size} values, and "
                f"{self.shape[0]} at other parameters. Rows must not depend on the parameters: a "
                "row that is left out has to count in another way, such as by a term of its own."
            )
        with np.errstate(all="ignore"):
            height = float(self.height(theta, values))
        self.first = height if self.theta is None else self.first
        if self.theta is None or height > self.best:
            self.best, self.theta, self.shape = height, theta, values.shape

    def spent(self) -> ConvergenceError:
        """Say how far the search got; the error carries the best point."""
        error = ConvergenceError(
            f"The search has made the {self.most:.0f} calls of {self.name} that it may, and is not "
            f"at an end. The objective has risen from {self.first:.6g} to {self.best:.6g}, at "
            f"{np.array2string(np.asarray(self.theta), precision=6, threshold=8)} (`error.theta`). "
            "Usual causes: a start far away, a solution at infinity (separated classes, a variance "
            "that goes to zero), nearly redundant parameters, a function that is periodic in a "
            "parameter, or one that is noisy or has kinks (absolute errors, single precision). "
            "Go on from there, `start=error.theta`; allow more, "
            f"`max_calls={10 * self.most:.0f}`; or give other starts."
        )
        error.theta = self.theta
        return error


def is_spent(error: object) -> bool:
    """Whether an error says that the calls of a search are spent."""
    return getattr(error, "theta", None) is not None
