r"""Constraints on the parameters, and coordinates along those that are active.

The rows of all constraints together are :math:`l \le c(\theta) \le u`, in the conventions of
`scipy.optimize.minimize`. At a constrained maximum the score is a combination of the gradients of
the active rows (Karush, Kuhn and Tucker); along these rows the likelihood has a plain maximum, in
fewer parameters. So a constrained model is a free one in the coordinates of a `Chart`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, linprog, nnls

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.tracing import trace_terms
from implicit_delta.calculus.units import sizes
from implicit_delta.core.cache import LastCache
from implicit_delta.core.labels import near_match
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.models.named_theta import Layout, speaking

ROUNDING = 1e-9  # relative error of a row of the constraints that is none
TOUCHES = 1e-4  # standard errors from a bound: at it
WEAK = 1e-3  # standard errors that a bound keeps the maximum away: it does not hold it
UNSOLVED = 1.0  # standard errors from a constrained maximum, as drift is refused in `infer`
STEP = 1e-2  # of the size of each parameter, for derivatives of constraints
DEPENDENT = 1e-10  # of the largest pivot: gradients of constraints that are linearly dependent
WRONG, MINUTE = (
    1e-3,
    1e-6,
)  # of an entry, and of its row: a derivative that is coded right is closer
MOST_SPELLED = 4  # limits in `print(model)`
MOST_STEPS = 50  # of Newton's method toward the constraints


class Rows(Protocol):
    """Some rows of the constraints."""

    @property
    def linear(self) -> bool:
        """Whether they are linear in theta."""

    def value(self, theta: Array) -> Array:
        """Evaluate: (d,) to (m,)."""

    def slope(self, theta: Array) -> Array:
        """Differentiate: (d,) to (m, d)."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Rows A theta, with A of shape (m, d)."""

    matrix: Array
    linear: bool = True

    def value(self, theta: Array) -> Array:
        """Multiply."""
        return np.asarray(self.matrix @ theta)

    def slope(self, theta: Array) -> Array:
        """Return A."""
        return self.matrix


@dataclass(frozen=True, eq=False)
class Nonlinear:
    """Rows of a function, with its derivative if one is given."""

    function: Callable[..., Any]
    derivative: Callable[..., Any] | None
    arguments: tuple[Any, ...] = ()
    name: str = "constraints[0]"
    linear: bool = False
    cache: LastCache = field(default_factory=LastCache)

    def value(self, theta: Array) -> Array:
        """Call the function, which may return a number."""
        return np.array(self.function(theta.copy(), *self.arguments), dtype=np.float64).reshape(-1)

    def slope(self, theta: Array) -> Array:
        """Call the derivative, trace the function, or take differences."""
        if self.derivative is not None:
            given = self.derivative(theta.copy(), *self.arguments)
            return np.array(_dense(given), dtype=np.float64).reshape(-1, theta.size)
        found: Array = self.cache.get(theta.copy(), "slope", lambda: self._differentiated(theta))
        return found

    def _differentiated(self, theta: Array) -> Array:
        traced = trace_terms(lambda x: np.atleast_1d(self.function(x, *self.arguments)), theta)
        if traced is not None:
            slope = traced.jacobian()
            step = STEP * sizes(theta) * np.random.default_rng(0).uniform(0.5, 1.0, theta.size)
            numeric = differentiate(self.value, theta, directions=step[:, None])
            largest = abs(slope * step).sum(axis=1)
            if np.all(abs(slope @ step - numeric.value[:, 0]) <= WRONG * largest):
                return slope
        return differentiate(self.value, theta).value

    def check_slope(self, theta: Array) -> None:
        """Compare a derivative that is given with differences, where these are certain."""
        if self.derivative is None:
            return
        steps = STEP * sizes(theta)
        value, claimed = self.value(theta), self.slope(theta) * steps
        if len(claimed) != value.size:
            raise ValueError(
                f"The `jac` of {self.name} has {len(claimed)} rows of {theta.size} entries, and "
                f"its function {value.size}: give one row for each, or leave `jac` out."
            )
        try:
            numeric = differentiate(self.value, theta, directions=np.diag(steps))
        except FloatingPointError:  # the function ends here
            return
        largest = np.maximum(abs(claimed), abs(numeric.value))
        small = MINUTE * largest.sum(axis=1) + ROUNDING * abs(value)
        allowed = np.maximum(WRONG * largest, small[:, None]) + 10 * numeric.error
        wrong = np.argwhere(abs(claimed - numeric.value) > allowed)
        if wrong.size:
            row, j = wrong[0]
            raise ValueError(
                f"The `jac` of {self.name} is not the derivative of its function: in row {row} the "
                f"entry of theta[{j}] is {claimed[row, j] / steps[j]:.6g}, and differences give "
                f"{numeric.value[row, j] / steps[j]:.6g}. Usual causes: a factor of the chain "
                "rule, a sign, columns in another order. Leave `jac` out to have it taken "
                "numerically."
            )


