"""Psi, the deviance and constraints around a maximum, and what is known at one point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse.linalg import LinearOperator, cg

from implicit_delta.core.cache import LastCache
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.evaluation import Function
from implicit_delta.linalg.solvers import Factor
from implicit_delta.linalg.solvers.factor import try_to_factorize
from implicit_delta.models.coordinates import slope_inside, start_text
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.residual_outputs import ResidualOutputs

HIGHER = 1e-3  # a deviance below minus this shows that the fitted theta is no maximum
REACHED = 1e-6  # standard errors from a constraint: at it
# Share of the gradient of psi that is left: before the last steps, of which each leaves a tenth of
# it or less and the rest enters psi squared; where the end is near, and differences are central;
# and what single precision may leave.
STATIONARY, NEAR, ROUNDED = 2e-4, 3e-2, 1e-2
LARGEST = 1e4  # times root / |g|: a multiplier where constraints hold all of psi but 1e-4
CG_RTOL, INDEPENDENT = 1e-6, 1e-12  # of a solution; of directions that differ
SMALLEST_COSINE = 1e-3  # of a correction and its step, below which it is skipped
SOFT, STIFF = 0.05, 20.0  # curvature along any direction; that of the log-likelihood is one
CENTRAL, FORWARD = 2.0**-10, 2.0**-17  # of a unit: differences of residuals


@contextmanager
def count_passes(model: FittedModel, label: str) -> Iterator[Callable[[], None]]:
    """Open a progress bar of passes over the data; calling what it gives moves the bar."""
    seen = model.rows.passes
    with progress(label, unit="pass") as bar:

        def update() -> None:
            nonlocal seen
            bar.update(model.rows.passes - seen)
            seen = model.rows.passes

        yield update


class Rows(NamedTuple):
    """Constraints at a theta: gaps (k,), at least zero inside, and inner normals (k, d)."""

    gaps: Array
    normals: Array
    equal: NDArray[np.bool_]

    @property
    def binding(self) -> NDArray[np.bool_]:
        """Mask of the rows that are reached, (k,)."""
        return np.asarray(self.equal | (self.gaps <= REACHED))

    @property
    def violation(self) -> Array:
        """Gaps where rows are violated, else zero, (k,)."""
        return np.asarray(np.where(self.equal, self.gaps, np.minimum(self.gaps, 0.0)))


@dataclass(frozen=True, eq=False)
class Limits:
    """Constraints as functions of theta, in standard errors.

    Attributes
    ----------
    rows, gaps : callable
        Theta to `Rows`, and to their gaps alone.
    inside : callable
        Undo rounding at the limits of single parameters.
    bounded : bool
        Whether there are inequalities, at which the log-likelihood may end.
    """

    rows: Callable[[Array], Rows]
    gaps: Callable[[Array], Array]
    inside: Callable[[Array], Array] = np.asarray
    bounded: bool = True


@dataclass(frozen=True, eq=False)
class Products:
    """Curvature that is known by products with vectors: too many parameters for a matrix."""

    multiply: Callable[[Array], Array]

    def solve(self, b: Array) -> Array:
        """Solve by conjugate gradients."""
        operator = LinearOperator((len(b), len(b)), matvec=lambda v: self.multiply(v.ravel()))
        columns = b.reshape(len(b), -1).T
        found = [cg(operator, v, rtol=CG_RTOL)[0] for v in columns]
        return np.reshape(found, columns.shape).T.reshape(b.shape)

    def half_transpose(self, g: Array) -> Array:
        """Return gradients as they are."""
        return g


Base: TypeAlias = Factor | Products


@dataclass(frozen=True, eq=False)
class Metric:
    """Curvature of the Lagrangian: that of the log-likelihood, and corrections U D U'."""

    base: Base
    U: Array
    D: Array

    @classmethod
    def of(cls, base: Base, d: int) -> "Metric":
        """Begin with the base alone."""
        return cls(base, np.zeros((d, 0)), np.zeros(0))

    @cached_property
    def _modes(self) -> tuple[Array, Array]:
        """Directions V (d, k), one standard error long, in which the curvature is 1 + values."""
        if not self.D.size:
            return self.U, self.D
        steps = self.base.solve(self.U)
        sizes, axes = np.linalg.eigh(self.U.T @ steps)
        kept = sizes > INDEPENDENT * sizes[-1]
        root = axes[:, kept] * np.sqrt(sizes[kept])
        values, modes = np.linalg.eigh((root.T * self.D) @ root)
        return steps @ (axes[:, kept] / np.sqrt(sizes[kept])) @ modes, values

    def _curvatures(self, mu: float) -> Array:
        return np.clip(1 + mu + self._modes[1], SOFT, STIFF + mu)

    def solve(self, b: Array, mu: float) -> Array:
        """Solve with the curvature plus mu times the base, (d,) or (d, k)."""
        V = self._modes[0]
        share = 1 / self._curvatures(mu) - 1 / (1 + mu)
        return np.asarray(self.base.solve(b) / (1 + mu) + (V * share) @ (V.T @ b))

    def whitening(self, mu: float) -> Array:
        """Root T of the inverse, (d, d)."""
        H = np.asarray(self.base.half(np.eye(len(self.U))))  # type: ignore[union-attr]
        V = self._modes[0]
        stretch = 1 / np.sqrt(self._curvatures(mu)) - 1 / np.sqrt(1 + mu)
        return np.asarray(H / np.sqrt(1 + mu) + (V * stretch) @ np.linalg.solve(H, V).T)

    def updated(self, step: Array, change: Array) -> "Metric":
        """Correct by the change of the gradient of the Lagrangian over a step (SR1)."""
        image = self.base.multiply(step)
        missing = change - image - self.U @ (self.D * (self.U.T @ step))
        along = float(missing @ step)
        size = float(missing @ self.base.solve(missing)) * float(image @ step)
        if not abs(along) > SMALLEST_COSINE * np.sqrt(max(size, 0.0)):
            return self
        return Metric(self.base, np.column_stack([self.U, missing]), np.append(self.D, 1 / along))


