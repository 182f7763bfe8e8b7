"""The objective of a log-likelihood function, differentiated in the units of one place."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.differentiate import (
    FEWEST_LEVELS,
    LOUD,
    balanced_step,
    central_differences,
    central_slopes,
    differentiate,
    second_differences,
)
from implicit_delta.calculus.functions import Derivative, Function
from implicit_delta.calculus.noise import ALIKE, AUDIBLE, LOOK, noise_of
from implicit_delta.calculus.units import bends_far, natural_units, sizes
from implicit_delta.core.cache import LastCache
from implicit_delta.core.calls import Limited
from implicit_delta.core.limits import CHEAP_LIMIT
from implicit_delta.core.progress import calls_ahead
from implicit_delta.core.types import Array, Limits
from implicit_delta.errors import ImplicitDeltaError, UnsupportedModelError
from implicit_delta.linalg.arrays import ratio, symmetric
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.models.along import Along
from implicit_delta.models.curvature import SADDLE, refuse_saddle
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

ROUGH_STEP = 2.0**-7  # of the natural unit: what is left out is 1e-5 times the third derivative
SADDLE_STEP = 2.0**-4  # two or three digits of second derivatives, at the least cost
MOST_CHANGE = 10.0  # of a unit from one point to the next
ROUNDED = 1e-12  # of the length of all terms: bends above are no rounding
SLOPE_TOLERANCE = 1e-5  # of the length of the derivatives of all rows
TOTAL = 10.0  # their sum is known to a tenth of that: an extrapolation is 16 times closer
# As far as L has to follow its curvature, in standard errors, and how closely: 3% of one.
FAR, FOLLOWS = 0.5, 0.06
LOOKS = 6
LOUDEST = 10.0  # standard deviations of noise: a second difference of more is no noise
STEPS = 12  # of a usual climb, to foretell its calls
# Where it ends is looked at with care, so its scale may be that of a start far away.
APPROACH = variable_metric(tolerance=1e-7, max_iterations=100, max_curvature=1e10, max_distance=1e5)
SHORT = 1e-4  # of the size of a parameter: bends of a penalty that has a derivative
MANY = 8  # products by short steps are worth another that checks them
MOST_TURNS = 3  # of axes: each finds directions whose curvature noise has hidden before
ILL_CONDITIONED = 1e4  # beyond this a Hessian is differentiated a second time, along its own axes
UNCERTAIN = 0.02  # of a derivative: twice that of a standard error
FLAT_COLUMN = 1e-3  # length of a column of the curvature, in these units, that is zero
NEGLIGIBLE = 0.1  # length of the derivatives of all terms that is zero, but for this share of one
FLAT_HERE = 1e-9  # curvature, in these units, of a direction that looks flat
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
NOISY = (
    "The log-likelihood is noisy: from one theta to the next it changes by a standard deviation of "
    "{noise:.1g} that no slope explains, which leaves a derivative uncertain by {doubt}. About "
    "{enough:.0e} would do. Usual causes: an ODE solver, a quadrature or an optimizer inside of it "
    "with a loose tolerance (lower `rtol` and `atol` by a factor of {factor:.0f}), too few random "
    "numbers (noise falls with the root of their number), single precision (convert the data with "
    "`.astype(np.float64)`). A derivative that you know helps: `score=`."
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
class LocalDerivatives:
    """Derivatives of an objective by differences at one place, which a fitted model carries.

    However the model was made: they are what differences at theta find from scratch.
    """

    theta: Array
    weights: Weights
    penalty: Penalty
    units: Array
    noise: float
    score: Array
    curvature: Derivative


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
        return same and penalty.is_same(self.penalty) and np.array_equal(theta, self.theta)

    def of_rows(self, rows: "LoglikRows") -> "LoglikObjective":
        """Take rows with the same terms: what differences found of these stays."""
        found = replace(self, rows=rows, cache=LastCache())
        if self.cache.holds(self.theta, "differenced"):
            known = self.cache.results["differenced"]
            found.cache.get(self.theta, "differenced", lambda: known)
        return found

    def local(self) -> "LocalDerivatives | None":
        """Differentiate at theta, from scratch; None if that takes no differences, or fails."""
        if self.rows.scores is not None or self.rows.d > CHEAP_LIMIT:
            return None
        try:
            with np.errstate(all="ignore"):
                score, curvature = self.score(self.theta), self.differenced_hessian(self.theta)
        except (ImplicitDeltaError, ArithmeticError, ValueError):  # told when it is asked for
            return None
        penalty = self.penalty.of_model(None)  # what it is of, without the model on the way
        parts = self.theta, self.weights, penalty, self.units, self._measured_noise
        return LocalDerivatives(*parts, score, curvature)

    def _known(self, theta: Array) -> "LocalDerivatives | None":
        """Return the derivatives that the rows carry, if they are those of L at theta."""
        local = self.rows.local
        if local is None or self.rows.scores is not None or not np.array_equal(theta, local.theta):
            return None
        return local if self.is_at(local.theta, local.weights, local.penalty) else None

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
        here = self._known(self.theta)
        exact = self._traced_units()
        if exact is not None:
            return exact
        known = None if self.rows.is_bounded else self.outer_products
        if known is not None:
            return known.units
        if here is not None:
            return here.units
        near = self.rows.last_approach or self.rows.local
        return natural_units(self.parts, self.theta, None if near is None else near.units)

    def _traced_units(self) -> Array | None:
        """Units of the curvature, where that is traced; on the way a guess will do."""
        if not self.rows.is_traced or not self._forms_hessian:
            return None
        if self.rows.climbs:
            return self._row_units(self.theta)
        found = self.cache.get(self.theta, "traced", lambda: self._traced_hessian(self.theta))
        return None if found is None else np.asarray(found[1])

    def _row_units(self, theta: Array) -> Array | None:
        """Units from the squares of the rows' derivatives, unless these vanish."""
        known = self.rows.last_approach
        if known is not None and np.array_equal(theta, known.theta):
            return known.units
        rows = self.rows.sized_rows(theta)
        squares = weighted(self.weights.values, (rows**2).T).sum(axis=1) + self.penalty.floor
        return 1 / np.sqrt(squares) if self.rows.n > 1 and np.all(squares > 0) else None

    @property
    def carries_derivatives(self) -> bool:
        first = self.rows.local is None and not isinstance(self.rows.loglik, Along)
        return first and self.rows.scores is None

    @property
    def noise(self) -> float:
        return self._measured_noise if self._measured_noise > LOUD else 0.0

    @cached_property
    def _measured_noise(self) -> float:
        """Standard deviation of the noise of L beside theta, along a mixture of all parameters."""
        known = self._known(self.theta)
        if known is not None or self.rows.scores is not None:
            return 0.0 if known is None else known.noise
        theta = self.theta
        signs = np.random.default_rng(2).choice([-1.0, 1.0], theta.size)
        step, total = LOOK * signs * self.units / np.sqrt(theta.size), self._rise(theta)
        with np.errstate(all="ignore"):
            found = float(noise_of(total, theta, step, alike=4 * ALIKE)[0])
            if found > AUDIBLE:
                found = float(noise_of(total, theta, step, LOOKS)[0])
        return found if found > AUDIBLE and np.isfinite(found) else 0.0

    def _rise(self, theta: Array) -> Function:
        """L above that at theta, which rounds like its terms, not like their sum."""
        center = self.parts(theta)
        return lambda point: np.array([np.sum(self.parts(point) - center)])

    # Gradients.

    def score(self, theta: Array) -> Array:
        known = self._known(theta)
        return self.weighted_score(theta, self.weights.values) if known is None else known.score

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
        center = f(theta)

        def with_total(point: Array) -> Array:
            rise = f(point) - center
            return np.append(rise, TOTAL * np.sum(rise))

        noise = self.noise * np.append(np.full(center.size, center.size**-0.5), TOTAL)
        try:
            found = differentiate(with_total, theta, self.units, rtol=SLOPE_TOLERANCE, noise=noise)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        self._check_rows(found.value[:-1] * self.units, found.error[:-1] * self.units)
        return np.asarray(found.value[-1] / TOTAL)

    def _check_rows(self, rows: Array, errors: Array, floor: float = NEGLIGIBLE) -> None:
        """Refuse derivatives (m, k) in units that are uncertain; a column below the floor is 0."""
        lengths = np.maximum(np.linalg.norm(rows, axis=0), floor)
        self._check_certain(np.linalg.norm(errors, axis=0), lengths, self.noise)

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
        step = max(ROUGH_STEP, balanced_step(self.noise))
        slopes = central_slopes(self.parts, theta, step * self.units)
        return slopes if np.all(np.isfinite(slopes)) else self.score(theta)

    @property
    def short_steps(self) -> Array:
        return balanced_step(self.noise) * self.units

    def short_score(self, theta: Array, steps: Array) -> Array:
        if self.rows.scores is not None:
            return self.score(theta)
        return central_slopes(self.parts, theta, steps)

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
        lengths = np.max(abs(block) / self.units[:, None], axis=0)
        lengths = np.where(lengths > 0, lengths, 1.0)
        rtol, noise = SLOPE_TOLERANCE if self.noise else None, self.noise / np.sqrt(self.rows.n)
        try:
            found = differentiate(f, theta, self.units, directions=block, rtol=rtol, noise=noise)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        self._check_rows(units * found.value / lengths, units * found.error / lengths, floor)
        return found.value.reshape(found.value.shape[:1] + v.shape[1:])

    def _check_certain(self, error: Any, size: Any, noise: float) -> None:
        """Refuse a derivative that its own error estimate calls uncertain."""
        doubt = float(np.max(ratio(error, size)))
        if not doubt > UNCERTAIN or self.rows.climbs:
            return
        share = f"{doubt:.1%}" if doubt < 1 else "all of its size"
        if noise:
            factor = doubt / UNCERTAIN
            text = NOISY.format(
                noise=noise, doubt=share, enough=noise / factor, factor=np.ceil(factor)
            )
            raise UnsupportedModelError(text)
        raise UnsupportedModelError(NOT_SMOOTH.format(doubt=share))

    # Curvature.

    @property
    def _forms_hessian(self) -> bool:
        """Whether products are those of a matrix that is kept: of few traced parameters, too."""
        few = self.rows.d <= CHEAP_LIMIT
        return self.rows.scores is None or (self.rows.is_traced and few)

    def information(self, theta: Array, v: Array) -> Array:
        if self._forms_hessian:
            theta = np.array(theta)
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
        found = differentiate(
            lambda point: weights * self.rows.recalled(point),
            theta,
            self.units,
            2,
            noise=self.noise,
        )
        return np.asarray(-found.value @ v)

    def check_saddle(self) -> None:
        def roughly() -> Array:
            settled = not self.rows.is_traced or self._traced_units() is not None
            if self.rows.scores is not None and settled:
                return self.information(self.theta, np.diag(self.units)) * self.units[:, None]
            with np.errstate(all="ignore"):
                # Four times the noise over the square of the step is a quarter of a saddle.
                step = float(np.clip(4 * np.sqrt(self.noise / -SADDLE), SADDLE_STEP, 1.0))
                steps = step * np.diag(self.units)
                return -second_differences(self.parts, self.theta, steps) / step**2

        refuse_saddle(self.cache.get(self.theta, "rough", roughly))

    def _hessian(self, theta: Array) -> Array:
        """Minus the Hessian of L, (d, d): of traced gradients, or by second differences."""
        if self.rows.is_traced:
            found = self.cache.get(theta, "traced", lambda: self._traced_hessian(theta))
            if found is not None:
                return np.asarray(found[0])
        return self.differenced_hessian(theta).value

    def uncertainty(self) -> tuple[float, float]:
        if self.rows.scores is not None:
            return 0.0, 0.0
        found = self.differenced_hessian(self.theta)
        return float(found.noise), float(found.error)

    def differenced_hessian(self, theta: Array) -> Derivative:
        """Minus the Hessian, (d, d), and its error as a share of the least curvature, ()."""
        known = self._known(theta)
        if known is not None:
            return known.curvature
        found: Derivative = self.cache.get(
            theta, "differenced", lambda: self._differenced_hessian(theta, self.noise)
        )
        if self.rows.climbs:
            return found
        noise = self._noise_farther(theta, found.value)
        if noise > self.noise:  # over longer steps, as L does not follow its curvature
            found = self._differenced_hessian(theta, noise)
        self._check_curvature(theta, found)
        return found

    def _check_curvature(self, theta: Array, found: Derivative) -> None:
        """Refuse a curvature that is uncertain, or flat nearby and not farther away."""
        if not OF_A_PART.get():
            values, vectors = np.linalg.eigh(found.value * np.outer(self.units, self.units))
            flat = abs(values) <= FLAT_HERE
            if flat[0]:
                self._check_flat(theta, self.units[:, None] * vectors[:, flat])
        self._check_certain(found.error, 1.0, float(found.noise))

    def _noise_farther(self, theta: Array, matrix: Array) -> float:
        """Noise over a good part of a standard error, along the weakest axis of the curvature.

        A solver that chooses its steps makes L smooth right beside theta, and jump farther away.
        """
        values, vectors = np.linalg.eigh(matrix * np.outer(self.units, self.units))
        if self.rows.is_bounded or not values[0] > FLAT * values[-1]:  # L may end nearby
            return 0.0
        step, rise = self.units * vectors[:, 0] / np.sqrt(values[0]), self._rise(theta)
        with np.errstate(all="ignore"):
            fall = -float(np.sum(rise(theta + FAR * step) + rise(theta - FAR * step)))
            if abs(fall / FAR**2 - 1) <= FOLLOWS:
                return 0.0
            # Over half the steps next to nothing is left of a smooth L, and all of noise.
            found = 0.0
            for reach in (FAR, FAR / 2):
                found = float(noise_of(rise, theta, reach / LOOKS * step, LOOKS)[0])
                if not (np.isfinite(found) and found > LOUD):
                    return 0.0
        return found

    def _differenced_hessian(self, theta: Array, noise: float) -> Derivative:
        """Difference L twice along the parameters, or its axes over a standard error of each.

        The latter where it is ill-conditioned, or where noise hides the least curvature.
        """
        calls, d, loud = self.rows.counter, self.rows.d, noise > 0
        axes = np.diag(self.units)
        with calls_ahead(calls, "second differences", FEWEST_LEVELS * d * (d + 1)):
            curved, error = self._second_differences(theta, axes, noise)
        for _ in range(MOST_TURNS):
            values, vectors = np.linalg.eigh(curved)
            blurred = loud and UNCERTAIN / 4 * values[0] < error < values[-1]
            if not blurred and not FLAT_HERE < values[0] < values[-1] / ILL_CONDITIONED:
                break
            axes = axes @ (vectors / np.sqrt(np.maximum(values, error if loud else 0.0)))
            curved, error = self._second_differences(theta, axes, noise)
        values, vectors = np.linalg.eigh(curved)
        values = np.where(abs(values) <= FLAT_HERE, 0.0, values)  # rounding is no curvature
        curved = (vectors * values) @ vectors.T
        least = abs(values).max() if OF_A_PART.get() else abs(values).min()
        least = max(least, FLAT * max(values[-1], 1.0))
        inverse = np.linalg.inv(axes)
        return Derivative(symmetric(inverse.T @ curved @ inverse), np.asarray(error / least), noise)

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

    def _second_differences(self, theta: Array, axes: Array, noise: float) -> tuple[Array, float]:
        """Minus second derivatives along axes (d, d), and the size of their error."""
        try:
            found = differentiate(self.parts, theta, order=2, directions=axes, noise=noise)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        return -found.value, float(np.linalg.norm(found.error))

    # The metric of the score rows, and a climb without much care.

    @cached_property
    def outer_products(self) -> OuterProducts | None:
        return outer_products(self.metric(self.theta), self.swift_score, self.theta)

    def metric(self, theta: Array) -> Factor | None:
        if self._forms_hessian or not worth_a_metric(self.rows.n, self.rows.d):
            return None
        weights = self.weights.values
        weights = weights**2 if self.weights.kind == "precision" else weights
        step = SHORT * sizes(theta)
        ahead, behind = (self._swift_penalty_score(theta + way * step) for way in (1, -1))
        bends = np.maximum((ahead - behind) / (2 * step), 0.0)  # as if parameters were apart
        return metric(self.counted_rows(theta, self.weights.values), weights, bends)

    def approached(self, limits: Limits) -> Array | None:
        """Climb with one difference a slope, as long as nothing but a start is known."""
        traced, d = self.rows.is_traced, self.rows.d
        given = self.rows.scores is not None and not traced
        if given or not self.rows.climbs or d > CHEAP_LIMIT:
            return None
        scale, noise = factorize(np.diag(1 / self.units**2)), self._measured_noise
        slopes = self.score if traced else RunningSlopes(self.parts, self.units, noise)
        rough = np.sqrt(d) * noise / balanced_step(noise)  # of a slope, in standard errors
        climb = replace(APPROACH, tolerance=max(APPROACH.tolerance, rough))
        with calls_ahead(self.rows.counter, "maximizing", STEPS * (2 * d + 2)):
            value = Limited(self.objective, np.inf, lambda x, found: float(found), limits=limits)
            hill = Objective(value, slopes, scale=scale, value_noise=noise)
            found = climb.maximize(hill, self.theta)
        if not found.converged and not (noise and found.hidden):
            return None  # it may have run away, and its units with it
        near = replace(self, theta=found.x, cache=LastCache())
        units = slopes.units if isinstance(slopes, RunningSlopes) else near.units
        if traced or self.rows.local is not None:  # a first fit ends with units from scratch
            self.rows.cache.approach = Approach(found.x, units)
        return found.x


@dataclass
class RunningSlopes:
    """Slopes of the sum of f on the way to its maximum: the units follow the bends.

    Two evaluations a coordinate, over a step that balances what it leaves out and noise.
    """

    f: Function
    units: Array
    noise: float = 0.0

    def __call__(self, x: Array) -> Array:
        """Differentiate at x, (d,)."""
        step = balanced_step(self.noise)
        slopes, bends = central_differences(self.f, x, step * self.units)
        told = abs(bends) > max(ROUNDED * float(np.linalg.norm(self.f(x))), LOUDEST * self.noise)
        with np.errstate(all="ignore"):
            change = np.where(told, step / np.sqrt(abs(bends)), 1.0)
        self.units = self.units * np.clip(change, 1 / MOST_CHANGE, MOST_CHANGE)
        return slopes


def weighted(weights: Array, terms: Array) -> Array:
    """Multiply; a row of weight zero is not there, even where its term is minus infinity."""
    if np.all(weights):
        return weights * terms
    return weights * np.where(weights > 0, terms, 0.0)