@dataclass(frozen=True, eq=False)
class Constraints:
    """Rows of all constraints: ``low <= value(theta) <= high``.

    Attributes
    ----------
    parts : tuple of Rows
    low, high : (m,) arrays
        Equal for an equality.
    labels : tuple of str
        What each row is called, such as ``theta[1]`` or ``constraints[0]``.
    linear : (m,) array of bool
        Which rows are linear.
    """

    parts: tuple[Rows, ...]
    low: Array
    high: Array
    labels: tuple[str, ...]
    linear: NDArray[np.bool_]

    @classmethod
    def joined(cls, given: "Sequence[Constraints]") -> "Constraints | None":
        """Take the rows of all; None of none."""
        if not given:
            return None
        return cls(
            tuple(part for own in given for part in own.parts),
            np.concatenate([own.low for own in given]),
            np.concatenate([own.high for own in given]),
            tuple(label for own in given for label in own.labels),
            np.concatenate([own.linear for own in given]),
        )

    @cached_property
    def equal(self) -> NDArray[np.bool_]:
        """Which rows are equalities, (m,)."""
        return np.asarray(self.low == self.high)

    def value(self, theta: Array) -> Array:
        """Evaluate all rows, (m,)."""
        return np.concatenate([part.value(theta) for part in self.parts])

    def slope(self, theta: Array) -> Array:
        """Differentiate all rows, (m, d)."""
        return np.vstack([part.slope(theta) for part in self.parts])

    def check_slopes(self, theta: Array) -> None:
        """Refuse a derivative of a user that is wrong at theta."""
        for part in self.parts:
            if isinstance(part, Nonlinear):
                part.check_slope(theta)

    def violation(self, theta: Array) -> Array:
        """By how much each row is violated, (m,); zero, but for rounding, if it is not."""
        value = self.value(theta)
        beyond = np.maximum(self.low - value, value - self.high)
        if np.any(beyond > 0):
            beyond = np.where(beyond > ROUNDING * self._sizes(theta, value), beyond, 0.0)
        return np.maximum(beyond, 0.0)

    def near(self, theta: Array, errors: Array) -> Array:
        """Distance from its limit within which a row is at it, (m,): `errors`, or rounding."""
        return np.maximum(errors, ROUNDING * self._sizes(theta, self.value(theta)))

    def lengths(self, theta: Array, units: Array) -> Array:
        """Changes of the rows over one standard error of the parameters, (m,)."""
        return np.asarray(np.linalg.norm(self.slope(theta) * units, axis=1))

    def _sizes(self, theta: Array, value: Array) -> Array:
        """Sizes of the rows, (m,), which their rounding is relative to: no length is absolute."""
        ends = np.where(np.isfinite([self.low, self.high]), [self.low, self.high], 0.0)
        terms = abs(self.slope(theta)) @ abs(theta)
        return np.asarray(np.max(abs(np.array([value, terms, *ends])), axis=0))

    def holds(self, theta: Array) -> bool:
        """Whether theta satisfies all of them."""
        return bool(np.all(np.isfinite(theta))) and not np.any(self.violation(theta))

    def spelled(self, row: int, side: int) -> str:
        """Spell out one side of a row: ``theta[1] >= 0``."""
        sign = "==" if self.equal[row] else {-1: ">=", 1: "<="}[side]
        return f"{self.labels[row]} {sign} {self._limit(row, side):.6g}"

    def __str__(self) -> str:
        sides = [(row, side) for row in range(self.low.size) for side in self._sides(row)]
        spelled = [self.spelled(row, side) for row, side in sides[:MOST_SPELLED]]
        more = [f"{len(sides) - MOST_SPELLED} more"] if len(sides) > MOST_SPELLED else []
        return ", ".join([*spelled, *more])

    def _sides(self, row: int) -> list[int]:
        if self.equal[row]:
            return [1]
        ends = ((-1, self.low[row]), (1, self.high[row]))
        return [side for side, end in ends if np.isfinite(end)]

    def check(self, theta: Array, units: Callable[[], Array]) -> None:
        """Refuse a theta that violates a row by more than a minute part of a standard error."""
        beyond = self.violation(theta)
        if np.any(beyond):
            with suppress(ImplicitDeltaError, ArithmeticError, ValueError):  # not defined there
                beyond[beyond <= TOUCHES * self.lengths(theta, units())] = 0.0
        worst = int(np.argmax(beyond))
        if beyond[worst] > 0:
            value = float(self.value(theta)[worst])
            side = -1 if value < self.low[worst] else 1
            raise ValueError(
                f"theta= does not satisfy {self.spelled(worst, side)}: it is {value:.6g} there. "
                "Give the constrained maximum, or give this point as `start=` to have the model "
                "fitted under its constraints."
            )

    def active(
        self,
        theta: Array,
        score: Callable[[Array], Array],
        units: Array,
        strict: bool = False,
    ) -> "Active":
        """Find the rows that hold theta where it is, and their multipliers.

        Parameters
        ----------
        theta : (d,) array
        score : callable
            Gradient of the objective; not called where no row is near.
        units : (d,) array
            The standard error of each parameter, the others held fixed.
        strict : bool
            Refuse a theta that is not a constrained maximum.
        """
        value, gradients = self.value(theta), self.slope(theta)
        size = self.lengths(theta, units)
        near = self.near(theta, TOUCHES * size)
        size[size == 0] = 1.0
        at_low, at_high = value - self.low <= near, self.high - value <= near
        rows = np.concatenate([np.flatnonzero(at_low), np.flatnonzero(at_high)])
        sides = np.repeat([-1, 1], [at_low.sum(), at_high.sum()])
        columns = (sides[:, None] * gradients[rows] * units / size[rows, None]).T
        slope = score(theta) * units if rows.size else np.zeros(theta.size)
        if not np.all(np.isfinite(slope)):
            raise UnsupportedModelError(
                f"The log-likelihood is NaN or infinite at {self.spelled(rows[0], sides[0])}, "
                "where the search has ended. Usual causes: 0 * log(0), for which "
                "`scipy.special.xlogy(k, r)` is zero, or a likelihood without a maximum, which "
                "rises toward that bound without end. Write it so that it is defined at its "
                "bounds, or put these where it is."
            )
        strength, left = nnls(columns, slope) if rows.size else (np.zeros(0), 0.0)
        if strict and rows.size and left > UNSOLVED:
            raise ConvergenceError(
                "theta= is not a maximum under its constraints: what their multipliers leave of "
                f"the score would move the parameters by {left:.2g} standard errors. Usual causes: "
                "a fit that stopped early, a constraint that the fit did not have, or a penalty "
                "left out. Give it as `start=` to have it fitted here."
            )
        total = np.zeros(value.size)
        np.add.at(total, rows, sides * strength / size[rows])
        held = np.zeros(value.size, dtype=bool)
        held[rows[strength > WEAK]] = True
        kept = np.flatnonzero(held | self.equal)
        return Active(self, kept, np.sign(total[kept]).astype(int), total[kept])

    def _limit(self, row: int, side: int) -> float:
        return float(self.low[row] if side < 0 else self.high[row])


