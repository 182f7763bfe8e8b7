"""Least squares: a Gaussian log-likelihood whose noise variance is plugged in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import scipy.optimize

from implicit_delta.calculus.derivatives import Derivative
from implicit_delta.calculus.lengths import sizes
from implicit_delta.calculus.settled import SETTLED, settled_jacobian
from implicit_delta.calculus.tracing.traced import Traced, unwrap
from implicit_delta.core.arguments import Counter, check_rows
from implicit_delta.core.cache import Recent
from implicit_delta.core.hints import hinting
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.core.warn import warn
from implicit_delta.errors import ConvergenceError, ImplicitDeltaError, ImplicitDeltaWarning
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.checks import check_derivative, check_repeatable, wrong_beside
from implicit_delta.models.constrained_fit import (
    box,
    checked_under_constraints,
    constrained_maximum,
)
from implicit_delta.models.constraints import Constraints, constraints_of
from implicit_delta.models.coordinates import active_constraints
from implicit_delta.models.facts import Facts
from implicit_delta.models.fit_checks import cause_beside
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.loglik import HINTS, notes_of
from implicit_delta.models.loglik_rows import LoglikRows, rows_of
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import named_point, names_of, speaking
from implicit_delta.models.noise import Noise, Wording, noise_variance, refuse_exact
from implicit_delta.models.objective import objective_of
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.models.restarts import best_draws, draw_starts, without_effect
from implicit_delta.models.runaway import OF_A_PART, check_runaways
from implicit_delta.models.sigma import MIXED, NO_WEIGHTS, Scale, scale_of
from implicit_delta.models.space import Space
from implicit_delta.models.traced_loglik import (
    TracedScore,
    can_be_traced,
    is_traced,
    tells_the_truth,
)
from implicit_delta.models.weights import (
    Weights,
    look_repeated,
    observation_weights,
    warn_of_precisions,
)
from implicit_delta.models.written_penalty import penalty_of

MOST_ALTERNATIONS = 50
LONG, SHORT = 1e-2, 1e-7  # steps, of the size of a parameter: first of many, and the only one
LONGER, ALIKE = 100.0, 1e-3  # times the short step; share of a column by which the two may differ
ROUGHLY = 1e-14  # of the sum of squares: 1e-7 of a standard error, squared
ARRIVED = 1e-7  # of a standard error: no further step is worth its differences
EXACT = 1e-10  # of what a step of one percent changes: solvers leave up to 3e-12 of exact data
AT_THE_FIT = (
    " Standard errors of `infer(model, psi)`, by Gauss-Newton, need it at the fit alone and hold; "
    'those of `Infinitesimal(curvature="hessian")`, refits and profiles do not.'
)
BESIDE = 0.1  # of a standard error: differences of the residuals there are their bends
MOST_PAIRED = 12  # parameters: with more, bends of pairs would cost more than the fit
MUCH = 0.4  # of the Gauss-Newton curvature, of which usual fits leave out a tenth (guards.py)
FEW_ROWS = 0.9  # of all leverages, in as many rows as there are parameters: a peak on one of them
KNOWN = 1e-10  # singular value of columns of length one: smaller ones are lost in rounding
MARGIN = 10  # times the error that differences estimate, as for derivatives that are compared
EFFECT = SETTLED**0.5  # singular value of columns of length one, known to SETTLED: halfway to one
FEW = 6  # evaluations of the residuals, for points that are compared
FLAT = (
    "The least-squares fit has ended where a parameter, or a combination of some, has no effect on "
    "the residuals, though it has elsewhere."
)
SADDLE = (
    "The least-squares fit has ended where the sum of squares is stationary but not a minimum: it "
    "falls along one direction."
)
BENT, AT_A_BOUND = "bent", "at a bound"
PROPER = ("", BENT, AT_A_BOUND)  # minima, perhaps not the least
NOWHERE = "Other starts in the scale of the residuals led to no minimum. Give another `start=`."
WORDING = Wording(
    "Give the variance as a number, `variance=`, or the errors of the data, "
    "`sigma=..., variance=1.0`.",
    "observations",
    'variance="mle"',
)


@hinting(
    absolute_sigma="give `variance=1.0` beside `sigma=` for absolute_sigma=True, and leave "
    "`variance=` out for False.",
    yerr="give `sigma=`; with `variance=1.0` it is taken as it is.",
    **HINTS,
    jac="give `jacobian=`, of the residuals (observed less predicted).",
)
def from_residuals(
    residuals: Callable[[Array], Any],
    theta: Any = None,
    *,
    start: Any = None,
    jacobian: Callable[[Array], Any] | None = None,
    sigma: float | Sequence[float] | Array | None = None,
    variance: Literal["mle", "unbiased"] | float | None = None,
    l2: float = 0.0,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind | None = None,
    names: Sequence[str] | None = None,
    bounds: Any = None,
    constraints: Any = (),
) -> FittedModel:
    r"""Make a fitted model of a least-squares problem.

    The terms are :math:`-r_i(\theta)^2 / 2 s^2`, the Gaussian log-likelihood up to a constant (the
    paper's remark on squared error). The noise variance :math:`s^2` is estimated at the optimum
    and plugged in, which changes nothing to first order because it is orthogonal to theta.

    Parameters
    ----------
    residuals : callable
        (d,) to (n,): observed less predicted (the sign does not matter).
    theta : (d,) array, dict, named tuple or pandas Series, optional
        The least-squares solution, if it is known.
    start : (d,) array, dict, named tuple or pandas Series, optional
        Where to start looking for it; with names as in `from_loglik`.
    jacobian : callable, optional
        Derivative of the residuals, (d,) to (n, d). Without it, it is taken numerically.
    sigma : float, (n,) array or (n, n) array, optional
        Standard deviations of the observations, or their covariance matrix, as in
        `scipy.optimize.curve_fit`: up to a common factor, which is estimated, or with
        ``variance=1.0`` as they are (its ``absolute_sigma=True``).
    variance : {"unbiased", "mle"} or float, optional
        The noise variance, in units of ``sigma ** 2``: the sum of squared residuals over n less
        the effective number of parameters (as R's `lm` and `nls` have it); their mean (the paper's
        remark); or a known number. By default "unbiased" without a penalty and "mle" with one.
        Where it is estimated, intervals and tests take Student's t.
    l2 : float
        The penalty ``l2 / 2 * sum(theta ** 2)`` on the log-likelihood. What was added to *half
        the sum of squares* has to be divided by the noise variance to be on that scale.
    weights : (n,) array, optional
        How much each squared residual counts.
    weight_kind : {"frequency", "precision", "sampling"}, optional
        Repetitions of a row (the default; it warns if the residuals tell otherwise); one over its
        variance, up to a common factor (or the number of times that its term counts, of one
        observation); or the number of units of a population that it stands for, as in surveys,
        with the design-based variance by default.
    names : sequence of str, optional
        Names of the parameters, if `theta` or `start` has none.
    bounds : sequence of pairs, dict of pairs, or scipy.optimize.Bounds, optional
        Limits (low, high) of each parameter, None for no limit, as in `scipy.optimize.minimize`; or
        of some of them by name, ``{"S": (0, None)}``.
    constraints : constraint or sequence of them
        `scipy.optimize.LinearConstraint`, `NonlinearConstraint`, or dicts with ``"type"`` and
        ``"fun"``. Standard errors are along those that are active, and parameters that these
        determine do not count for the noise variance.

    Returns
    -------
    FittedModel
        With both curvatures: `"ggn"` (Gauss-Newton), which `infer` takes by default, as
        `curve_fit` and R's `nls` do, and `"hessian"`.

    Examples
    --------
    >>> x = np.arange(5.0)
    >>> y = np.array([0.1, 0.9, 2.2, 2.9, 4.1])
    >>> model = from_residuals(lambda b: y - b[0] - b[1] * x, start=[0, 0])
    >>> model.theta.round(6)
    array([0.04, 1.  ])
    """
    point, layout = named_point(theta, start, l2, "the least-squares solution", names)
    residuals, jacobian = speaking(residuals, layout), speaking(jacobian, layout)
    n = check_repeatable(residuals, point, "residuals").size
    scale = None if sigma is None else scale_of(sigma, n)
    if jacobian is not None:
        check_rows(jacobian(point.copy()), (n, point.size), "jacobian")
        check_derivative(residuals, jacobian, point, "jacobian")
    if scale is not None and scale.mixes and weights is not None:
        raise ValueError(NO_WEIGHTS)
    counted = observation_weights(weights, n, weight_kind or "frequency")
    rule = Gaussian(variance).variance
    if rule is None:
        rule = "mle" if l2 else "unbiased"
    under = constraints_of(bounds, constraints, point, layout, start is not None)
    problem = LeastSquares(residuals, jacobian, counted, float(l2), rule, under, scale)
    traced = (
        _traced(problem, point, start is not None, names_of(layout)) if jacobian is None else None
    )
    if traced is not None:
        problem, point, noise = traced
    elif start is not None:
        point, noise = problem.fit(point, names_of(layout))
        if jacobian is not None:  # at a start of zeros or ones a wrong one may be right
            check_derivative(residuals, jacobian, point, "jacobian")
    else:
        noise = problem.noise(point)
    if weight_kind is None and not isinstance(rule, float) and look_repeated(counted.values):
        warn_of_precisions(counted.values, problem.residuals(point), problem.jacobian(point))
    space = Space(names_of(layout), layout, under, language=VectorLanguage(layout))
    model = replace(problem.model(point, noise), space=space)
    cause = "" if jacobian is None else cause_beside(model)
    if cause:
        warn(wrong_beside("jacobian", cause) + AT_THE_FIT, ImplicitDeltaWarning)
    check_runaways(model, start is not None)
    return model if start is not None else checked_under_constraints(model)


def _traced(
    problem: "LeastSquares", point: Array, fits: bool, names: tuple[str, ...] | None
) -> "tuple[LeastSquares, Array, Noise] | None":
    """Solve with a traced Jacobian; None where that cannot be, or differences do not agree."""
    residuals = problem.function
    if not can_be_traced(residuals, point, fits):
        return None
    exact = replace(problem, derivative=TracedScore(residuals))
    try:
        with np.errstate(all="ignore"):
            theta, noise = exact.fit(point, names) if fits else (point, exact.noise(point))
            rows = exact.jacobian(theta) / np.sqrt(noise.variance)
            units = 1 / np.linalg.norm(rows, axis=0)
            terms = rows_of(exact.model(theta, noise)).loglik
            right = np.isfinite(units).all() and tells_the_truth(terms, theta, units)
    except (ImplicitDeltaError, ArithmeticError, ValueError):  # differences tell what is wrong
        return None
    return (exact, theta, noise) if right else None


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Residuals, their Jacobian and the rule for the noise variance."""

    function: Callable[[Array], Any]
    derivative: Callable[[Array], Any] | None
    weights: Weights
    l2: float
    variance: Literal["mle", "unbiased"] | float
    constraints: Constraints | None = None
    scale: Scale | None = None
    cache: Recent = field(default_factory=Recent)

    def model(self, theta: Array, noise: Noise) -> FittedModel:
        """Make the model of a noise variance."""
        targets = np.zeros_like(self.weights.values)
        gaussian = GaussianResiduals(self, Gaussian(noise.variance), targets, theta.size)
        rows = gaussian.rows(Counter())
        facts = Facts(
            source="from_residuals",
            notes=notes_of(rows),
            curvature="ggn",
            df=noise.df,
            noise_rule=None if isinstance(self.variance, float) else self.variance,
            no_rows=MIXED if self.scale is not None and self.scale.mixes else "",
        )
        penalty, space = penalty_of(None, self.l2), Space(constraints=self.constraints)
        return FittedModel(theta, rows, self.weights, penalty, space, facts)

    def residuals(self, theta: Array) -> Array:
        """Evaluate the residuals, (n,), in units of sigma."""
        found = self.function(theta.copy())
        if not isinstance(found, Traced):
            found = np.array(found, dtype=np.float64)  # it may reuse its result
        return found if self.scale is None else unwrap(self.scale.divide(found))  # type: ignore[no-any-return]

    def jacobian(self, theta: Array) -> Array:
        """Differentiate the residuals, (n, d), numerically if no derivative is given."""
        return self._derivative(theta).value

    def weighted_slopes(self, theta: Array, weights: Array) -> tuple[Array, Array]:
        """Slopes times the roots of the weights, (n, d), and the error of each column, (d,)."""
        found, root = self._derivative(theta), np.sqrt(weights)[:, None]
        return root * found.value, np.linalg.norm(root * found.error, axis=0)

    def _derivative(self, theta: Array) -> Derivative:
        if self.derivative is not None:
            rows = np.array(self.derivative(theta.copy()), dtype=np.float64)
            rows = rows if self.scale is None else self.scale.divide(rows)
            return Derivative(rows, np.zeros_like(rows))
        return settled_jacobian(self._recalled, theta, LONG * sizes(theta))

    def _recalled(self, theta: Array) -> Array:
        """Residuals for the fit and its Jacobians, which come to some places again."""
        return self.cache.get(theta, lambda: self.residuals(theta))

    def noise(self, theta: Array, along: Array | None = None) -> Noise:
        """Estimate s^2 at theta by the chosen rule; along directions (d, k), if not all of them."""
        if isinstance(self.variance, float):
            return Noise(self.variance, np.inf)
        counted = self.variance == "unbiased" or self.l2 > 0
        along = self._directions(theta) if along is None else along
        spectrum = self._spectrum(theta, along) if counted else None
        squares = self._squares(theta) * self.weights.mean_one
        if squares > 0 and not OF_A_PART.get() and self._is_exact(theta):
            refuse_exact(WORDING.number)
        count, d = self.weights.count, along.shape[1]
        return noise_variance(squares, count, spectrum, self.l2, self.variance, d, WORDING)

    def _is_exact(self, theta: Array) -> bool:
        """Whether residuals are nothing beside what the parameters change."""
        here = self._recalled(theta)
        ahead = self._recalled(theta + 1e-2 * sizes(theta))
        return bool(np.linalg.norm(here) <= EXACT * np.linalg.norm(ahead - here))

    def _squares(self, theta: Array) -> float:
        return float(self.weights.values @ self.residuals(theta) ** 2)

    def _directions(self, theta: Array) -> Array:
        """Directions in which theta is free to vary, (d, k), of unit length and at right angles."""
        if self.constraints is None:
            return np.eye(theta.size)
        model = self.model(theta, Noise(self._first_noise(theta), np.inf))
        active = active_constraints(model)
        chart = None if active is None else active.chart(theta, objective_of(model).units)
        return np.eye(theta.size) if chart is None else np.linalg.qr(chart.slope(theta))[0]

    def _spectrum(self, theta: Array, along: Array) -> Array:
        """Eigenvalues of J'WJ, (k,), from an SVD: small ones keep their digits."""
        rows, error = self.weighted_slopes(theta, self.weights.values)
        if not np.array_equal(along, np.eye(theta.size)):
            rows, error = rows @ along, error @ abs(along)
        return spectrum_of(rows, self.l2, error)

    def fit(self, start: Array, names: tuple[str, ...] | None) -> tuple[Array, Noise]:
        """Solve from a start; where that ends at a doubtful point, from others too.

        A proper minimum is left only for one that is better by more than a search among as many
        basins as there are rows finds in noise: d / 2 + 2 log n nats.
        """
        theta, doubt = start, ""
        failure: Exception | None = None
        low, high = self._box(start)
        drawn = cache(lambda: draw_starts(self._recalled, start, low, high))
        try:
            theta = self._minimize(start, self._first_noise(start))
            doubt = self._doubt(theta, lambda: drawn()[0])
        except (ImplicitDeltaError, ArithmeticError) as error:
            failure = error
        if not doubt and failure is None:
            return self._with_noise(theta)
        least = start.size / 2 + 2 * np.log(self.weights.values.size) if doubt in PROPER else 0.0
        points, matters = drawn()
        for point in best_draws(lambda x: -self._squares(x), [self._improved(x) for x in points]):
            try:
                found = self._minimize(np.clip(point, low, high), self._first_noise(point))
                other = self._doubt(found, lambda: points)
            except (ImplicitDeltaError, ArithmeticError, ValueError):
                continue
            if other in PROPER and (failure or self._gain(found, theta) > least):
                theta, doubt, failure, least = found, other, None, 0.0
        if failure is not None and not isinstance(failure, ConvergenceError):
            raise failure
        if failure or doubt not in PROPER:
            idle = without_effect(matters, names)
            raise ConvergenceError(
                " ".join(str(text) for text in (failure or doubt, idle, NOWHERE) if text)
            )
        return self._with_noise(theta)

    def _with_noise(self, theta: Array) -> tuple[Array, Noise]:
        noise = Noise(0.0, np.inf)
        for _ in range(MOST_ALTERNATIONS):
            previous, noise = noise.variance, self.noise(theta)
            if self.l2 == 0 or abs(noise.variance - previous) <= 1e-12 * noise.variance:
                return theta, noise
            theta = self._minimize(theta, noise.variance)
        raise ConvergenceError(
            f"The noise variance still moves after {MOST_ALTERNATIONS} alternations with the "
            f"parameters (now {noise.variance:.3g}). The penalty l2={self.l2:g} may be so weak "
            "that the model interpolates; give a larger one, or variance= as a number."
        )

    def _doubt(self, theta: Array, points: Callable[[], list[Array]]) -> str:
        """Tell why theta may not be the least squares; nothing if it looks like them.

        Combinations of parameters that have no effect at the points either are redundant in the
        model: they are left to psi.

        The Hessian of the sum of squares, in the norm of Gauss-Newton, is 1 + B. Where the
        residuals are noise about a curve, B is small; it is large at minima where they are not.
        """
        if self.l2 > 0 or self._is_exact(theta):
            return ""
        along = self._directions(theta)
        rows = np.sqrt(self.weights.values)[:, None] * self.jacobian(theta) @ along
        rows = np.where(np.all(np.isfinite(rows), axis=0), rows, 0.0)
        lengths = np.linalg.norm(rows, axis=0)
        left, values, right = _svd(rows)
        k = int(np.sum(values > SETTLED * np.sqrt(lengths.size)))
        if k < theta.size == lengths.size and self._rank_elsewhere(points(), along) > k:
            return FLAT  # at a bound of another one a parameter may well lose its effect
        left, lengths = left[:, :k], np.where(lengths > 0, lengths, 1.0)
        steps = along @ (right[:k].T / values[:k] / lengths[:, None])
        center = np.sqrt(self.weights.values) * self._recalled(theta)
        h = BESIDE * float(np.linalg.norm(center)) / center.size**0.5

        def bend(v: Array) -> float:
            ahead = np.sqrt(self.weights.values) * self._recalled(theta + h * steps @ v)
            return float(2 * center @ (ahead - center - h * left @ v) / h**2)

        bends, eye = np.zeros((k, k)), np.eye(k)
        for i in range(k):
            bends[i, i] = bend(eye[i])
            for j in range(i if k <= MOST_PAIRED else 0):
                both = bend(eye[i] + eye[j]) - bends[i, i] - bends[j, j]
                bends[i, j] = bends[j, i] = both / 2
        largest = np.linalg.eigvalsh(np.nan_to_num(bends))
        if k and largest[0] <= -1:
            return SADDLE
        if not np.all(np.isfinite(bends)) or np.max(abs(largest), initial=0.0) > MUCH:
            return BENT
        leverages = np.sort(np.sum(left**2, axis=1))[::-1]  # k in all
        if np.sum(leverages[:k]) > FEW_ROWS * k and leverages.size > 2 * k > 0:
            return BENT
        return AT_A_BOUND if along.shape[1] < theta.size else ""

    def _rank_elsewhere(self, points: list[Array], along: Array) -> int:
        """Count the directions (d, k) that have an effect at other points, the most at any.

        A singular value counts if it exceeds that of the error (Weyl), which is the change of the
        columns with the step, by as much as separates no effect from one: `EFFECT`.
        """
        ranks, root = [0], np.sqrt(self.weights.values)[:, None]
        with np.errstate(all="ignore"):
            for point in points:
                try:
                    rows, other = (root * self._forward(point, h) @ along for h in (1.0, LONGER))
                except (ArithmeticError, ValueError):
                    continue
                lengths = np.linalg.norm(rows, axis=0)
                error = np.linalg.norm((rows - other) / np.where(lengths > 0, lengths, 1.0))
                if np.isfinite(error):
                    ranks.append(int(np.sum(_svd(rows)[1] > EFFECT + error)))
        return max(ranks)

    def _box(self, theta: Array) -> tuple[Array, Array]:
        if self.constraints is None:
            return np.full(theta.size, -np.inf), np.full(theta.size, np.inf)
        return box(self.constraints, theta)

    def _gain(self, theta: Array, before: Array) -> float:
        """Rise of the log-likelihood, in nats."""
        worse, better = (self._squares(x) for x in (before, theta))
        if isinstance(self.variance, float):
            return (worse - better) / (2 * self.variance)
        return float(self.weights.values.size / 2 * np.log(worse / max(better, 1e-300)))

    def _improved(self, point: Array) -> Array:
        """Take a few steps from a point: linear parameters then suit the others."""
        root = np.sqrt(self.weights.values)
        try:
            with np.errstate(all="ignore"):
                found = scipy.optimize.least_squares(
                    lambda x: root * self._recalled(x), point,
                    lambda x: root[:, None] * self._forward(x), x_scale="jac", max_nfev=FEW,
                )  # fmt: skip
        except (ArithmeticError, ValueError):
            return point
        return np.asarray(found.x)

    def _first_noise(self, start: Array) -> float:
        if isinstance(self.variance, float):
            return self.variance
        return max(self._squares(start) / float(np.sum(self.weights.values)), 1e-300)

    def _minimize(self, start: Array, noise: float) -> Array:
        """Find the least squares, under the constraints if there are any and they bind."""
        if self.constraints is None:
            return self._unconstrained(start, noise)
        if not self.constraints.equal.any():
            try:
                theta = self._unconstrained(start, noise)
            except (ConvergenceError, ArithmeticError, ValueError):  # the bounds may be needed
                theta = np.full_like(start, np.nan)
            if self.constraints.holds(theta):
                return theta
        model = self.model(start, Noise(noise, np.inf))
        return constrained_maximum(replace(model, rows=rows_of(model).for_climbing()))

    def _unconstrained(self, start: Array, noise: float) -> Array:
        """Levenberg-Marquardt on the residuals, with the ridge as d further residuals.

        Without a derivative first with the simplest differences, and then, if more than a trace is
        left to go, with those of known error.
        """
        root, ridge = np.sqrt(self.weights.values / noise), np.sqrt(self.l2)

        def residuals(theta: Array) -> Array:
            return np.concatenate([root * self._recalled(theta), ridge * theta])

        def rough(theta: Array) -> Derivative:
            rows = self._forward(theta)
            return Derivative(rows, SETTLED / MARGIN * abs(rows))

        def slopes(found: Derivative, units: Array | float = 1.0) -> Array:
            added = ridge * np.eye(found.value.shape[1])
            rows = np.vstack([root[:, None] * found.value, added]) * units
            error = np.linalg.norm(root[:, None] * found.error, axis=0) * units
            return rows if self.l2 > 0 else _anchored(rows, error)

        def search(start: Array, make: Callable[[Array], Derivative], ftol: float) -> Any:
            lengths = np.linalg.norm(root[:, None] * make(start).value, axis=0)
            lengths = np.hypot(lengths, ridge)
            units = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), sizes(start))
            found = scipy.optimize.least_squares(
                lambda z: residuals(z * units), start / units,
                lambda z: slopes(make(z * units), units), x_scale="jac", ftol=ftol, xtol=1e-15,
                gtol=1e-15, max_nfev=2000,
            )  # fmt: skip
            found.x = found.x * units  # gtol is absolute
            return found

        def ahead(theta: Array) -> tuple[Array, float]:
            return _gauss_newton(residuals(theta), slopes(self._derivative(theta)))

        if self.derivative is None and self._is_plain(start):
            try:
                near = search(start, rough, ROUGHLY)
            except (ArithmeticError, ValueError):  # the residuals need not be defined everywhere
                near = None
            if near is not None and near.status > 0:
                start = near.x
                step, distance = ahead(start)
                if distance <= ARRIVED:  # the last step costs no search
                    return start + step
        result = search(start, self._derivative, 1e-15)
        if result.status == 0:
            raise ConvergenceError(
                "The least-squares fit did not converge in 2000 evaluations (sum of squares "
                f"{2 * result.cost * noise:.4g}). Try another start, a penalty (l2=), or fit it "
                "yourself and give theta=."
            )
        step, distance = ahead(result.x)
        while distance > ARRIVED:  # its tolerance is of the sum of squares: not in standard errors
            further, left = ahead(result.x + step)
            if not left < distance / 2:
                return np.asarray(result.x, dtype=np.float64)
            result.x, step, distance = result.x + step, further, left
        return np.asarray(result.x + step)

    def _forward(self, theta: Array, times: float = 1.0) -> Array:
        """Differentiate by one step each, (n, d)."""
        center, steps = self._recalled(theta), times * SHORT * sizes(theta)
        ahead = [self._recalled(theta + step) for step in np.diag(steps)]
        return np.asarray((np.stack(ahead, axis=1) - center[:, None]) / steps)

    def _is_plain(self, theta: Array) -> bool:
        """Whether one short step tells the slope: a longer one has to agree, in each column."""
        with np.errstate(all="ignore"):
            rows, others = self._forward(theta), self._forward(theta, LONGER)
            gaps = np.linalg.norm(rows - others, axis=0)
            return bool(np.all(gaps < ALIKE * np.linalg.norm(rows, axis=0)))