@dataclass(frozen=True, eq=False)
class Point:
    """A point of a region, with all that is known there.

    Attributes
    ----------
    theta : (d,) array
    psi, root : float
        Psi, and the root of the deviance.
    q, g : (d,) arrays
        Gradients of half the deviance and of sign * psi.
    rows : Rows
    nu : (k,) array
    lam : float
        Multipliers; infinite where constraints alone hold psi, zero where psi does not rise.
    unexplained : float
        Of g that q and the constraints do not explain.
    metric : Metric
    """

    theta: Array
    psi: float
    root: float
    q: Array
    g: Array
    rows: Rows
    nu: Array
    lam: float
    unexplained: float
    metric: Metric

    @property
    def usable_lam(self) -> float:
        """The multiplier, bounded where constraints alone hold psi."""
        size = float(np.linalg.norm(self.metric.base.half_transpose(self.g)))
        return min(self.lam, LARGEST * max(self.root, 1.0) / size if size else 0.0)

    def rest(self, lam: float, nu: Array) -> Array:
        """Gradient of the Lagrangian."""
        return np.asarray(self.q - lam * (self.g + self.rows.normals.T @ nu))

    def at(self, theta: Array, psi: float, root: float, lam: float) -> "Point":
        """Move by so little that the gradients are the same."""
        return replace(self, theta=theta, psi=psi, root=root, lam=lam)