@dataclass(frozen=True, eq=False)
class Active:
    """The rows that hold a maximum where it is.

    Attributes
    ----------
    constraints : Constraints
    rows : (a,) array of int
    sides : (a,) array of {-1, 0, 1}
        At the lower or at the upper limit.
    multipliers : (a,) array
        Rise of the objective if the limit is raised by one.
    """

    constraints: Constraints
    rows: NDArray[np.intp]
    sides: NDArray[np.int_]
    multipliers: Array

    @property
    def limits(self) -> Array:
        """Values of the rows, (a,)."""
        of = self.constraints
        return np.where(self.sides < 0, of.low[self.rows], of.high[self.rows])

    def without(self, row: int) -> "Active":
        """Leave one row out."""
        kept = self.rows != row
        return Active(self.constraints, self.rows[kept], self.sides[kept], self.multipliers[kept])

    def chart(self, theta: Array, units: Array) -> "Chart | None":
        """Make coordinates along the active rows, around theta; None if there are no such rows."""
        if not self.rows.size:
            return None
        gradients = self.constraints.slope(theta)[self.rows] * units
        if not np.all(np.isfinite(gradients)):
            raise NotAMaximumError.not_finite()
        lengths = np.linalg.norm(gradients, axis=1)
        gradients /= np.where(lengths > 0, lengths, 1.0)[:, None]
        self._check_slanted(lengths)
        if not lengths.any():
            return None
        independent = _pivots(gradients.T)
        solved = np.sort(_pivots(gradients[independent]))
        free = np.setdiff1d(np.arange(theta.size), solved)
        return Chart(self, np.sort(independent), free, solved, theta.copy())

    def _check_slanted(self, lengths: Array) -> None:
        flat = self.rows[(lengths == 0) & ~self.constraints.linear[self.rows]]
        if flat.size:
            raise UnsupportedModelError(
                f"{self.constraints.labels[flat[0]]} has derivative zero here, so it does not show "
                "which parameters may vary. Usual causes: a square (for b[1]**2 == 0 write b[1] == "
                "0), or a function that does not use its argument (leave it out)."
            )

    def __str__(self) -> str:
        spelled = self.constraints.spelled
        each = zip(self.rows, self.sides, self.multipliers, strict=True)
        told = [f"{spelled(row, side)} (multiplier {nu:.4g})" for row, side, nu in each]
        return "; ".join(told) or "none active"