def spectrum_of(rows: Array, l2: float, error: Array) -> Array:
    """Squared singular values of rows, (m, k) to (k,), zero where the error (k,) hides them."""
    if l2 == 0:  # only their number counts, and units must not hide any
        lengths = np.linalg.norm(rows, axis=0)
        lengths = np.where(lengths > MARGIN * error, lengths, np.inf)
        rows, error = rows / lengths, error / lengths
    values = np.linalg.svd(rows, compute_uv=False)
    least = max(KNOWN * values.max(initial=0), MARGIN * float(np.linalg.norm(error)))  # Weyl
    spectrum = np.zeros(rows.shape[1])
    spectrum[: values.size] = np.where(values > least, values**2, 0.0)
    return spectrum


def _svd(rows: Array) -> tuple[Array, Array, Array]:
    """Decompose columns of length one, or of zero, whatever their units, (n, k)."""
    lengths = np.linalg.norm(rows, axis=0)
    return np.linalg.svd(rows / np.where(lengths > 0, lengths, 1.0), full_matrices=False)


def _anchored(rows: Array, error: Array) -> Array:
    """Hold combinations of parameters whose effect on rows (n, d) is lost in their error (d,).

    The last d rows, of residuals that are zero, become the projector on these combinations: no step
    goes along them. A trust region would fill itself with them.
    """
    lengths = np.linalg.norm(rows, axis=0)
    if not np.all(np.isfinite(lengths)):
        return rows
    left, values, right = _svd(rows)
    relative = np.divide(error, lengths, out=np.zeros_like(error), where=lengths > 0)
    known = values > max(KNOWN, MARGIN * float(np.linalg.norm(relative)))
    if np.all(known):
        return rows
    held = np.where(lengths > 0, lengths, 1.0) * (right[~known].T @ right[~known])
    rows = (left[:, known] * values[known]) @ right[known] * lengths
    rows[-lengths.size :] += held
    return rows


