"""The fitted model of a log-likelihood written in NumPy."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from implicit_delta._core.arguments import (
    Counter,
    as_parameters,
)
from implicit_delta._core.cache import LastCache, Recent
from implicit_delta._core.limits import CHEAP_LIMIT
from implicit_delta._core.progress import calls_ahead
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.models.along import Along, RowsAlong
from implicit_delta.models.base import (
    NO_OUTPUTS,
    Curvature,
    FittedModel,
    RowNumbers,
    Whitened,
    require_rows,
)
from implicit_delta.models.checks import Beside, check_unchanged, mixture
from implicit_delta.models.constrained_fit import (
    box,
    inner_slope,
    maximum_along,
)
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.fixed import fixed_at, released_from
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.named_theta import Layout, as_named, speaking
from implicit_delta.models.outer_products import (
    OuterProducts,
    metric,
    outer_products,
    worth_a_metric,
)
from implicit_delta.models.penalty import (
    NO_PENALTY,
    Penalty,
    PenaltyFunction,
    Ridge,
    names_of,
)
from implicit_delta.models.starts import (
    Optimum,
    spelled_optima,
)
from implicit_delta.models.traced_loglik import (
    TRACE_FROM,
    exact_hessian,
    is_traced,
    looks_smooth,
    rows_along,
    weighted_rows,
)
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.arrays import ratio, symmetric
from implicit_delta.numerics.derivatives import (
    FEWEST_LEVELS,
    RunningSlopes,
    bends_far,
    constant_beside,
    differentiate,
    natural_units,
    rough_second_differences,
    second_differences,
    summed_slopes,
)
from implicit_delta.numerics.maximizers import Objective, variable_metric
from implicit_delta.numerics.solvers import Factor, factorize
from implicit_delta.numerics.tracing import trace

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
SADDLE = -0.05  # curvature, in units of each parameter's own, that rough differences leave certain
NO_CURVATURE = 1e-6  # of a redundant direction, by rounding on either side of zero
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
    "leave one out, add `l2=`, or give `score=`."
)
KNOWN = (
    " With names, fix one parameter, `model.fix(name=value)`, or add what is known of it, "
    "`model + measurement(name=(value, error))`."
)
BESIDE, STILL = 1e-5, 0.5  # of a unit; share of the terms that do not move over it
IN_STEPS = (
    "No maximum was found: the log-likelihood changes in steps. Right beside the point where the "
    "search ended, and may have started, most of its terms stay exactly the same, and farther away "
    "they do not: there is no slope to follow, and no standard error. Usual causes: rounding or "
    "counting of something that depends on theta (`np.floor`, `np.round`, `.astype(int)`, "
    "`np.digitize`, `y < th[0]`). Write it without, or ask for a bootstrap of your own fit: "
    "`bootstrap(fit, data, psi)`."
)
CERTAIN = 1e-3  # nats for each row: log-likelihoods that are probabilities of one
SEPARATED = (
    "No maximum was found: the terms have risen to zero, a probability of one for every row, and "
    "stay there. Usual cause: perfectly separated classes, whose likelihood has no finite maximum: "
    "the parameters run to infinity. Leave out the column that tells the classes apart, or add a "
    "penalty (`l2=1.0`)."
)
AT_THE_EDGE = (
    "The log-likelihood is NaN or infinite right beside the parameters: they lie at the edge of "
    "its domain, where the delta method does not hold. Try another parametrization, for example "
    "the logarithm of a variance."
)


@dataclass(frozen=True, eq=False, repr=False)
class LoglikModel(FittedModel):
    """A NumPy log-likelihood at its maximum; made by `from_loglik` and `from_residuals`.

    Derivatives that are not given are traced where that is possible (from `TRACE_FROM` parameters
    on), and elsewhere taken numerically, in steps of a fraction of the standard error of each
    parameter. Only rows with `gauss_newton` have a Gauss-Newton curvature: it
    returns (n, d) rows u_i such that the curvature is the weighted sum of u_i u_i', and `residuals`
    the (n,) residuals of the same scale. The Jacobian of
    psi is exact where psi can be traced, and by differences elsewhere. Every call of the
    log-likelihood, or of its derivative, counts as a pass. Where the distribution of the data is
    known, `redraw` builds the model with new ones. A fit that is more than a maximum (a noise
    variance) is made again by `refit`.
    """

    loglik: Callable[[Array], Any]
    theta: Array
    weights: Weights
    row_scores: Callable[[Array], Any] | None = None
    gauss_newton: Callable[[Array], Array] | None = None
    residuals: Callable[[Array], Array] | None = None
    penalty: Penalty = NO_PENALTY
    names: tuple[str, ...] | None = None
    facts: Facts = NO_FACTS
    redraw: "Callable[[LoglikModel, np.random.Generator], LoglikModel] | None" = None
    curvature: Curvature = "hessian"
    constraints: Constraints | None = None
    chart: Chart | None = None
    whole: FittedModel | None = None
    counter: Counter = field(default_factory=Counter)
    climbing: bool = False  # on the way to the maximum a derivative may be uncertain
    layout: Layout | None = None
    fixed: Mapping[int, float] = field(default_factory=dict)
    unfixed: Constraints | None = None  # constraints without those of `fixed`
    refit: "Callable[[LoglikModel], LoglikModel] | None" = None
    renoise: "Callable[[LoglikModel], tuple[LoglikModel, float]] | None" = None
    optima: tuple[Optimum, ...] = ()
    sources: tuple[Any, ...] = ()  # the data sets of a combined model
    measure: "Callable[[LoglikModel, np.random.Generator], LoglikModel] | None" = None
    recent: Recent | None = None
    _last: LastCache = field(init=False, default_factory=LastCache)

    def __post_init__(self) -> None:
        """Name theta; remember recent terms, but not those of another function."""
        if self.layout is not None and self.chart is None:
            object.__setattr__(self, "theta", as_named(self.theta, self.layout))
        if self.recent is None or self.recent.function is not self.loglik:
            object.__setattr__(self, "recent", Recent(self.loglik))
        if self.penalty.functions:
            own = tuple(_differentiated_by(part, self) for part in self.penalty.functions)
            object.__setattr__(self, "penalty", replace(self.penalty, functions=own))

    @property
    def passes(self) -> int:
        return self.counter.count

    @cached_property
    def units(self) -> Array:
        """The standard error of each parameter, the others held fixed: the unit of all steps."""
        assert self.recent is not None
        exact = self._traced_units()
        if exact is not None:
            return exact
        known = self.outer_products if self.constraints is None else None
        if known is not None:
            return known.units
        return natural_units(self.parts, self._origin(self.theta), self.recent.units)

    def _traced_units(self) -> Array | None:
        """Units of the curvature, where that is traced; on the way a guess will do."""
        if not is_traced(self.row_scores) or not self._forms_hessian:
            return None
        origin = self._origin(np.array(self.theta)).copy()
        if self.climbing:
            return self._row_units(origin)
        found = self._last.get(origin, "traced", lambda: self._traced_hessian(origin))
        return None if found is None else np.asarray(found[1])

    def _row_units(self, theta: Array) -> Array | None:
        """Units from the squares of the rows' derivatives, unless these vanish."""
        assert self.recent is not None
        if self.recent.origin is not None and np.array_equal(theta, self.recent.origin):
            return self.recent.units
        squares = weighted(self.weights.values, (self._rows(theta) ** 2).T).sum(axis=1)
        squares = squares + self.penalty.floor
        return 1 / np.sqrt(squares) if self.n > 1 and np.all(squares > 0) else None

    @cached_property
    def outer_products(self) -> OuterProducts | None:
        theta = np.array(self.theta)
        return outer_products(self.metric(theta), self.swift_score, theta)

    def metric(self, theta: Array) -> Factor | None:
        if self._forms_hessian or not worth_a_metric(self.n, self.d):
            return None
        weights = self.weights.values
        weights = weights**2 if self.weights.kind == "precision" else weights
        step = SHORT * np.maximum(abs(theta), 1.0)
        ahead, behind = (self._swift_penalty_score(theta + way * step) for way in (1, -1))
        bends = np.maximum((ahead - behind) / (2 * step), 0.0)  # as if parameters were apart
        return metric(self.counted_rows(theta, self.weights.values), weights, bends)

    def swift_score(self, theta: Array) -> Array:
        if self.row_scores is None or not self.penalty.functions:
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

    def terms(self, theta: Array) -> Array:
        started = perf_counter()
        terms = np.array(self.loglik(theta.copy()), dtype=np.float64)  # it may reuse its result
        self.counter.called(perf_counter() - started)
        return terms

    def explained(self, error: NotAMaximumError) -> NotAMaximumError:
        if self.layout is None or self.names is None or abs(error.curvature) > NO_CURVATURE:
            return super().explained(error)
        return error.of_own(self.names, np.asarray(self.theta).tolist())

    def check_unchanged(self) -> None:
        assert self.recent is not None
        known = self.recent.sample(np.asarray(self.theta))
        if known is not None:
            check_unchanged(known[1], self.terms(known[0]))

    def check_steps(self) -> None:
        """Refuse terms that change in jumps alone: no slope has led to where they are.

        One evaluation right beside; only rows that move farther away count, and if most of them
        do not move at all, two more directions decide.
        """
        theta, units = np.asarray(self.theta), self.units
        with np.errstate(all="ignore"):
            center, beside = self._recalled(theta), self._recalled(theta + BESIDE * units)
        told = abs(center) * np.finfo(float).eps < BESIDE**2 / 10  # rounding hides nothing
        if np.mean((beside == center) & told) <= STILL:
            return
        with np.errstate(all="ignore"):
            moves = told & self._moved(theta, units, center)
            still = constant_beside(self._recalled, theta, units)[moves]
        if still.size and np.mean(still) > STILL:
            certain = np.max(center) <= 0 and np.mean(center) > -CERTAIN
            raise ConvergenceError(SEPARATED if certain else IN_STEPS)

    def _moved(self, theta: Array, units: Array, center: Array) -> Any:
        """Which terms are others at some distance, (n,)."""
        steps = (units, -units, np.maximum(abs(theta), 1.0), -np.maximum(abs(theta), 1.0))
        found = [self._recalled(theta + step) for step in steps if self.allows(theta + step)]
        return np.any([(far != center) & np.isfinite(far) for far in found], axis=0)

    def wrong_beside(self) -> str:
        """Tell why given derivatives may be wrong beside theta; nothing if they are not."""
        theta = np.array(self.theta)
        try:
            step = self.units * mixture(self.d)
            if self.constraints is not None:  # a log-likelihood may end there, a score may raise
                low, high = box(self.constraints, theta)
                step = np.where(high - low > 2 * abs(step), step, 0.0)
                inside = np.clip(theta, low + abs(step), high - abs(step))
                theta = np.where(step == 0, theta, inside)
            return Beside(self._recalled, self._rows, self.weights.values, theta, step).cause()
        except (ImplicitDeltaError, ArithmeticError, ValueError):  # not defined on both sides
            return ""

    def objective(self, theta: Array) -> float:
        return float(np.sum(self.parts(theta)))

    def score(self, theta: Array) -> Array:
        origin = self._origin(theta)
        if origin is theta:
            return self._score(theta, self.weights.values)
        return self._score(origin, self.weights.values) - self.information(origin, theta - origin)

    def approached(self) -> "LoglikModel | None":
        """Climb with one difference a slope, as long as nothing but a start is known."""
        traced = is_traced(self.row_scores)
        given = self.row_scores is not None and not traced
        if given or not self.climbing or self.d > CHEAP_LIMIT:
            return None
        slopes = self.score if traced else RunningSlopes(self.parts, self.units)
        scale = factorize(np.diag(1 / self.units**2))
        with calls_ahead(self.counter, "maximizing", STEPS * (2 * self.d + 2)):
            found = APPROACH.maximize(Objective(self.objective, slopes, scale=scale), self.theta)
        if not found.converged:  # it may have run away, and its units with it
            return None
        assert self.recent is not None
        near = replace(self, theta=found.x)
        units = slopes.units if isinstance(slopes, RunningSlopes) else near.units
        self.recent.units, self.recent.origin = units, found.x
        return near

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        if curvature == "ggn":
            return self._gauss_newton_product(theta, v)
        if self._forms_hessian:
            theta = self._origin(theta).copy()
            matrix = self._last.get(theta, "hessian", lambda: self._hessian(theta))
            return np.asarray(matrix @ v)
        swift = self._swift_products(theta, v)
        return self._products(theta, v) if swift is None else swift

    def _products(self, theta: Array, v: Array) -> Array:
        return -self._directional(self.score, theta, v, self.units[:, None], FLAT_COLUMN)

    @property
    def _forms_hessian(self) -> bool:
        """Whether products are those of a matrix that is kept: of few traced parameters, too."""
        return self.row_scores is None or (is_traced(self.row_scores) and self.d <= CHEAP_LIMIT)

    def _swift_products(self, theta: Array, v: Array) -> Array | None:
        """Multiply many directions by short steps, and a mixture of them with care."""
        if v.ndim < 2 or v.shape[1] < MANY or not np.array_equal(theta, self.theta):
            return None
        known = self.outer_products
        if known is None:
            return None
        mixture = np.random.default_rng(0).choice([-1.0, 1.0], size=(v.shape[1], 1))
        images, with_care = known.images(v), self._products(theta, v @ mixture)
        return images if known.agrees(images @ mixture, with_care) else None

    def information_of(self, theta: Array, v: Array, rows: slice) -> Array:
        """Minus the Hessian of the terms of some rows, without penalties, times (d, k)."""
        weights = np.zeros_like(self.weights.values)
        weights[rows] = self.weights.values[rows]
        if self.curvature == "ggn":
            own = self._gauss_newton_rows(theta)
            return np.asarray(own.T @ (weights * (own @ v).T).T)
        scores = self.row_scores
        if scores is not None:
            return -self._directional(
                lambda point: weighted_rows(scores, point, weights), theta, v, self.units[:, None]
            )
        bend = second_differences(
            lambda point: weights * self._recalled(point), theta, np.diag(self.units)
        )
        return np.asarray(-bend.value / np.outer(self.units, self.units) @ v)

    @property
    def strata(self) -> tuple[slice, ...]:
        return tuple(source.rows for source in self.sources) or super().strata

    def stated(self, theta: Array, v: Array) -> Array | None:
        single = [s.rows for s in self.sources if s.rows.stop - s.rows.start == 1]
        if not single:
            return None
        own = [v.T @ self.information_of(theta, v, rows) for rows in single]
        return np.asarray(sum(own[1:], own[0]))

    def measured_again(self, rng: np.random.Generator) -> "LoglikModel":
        return self if self.measure is None else self.measure(self, rng)

    def __add__(self, other: Any) -> "LoglikModel":
        """Fit both data sets together; see `combine`."""
        if not isinstance(other, FittedModel):
            return NotImplemented
        from implicit_delta.models.combined import combine

        return combine(self, other)

    def __radd__(self, other: Any) -> "LoglikModel":
        """Let `sum([m1, m2])` begin with its zero."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def check_maximum(self) -> None:
        def roughly() -> Array:
            if self.row_scores is not None:
                return self.information(self.theta, np.diag(self.units)) * self.units[:, None]
            with np.errstate(all="ignore"):
                return -rough_second_differences(self.parts, self.theta, np.diag(self.units))

        if self.curvature == "ggn":
            matrix = self._last.get(self.theta.copy(), "rough", roughly)
            least = np.linalg.eigvalsh(symmetric(matrix))[0] if np.isfinite(matrix).all() else 0.0
            if least < SADDLE:
                raise NotAMaximumError.saddle(float(least))

    def terms_along(self, theta: Array, v: Array) -> Array:
        require_rows(self)
        if self.row_scores is not None:
            self.counter.count += not is_traced(self.row_scores)
            return rows_along(self.row_scores, theta, v)
        return self._directional(self._recalled, theta, v)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        if self.residuals is None:
            raise UnsupportedModelError(NO_OUTPUTS)
        rows, residuals = self._gauss_newton_rows(theta) @ v, self.residuals(theta)[:, None]
        self.counter.count += 1
        yield Whitened(rows[:, None, :], residuals, np.ones_like(residuals))

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        point = theta.copy() if self.chart is None else self.chart.point(theta)
        return np.asarray(psi(point if self.layout is None else self.layout.named(point)))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        psi = speaking(psi, self.layout)
        if self.chart is None:
            return jacobian_of(psi, theta, self.units, trace(psi, theta))
        point = self.chart.point(theta)
        traced = trace(psi, point)
        if traced is not None:
            traced = traced[0], traced[1] @ self.chart.slope(point)
        return jacobian_of(Along(psi, self.chart), theta, self.units, traced)

    def reweighted(self, weights: Array) -> "LoglikModel":
        return replace(self, weights=self.weights.replaced(weights))

    def at(self, theta: Array) -> "LoglikModel":
        recent = None if self.recent is None else self.recent.emptied()
        point = as_parameters(theta)
        facts = self.facts.moved(point - np.asarray(self.theta))
        return replace(self, theta=point, climbing=False, recent=recent, facts=facts)

    def renoised(self) -> "tuple[LoglikModel, float]":
        return (self, 1.0) if self.renoise is None else self.renoise(self)

    @property
    def maker(self) -> str:
        return "from_loglik" if self.residuals is None else "from_residuals"

    def log_likelihood(self) -> float:
        if self.weights.kind == "sampling":
            return np.nan
        if self.weights.kind == "precision" and self.residuals is None:
            return np.nan  # known up to a common factor
        whole = getattr(self.loglik, "log_likelihood", None)  # of terms that lack constants
        if whole is not None:
            return float(whole(self.theta, self.weights))
        return float(np.sum(weighted(self.weights.values, self.terms(self.theta))))

    @property
    def limits(self) -> Constraints | None:
        """Constraints that the model was given, without those of fixed parameters."""
        return self.unfixed if self.fixed else self.constraints

    def fix(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> "LoglikModel":
        self.check_unchanged()
        return self._fitted_again(fixed_at(self, values, named))

    def held_at(self, values: Mapping[Any, Any]) -> "LoglikModel":
        """Hold these parameters, all of them if they are all given: the null of a test."""
        self.check_unchanged()
        return self._fitted_again(fixed_at(self, values, {}, everything=True))

    def release(self, *names: Any) -> "LoglikModel":
        self.check_unchanged()
        return self._fitted_again(released_from(self, names))

    def _fitted_again(self, placed: "LoglikModel") -> "LoglikModel":
        if placed.refit is not None:
            return placed.refit(placed)
        return placed.at(maximum_along(placed))

    def slope_inside(self, theta: Array) -> Array:
        """Differentiate one-sidedly where L ends together with what bounds allow."""
        try:
            return self.score(theta)
        except UnsupportedModelError:
            return inner_slope(self.objective, theta, self.constraints)

    def along(self, chart: Chart) -> "LoglikModel":
        """Eliminate parameters, as a user would by hand: all functions are those of the rest."""
        return replace(
            self,
            loglik=Along(self.loglik, chart),
            theta=chart.coordinates(self.theta),
            row_scores=None if self.row_scores is None else RowsAlong(self.row_scores, chart),
            gauss_newton=self.gauss_newton and RowsAlong(self.gauss_newton, chart),
            residuals=self.residuals and Along(self.residuals, chart),
            penalty=self.penalty.along(chart),
            names=self.names and tuple(self.names[j] for j in chart.free),
            facts=self.facts.with_training(before=None),
            redraw=self.redraw and RedrawAlong(self, chart, self.redraw),
            measure=self.measure and RedrawAlong(self, chart, self.measure),
            chart=chart,
            whole=self,
        )

    def redrawn(self, rng: np.random.Generator) -> "LoglikModel":
        return super().redrawn(rng) if self.redraw is None else self.redraw(self, rng)

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        return self._score(theta, self.weights.of_batch(rows))

    def describe(self) -> dict[str, str]:
        written = names_of(self.penalty.functions)
        penalty = {"penalty": written} if written else {}
        under = {} if self.constraints is None else {"constraints": str(self.constraints)}
        optima = {} if not self.optima else {"optima": spelled_optima(self.optima)}
        told = {"log-likelihood": _name(self.loglik), **self._derived}
        told |= {**penalty, **super().describe()}
        return {**told, **under, **optima}

    @property
    def _derived(self) -> dict[str, str]:
        """Tell of derivatives where those of others of this size are exact."""
        if is_traced(self.row_scores):
            return {"derivatives": "exact, by tracing"}
        differenced = self.row_scores is None and self.d >= TRACE_FROM
        return {"derivatives": "by differences"} if differenced else {}

    def _score(self, theta: Array, weights: Array) -> Array:
        """Gradient of L with other weights; a batch alone may be flat and have no units."""
        if self.row_scores is None:
            other = None if weights is self.weights.values else weights
            return self.gradient(lambda point: self.parts(point, other), theta)
        return np.asarray(self._weighted_rows(theta, weights) - self.penalty.score(theta))

    def _weighted_rows(self, theta: Array, weights: Array) -> Array:
        if is_traced(self.row_scores):
            assert self.row_scores is not None
            return weighted_rows(self.row_scores, theta, weights)
        return np.asarray(weights @ self.counted_rows(theta, weights))

    def _origin(self, theta: Array) -> Array:
        """Where the fit has left its differences, if theta is that but for a last tiny step."""
        assert self.recent is not None
        origin, units = self.recent.origin, self.recent.units
        if origin is None or units is None or np.any(abs(theta - origin) > SAME_PLACE * units):
            return theta
        return origin

    def _recalled(self, theta: Array) -> Array:
        assert self.recent is not None
        return self.recent.get(theta, lambda: self.terms(theta))

    def parts(self, theta: Array, weights: Array | None = None) -> Array:
        """Everything that L is the sum of: n weighted terms and the penalties."""
        terms = self._recalled(theta)
        if weights is None and self._all_count:
            return np.concatenate([self.weights.values * terms, -self._penalty(theta)])
        terms = weighted(self.weights.values if weights is None else weights, terms)
        return np.concatenate([terms, -self._penalty(theta)])

    @cached_property
    def _all_count(self) -> bool:
        return bool(self.weights.values.all())  # looked at once: L is evaluated hundreds of times

    def _penalty(self, theta: Array) -> Array:
        kinds = (self.penalty.ridges, self.penalty.functions)
        return np.array([sum(part.value(theta) for part in parts) for parts in kinds], float)

    def _rows(self, theta: Array) -> Array:
        assert self.row_scores is not None
        self.counter.count += not is_traced(self.row_scores)
        return np.asarray(self.row_scores(theta.copy()), dtype=np.float64)

    def counted_rows(self, theta: Array, weights: Array) -> Array:
        """Rows (n, d); zero for those of no weight."""
        rows = self._rows(theta)
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
        block = v.reshape(self.d, -1)
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

    def _hessian(self, theta: Array) -> Array:
        """Minus the Hessian of L, (d, d): of traced gradients, or by second differences."""
        if is_traced(self.row_scores):
            found = self._last.get(theta, "traced", lambda: self._traced_hessian(theta))
            if found is not None:
                return np.asarray(found[0])
        with calls_ahead(self.counter, "second differences", FEWEST_LEVELS * self.d * (self.d + 1)):
            matrix, error = self._second_differences(theta, np.diag(self.units))
        values, vectors = np.linalg.eigh(matrix * np.outer(self.units, self.units))
        if 1e-9 < values[0] < values[-1] / ILL_CONDITIONED:
            axes = self.units[:, None] * vectors / np.sqrt(values)
            matrix, error = self._second_differences(theta, axes)
            values = np.ones(1)
        elif abs(values[0]) <= 1e-9 and not self.climbing:
            flat = self.units[:, None] * vectors[:, abs(values) <= 1e-9]
            self._check_flat(theta, flat)
        self._check_certain(error, max(abs(values).min(), FLAT * max(values[-1], 1.0)))
        return matrix

    def _traced_hessian(self, theta: Array) -> tuple[Array, Array] | None:
        """Minus the Hessian by differences of traced gradients, and its units, where it settles."""
        slope, steps = partial(self._score, weights=self.weights.values), self._row_units(theta)
        if steps is None:
            return None
        with np.errstate(all="ignore"), calls_ahead(self.counter, "gradients", 2 * self.d):
            found = exact_hessian(slope, theta, steps)
            if found is None or not (
                self.climbing or looks_smooth(slope, theta, found[1], found[0])
            ):
                return None
        return -found[0], found[1]

    def _check_flat(self, theta: Array, directions: Array) -> None:
        """Refuse directions that look flat from here and are not: L bends far away along them.

        Along those of redundant parameters it is the same at any distance; along those of nearly
        collinear ones the curvature is too small for differences, and yet decides.
        """
        if any(bends_far(self.parts, theta, direction) for direction in directions.T):
            raise UnsupportedModelError(NEARLY_COLLINEAR + (self.layout is not None) * KNOWN)

    def _second_differences(self, theta: Array, directions: Array) -> tuple[Array, float]:
        """Minus the Hessian, (d, d), and the size of its error in the unit of the directions."""
        try:
            bilinear = second_differences(self.parts, theta, directions)
        except FloatingPointError:
            raise UnsupportedModelError(AT_THE_EDGE) from None
        inverse = np.linalg.inv(directions)
        error = float(np.linalg.norm(bilinear.error))
        return np.asarray(-inverse.T @ bilinear.value @ inverse), error

    def _check_certain(self, error: Any, size: Any) -> None:
        """Refuse a derivative that its own error estimate calls uncertain."""
        doubt = float(np.max(ratio(error, size)))
        if doubt > UNCERTAIN and not self.climbing:
            share = f"{doubt:.1%}" if doubt < 1 else "all of its size"
            raise UnsupportedModelError(NOT_SMOOTH.format(doubt=share))

    def _gauss_newton_product(self, theta: Array, v: Array) -> Array:
        if self.gauss_newton is None:
            raise UnsupportedModelError(
                'curvature="ggn" needs a model with an inner function whose curvature is left '
                "out: `from_residuals`, `from_torch` or `from_jax`. A plain log-likelihood has "
                'only curvature="hessian".'
            )
        rows = self._gauss_newton_rows(theta)
        ridges = self.penalty.curvature(theta, v)
        return np.asarray(rows.T @ (self.weights.values * (rows @ v).T).T + ridges)

    def _gauss_newton_rows(self, theta: Array) -> Array:
        """The rows (n, d), kept for the last theta."""
        make = self.gauss_newton
        assert make is not None
        if not self._last.holds(theta, "rows"):
            self.counter.count += 1
        rows: Array = self._last.get(theta.copy(), "rows", lambda: make(theta))
        return rows


@dataclass(frozen=True, eq=False)
class WrittenPenalty:
    """A penalty function in NumPy: traced with the terms of a model, or by its differences."""

    function: Callable[[Array], Any]
    model: LoglikModel | None = None

    @property
    def name(self) -> str:
        return _name(self.function)

    def value(self, theta: Array) -> float:
        return float(self.function(theta.copy()))

    def score(self, theta: Array) -> Array:
        assert self.model is not None
        traced = trace(self.function, theta) if is_traced(self.model.row_scores) else None
        if traced is not None and np.all(np.isfinite(traced[1])):
            return np.asarray(traced[1][0])
        return self.model.gradient(self._term, theta)

    def traced_score(self, theta: Array) -> Array | None:
        """Gradient, (d,), of a trace that agrees with the function; None otherwise."""
        traced = trace(self.function, theta)
        if traced is None or not np.allclose(traced[0], self.value(theta), rtol=1e-12, atol=0):
            return None
        return np.asarray(traced[1][0])

    def curvature(self, theta: Array, v: Array) -> Array:
        assert self.model is not None
        units = self.model.units
        bilinear = second_differences(self._term, theta, np.diag(units)).value
        return np.asarray(bilinear / np.outer(units, units) @ v)

    def _term(self, theta: Array) -> Array:
        return np.array([self.value(theta)])


def _differentiated_by(part: PenaltyFunction, model: LoglikModel) -> PenaltyFunction:
    """Give a written penalty the steps of a model."""
    return replace(part, model=model) if isinstance(part, WrittenPenalty) else part


def penalty_of(function: Callable[[Array], Any] | None, l2: float) -> Penalty:
    """Make the penalty of a function and a ridge."""
    written = () if function is None else (WrittenPenalty(function),)
    return Penalty((Ridge(float(l2)),) if l2 else (), written)


@dataclass(frozen=True, eq=False)
class RedrawAlong:
    """Draw new data from a model in the coordinates of a chart."""

    model: LoglikModel
    chart: Chart
    draw: Callable[[LoglikModel, np.random.Generator], LoglikModel]

    def __call__(self, model: LoglikModel, rng: np.random.Generator) -> LoglikModel:
        """Draw from the model of all parameters."""
        whole = replace(self.model, theta=self.chart.point(model.theta), weights=model.weights)
        return replace(self.draw(whole, rng).along(self.chart), theta=model.theta)


def progress_for(model: FittedModel, label: str, calls: int) -> AbstractContextManager[None]:
    """Announce this many calls of the user's function, if it is slow, while the context lasts."""
    if not isinstance(model, LoglikModel):
        return nullcontext()
    return calls_ahead(model.counter, label, calls)


def isolated_cache(model: FittedModel, empty: bool = True) -> AbstractContextManager[None]:
    """Drop afterwards the terms that were cached meanwhile; start with an empty cache by default.

    A replicate then costs the same in a process of its own and in this one.
    """
    if not isinstance(model, LoglikModel):
        return nullcontext()
    assert model.recent is not None
    return model.recent.apart(empty)


def weighted(weights: Array, terms: Array) -> Array:
    """Multiply; a row of weight zero is not there, even where its term is minus infinity."""
    if np.all(weights):
        return weights * terms
    return weights * np.where(weights > 0, terms, 0.0)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