@dataclass(frozen=True, eq=False)
class Chart:
    """Coordinates of all theta that satisfy the active rows: some of the parameters themselves.

    The others, as many as there are independent rows, are solved for. So the model in these
    coordinates is the one that a user would write down who eliminates parameters by hand.

    Attributes
    ----------
    active : Active
    rows : (r,) array of int
        The active rows that are independent of each other.
    free, solved : (d - r,) and (r,) arrays of int
        The coordinates, and the parameters that follow from them.
    around : (d,) array
        Where to start solving.
    """

    active: Active
    rows: NDArray[np.intp]
    free: NDArray[np.intp]
    solved: NDArray[np.intp]
    around: Array

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.free.size

    @cached_property
    def fixes(self) -> bool:
        """Whether it only holds some parameters at their bounds."""
        return self.linear and not np.any(self._gradients(self.around)[:, self.free])

    @cached_property
    def linear(self) -> bool:
        """Whether the parameters are linear in the coordinates."""
        return bool(np.all(self.active.constraints.linear[self.active.rows[self.rows]]))

    def coordinates(self, theta: Array) -> Array:
        """Take the free parameters."""
        return theta[self.free]

    def part(self, covariance: Array) -> Array:
        """Take the part of a covariance of all parameters that is of the free ones, (k, k)."""
        return covariance[np.ix_(self.free, self.free)]

    def point(self, z: Array) -> Array:
        """Solve for the parameters: (k,) to (d,)."""
        theta = self.around.copy()
        theta[self.free] = z
        if self.fixes:
            return self._snapped(theta)
        for _ in range(MOST_STEPS):
            gap = self._gap(theta)
            step = np.linalg.solve(self._gradients(theta)[:, self.solved], gap)
            theta[self.solved] -= step
            if self.linear or np.max(abs(step)) <= 1e-15 * np.max(abs(theta)):
                return self._snapped(theta)
        if np.all(abs(gap) <= self._rounding(theta)):
            return self._snapped(theta)
        return np.full_like(theta, np.nan)  # so far out that the constraints have no solution

    def slope(self, theta: Array) -> Array:
        """Differentiate `point` where it is theta, (d, k)."""
        return self.push(theta, np.eye(self.size))

    def push(self, theta: Array, v: Array) -> Array:
        """Multiply the slope with steps of the coordinates, (k,) or (k, m)."""
        moved = np.zeros((theta.size, *v.shape[1:]))
        moved[self.free] = v
        if not self.fixes:
            moved[self.solved] = self._response(theta) @ v
        return moved

    def pull(self, theta: Array, g: Array) -> Array:
        """Multiply the transposed slope with gradients in the parameters, (d,) or (d, m)."""
        own = g[self.free]
        return own if self.fixes else own + self._response(theta).T @ g[self.solved]

    def _response(self, theta: Array) -> Array:
        """Derivative of the solved parameters in the free ones, (r, k)."""
        gradients = self._gradients(theta)
        return np.asarray(-np.linalg.solve(gradients[:, self.solved], gradients[:, self.free]))

    def second_order(self, gradient: Array, z: Array, v: Array) -> Array:
        r"""Sum :math:`g_j \nabla^2 c_j(z) v` over all parameters c(z), for v of (k,) or (k, m).

        The gradient is (d,); how the slope of c changes is found by differences.
        """
        block = v.reshape(z.size, -1)
        turned = differentiate(
            lambda point: self.pull(self.point(point), gradient), z, sizes(z), directions=block
        )
        return turned.value.reshape(v.shape)

    @property
    def limits(self) -> Array:
        """Values of the independent active rows, (r,)."""
        return self.active.limits[self.rows]

    def _gap(self, theta: Array) -> Array:
        return self.active.constraints.value(theta)[self.active.rows[self.rows]] - self.limits

    def _rounding(self, theta: Array) -> Array:
        return self.active.constraints.near(theta, np.zeros(1))[self.active.rows[self.rows]]

    def _gradients(self, theta: Array) -> Array:
        return self.active.constraints.slope(theta)[self.active.rows[self.rows]]

    def _snapped(self, theta: Array) -> Array:
        """Put parameters exactly at their bounds."""
        if self.fixes:
            theta[self.solved] = self._at_bounds
        return theta

    @cached_property
    def _at_bounds(self) -> Array:
        return np.asarray(
            np.linalg.solve(self._gradients(self.around)[:, self.solved], self.limits)
        )


