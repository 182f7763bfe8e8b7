"""Estimating equations as functions: rows, their weighted sum, and the derivative of that sum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.functions import Derivative
from implicit_delta.calculus.tracing import trace
from implicit_delta.calculus.units import LOST, moving_lengths
from implicit_delta.core.arguments import Counter, refuse_masked
from implicit_delta.core.rounding import sum_rounding
from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError, UnsupportedModelError
from implicit_delta.models.checks import difference

PROBE_STEP, PROBE_TOLERANCE = 1e-3, 1e-4  # in the unit of each parameter; relative
UNCERTAIN = 0.01  # of a response, and so of a standard error
RANK = 1e-11  # smallest singular value over the largest, of rows and columns of length one
BALANCING = 5  # rounds in which rows and columns are brought to one length
# Units of `System.units`. A jump of one of n rows lies within the first with chance 1e-4 sqrt(n),
# and single precision still resolves them.
NEAR, FAR = (1e-4, -1e-4), (1.0, -1.0, 10.0, -10.0)
VANISHED = 1e-12  # of what they are elsewhere: rows that are zero but for rounding
CONCERNED = 0.1  # of the largest entry of a direction: a parameter that takes part in it

JUMPS = (
    "The equations jump: their sum does not change right beside the parameters and changes "
    "further away, so it has no derivative to take (quantiles and ranks are of this kind). Give "
    "the derivative of its expectation as `jacobian=`, for a quantile regression `lambda b: "
    "-(X * kernel((y - X @ b) / h)[:, None] / h).T @ X` with a density as kernel; smooth the "
    "indicator (`scipy.special.ndtr((X @ b - y) / h)`); or resample rows and fit each time, "
    "`bootstrap(fit, data, psi)`."
)
NOT_SMOOTH = (
    "The derivative of the summed equations is uncertain by {doubt}: differences over shorter and "
    "shorter steps do not settle. Usual causes: they compute in single precision (convert the data "
    "with `.astype(np.float64)`), hold the result of an iteration that stops early, or have kinks "
    "or jumps. A derivative that you know helps: `jacobian=`, (d,) to (q, d)."
)


@dataclass(frozen=True, eq=False)
class Equations:
    """Equations ``function(theta) -> (n, q)``, and the derivative of their sum if it is given.

    Every call counts as a pass over the data.
    """

    function: Callable[[Any], Any]
    given: Callable[[Array], Any] | None = None
    counter: Counter = field(default_factory=Counter)

    def rows(self, theta: Array) -> Array:
        """Equations of each row, (n, q), not weighted."""
        self.counter.count += 1
        return as_rows(np.array(self.function(theta.copy()), dtype=np.float64))


@dataclass(frozen=True, eq=False)
class System:
    """Equations with weights (n,)."""

    equations: Equations
    weights: Array

    @property
    def given(self) -> Callable[[Array], Any] | None:
        return self.equations.given

    def rows(self, theta: Array) -> Array:
        """Equations of each row, (n, q), not weighted."""
        return self.equations.rows(theta)

    def total(self, theta: Array) -> Array:
        """Weighted sum, (q,)."""
        return np.asarray(self.weights @ self.rows(theta))

    def spread(self, theta: Array) -> Array:
        """Root of the sum of squares of each equation over the rows, (q,)."""
        return np.asarray(np.sqrt(self.weights @ self.rows(theta) ** 2))

    def units(self, theta: Array, slope: Array | None = None) -> Array:
        """Length of each parameter over which the sum moves by its spread, (d,).

        That is about its standard error, the others held fixed. With a derivative (q, d) it is
        computed, and searched for where that is zero.
        """
        spread = self.spread(theta)
        if slope is not None:
            with np.errstate(all="ignore"):
                pulls = np.max(abs(slope) / np.where(spread > 0, spread, np.inf)[:, None], axis=0)
                units = 1 / pulls
            if np.all(np.isfinite(units) & (units > LOST * abs(theta))):
                return np.asarray(units)
        return moving_lengths(self.total, theta, spread)

    def slope(self, theta: Array, units: Array | None = None) -> Derivative:
        """Derivative of the sum, (q, d), with its error: given, traced, or by differences.

        Units are standard errors, where these are known.
        """
        if self.given is not None:
            value = self._given(theta)
            return Derivative(value, np.zeros_like(value))
        self.equations.counter.count += 1
        traced = trace(self._traced, theta)
        if traced is not None:
            near = self.units(theta, traced[1]) if units is None else units
            if self._agrees(*traced, theta, near):
                return Derivative(traced[1], np.zeros_like(traced[1]))
        units = self.units(theta) if units is None else units
        try:
            return differentiate(self.total, theta, units)
        except FloatingPointError:
            raise UnsupportedModelError(
                "The equations are NaN or infinite right beside the parameters: these lie at the "
                "edge of what is possible, where the delta method does not hold. Try another "
                "parametrization, for example the logarithm of a variance."
            ) from None

    def pulled(self, theta: Array, u: Array) -> Array:
        """Derivative of ``u' total``, (d,): one traced pass, whatever the number of parameters."""
        if self.given is not None:
            return np.asarray(self.given(theta.copy()).T @ u).ravel()
        self.equations.counter.count += 1
        traced = trace(lambda point: np.sum(self._traced(point) * u), theta)
        if traced is None:
            raise UnsupportedModelError(
                f"With {theta.size} parameters the derivative of the equations has to be traced, "
                "and these use operations outside NumPy's that cannot be. Give `jacobian=`, a "
                "function of theta that returns a sparse (d, d) matrix."
            )
        return np.asarray(traced[1][0])

    def _traced(self, theta: Any) -> Any:
        rows = self.equations.function(theta)
        return np.sum(self.weights[:, None] * (rows if rows.ndim == 2 else rows[:, None]), axis=0)

    def _agrees(self, value: Array, exact: Array, theta: Array, units: Array) -> bool:
        """Check a traced derivative along one random direction."""
        step = PROBE_STEP * units * np.random.default_rng(0).normal(size=theta.size)
        with np.errstate(all="ignore"):
            ahead, behind = self.total(theta + step), self.total(theta - step)
        if ahead.shape != value.shape:
            return False
        move = abs(exact) @ abs(step) + 1e-9 * abs(self.rows(theta)).sum(axis=0)
        return bool(np.all(abs((ahead - behind) / 2 - exact @ step) <= PROBE_TOLERANCE * move))

    def _given(self, theta: Array) -> Array:
        assert self.given is not None
        given = self.given(theta.copy())
        value = np.asarray(given.toarray() if hasattr(given, "toarray") else given, np.float64)
        shape = (self.total(theta).size, theta.size)
        if value.shape != shape:
            raise ValueError(
                f"jacobian(theta) returned shape {value.shape}, but must be the derivative of the "
                f"*summed* equations, (q, d) = {shape}."
            )
        if not np.all(np.isfinite(value)):
            raise ValueError("jacobian(theta) has entries that are NaN or infinite.")
        return value


