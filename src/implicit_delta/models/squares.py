"""The problem of least squares: residuals, their Jacobian, the rule for the noise variance."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.functions import Derivative
from implicit_delta.calculus.tracing import trace_terms
from implicit_delta.calculus.tracing.traced import Traced, unwrap
from implicit_delta.calculus.units import sizes
from implicit_delta.core.arguments import Counter
from implicit_delta.core.cache import LastCache, Recent
from implicit_delta.core.calls import Limited
from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.constraints import Constraints
from implicit_delta.models.coordinates import active_constraints
from implicit_delta.models.facts import Facts
from implicit_delta.models.loglik import notes_of
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.model import FittedModel
from implicit_delta.models.noise import Noise, Wording, noise_variance, refuse_exact
from implicit_delta.models.objective import objective_of
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.models.runaway import OF_A_PART
from implicit_delta.models.sigma import MIXED, Scale
from implicit_delta.models.space import Space
from implicit_delta.models.traced_loglik import TracedScore, is_traced, tells_the_truth
from implicit_delta.models.weights import Weights
from implicit_delta.models.written_penalty import penalty_of

EXACT = 1e-10  # of what a step of one percent changes: solvers leave up to 3e-12 of exact data
KNOWN = 1e-10  # singular value of columns of length one: smaller ones are lost in rounding
MARGIN = 10  # times the error that differences estimate, as for derivatives that are compared
WORDING = Wording(
    "Give the variance as a number, `variance=`, or the errors of the data, "
    "`sigma=..., variance=1.0`.",
    "observations",
    'variance="mle"',
)


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
    slopes: LastCache = field(default_factory=LastCache)

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

    def start_model(self, theta: Array, space: Space | None = None) -> FittedModel:
        """Make the model of a point on the way, with the noise that is left there."""
        model = self.model(theta, Noise(self.first_noise(theta), np.inf))
        return model if space is None else replace(model, space=space)

    def limited(self, most: float) -> "LeastSquares":
        """Let the residuals be called so often, for a search."""
        calls = Limited(self.function, most, self.height_of, "the residuals")
        traced = is_traced(self.derivative)
        return replace(
            self, function=calls, derivative=TracedJacobian(calls) if traced else self.derivative
        )

    def residuals(self, theta: Array) -> Array:
        """Evaluate the residuals, (n,), in units of sigma."""
        found = self.function(theta.copy())
        if not isinstance(found, Traced):
            found = np.array(found, dtype=np.float64)  # it may reuse its result
        return found if self.scale is None else unwrap(self.scale.divide(found))  # type: ignore[no-any-return]

    def recalled(self, theta: Array) -> Array:
        """Residuals for the fit and its Jacobians, which come to some places again."""
        return self.cache.get(theta, lambda: self.residuals(theta))

    def jacobian(self, theta: Array) -> Array:
        """Differentiate the residuals, (n, d), numerically if no derivative is given."""
        return self._derivative(theta).value

    def weighted_slopes(self, theta: Array, weights: Array) -> tuple[Array, Array]:
        """Slopes times the roots of the weights, (n, d), and the error of each column, (d,)."""
        found, root = self._derivative(theta), np.sqrt(weights)[:, None]
        return root * found.value, np.linalg.norm(root * found.error, axis=0)

    def _derivative(self, theta: Array) -> Derivative:
        return self.slopes.get(theta.copy(), "slopes", lambda: self._differentiated(theta))  # type: ignore[no-any-return]

    def _differentiated(self, theta: Array) -> Derivative:
        if self.derivative is not None:
            rows = np.array(self.derivative(theta.copy()), dtype=np.float64)
            rows = rows if self.scale is None else self.scale.divide(rows)
            return Derivative(rows, np.zeros_like(rows))
        return differentiate(self.recalled, theta)

    def half_squares(self, theta: Array) -> Any:
        """Half of each squared residual, (n,): of traced parameters too."""
        return self.residuals(theta) ** 2 / 2

    def gradient(self, theta: Array) -> Array:
        """Gradient of half the weighted sum of squares, (d,), by the Jacobian that is known."""
        if is_traced(self.derivative):
            return TracedScore(self.half_squares).weighted(theta, self.weights.values)
        return np.asarray((self.weights.values * self.recalled(theta)) @ self.jacobian(theta))

    def squares(self, theta: Array) -> float:
        """Weighted sum of squares."""
        return float(self.weights.values @ self.recalled(theta) ** 2)

    def height(self, theta: Array) -> float:
        """Log-likelihood in nats, up to a constant; at the best variance, if none is given."""
        return self._height(self.squares(theta))

    def height_of(self, theta: Array, residuals: Array) -> float:
        """Log-likelihood of residuals as they come from the user."""
        scaled = residuals if self.scale is None else self.scale.divide(residuals)
        return self._height(float(self.weights.values @ scaled**2))

    def _height(self, squares: float) -> float:
        if isinstance(self.variance, float):
            return -squares / (2 * self.variance)
        return float(-self.weights.values.size / 2 * np.log(max(squares, 1e-300)))

    def first_noise(self, start: Array) -> float:
        """Variance for a search: what is left at its start."""
        if isinstance(self.variance, float):
            return self.variance
        return max(self.squares(start) / float(np.sum(self.weights.values)), 1e-300)

    def noise(self, theta: Array, along: Array | None = None) -> Noise:
        """Estimate s^2 at theta by the chosen rule; along directions (d, k), if not all of them."""
        if isinstance(self.variance, float):
            return Noise(self.variance, np.inf)
        counted = self.variance == "unbiased" or self.l2 > 0
        along = self.directions(theta) if along is None else along
        spectrum = self._spectrum(theta, along) if counted else None
        squares = self.squares(theta) * self.weights.mean_one
        if squares > 0 and not OF_A_PART.get() and self.is_exact(theta):
            refuse_exact(WORDING.number)
        count, d = self.weights.count, along.shape[1]
        return noise_variance(squares, count, spectrum, self.l2, self.variance, d, WORDING)

    def is_exact(self, theta: Array) -> bool:
        """Whether residuals are nothing beside what the parameters change."""
        here = self.recalled(theta)
        ahead = self.recalled(theta + 1e-2 * sizes(theta))
        return bool(np.linalg.norm(here) <= EXACT * np.linalg.norm(ahead - here))

    def units(self, theta: Array) -> Array:
        """About the standard error of each parameter, the others held fixed, (d,)."""
        rows = np.sqrt(self.weights.values)[:, None] * self.jacobian(theta)
        return np.asarray(np.sqrt(self.first_noise(theta)) / unit_columns(rows)[1])

    def directions(self, theta: Array) -> Array:
        """Directions in which theta is free to vary, (d, k), of unit length and at right angles."""
        if self.constraints is None:
            return np.eye(theta.size)
        model = self.start_model(theta)
        active = active_constraints(model)
        chart = None if active is None else active.chart(theta, objective_of(model).units)
        return np.eye(theta.size) if chart is None else np.linalg.qr(chart.slope(theta))[0]

    def _spectrum(self, theta: Array, along: Array) -> Array:
        """Eigenvalues of J'WJ, (k,), from an SVD: small ones keep their digits."""
        rows, error = self.weighted_slopes(theta, self.weights.values)
        if not np.array_equal(along, np.eye(theta.size)):
            rows, error = rows @ along, error @ abs(along)
        return spectrum_of(rows, self.l2, error)