def constraints_of(
    bounds: Any,
    constraints: Any,
    point: Array,
    names: Layout | Sequence[str] | None = None,
    started: bool = False,
) -> Constraints | None:
    """Check what a user gives for parameters such as `point`; None if it says nothing.

    A fit that is `started` there must start within bounds by name, where a start beyond them is a
    mistake in one of two dictionaries; from elsewhere it is led to the bounds.
    """
    layout = names if isinstance(names, Layout) else None
    names = names.names if isinstance(names, Layout) else names
    labels = tuple(names or (f"theta[{j}]" for j in range(point.size)))
    if isinstance(bounds, Mapping):
        bounds = _of_names(bounds, layout or Layout(labels))
        if started:
            _check_start(*_pairs(bounds, point.size), point, labels)
    blocks = [*_of_bounds(bounds, point.size, labels), *_blocks(constraints, point, layout)]
    if not blocks:
        return None
    found = Constraints(
        parts=tuple(block.rows for block in blocks),
        low=np.concatenate([block.low for block in blocks]),
        high=np.concatenate([block.high for block in blocks]),
        labels=tuple(label for block in blocks for label in block.labels),
        linear=np.concatenate([np.full(block.low.size, block.rows.linear) for block in blocks]),
    )
    wrong = np.flatnonzero(~(found.low <= found.high))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"The limits of {found.labels[row]} are {found.low[row]:g} and {found.high[row]:g}: "
            "the lower one must not be above the upper one, nor NaN."
        )
    found.check_slopes(point)
    _check_compatible(found, point)
    return found


class _Block(NamedTuple):
    """One argument of a user, checked."""

    rows: Rows
    low: Array
    high: Array
    labels: list[str]


def _of_names(bounds: Mapping[Any, Any], layout: Layout) -> list[tuple[Any, Any]]:
    """Write bounds by name as pairs; those of an array hold for each of its entries."""
    pairs: list[tuple[Any, Any]] = [(None, None)] * len(layout.names)
    for name, pair in bounds.items():
        if name not in layout.blocks:
            raise ValueError(
                f"bounds has {name!r}, which is no parameter: {near_match(str(name), layout.names)}"
            )
        places = layout.places(name)
        for j, each in zip(places, _each(name, pair, len(places)), strict=True):
            pairs[j] = each
    return pairs


