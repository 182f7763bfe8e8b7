"""Check the functions that a user gives: repeatable, and with the derivative that is claimed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.units import sizes
from implicit_delta.core.arguments import count_terms, refuse_masked
from implicit_delta.core.rounding import eps_of, sum_rounding
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError

# Of the largest term: sums of up to 3e9 summands in another order differ by less in float64, and
# noise that matters by more.
SAME = 1e-10
STEP = 0.1  # of the size of each parameter, or of the error that the claimed derivative gives it
ASIDE = 0.1  # of the size of each parameter
COMMON_NUMBERS = (
    "Give it an argument `rng` and take all random numbers from it, `def loglik(theta, rng)`: it "
    "then gets the same ones at every theta."
)
WRONG = 1e-3  # relative: a derivative that is coded right agrees far better
# Rounding errors of a term: differences over a tenth of a step, extrapolated, have some ten.
ROUNDED = 64
BESIDE = 0.25  # of a standard error, of a mixture of all parameters
MOST_SHRINKS = 5  # times 4: the domain may end nearby
UNMOVED = "It returns the same rows there: does it use its argument, or a cache?"
STALE = (
    "Usual causes: something in it was computed once, at the fit (fitted values, a weight, a "
    "cache), some rows or a column have another formula, a factor that is one at the fit."
)


def check_repeatable(function: Callable[[Array], Any], point: Array, name: str) -> Any:
    """Call a function (d,) to (n,) twice; return the result, in its type, if it is the same."""
    found = function(point.copy())
    refuse_masked(found, name)
    first = np.array(found)
    count_terms(first, name)
    _refuse_random(difference(first, np.asarray(function(point.copy()))), name)
    return first


def check_repeatable_beside(function: Callable[[Array], Any], point: Array, name: str) -> None:
    """Call a function twice some way off, where that is in its domain."""
    beside = point + ASIDE * sizes(point)
    try:
        with np.errstate(all="ignore"):
            first, second = (np.array(function(beside.copy())) for _ in range(2))
    except Exception:  # a point that nobody asked for
        return
    if np.all(np.isfinite(first)):
        _refuse_random(difference(first, second), name)


def _refuse_random(found: str, name: str) -> None:
    if not found:
        return
    raise UnsupportedModelError(
        f"{name}(theta) was called twice with the same parameters and returned two results "
        f"({found}): it is not deterministic. It draws fresh random numbers at each call, or keeps "
        "a state between calls. "
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
    same = max(SAME, sum_rounding(first.size, eps_of(first)))
    first, second = first.astype(np.float64), second.astype(np.float64)
    if np.array_equal(first, second, equal_nan=True):  # wider types
        return ""
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(abs(first - second), nan=np.inf)[first != second].max()
    size = float(np.max(abs(first[np.isfinite(first)]), initial=0.0))
    return "" if gap <= same * size else f"the terms differ by up to {gap:.2g}"


def check_derivative(
    function: Callable[[Array], Any], derivative: Callable[[Array], Any], point: Array, name: str
) -> None:
    """Compare a derivative (d,) to (n, d) with differences of its function, row by row.

    Along one random direction; skipped where the differences themselves are uncertain.
    """
    rows = np.asarray(derivative(point.copy()), dtype=np.float64)
    units = _units(np.asarray(function(point.copy()), dtype=np.float64), rows, point)
    step = STEP * units * np.random.default_rng(0).normal(size=point.size)
    try:
        numeric = differentiate(
            lambda theta: np.array(function(theta.copy()), dtype=np.float64),
            point,
            directions=step[:, None],
        )
    except FloatingPointError:
        return
    claimed = rows @ step
    found, size = numeric.value[:, 0], float(np.max(abs(numeric.value)))
    gaps = abs(claimed - found) - 10 * numeric.error[:, 0]
    row = int(np.argmax(gaps))
    if gaps[row] > WRONG * max(size, float(np.max(abs(claimed)))):
        near = [np.asarray(function(point + t * step), float) for t in (0.0, 0.3, 0.7)]
        if gaps[row] <= ROUNDED * _granularity(np.array(near))[row]:
            return
        raise ValueError(
            f"{name}(theta) is not the derivative of the function beside it: along one random "
            f"direction row {row} changes by {found[row]:.6g}, and {name} is {claimed[row]:.6g}. "
            "Usual causes: a factor of the chain rule, a sign, columns in another order, "
            f"a mean instead of a sum. Leave `{name}=` out to have it taken numerically."
        )


def _granularity(values: Array) -> Array:
    """Power of two of which each number is a multiple; along the first axis the smallest.

    It is the rounding error of a sum whose larger terms have canceled, as in the log of a
    probability of nearly one.
    """
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    steps = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    return np.asarray(np.min(np.where(values == 0, np.inf, steps), axis=0))


def _units(values: Array, rows: Array, point: Array) -> Array:
    """Lengths over which the values (n,) should move by their spread; at most those of theta."""
    size = float(np.max(abs(values), initial=0.0))
    spread = float(np.std(values))
    if spread <= ROUNDED * np.spacing(size):  # all the same
        spread = size or 1.0
    slopes, sizes = np.linalg.norm(rows, axis=0), np.where(point == 0, np.inf, abs(point))
    units = np.minimum(np.divide(spread, slopes, out=sizes.copy(), where=slopes > 0), sizes)
    return np.where(np.isfinite(units), units, 1.0)


@dataclass(frozen=True, eq=False)
class Beside:
    """Terms (n,) and their derivatives (n, d) as functions, to be compared a step beside a point.

    The terms' own second differences tell what their derivatives should change by, row by row.
    """

    terms: Callable[[Array], Array]
    rows: Callable[[Array], Array]
    weights: Array
    point: Array
    step: Array

    def cause(self) -> str:
        """Tell why the derivatives may be wrong there; nothing if they are right, or unknown.

        Shorter steps have to confirm it: kinks, noise and higher derivatives are not the same over
        all of them.
        """
        with np.errstate(all="ignore"):
            t, found, told = self._first()
            size = float(np.sum(np.maximum(abs(found), abs(told))))
            if not np.sum(abs(told - found)) > WRONG * size:
                return ""
            closer = [np.subtract(*self._bends(t / shorter)) for shorter in (2, 4)]
        doubt = np.max(abs(np.diff([found - told, *closer], axis=0)), axis=0)
        if not np.sum(abs(closer[-1])) - 10 * np.sum(doubt) > WRONG * size:
            return ""
        return STALE if told.any() else UNMOVED

    def _first(self) -> tuple[float, Array, Array]:
        """Shrink the step until it ends inside of the domain; NaN if it never does."""
        t, (found, told) = 1.0, self._bends(1.0)
        for _ in range(MOST_SHRINKS):
            if np.isfinite(found).all() and np.isfinite(told).all():
                break
            t /= 4
            found, told = self._bends(t)
        return t, found, told

    def _bends(self, t: float) -> tuple[Array, Array]:
        """Bends of the terms along the step, and by their derivatives: of rows that count."""
        ends = self.point + t * self.step, self.point - t * self.step
        ahead, center, behind = (self.terms(x) for x in (ends[0], self.point, ends[1]))
        slopes = [self.rows(x) @ self.step for x in ends]  # one by one: a buffer may be used again
        found, told = (ahead - 2 * center + behind) / t**2, (slopes[0] - slopes[1]) / (2 * t)
        if self.weights.all():
            return self.weights * found, self.weights * told
        counts = self.weights > 0
        return (self.weights * found)[counts], (self.weights * told)[counts]


@lru_cache
def mixture(d: int) -> Array:
    """Random mixture of all parameters, (d,), of a fraction of a standard error in all."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], d)
    return np.asarray(BESIDE / np.sqrt(d) * signs * rng.uniform(0.5, 1.0, d))


def wrong_beside(name: str, cause: str) -> str:
    """Describe derivatives that are wrong beside the point where they are right."""
    return (
        f"{name}(theta) is right at the fit, and a fraction of a standard error beside it is no "
        "longer the derivative of the function: second derivatives are taken there. "
        f"{cause} Leave `{name}=` out to have it taken numerically."
    )