@dataclass(frozen=True, eq=False)
class TracedJacobian:
    """Traced derivatives of residuals, (d,) to (n, d), for a search: an error if there are none."""

    traced: ClassVar[bool] = True
    function: Callable[[Array], Any]

    def __call__(self, theta: Array) -> Array:
        """Differentiate every residual."""
        history = trace_terms(self.function, theta)
        if history is None:
            raise FloatingPointError("the residuals cannot be traced here")
        return history.jacobian()


def with_traced_jacobian(problem: LeastSquares, theta: Array) -> LeastSquares:
    """Trace the Jacobian, if that can be done and differences at theta agree with it."""
    if problem.derivative is not None or trace_terms(problem.function, theta) is None:
        return problem
    exact = replace(problem, derivative=TracedScore(problem.function))
    return exact if trace_agrees(exact, theta) else problem


def trace_agrees(exact: LeastSquares, theta: Array) -> bool:
    """Whether differences of the residuals agree with their traced Jacobian."""
    with np.errstate(all="ignore"):
        try:
            moves = np.any(exact.jacobian(theta), axis=0)
            units = np.where(moves, exact.units(theta), sizes(theta))
            return tells_the_truth(exact.function, theta, units)
        except (ArithmeticError, ValueError):
            return False


def unit_columns(rows: Array) -> tuple[Array, Array]:
    """Scale columns to length one, but for zeros: (n, d), and what they were divided by, (d,)."""
    lengths = np.linalg.norm(rows, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return rows / lengths, lengths


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
