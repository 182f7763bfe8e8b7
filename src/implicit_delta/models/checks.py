"""Check the functions that a user gives: repeatable, and with the derivative that is claimed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from implicit_delta._core.arguments import count_terms
from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.numerics.derivatives import differentiate

SAME = (
    1e-10  # of the largest term: sums in another order differ by less, noise that matters by more
)
STEP = 1e-2  # of the size of each parameter
COMMON_NUMBERS = (
    "Give it an argument `rng` and take all random numbers from it, `def loglik(theta, rng)`: it "
    "then gets the same ones at every theta."
)
WRONG = 1e-3  # relative: a derivative that is coded right agrees far better


def check_repeatable(function: Callable[[Array], Any], point: Array, name: str) -> Any:
    """Call a function (d,) to (n,) twice; return the result, in its type, if it is the same."""
    first = np.array(function(point.copy()))
    count_terms(first, name)
    second = np.asarray(function(point.copy()))
    if first.shape == second.shape:
        size = float(np.max(abs(first.astype(np.float64))))
        gap = float(np.max(abs(first.astype(np.float64) - second)))
        if gap <= SAME * size:
            return first
        found = f"the terms differ by up to {gap:.2g}"
    else:
        found = f"{first.size} terms, then {second.size}"
    raise UnsupportedModelError(
        f"{name}(theta) was called twice with the same parameters and returned two results "
        f"({found}): it draws fresh random numbers at each call, or keeps a state between calls. "
        + (COMMON_NUMBERS if name == "loglik" else f"Draw all of them once, outside of {name}.")
    )


def check_derivative(
    function: Callable[[Array], Any], derivative: Callable[[Array], Any], point: Array, name: str
) -> None:
    """Compare a derivative (d,) to (n, d) with differences of its function, row by row.

    Along one random direction; skipped where the differences themselves are uncertain.
    """
    step = STEP * np.maximum(abs(point), 0.1) * np.random.default_rng(0).normal(size=point.size)
    try:
        numeric = differentiate(
            lambda theta: np.array(function(theta.copy()), dtype=np.float64), point, step[:, None]
        )
    except FloatingPointError:
        return
    claimed = np.asarray(derivative(point.copy()), dtype=np.float64) @ step
    found, size = numeric.value[:, 0], float(np.max(abs(numeric.value)))
    gaps = abs(claimed - found) - 10 * numeric.error[:, 0]
    row = int(np.argmax(gaps))
    if gaps[row] > WRONG * max(size, float(np.max(abs(claimed)))):
        raise ValueError(
            f"{name}(theta) is not the derivative of the function beside it: along one random "
            f"direction row {row} changes by {found[row]:.6g}, and {name} is {claimed[row]:.6g}. "
            "Usual causes: a factor of the chain rule, a sign, columns in another order, "
            f"a mean instead of a sum. Leave `{name}=` out to have it taken numerically."
        )