def as_rows(values: Array) -> Array:
    """Take one equation for each row, (n,), as a column."""
    return values[:, None] if values.ndim == 1 else values


def checked_rows(function: Callable[[Array], Any], point: Array) -> Array:
    """Call the equations twice; return their rows (n, q) if there is one row per observation."""
    found = function(point.copy())
    refuse_masked(found, "equations")
    first, d = np.array(found), point.size
    if first.ndim == 0 or (first.ndim == 1 and d > 1):
        raise ValueError(
            f"equations(theta) returned shape {first.shape}, but must return one row per "
            "observation and one column per equation, (n, q): neither their sum nor their mean, "
            "with which the standard error would be wrong."
        )
    if first.dtype.kind not in "fiub":
        raise ValueError(f"equations(theta) returned values of type {first.dtype}, not numbers.")
    rows = as_rows(first.astype(np.float64))
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"equations(theta) returned shape {first.shape}, but must return (n, q).")
    n, q = rows.shape
    if n < q:
        raise ValueError(
            f"equations(theta) returned shape {(n, q)}: {n} rows with {q} equations each. Rows are "
            "observations and columns are equations"
            + (f": is it the transpose, `equations(theta).T`, ({q}, {n})?" if n >= d else ".")
        )
    if q < d:
        raise ValueError(
            f"There are {q} equations for {d} parameters (q < d), which do not determine them. "
            "Add an equation for each parameter, such as the score of the model that it is from."
        )
    _check_finite(rows)
    second = as_rows(np.asarray(function(point.copy())))
    if second.shape != rows.shape or any(map(difference, rows.T, second.T)):
        raise UnsupportedModelError(
            "equations(theta) was called twice with the same parameters and returned two results: "
            "they draw random numbers, or keep a state between calls. Draw all random numbers "
            "once, outside of them."
        )
    return rows


def _check_finite(rows: Array) -> None:
    bad = np.argwhere(~np.isfinite(rows))
    if bad.size:
        row, column = bad[0]
        raise ValueError(
            f"Equation {column} is {rows[row, column]} for observation {row} ({len(bad)} of "
            f"{rows.size} entries are not finite). Are there missing values in the data (an "
            "outcome that is not observed counts zero: `np.where(observed, ..., 0)` with the "
            "missing ones filled), or parameters outside their range?"
        )