def _each(name: str, given: Any, count: int) -> list[tuple[Any, Any]]:
    """Take one pair for all entries of an array, or one for each of them."""
    try:
        several = [(low, high) for low, high in given]
        if len(several) == count:
            return several
    except (TypeError, ValueError):
        pass
    try:
        low, high = given
        if np.ndim(low) == np.ndim(high) == 0:
            return [(low, high)] * count
    except (TypeError, ValueError):
        pass
    raise TypeError(
        f"bounds[{name!r}] is {given!r:.60}, but must be a pair (low, high), with None for "
        f"no limit: (0, None){f'; or {count} of them' if count > 1 else ''}."
    )


def _check_start(low: Array, high: Array, point: Array, labels: tuple[str, ...]) -> None:
    outside = np.flatnonzero((low < high) & ((point < low) | (point > high)))
    if outside.size:
        j = int(outside[0])
        raise ValueError(
            f"start= has {labels[j]} at {point[j]:g}, outside of its bounds ({low[j]:g}, "
            f"{high[j]:g}): start within them."
        )


def _of_bounds(bounds: Any, d: int, labels: tuple[str, ...]) -> Iterator[_Block]:
    if bounds is None:
        return
    low, high = _pairs(bounds, d)
    given = np.flatnonzero(~((low == -np.inf) & (high == np.inf)))
    if given.size:
        yield _Block(Linear(np.eye(d)[given]), low[given], high[given], [labels[j] for j in given])


def _pairs(bounds: Any, d: int) -> tuple[Array, Array]:
    if isinstance(bounds, Bounds):
        try:
            ends = (np.broadcast_to(np.asarray(x, float), (d,)) for x in (bounds.lb, bounds.ub))
            low, high = (end.copy() for end in ends)
        except ValueError:
            shapes = np.shape(bounds.lb), np.shape(bounds.ub)
            raise ValueError(
                f"bounds has limits of shapes {shapes[0]} and {shapes[1]}, but there are {d} "
                "parameters: give one pair for each."
            ) from None
        return low, high
    try:
        pairs = [(low, high) for low, high in bounds]
    except (TypeError, ValueError):
        raise TypeError(
            "bounds must be a sequence of pairs (low, high), one for each parameter, with None "
            f"for no limit, or a `scipy.optimize.Bounds`, not {bounds!r:.60}."
        ) from None
    if len(pairs) != d:
        raise ValueError(
            f"bounds has {len(pairs)} pairs, but there are {d} parameters: give one pair (low, "
            "high) for each, and (None, None) for those without limits."
        )
    low = np.array([-np.inf if a is None else a for a, _ in pairs], dtype=np.float64)
    high = np.array([np.inf if b is None else b for _, b in pairs], dtype=np.float64)
    return low, high


def _blocks(constraints: Any, point: Array, layout: Layout | None) -> Iterator[_Block]:
    single = isinstance(constraints, dict) or not isinstance(constraints, Iterable | None)
    for number, constraint in enumerate([constraints] if single else constraints or ()):
        name = f"constraints[{number}]"
        rows, *ends = _rows(constraint, point.size, name, layout)
        value = rows.value(point)
        if not (np.all(np.isfinite(value)) and np.all(np.isfinite(rows.slope(point)))):
            raise ValueError(f"{name} or its derivative is NaN or infinite at {point!s:.60}.")
        try:
            low, high = (np.broadcast_to(np.asarray(x, float), value.shape).copy() for x in ends)
        except ValueError:
            raise ValueError(
                f"{name} has {value.size} rows, but limits of shapes {np.shape(ends[0])} and "
                f"{np.shape(ends[1])}: give one number, or one for each row."
            ) from None
        several = [f"{name}[{j}]" for j in range(value.size)]
        yield _Block(rows, low, high, several if value.size > 1 else [name])