def _gauss_newton(residuals: Array, rows: Array) -> tuple[Array, float]:
    """Make a Gauss-Newton step, (d,), and its length in standard errors, of this noise.

    That is infinite for redundant parameters.
    """
    size, lengths = np.linalg.norm(residuals), np.linalg.norm(rows, axis=0)
    if not size > 0 or not lengths.all():
        return np.zeros(lengths.size), np.inf
    step, _, rank, _ = np.linalg.lstsq(rows / lengths, -residuals, rcond=None)
    ahead = np.linalg.norm(rows / lengths @ step) / size * np.sqrt(residuals.size)
    return step / lengths, float(ahead) if rank == rows.shape[1] else np.inf


@dataclass(frozen=True, eq=False)
class GaussianResiduals:
    """Residuals as a log-likelihood: a Gaussian of targets (n,), which are zero in the fit."""

    problem: LeastSquares
    likelihood: Gaussian
    targets: Array
    d: int

    def __call__(self, theta: Array) -> Any:
        """Log-likelihood of each row, (n,)."""
        residuals = self.problem.residuals(theta)
        if isinstance(residuals, Traced):  # no array of a framework that likelihoods know
            return -((residuals - self.targets) ** 2) / (2 * self.likelihood.noise)
        return np.asarray(self.likelihood.terms(residuals, self.targets))

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        """Gaussian log-likelihood with its constants, at the variance that maximizes it.

        That of R's `logLik`; a variance that was given stays. A precision is one over the variance
        of its row, up to that variance.
        """
        count, w, problem = weights.count, weights.values, self.problem
        squares = float(w @ (problem.residuals(theta) - self.targets) ** 2)
        known = isinstance(problem.variance, float)
        variance = self.likelihood.noise if known else squares / count
        roots = np.sum(np.log(w[w > 0])) / 2 if weights.kind == "precision" else 0.0
        if problem.scale is not None:
            roots -= weights.counts @ problem.scale.logarithms
        return float(roots - count / 2 * np.log(2 * np.pi * variance) - squares / variance / 2)

    def redrawn(
        self, theta: Array, weights: Array, rng: np.random.Generator
    ) -> "GaussianResiduals":
        """Replace the residuals at theta by new noise: its difference to them is the target."""
        noise = self.likelihood.draw(np.zeros_like(self.targets), rng, weights)
        return replace(self, targets=self.problem.residuals(theta) - noise)

    def rows(self, counter: Counter) -> LoglikRows:
        """Make the rows of a model; derivatives are known if those of the residuals are."""
        known = self.problem.derivative
        scores = TracedScore(self, counter) if is_traced(known) else known and self.scores
        return LoglikRows(
            loglik=self,
            n=self.targets.size,
            d=self.d,
            scores=scores,
            outputs=ResidualOutputs(self.gauss_newton, self.whitened, counter, self),
            draw=redraw_residuals,
            counter=counter,
            is_bounded=self.problem.constraints is not None,
        )

    def scores(self, theta: Array) -> Array:
        """Its derivatives, (n, d)."""
        slope = self.likelihood.slope(self.problem.residuals(theta), self.targets)
        return np.asarray(slope[:, None] * self.problem.jacobian(theta))

    def gauss_newton(self, theta: Array) -> Array:
        """Rows (n, d) whose squares sum to the Gauss-Newton curvature."""
        jacobian = self.problem.jacobian(theta)
        return np.asarray(self.likelihood.root(jacobian)(jacobian))

    def whitened(self, theta: Array) -> Array:
        """Residuals over their standard deviation, (n,), with the sign of the rows' response."""
        return np.asarray(self.likelihood.residual(self.problem.residuals(theta), self.targets))


def redraw_residuals(
    rows: LoglikRows, theta: Array, weights: Weights, rng: np.random.Generator
) -> LoglikRows:
    """Make rows of residuals r(theta) - r(fit) + new noise, of the variance plugged in."""
    gaussian = rows.loglik
    assert isinstance(gaussian, GaussianResiduals)
    return gaussian.redrawn(theta, weights.values, rng).rows(rows.counter)