@dataclass(frozen=True, eq=False)
class Problem:
    """Psi, the deviance around a maximum, and constraints.

    Attributes
    ----------
    evaluation : Evaluation
        Of one number, on the model at its maximum, guarded where psi is not defined.
    top : float
        The objective at the maximum.
    scale : Factor or None
        Coordinates in which the objective is close to -|z|^2 / 2; None beyond many parameters.
    curvature : {"hessian", "ggn"}
    limits : Limits or None
    update_progress : callable
        Called at each deviance.
    """

    evaluation: Evaluation
    top: float
    scale: Factor | None
    curvature: Curvature = "hessian"
    limits: Limits | None = None
    update_progress: Callable[[], None] = field(default=lambda: None)

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        scale: Factor | None,
        curvature: Curvature = "hessian",
        update_progress: Callable[[], None] = lambda: None,
    ) -> "Problem":
        """Guard psi, which may not be defined everywhere in the region."""
        assert evaluation.function is not None
        guarded = replace(evaluation, function=Guarded(evaluation.function))
        top = evaluation.model.objective(evaluation.model.theta)
        return cls(guarded, top, scale, curvature, update_progress=update_progress)

    @property
    def model(self) -> FittedModel:
        """The model at its maximum."""
        return self.evaluation.model

    @property
    def value(self) -> float:
        """Psi at the maximum."""
        return float(self.evaluation.value[0])

    @property
    def is_bounded(self) -> bool:
        """Whether there are inequalities."""
        return self.limits is not None and self.limits.bounded

    @property
    def has_valleys(self) -> bool:
        """Whether a search may leave the surface, and come back by Gauss-Newton steps."""
        return self.squares is not None and self.limits is None

    @cached_property
    def squares(self) -> "Squares | None":
        """Residuals of least squares, whose slopes give both q and the curvature."""
        outputs = self.model.rows.outputs
        if self.curvature != "ggn" or self.is_bounded:
            return None
        return Squares(self.model, outputs) if isinstance(outputs, ResidualOutputs) else None

    def psi(self, theta: Array) -> float:
        """Psi, NaN where it is not defined."""
        try:
            return float(self.evaluation(theta)[0])
        except EvaluationError:
            return np.nan

    def gradient(self, theta: Array) -> Array:
        """Gradient of psi, (d,)."""
        return np.asarray(self.evaluation.jacobian(theta)[0])

    def deviance(self, theta: Array) -> float:
        """Twice the fall of the objective; infinite where that is not defined."""
        if not np.all(np.isfinite(theta)):
            return np.inf
        self.update_progress()
        of = self.model if self.squares is None else self.squares
        with np.errstate(all="ignore"):
            try:
                deviance = 2 * (self.top - of.objective(theta))
            except (ArithmeticError, ValueError):
                return np.inf
        if deviance < -HIGHER and self._is_beyond(theta):
            return np.inf
        if deviance < -HIGHER:
            raise ConvergenceError(
                "The model is not at its maximum: the objective is higher by "
                f"{-deviance / 2:.3g} elsewhere, found on the way to the end of the interval. "
                "Usual causes: training stopped early, or at a local maximum. Use "
                "`polish(model)`, or fit again from this better optimum, "
                f"`{self.model.facts.source or 'from_...'}(..., "
                f"start={start_text(self.model, theta)})`."
            )
        return max(deviance, 0.0) if deviance < np.inf else np.inf

    def _is_beyond(self, theta: Array) -> bool:
        """Whether theta violates a constraint."""
        return self.limits is not None and bool(np.min(self.limits.gaps(theta)) < -REACHED)

    def root(self, theta: Array) -> float:
        """Root of the deviance."""
        return float(np.sqrt(self.deviance(theta)))

    @cached_property
    def tangent(self) -> Array:
        """Derivative of theta with respect to r at the maximum, toward larger psi, (d,)."""
        g = self.gradient(self.model.theta)
        step = self._center.solve(g)
        return np.asarray(step / np.sqrt(step @ g))

    @cached_property
    def error(self) -> float:
        """Standard error of psi."""
        return float(self.tangent @ self.gradient(self.model.theta))

    def with_reciprocal(self, c: float) -> "Problem":
        r"""Look at :math:`-1 / (\psi - c)`, which rises with psi and has a zero at its poles."""
        guarded = self.evaluation.function
        assert isinstance(guarded, Guarded)
        function = Guarded(Reciprocal(guarded.function, c))
        value = function.value(self.model.theta)
        return replace(self, evaluation=replace(self.evaluation, value=value, function=function))

    def point(
        self,
        theta: Array,
        sign: int,
        root: float | None = None,
        before: Point | None = None,
        careful: bool = False,
        held: bool = False,
    ) -> Point:
        """Differentiate at theta, and learn the curvature from the point before.

        Where constraints hold psi inside of the region, the deviance has no multiplier.

        Raises
        ------
        EvaluationError, UnsupportedModelError
            Psi or the log-likelihood is not defined there.
        """
        psi, g = self.psi(theta), sign * self.gradient(theta)
        if not np.isfinite(psi) or not np.all(np.isfinite(g)):
            raise EvaluationError("psi is not defined there.")
        root = self.root(theta) if root is None else root
        rows, fine = self.rows(theta), careful or (before is not None and before.unexplained < NEAR)
        (q, base) = self._slopes(theta, fine, careful)
        metric = Metric.of(base or self._center, theta.size)
        if base is None and before is not None:
            metric = before.metric
        lam, nu, share = _multipliers(metric, q, g, rows, held)
        found = Point(theta, psi, root, q, g, rows, nu, lam, share, metric)
        if before is None or (self.has_valleys and before.unexplained > NEAR):
            return found
        change = found.rest(found.usable_lam, nu) - before.rest(found.usable_lam, nu)
        step = theta - before.theta
        return replace(found, metric=metric.updated(step, change))

    def rows(self, theta: Array) -> Rows:
        """Constraints at theta."""
        if self.limits is None:
            return Rows(np.zeros(0), np.zeros((0, theta.size)), np.zeros(0, dtype=bool))
        return self.limits.rows(theta)

    def _slopes(self, theta: Array, fine: bool, careful: bool) -> tuple[Array, Factor | None]:
        """Gradient of half the deviance, and the curvature where that comes with it."""
        if self.is_bounded:
            return -slope_inside(self.model, theta), None
        if theta is self.model.theta:
            return np.zeros(theta.size), self.scale
        if self.squares is None:
            score = self.model.score if careful else objective_of(self.model).rough_score
            return -score(theta), None
        return self.squares.slopes(theta, fine)

    @cached_property
    def _center(self) -> Base:
        theta = self.model.theta
        return self.scale or Products(lambda v: self.model.information(theta, v, self.curvature))