def check_regular(
    system: System, theta: Array, slope: Derivative, names: Sequence[str] | None
) -> None:
    """Refuse a derivative (q, d) that is singular, or too uncertain to be solved with."""
    left, right = balance(slope.value)
    _, values, vectors = np.linalg.svd(left[:, None] * slope.value * right, full_matrices=False)
    if values[-1] <= RANK * values[0]:
        _refuse_singular(system, theta, right * vectors[-1], names)
    doubt = float(np.linalg.norm(left[:, None] * slope.error * right)) / values[-1]
    if system.given is None and _departs(system, theta, slope.value):
        raise UnsupportedModelError(JUMPS)
    if doubt > UNCERTAIN:
        share = f"{doubt:.1%}" if doubt < 1 else "all of its size"
        raise UnsupportedModelError(NOT_SMOOTH.format(doubt=share))


def jumps(system: System, theta: Array, direction: Array | None = None) -> bool:
    """Whether the sum is the same right beside theta and another one farther along a direction.

    Equations that vanish in all rows, as those of separated classes far out, are no such case.
    """
    units = system.units(theta)
    step = units if direction is None else direction / np.max(abs(direction) / units)
    center, noise, spread = system.total(theta), _noise(system, theta), system.spread(theta)

    def moves(t: float) -> bool:
        with np.errstate(all="ignore"):
            there = theta + t * step
            alive = spread > VANISHED * system.spread(there)
            return bool(np.any(alive & (abs(system.total(there) - center) > noise)))

    return any(map(moves, FAR)) and not all(map(moves, NEAR))


def _departs(system: System, theta: Array, slope: Array) -> bool:
    """Whether the sum right beside theta does not move as its derivative (q, d) says."""
    signs = np.sign(np.random.default_rng(0).normal(size=theta.size))
    step = NEAR[0] * system.units(theta, slope) * signs
    off = abs(system.total(theta + step) - system.total(theta) - slope @ step)
    return bool(np.any(off > abs(slope) @ abs(step) / 2 + 4 * _noise(system, theta)))


def _noise(system: System, theta: Array) -> Array:
    rows = abs(system.rows(theta))
    return np.asarray(2 * sum_rounding(len(rows)) * rows.sum(axis=0))


class BalancedLU(NamedTuple):
    """Factorized square matrix whose rows and columns may have any scale."""

    left: Array
    right: Array
    factor: Any

    @classmethod
    def of(cls, matrix: Array) -> "BalancedLU":
        """Factorize."""
        left, right = balance(matrix)
        return cls(left, right, lu_factor(left[:, None] * matrix * right))

    def solve(self, b: Array) -> Array:
        """Solve ``B x = b`` for (d,) or a block (d, k)."""
        return np.asarray((lu_solve(self.factor, (b.T * self.left).T).T * self.right).T)

    def solve_transposed(self, b: Array) -> Array:
        """Solve ``B' x = b`` for (d,) or a block (d, k)."""
        return np.asarray((lu_solve(self.factor, (b.T * self.right).T, trans=1).T * self.left).T)


def balance(matrix: Array) -> tuple[Array, Array]:
    """Scales of rows and columns with which all have about length one; zeros stay zeros."""
    left, right = np.ones(matrix.shape[0]), np.ones(matrix.shape[1])
    for _ in range(BALANCING):
        left = left / _lengths(left[:, None] * matrix * right, 1)
        right = right / _lengths(left[:, None] * matrix * right, 0)
    return left, right


def _lengths(matrix: Array, axis: int) -> Array:
    lengths = np.linalg.norm(matrix, axis=axis)
    return np.where(lengths > 0, lengths, 1.0)


def _refuse_singular(
    system: System, theta: Array, direction: Array, names: Sequence[str] | None
) -> None:
    """Name the parameters along which the equations do not change, or say that they jump."""
    if jumps(system, theta, direction):
        raise UnsupportedModelError(JUMPS)
    share = abs(direction) / np.max(abs(direction))
    label = names or [f"theta[{j}]" for j in range(theta.size)]
    involved = [label[j] for j in np.argsort(-share) if share[j] > CONCERNED][:6]
    raise NotAMaximumError(
        f"The equations do not determine {', '.join(involved)}: their sum does not change if "
        f"{'it moves' if len(involved) == 1 else 'these move together'} (the Jacobian B of the "
        f"summed equations is rank-deficient). Usual causes: a parameter that no equation uses, "
        "collinear columns, an instrument that is not related to its regressor, the same equation "
        "twice, or a root at infinity (separated classes). Leave one of the parameters out, or add "
        "an equation that holds it."
    )
