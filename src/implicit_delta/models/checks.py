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
    found = difference(first, np.asarray(function(point.copy())))
    if not found:
        return first
    raise UnsupportedModelError(
        f"{name}(theta) was called twice with the same parameters and returned two results "
        f"({found}): it draws fresh random numbers at each call, or keeps a state between calls. "
        + (COMMON_NUMBERS if name == "loglik" else f"Draw all of them once, outside of {name}.")
    )


def check_unchanged(before: Array, after: Array) -> None:
    """Compare the terms of the fit with those of now, at the same parameters."""
    found = difference(before, after)
    if found:
        raise UnsupportedModelError(
            f"The log-likelihood has changed since the fit: at the same parameters {found}. Usual "
            "causes: its data were changed in place (`y += 1`, a frame that was sorted or "
            "filled), a variable that it uses was assigned anew, as in a loop over data sets. Fit "
            "again, with a function that holds a copy: `y = y.copy()` before `def loglik(theta)`; "
            "in a loop, make the function in a function of its own."
        )


def difference(first: Array, second: Array) -> str:
    """Tell how two results of the same call differ; nothing if it is by rounding."""
    if first.shape != second.shape:
        return f"{first.size} terms, then {second.size}"
    if np.array_equal(first, second, equal_nan=True):
        return ""
    first = first.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(abs(first - second), nan=np.inf)[first != second].max()
    same = gap <= SAME * float(np.max(abs(first[np.isfinite(first)]), initial=0.0))
    return "" if same else f"the terms differ by up to {gap:.2g}"


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