def _multipliers(
    metric: Metric, q: Array, g: Array, rows: Rows, held: bool
) -> tuple[float, Array, float]:
    """Explain g by q and the binding constraints: g = q / lam - C' nu, and what is left of it.

    Where constraints alone explain g, they do, and lam is infinite.
    """
    whiten, nu = metric.base.half_transpose, np.zeros(rows.gaps.size)
    size = float(np.linalg.norm(whiten(g)))
    if not size > 0:
        return 0.0, nu, 1.0
    bound, equal = np.flatnonzero(rows.binding), np.flatnonzero(rows.equal)
    normals = whiten(np.vstack([-rows.normals[bound], rows.normals[equal]]).T) / size
    if held or bound.size > equal.size:
        strength, left = _positive(normals, whiten(g) / size)
        strength = np.append(0.0, strength)
    if not held and (bound.size == equal.size or left > STATIONARY):
        strength, left = _positive(np.column_stack([whiten(q) / size, normals]), whiten(g) / size)
    np.add.at(nu, bound, strength[1 : 1 + bound.size])
    np.subtract.at(nu, equal, strength[1 + bound.size :])
    alone = np.inf if held or (np.any(nu) and left <= ROUNDED) else 0.0
    return (1 / strength[0] if strength[0] > 0 else alone), nu, left


