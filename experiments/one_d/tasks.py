"""The paper's two synthetic tasks, with the settings of its appendix."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

NOISE = 0.1


@dataclass(frozen=True)
class Task:
    """A regression with known truth.

    Attributes
    ----------
    truth : callable
        Expected y at x.
    inputs : callable
        ``inputs(rng, n)`` draws or fixes the x of one data set.
    n : int
        Observations of one data set.
    rate, refit_rate : float
        Steps of gradient descent on half the sum of squared errors, without and with psi.
    gap : (float, float)
        Range of the "in-between" uncertainty: inside the inputs, but on the sin task
        between its two ranges.
    """

    name: str
    formula: str
    truth: Callable
    inputs: Callable
    n: int
    rate: float
    refit_rate: float
    gap: tuple[float, float]

    def draw(self, rng, n=None):
        """One data set (x, y)."""
        x = self.inputs(rng, n or self.n)
        return x, self.truth(x) + NOISE * rng.normal(size=x.size)


def grid(points):
    """Grid of inputs for predictions, over [-2, 2]."""
    return np.linspace(-2, 2, points)


def _two_ranges(rng, n):
    left = np.linspace(-1.5, -0.7, n // 2, endpoint=False)
    return np.concatenate([left, np.linspace(0.35, 1.15, n - n // 2, endpoint=False)])


SIN = Task(
    name="sin",
    formula=r"$y = -\sin(3x - \frac{3}{10}) + \frac{1}{10}\epsilon$",
    truth=lambda x: -np.sin(3 * x - 0.3),
    inputs=_two_ranges,
    n=160,
    rate=1 / 200,
    refit_rate=1 / 2000,
    gap=(-0.7, 0.35),
)
QUADRATIC = Task(
    name="quadratic",
    formula=r"$y = \frac{1}{10}x^2 - \frac{1}{2}x + 5 + \frac{1}{10}\epsilon$",
    truth=lambda x: x**2 / 10 - x / 2 + 5,
    inputs=lambda rng, n: rng.normal(size=n),
    n=25,
    rate=1 / 100,
    refit_rate=1 / 100,
    gap=(-1.0, 1.0),
)
TASKS = {task.name: task for task in (SIN, QUADRATIC)}