def _rows(constraint: Any, d: int, name: str, layout: Layout | None) -> tuple[Rows, Any, Any]:
    """Convert one constraint: its rows, and their limits as they were given."""
    if isinstance(constraint, LinearConstraint):
        matrix = np.atleast_2d(np.asarray(_dense(constraint.A), dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[1] != d:
            raise ValueError(
                f"{name} has a matrix of shape {matrix.shape}, but there are {d} parameters: it "
                f"needs {d} columns."
            )
        return Linear(matrix), constraint.lb, constraint.ub
    if isinstance(constraint, NonlinearConstraint):
        derivative = constraint.jac if callable(constraint.jac) else None
        function, derivative = speaking(constraint.fun, layout), speaking(derivative, layout)
        return Nonlinear(function, derivative, name=name), constraint.lb, constraint.ub
    kind = constraint.get("type") if isinstance(constraint, dict) else None
    if kind not in ("eq", "ineq") or not callable(constraint.get("fun")):
        raise TypeError(
            f"{name} is {constraint!r:.60}, but must be a `scipy.optimize.LinearConstraint`, a "
            '`NonlinearConstraint`, or a dict: {"type": "eq", "fun": f} for f(theta) == 0, '
            '{"type": "ineq", "fun": f} for f(theta) >= 0.'
        )
    jac = constraint.get("jac") if callable(constraint.get("jac")) else None
    arguments = tuple(constraint.get("args", ()))
    rows = Nonlinear(speaking(constraint["fun"], layout), speaking(jac, layout), arguments, name)
    return rows, 0.0, 0.0 if kind == "eq" else np.inf


def _check_compatible(constraints: Constraints, point: Array) -> None:
    """Refuse linear constraints that no theta satisfies."""
    rows = constraints.linear
    if not rows.any():
        return
    matrix = constraints.slope(point)[rows]
    low, high = constraints.low[rows], constraints.high[rows]
    above, below = np.isfinite(high), np.isfinite(low)
    # The tolerance of linprog is absolute: parameters in units of the start and of their limits.
    ends = np.maximum(abs(np.where(below, low, 0.0)), abs(np.where(above, high, 0.0)))[:, None]
    sizes = np.divide(ends, abs(matrix), out=np.zeros(matrix.shape), where=matrix != 0)
    units = np.maximum(abs(point), sizes.max(axis=0))
    matrix = matrix * np.where(units > 0, units, 1.0)
    lengths = abs(matrix).max(axis=1)
    lengths[lengths == 0] = 1.0
    matrix, low, high = matrix / lengths[:, None], low / lengths, high / lengths
    found = linprog(
        np.zeros(point.size),
        A_ub=np.vstack([matrix[above], -matrix[below]]),
        b_ub=np.concatenate([high[above], -low[below]]),
        bounds=(None, None),
    )
    if found.status == 2:
        raise ValueError(
            "The constraints contradict each other: no theta satisfies all of the bounds and "
            "linear constraints. Leave one out, or widen its limits."
        )


def _pivots(matrix: Array) -> NDArray[np.intp]:
    """Pick columns that are independent, the safest first."""
    _, upper, order = scipy.linalg.qr(matrix, mode="economic", pivoting=True)
    size = abs(np.diag(upper))
    return np.asarray(order[: int(np.sum(size > DEPENDENT * max(size.max(), 1e-300)))])


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def refuse_no_freedom(active: Active) -> NoReturn:
    """Explain that no parameter is left to vary."""
    raise UnsupportedModelError(
        f"The active constraints determine all parameters ({active}), so there is nothing left "
        "that could vary, and no standard error. `profile(model, psi)` has intervals that respect "
        "the constraints."
    )


def box(constraints: Constraints, theta: Array) -> tuple[Array, Array]:
    """Limits of single parameters, (d,) and (d,)."""
    rows, single = constraints.slope(theta), is_single(constraints, theta)
    low, high = np.full(theta.size, -np.inf), np.full(theta.size, np.inf)
    for row in np.flatnonzero(single):
        j = int(np.flatnonzero(rows[row])[0])
        ends = sorted(end / rows[row, j] for end in (constraints.low[row], constraints.high[row]))
        low[j], high[j] = max(low[j], ends[0]), min(high[j], ends[1])
    return low, high


def is_single(constraints: Constraints, theta: Array) -> NDArray[np.bool_]:
    """Rows that limit one parameter."""
    alone = np.count_nonzero(constraints.slope(theta), axis=1) == 1
    return np.asarray(constraints.linear & alone)