def _positive(columns: Array, goal: Array) -> tuple[Array, float]:
    """Nonnegative multiples of columns that come closest to the goal, and what is left."""
    if not columns.shape[1]:
        return np.zeros(0), float(np.linalg.norm(goal))
    lengths = np.linalg.norm(columns, axis=0)
    lengths[lengths == 0] = 1.0
    strength, left = nnls(columns / lengths, goal)
    return strength / lengths, float(left)


@dataclass(frozen=True, eq=False)
class Guarded:
    """Psi at any theta: what it raises where it is not defined becomes an `EvaluationError`."""

    function: Function

    def value(self, theta: Array) -> Array:
        with np.errstate(all="ignore"):
            try:
                return self.function.value(theta)
            except (ArithmeticError, ValueError) as error:
                raise EvaluationError(f"psi is not defined: {error}") from error

    def jacobian(self, theta: Array) -> Array:
        with np.errstate(all="ignore"):
            try:
                return self.function.jacobian(theta)
            except (ArithmeticError, ValueError) as error:
                raise EvaluationError(f"psi has no derivative: {error}") from error

    def component(self, k: int) -> "Guarded":
        return Guarded(self.function.component(k))


@dataclass(frozen=True, eq=False)
class Reciprocal:
    """Psi as -1 / (psi - c)."""

    function: Function
    c: float

    def value(self, theta: Array) -> Array:
        return np.asarray(-1 / self._gap(theta))

    def jacobian(self, theta: Array) -> Array:
        return np.asarray(self.function.jacobian(theta) / self._gap(theta)[:, None] ** 2)

    def component(self, k: int) -> "Reciprocal":
        return Reciprocal(self.function.component(k), self.c)

    def _gap(self, theta: Array) -> Array:
        gap = self.function.value(theta) - self.c
        if not np.all(gap):
            raise EvaluationError("psi is at the pole of its reciprocal.")
        return gap


@dataclass(frozen=True, eq=False)
class Squares:
    """Whitened residuals of a least-squares model, and differences of them."""

    model: FittedModel
    outputs: ResidualOutputs
    cache: LastCache = field(default_factory=LastCache)

    @cached_property
    def offset(self) -> float:
        """The objective less that of the squares, at the maximum."""
        theta = self.model.theta
        return self.model.objective(theta) - self._half(theta)

    def objective(self, theta: Array) -> float:
        """The objective of the model."""
        return self.offset + self._half(theta)

    def _half(self, theta: Array) -> float:
        r = self.residuals(theta)
        return -float(self.model.weights.values @ r**2) / 2 - self.model.penalty.value(theta)

    def residuals(self, theta: Array) -> Array:
        """Residuals over their standard deviation, (n,)."""
        kept: Array = self.cache.get(theta, "r", lambda: np.array(self._called(theta)))
        return kept

    def _called(self, theta: Array) -> Array:
        self.outputs.counter.count += 1
        return np.asarray(self.outputs.residuals(theta))

    def slopes(self, theta: Array, fine: bool) -> tuple[Array, Factor | None]:
        """Gradient of half the deviance, and the Gauss-Newton matrix factorized."""
        model, w, r = self.model, self.model.weights.values, self.residuals(theta)
        J = self._jacobian(theta, r, fine)
        A = J.T @ (w[:, None] * J) + model.penalty.curvature(theta, np.eye(theta.size))
        found = try_to_factorize(A) if np.all(np.isfinite(A)) else None
        return J.T @ (w * r) + model.penalty.score(theta), found

    def _jacobian(self, theta: Array, r: Array, fine: bool) -> Array:
        """Central differences where an end is near, else forward ones, (n, d)."""
        steps = (CENTRAL if fine else FORWARD) * objective_of(self.model).units
        ahead = [self._called(theta + h) for h in np.diag(steps)]
        behind = [self._called(theta - h) if fine else r for h in np.diag(steps)]
        J = np.stack([a - b for a, b in zip(ahead, behind, strict=True)], axis=1)
        return np.asarray(J / (2 * steps if fine else steps))
