"""The objective of a log-likelihood function, differentiated in the units of one place."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.derivatives import (
    FEWEST_LEVELS,
    SHORT_STEP,
    RunningSlopes,
    bends_far,
    differentiate,
    natural_units,
    rough_second_differences,
    rough_slopes,
    second_differences,
    summed_differences,
    summed_slopes,
)
from implicit_delta.core.cache import LastCache
from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.progress import calls_ahead
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.linalg.arrays import ratio, symmetric
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.models.curvature import refuse_saddle
from implicit_delta.models.outer_products import (
    OuterProducts,
    metric,
    outer_products,
    worth_a_metric,
)
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.runaway import OF_A_PART
from implicit_delta.models.traced_loglik import (
    looks_smooth,
    rows_along,
    weighted_hessian,
    weighted_rows,
)
from implicit_delta.models.weights import Weights
from implicit_delta.models.written_penalty import WrittenPenalty
from implicit_delta.optimize import Objective, variable_metric

if TYPE_CHECKING:
    from implicit_delta.models.loglik_rows import LoglikRows

STEPS = 12  # of a usual climb, to foretell its calls
# Where it ends is looked at with care, so its scale may be that of a start far away.
APPROACH = variable_metric(tolerance=1e-7, max_iterations=100, max_curvature=1e10, max_distance=1e5)
SHORT = 1e-4  # of the size of a parameter: bends of a penalty that has a derivative
SAME_PLACE = 1e-5  # of a unit: derivatives are those nearby, to a tenth of what they are told
MANY = 8  # products by short steps are worth another that checks them
ILL_CONDITIONED = 1e4  # beyond this a Hessian is differentiated a second time, along its own axes
UNCERTAIN = 0.02  # of a derivative: twice that of a standard error
FLAT_COLUMN = 1e-3  # length of a column of the curvature, in these units, that is zero
NEGLIGIBLE = 0.1  # length of the derivatives of all terms that is zero, but for this share of one
FLAT = 1e-7  # smallest curvature, in units of each parameter's own, that rounding leaves certain
NOT_SMOOTH = (
    "A derivative of the log-likelihood is uncertain by {doubt}: differences over shorter and "
    "shorter steps do not settle. Usual causes: it has no finite maximum and is flat here "
    "(separated classes, an empty cell: add `l2=`), computes in single precision (convert the data "
    "with `.astype(np.float64)`), is random, is the result of an iteration that stops early, or "
    "has kinks (absolute errors, a lasso penalty: use `Bootstrap()`). A derivative that you know "
    "helps: `score=`."
)
NEARLY_COLLINEAR = (
    "Some parameters are so nearly redundant that differences of the log-likelihood cannot tell: "
    "it is flat in one direction nearby, but not far away. Usual causes: columns that are "
    "collinear up to a few digits, a parameter that hardly matters. Center or rescale the columns, "
    "leave one out, add `l2=`, or give `score=`. With names, fix one parameter, "
    "`model.fix(name=value)`, or add what is known of it, "
    "`model + measurement(name=(value, error))`."
)
AT_THE_EDGE = (
    "The log-likelihood is NaN or infinite right beside the parameters: they lie at the edge of "
    "its domain, where the delta method does not hold. Try another parametrization, for example "
    "the logarithm of a variance."
)


@dataclass(frozen=True, eq=False)
class Approach:
    """Where a climb has taken its last differences, (d,), and the units of parameters there."""

    theta: Array
    units: Array


@dataclass(frozen=True, eq=False)
class LoglikObjective:
    """The weighted sum of the terms of a function, less a penalty.

    Derivatives that are not given are traced where that is possible (from `TRACE_FROM` parameters
    on), and elsewhere taken numerically, in steps of a fraction of the standard error of each
    parameter at one place: of the terms and the penalty together, as one function.

    Attributes
    ----------
    rows : LoglikRows
    theta : (d,) array
        The place.
    weights : Weights
    penalty : Penalty
    cache : LastCache
        Matrices at the last theta.
    """

    rows: "LoglikRows"
    theta: Array
    weights: Weights
    penalty: Penalty
    cache: LastCache = field(default_factory=LastCache)

    def is_at(self, theta: Array, weights: Weights, penalty: Penalty) -> bool:
        """Whether this is the objective of these weights and this penalty, in the same units."""
        same = weights is self.weights or weights.equal(self.weights)
        return penalty is self.penalty and same and np.array_equal(theta, self.theta)

    # Values.

    def objective(self, theta: Array) -> float:
        return float(np.sum(self.parts(theta)))

    def parts(self, theta: Array, weights: Array | None = None) -> Array:
        """Everything that L is the sum of: n weighted terms and the penalties."""
        terms = self.rows.recalled(theta)
        if weights is None and self._all_count:
            terms = self.weights.values * terms
        else:
            terms = weighted(self.weights.values if weights is None else weights, terms)
        kinds = (self.penalty.ridges, self.penalty.functions)
        penalties = [sum(part.value(theta) for part in parts) for parts in kinds]
        return np.concatenate([terms, -np.array(penalties, float)])

    @cached_property
    def _all_count(self) -> bool:
        return bool(self.weights.values.all())  # L is evaluated hundreds of times

    # Units.

    @cached_property
    def units(self) -> Array:
        exact = self._traced_units()
        if exact is not None:
            return exact
        known = None if self.rows.is_bounded else self.outer_products
        if known is not None:
            return known.units
        near = self.rows.last_approach
        guess = None if near is None else near.units
        return natural_units(self.parts, self._origin(self.theta), guess)

    def _traced_units(self) -> Array | None:
        """Units of the curvature, where that is traced; on the way a guess will do."""
        if not self.rows.is_traced or not self._forms_hessian:
            return None
        origin = self._origin(self.theta).copy()
        if self.rows.climbs:
            return self._row_units(origin)
        found = self.cache.get(origin, "traced", lambda: self._traced_hessian(origin))
        return None if found is None else np.asarray(found[1])

    def _row_units(self, theta: Array) -> Array | None:
        """Units from the squares of the rows' derivatives, unless these vanish."""
        known = self.rows.last_approach
        if known is not None and np.array_equal(theta, known.theta):
            return known.units
        rows = self.rows.sized_rows(theta)
        squares = weighted(self.weights.values, (rows**2).T).sum(axis=1) + self.penalty.floor
        return 1 / np.sqrt(squares) if self.rows.n > 1 and np.all(squares > 0) else None

    def _origin(self, theta: Array) -> Array:
        """Where the fit has taken its differences, if theta is that but for a last tiny step."""
        known = self.rows.last_approach
        if known is None or np.any(abs(theta - known.theta) > SAME_PLACE * known.units):
            return theta
        return known.theta

    # Gradients.

    def score(self, theta: Array) -> Array:
        origin = self._origin(theta)
        slope = self.weighted_score(origin, self.weights.values)
        return slope if origin is theta else slope - self.information(origin, theta - origin)

    def weighted_score(self, theta: Array, weights: Array) -> Array:
        if self.rows.scores is None:
            other = None if weights is self.weights.values else weights
            return self.gradient(lambda point: self.parts(point, other), theta)
        return np.asarray(self._weighted_rows(theta, weights) - self.penalty.score(theta))

    def _weighted_rows(self, theta: Array, weights: Array) -> Array:
        if self.rows.is_traced:
            assert self.rows.scores is not None
            return weighted_rows(self.rows.scores, theta, weights)
        return np.asarray(weights @ self.counted_rows(theta, weights))

    def counted_rows(self, theta: Array, weights: Array) -> Array:
        """Derivatives of the terms, (n, d); zero for those of no weight."""
        rows = self.rows.score_rows(theta)
        if self._all_count if weights is self.weights.values else weights.all():
            return rows
        return np.where(weights[:, None] > 0, rows, 0.0)

    def gradient(self, f: Callable[[Array], Array], theta: Array) -> Array:
        """Sum of the gradients of f, (d,) to (m,), by differences that are certain."""
        try:
            rows, total = summed_slopes(f, theta, np.diag(self.units))
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        sizes = np.maximum(np.linalg.norm(rows.value, axis=0), NEGLIGIBLE)
        self._check_certain(np.linalg.norm(rows.error, axis=0), sizes)
        return np.asarray(total.value / self.units)

    def swift_score(self, theta: Array) -> Array:
        if self.rows.scores is None or not self.penalty.functions:
            return self.score(theta)
        rows = self._weighted_rows(theta, self.weights.values)
        return np.asarray(rows - self._swift_penalty_score(theta))

    def _swift_penalty_score(self, theta: Array) -> Array:
        """Gradient of the penalty, (d,), by tracing; NaN if that cannot be done."""
        total = replace(self.penalty, functions=()).score(theta)
        for part in self.penalty.functions:
            traced = part.traced_score(theta) if isinstance(part, WrittenPenalty) else None
            total = total + (np.nan if traced is None else traced)
        return total

    def rough_score(self, theta: Array) -> Array:
        if self.rows.scores is not None:
            return self.score(theta)
        slopes, _ = rough_slopes(self.parts, theta, self.units)
        return slopes if np.all(np.isfinite(slopes)) else self.score(theta)

    def short_score(self, theta: Array, units: Array) -> Array:
        if self.rows.scores is not None:
            return self.score(theta)
        return summed_differences(self.parts, theta, SHORT_STEP * units)

    def terms_along(self, theta: Array, v: Array) -> Array:
        if self.rows.scores is None:
            return self._directional(self.rows.recalled, theta, v)
        self.rows.counter.count += not self.rows.is_traced
        return rows_along(self.rows.scores, theta, v)

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return reduce(self.terms_along(theta, v), *row_arrays)

    def _directional(
        self,
        f: Callable[[Array], Array],
        theta: Array,
        v: Array,
        units: Array | float = 1.0,
        floor: float = NEGLIGIBLE,
    ) -> Array:
        """Differentiate f along v, in steps of a fraction of a standard error.

        Over a whole one the entries of f, in their units, change by about 1 in all; a derivative
        below the floor is zero.
        """
        block = v.reshape(self.rows.d, -1)
        length = np.max(abs(block) / self.units[:, None], axis=0)
        length[length == 0] = 1.0
        try:
            derivative = differentiate(f, theta, block / length)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        sizes = np.maximum(np.linalg.norm(units * derivative.value, axis=0), floor)
        self._check_certain(np.linalg.norm(units * derivative.error, axis=0), sizes)
        value = derivative.value * length
        return np.asarray(value.reshape(value.shape[:1] + v.shape[1:]))

    def _check_certain(self, error: Any, size: Any) -> None:
        """Refuse a derivative that its own error estimate calls uncertain."""
        doubt = float(np.max(ratio(error, size)))
        if doubt > UNCERTAIN and not self.rows.climbs:
            share = f"{doubt:.1%}" if doubt < 1 else "all of its size"
            raise UnsupportedModelError(NOT_SMOOTH.format(doubt=share))

    # Curvature.

    @property
    def _forms_hessian(self) -> bool:
        """Whether products are those of a matrix that is kept: of few traced parameters, too."""
        few = self.rows.d <= CHEAP_LIMIT
        return self.rows.scores is None or (self.rows.is_traced and few)

    def information(self, theta: Array, v: Array) -> Array:
        if self._forms_hessian:
            theta = self._origin(theta).copy()
            return np.asarray(self.cache.get(theta, "hessian", lambda: self._hessian(theta)) @ v)
        swift = self._swift_products(theta, v)
        return self._products(theta, v) if swift is None else swift

    def _products(self, theta: Array, v: Array) -> Array:
        block = v.reshape(theta.size, -1)
        exact = self._traced_products(theta, block) if self.rows.is_traced else None
        if exact is not None:
            return exact.reshape(v.shape)
        return -self._directional(self.score, theta, v, self.units[:, None], FLAT_COLUMN)

    def _swift_products(self, theta: Array, v: Array) -> Array | None:
        """Multiply many directions by short steps, and a mixture of them with care."""
        if v.ndim < 2 or v.shape[1] < MANY or not np.array_equal(theta, self.theta):
            return None
        known = None if self.rows.is_traced else self.outer_products
        if known is None:
            return None
        mixture = np.random.default_rng(0).choice([-1.0, 1.0], size=(v.shape[1], 1))
        images, with_care = known.images(v), self._products(theta, v @ mixture)
        return images if known.agrees(images @ mixture, with_care) else None

    def information_of(self, theta: Array, v: Array, weights: Array) -> Array:
        scores = self.rows.scores
        exact = weighted_hessian(scores, theta, weights, v)
        if exact is not None:
            return -exact
        if scores is not None:
            return -self._directional(
                lambda point: weighted_rows(scores, point, weights), theta, v, self.units[:, None]
            )
        bend = second_differences(
            lambda point: weights * self.rows.recalled(point), theta, np.diag(self.units)
        )
        return np.asarray(-bend.value / np.outer(self.units, self.units) @ v)

    def check_saddle(self) -> None:
        def roughly() -> Array:
            settled = not self.rows.is_traced or self._traced_units() is not None
            if self.rows.scores is not None and settled:
                return self.information(self.theta, np.diag(self.units)) * self.units[:, None]
            with np.errstate(all="ignore"):
                return -rough_second_differences(self.parts, self.theta, np.diag(self.units))

        refuse_saddle(self.cache.get(self.theta, "rough", roughly))

    def _hessian(self, theta: Array) -> Array:
        """Minus the Hessian of L, (d, d): of traced gradients, or by second differences."""
        if self.rows.is_traced:
            found = self.cache.get(theta, "traced", lambda: self._traced_hessian(theta))
            if found is not None:
                return np.asarray(found[0])
        calls, d = self.rows.counter, self.rows.d
        with calls_ahead(calls, "second differences", FEWEST_LEVELS * d * (d + 1)):
            matrix, error = self._second_differences(theta, np.diag(self.units))
        values, vectors = np.linalg.eigh(matrix * np.outer(self.units, self.units))
        if 1e-9 < values[0] < values[-1] / ILL_CONDITIONED:
            axes = self.units[:, None] * vectors / np.sqrt(values)
            matrix, error = self._second_differences(theta, axes)
            values = np.ones(1)
        elif abs(values[0]) <= 1e-9 and not (self.rows.climbs or OF_A_PART.get()):
            flat = self.units[:, None] * vectors[:, abs(values) <= 1e-9]
            self._check_flat(theta, flat)
        least = abs(values).max() if OF_A_PART.get() else abs(values).min()
        self._check_certain(error, max(least, FLAT * max(values[-1], 1.0)))
        return matrix

    def _traced_hessian(self, theta: Array) -> tuple[Array, Array] | None:
        """Minus the Hessian by tracing and its units, unless there are kinks nearby."""
        matrix = self._traced_products(theta, np.eye(self.rows.d))
        if matrix is None or not np.all(np.diag(matrix) > 0):
            return None
        matrix, units = symmetric(matrix), 1 / np.sqrt(np.diag(matrix))
        slope = partial(self.weighted_score, weights=self.weights.values)
        with np.errstate(all="ignore"):
            if not (self.rows.climbs or looks_smooth(slope, theta, units, -matrix)):
                return None
        return matrix, units

    def _traced_products(self, theta: Array, v: Array) -> Array | None:
        """Minus the Hessian times (d, k) by tracing; None where that cannot be done."""
        found = weighted_hessian(self.rows.scores, theta, self.weights.values, v)
        try:
            return None if found is None else self.penalty.curvature(theta, v) - found
        except FloatingPointError:
            return None

    def _check_flat(self, theta: Array, directions: Array) -> None:
        """Refuse directions that look flat from here and are not: L bends far away along them.

        Along those of redundant parameters it is the same at any distance; along those of nearly
        collinear ones the curvature is too small for differences, and yet decides.
        """
        if any(bends_far(self.parts, theta, direction) for direction in directions.T):
            raise UnsupportedModelError(NEARLY_COLLINEAR)

    def _second_differences(self, theta: Array, directions: Array) -> tuple[Array, float]:
        """Minus the Hessian, (d, d), and the size of its error in the unit of the directions."""
        try:
            bilinear = second_differences(self.parts, theta, directions)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        inverse = np.linalg.inv(directions)
        error = float(np.linalg.norm(bilinear.error))
        return np.asarray(-inverse.T @ bilinear.value @ inverse), error

    # The metric of the score rows, and a climb without much care.

    @cached_property
    def outer_products(self) -> OuterProducts | None:
        return outer_products(self.metric(self.theta), self.swift_score, self.theta)

    def metric(self, theta: Array) -> Factor | None:
        if self._forms_hessian or not worth_a_metric(self.rows.n, self.rows.d):
            return None
        weights = self.weights.values
        weights = weights**2 if self.weights.kind == "precision" else weights
        step = SHORT * np.maximum(abs(theta), 1.0)
        ahead, behind = (self._swift_penalty_score(theta + way * step) for way in (1, -1))
        bends = np.maximum((ahead - behind) / (2 * step), 0.0)  # as if parameters were apart
        return metric(self.counted_rows(theta, self.weights.values), weights, bends)

    def approached(self) -> Array | None:
        """Climb with one difference a slope, as long as nothing but a start is known."""
        traced, d = self.rows.is_traced, self.rows.d
        given = self.rows.scores is not None and not traced
        if given or not self.rows.climbs or d > CHEAP_LIMIT:
            return None
        slopes = self.score if traced else RunningSlopes(self.parts, self.units)
        scale = factorize(np.diag(1 / self.units**2))
        with calls_ahead(self.rows.counter, "maximizing", STEPS * (2 * d + 2)):
            found = APPROACH.maximize(Objective(self.objective, slopes, scale=scale), self.theta)
        if not found.converged:  # it may have run away, and its units with it
            return None
        near = replace(self, theta=found.x, cache=LastCache())
        units = slopes.units if isinstance(slopes, RunningSlopes) else near.units
        self.rows.cache.approach = Approach(found.x, units)
        return found.x


def weighted(weights: Array, terms: Array) -> Array:
    """Multiply; a row of weight zero is not there, even where its term is minus infinity."""
    if np.all(weights):
        return weights * terms
    return weights * np.where(weights > 0, terms, 0.0)
