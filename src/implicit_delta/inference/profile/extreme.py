r"""The extreme of psi where the deviance is at most a quantile and all constraints hold.

With :math:`q` the gradient of half the deviance, :math:`g` that of psi and :math:`C` the normals of
the constraints that bind, an extreme has :math:`q = \lambda (g + C'\nu)`. From a point a step
:math:`p` solves :math:`M p = t g - q` within the linearized constraints, for the t at which the
deviance is the quantile; M is the curvature of the Lagrangian. How it differs from the textbook
(Venzon and Moolgavkar, 1988; sequential quadratic programming):

- The quantile is reached along the curve p(t), by values alone. So every point that is kept is on
  the surface of the region, and what a search leaves unfinished enters psi only squared.
- M is the curvature of the log-likelihood (Gauss-Newton at each point of least squares, where it
  comes with the gradient; else that of the maximum) with symmetric rank-one corrections by what
  the gradients have shown. A step that does not raise psi is shortened in this metric, by 1 + mu
  times the curvature (Levenberg and Marquardt): curved valleys are followed in their own units.
- It is followed in r, the root of the deviance (`path`), so that steps are in standard errors
  whatever psi does. The multiplier need not grow along the path.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, null_space
from scipy.optimize import nnls
from scipy.sparse.linalg import LinearOperator, cg

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.evaluation import Function
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.linalg.solvers.factor import try_to_factorize
from implicit_delta.models.coordinates import slope_inside, start_text
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.residual_outputs import ResidualOutputs

HIGHER = 1e-3  # a deviance below minus this shows that the fitted theta is no maximum
FARTHEST = 1e4  # times the first t: a curve that is still in the region never leaves it
MOST_TRIALS, MOST_STEPS, MOST_REJECTED = 60, 80, 8
EXACT, LOOSE, NOISY = 1e-10, 1e-4, 1e-5  # relative error of r: at the end, before, by rounding
JUMP = 1e-3  # relative error of r that only a jump of the log-likelihood leaves
# Share of the gradient of psi that is left: before the last steps, of which each leaves a tenth of
# it or less and the rest enters psi squared; where such a step is left out; where the end is near;
# and what single precision may leave.
STATIONARY, NEGLIGIBLE, NEAR, ROUNDED = 2e-4, 3e-6, 3e-2, 1e-2
CG_RTOL, INDEPENDENT = 1e-6, 1e-12  # of a solution; of directions that differ
FEWEST = 1e-3  # cosine of a correction and its step that tells nothing
SOFT, STIFF = 0.05, 20.0  # curvature along any direction; that of the log-likelihood is one
# Where least squares leave a curved valley: relative gap of a first trial that is far off, and
# secants until then; the distance from its floor to which descents go, relative to the root.
FAR, MOST_SECANTS, FLOOR, HALVINGS, MOST_JUMPS, LARGEST_DAMPING = 0.3, 5, 0.1, 12, 12, 1e8
CENTRAL, FORWARD = 2.0**-10, 2.0**-17  # of a unit: differences of residuals
STEP = 1e-3  # standard errors over which the gradient of psi is differenced
CORRECTIONS, VIOLATED = 20, 1e-9  # steps back to nonlinear constraints; standard errors
REACHED = 1e-6  # standard errors from a limit: at it
SHORTEST = 1e-3  # times the first t: no part of a curve is inside
LARGEST = 10.0  # times root / |g|: a multiplier where constraints alone hold psi
UNFINISHED = "No search from there has converged."


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


class Base(Protocol):
    """Curvature A of the log-likelihood; `Factor` is one, with H H' its inverse."""

    def solve(self, b: Array) -> Array:
        """Return ``A^-1 b`` for (d,) or (d, k)."""

    def multiply(self, v: Array) -> Array:
        """Return ``A v`` for (d,)."""

    def half_transpose(self, g: Array) -> Array:
        """Return ``H' g``, coordinates in which gradients are compared."""


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
        H = np.asarray(self.base.half(np.eye(len(self.U))))  # type: ignore[attr-defined]
        V = self._modes[0]
        stretch = 1 / np.sqrt(self._curvatures(mu)) - 1 / np.sqrt(1 + mu)
        return np.asarray(H / np.sqrt(1 + mu) + (V * stretch) @ np.linalg.solve(H, V).T)

    def learned(self, step: Array, change: Array) -> "Metric":
        """Correct by the change of the gradient of the Lagrangian over a step (SR1)."""
        image = self.base.multiply(step)
        missing = change - image - self.U @ (self.D * (self.U.T @ step))
        along = float(missing @ step)
        size = float(missing @ self.base.solve(missing)) * float(image @ step)
        if not abs(along) > FEWEST * np.sqrt(max(size, 0.0)):
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
    share : float
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
    share: float
    metric: Metric

    @property
    def strength(self) -> float:
        """The multiplier, as far as it can be believed."""
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
    scale : LinearScale or None
        Coordinates in which the objective is close to -|z|^2 / 2; None beyond many parameters.
    curvature : {"hessian", "ggn"}
    limits : Limits or None
    tick : callable
        Called at each deviance, for a progress bar.
    """

    evaluation: Evaluation
    top: float
    scale: Factor | None
    curvature: Curvature = "hessian"
    limits: Limits | None = None
    tick: Callable[[], None] = field(default=lambda: None)

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
        self.tick()
        with np.errstate(all="ignore"):
            of = self.model if self.squares is None else self.squares
            deviance = 2 * (self.top - of.objective(theta))
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

    def root(self, theta: Array) -> float:
        """Root of the deviance."""
        return float(np.sqrt(self.deviance(theta)))

    @cached_property
    def tangent(self) -> Array:
        """Derivative of theta with respect to r at the maximum, toward larger psi, (d,)."""
        g = self.gradient(self.model.theta)
        step = self.point(self.model.theta, 1, 0.0).metric.solve(g, 0.0)
        return np.asarray(step / np.sqrt(step @ g))

    @cached_property
    def error(self) -> float:
        """Standard error of psi."""
        return float(self.tangent @ self.gradient(self.model.theta))

    def seen_from(self, c: float) -> "Problem":
        r"""Look at :math:`-1 / (\psi - c)`, which rises with psi and has a zero at its poles."""
        guarded = self.evaluation.function
        assert isinstance(guarded, Guarded)
        function = Guarded(Reciprocal(guarded.function, self.model, c))
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
        rows, fine = self.rows(theta), careful or (before is not None and before.share < NEAR)
        (q, base) = self._slopes(theta, fine, careful)
        metric = Metric.of(base or self._center, theta.size)
        if base is None and before is not None:
            metric = before.metric
        lam, nu, share = _multipliers(metric, q, g, rows, held)
        found = Point(theta, psi, root, q, g, rows, nu, lam, share, metric)
        if before is None or (self.has_valleys and before.share > NEAR):
            return found
        change = found.rest(found.strength, nu) - before.rest(found.strength, nu)
        step = theta - before.theta
        return replace(found, metric=metric.learned(step, change))

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

    def base(self, theta: Array) -> Factor | None:
        """Factorize the curvature of the log-likelihood elsewhere, where that can be done."""
        try:
            own = self.model.information(theta, np.eye(theta.size), self.curvature)
            return factorize(symmetric(own))
        except (NotAMaximumError, UnsupportedModelError, LinAlgError, ValueError):
            return None


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


class Found(NamedTuple):
    """Result of a search: a point, or what has failed ("" if psi does not rise outwards)."""

    point: Point | None
    failure: str = ""
    kind: str = ""
    theta: Array | None = None  # "open": far out, where the region does not end; "jump": before it


class Trial(NamedTuple):
    """A point where a curve meets the surface.

    Its kind is "" there, "held" where constraints end the curve inside of the region, "open" where
    nothing does, "jump" before a jump of the log-likelihood, "lost" if no part of it is inside.
    """

    theta: Array
    root: float
    t: float
    first: float
    kind: str = ""


def extreme(
    problem: Problem,
    sign: int,
    root: float,
    start: Point,
    beyond: float | None = None,
    tolerance: float = STATIONARY,
    near: float = 0.0,
) -> Found:
    """Find the extreme of sign * psi up to a root of the deviance, from a point of the region.

    Psi must rise outwards, and be more extreme than `beyond` if given, from the start on. A start
    whose root is that far off, relatively, may be a step away from the end.
    """
    height = -np.inf if beyond is None else sign * beyond
    point, mu, rejected, failure, jumps = start, 0.0, 0, "", 0
    best = start if abs(start.root - root) <= near * root and start.lam > 0 else None
    for _ in range(MOST_STEPS):
        done = best is not None and best.share <= tolerance
        exact = (done or point.g.size == 1) and tolerance < ROUNDED
        trial = _land(problem, point, mu, root, EXACT if exact else LOOSE)
        if trial.kind == "far":
            ahead, jumps = _jump(problem, sign, point, trial.first, root), jumps + 1
            if ahead is None or jumps > MOST_JUMPS:
                return Found(None, UNFINISHED)
            point, best, mu = ahead, None, 0.0
            continue
        if (best is None and trial.kind == "open") or (trial.kind == "jump" and point.g.size == 1):
            return Found(None, "", trial.kind, trial.theta)
        if done and best is not None and trial.kind in ("", "held"):
            lam = trial.t if np.isfinite(best.lam) else best.lam
            return Found(best.at(trial.theta, problem.psi(trial.theta), trial.root, lam))
        new, failure = _seen(problem, sign, root, trial, point, height, best)
        if new is None:
            mu, rejected = max(4 * mu, 0.5), rejected + 1
            turns = best is None and not failure and not problem.is_bounded
            if rejected > (2 if turns else MOST_REJECTED):
                break
            continue
        if new.share <= tolerance and (exact or tolerance >= ROUNDED):
            return Found(new)
        height, point, best = max(height, _height(sign, root, trial, new.psi)), new, new
        mu, rejected = (mu / 4 if mu > 0.2 else 0.0), 0
    if best is None or best.share > ROUNDED:
        return Found(None, UNFINISHED if best is not None else failure)
    trial = _land(problem, best, 0.0, root, EXACT)
    if trial.kind not in ("", "held"):
        return Found(None, UNFINISHED)
    return Found(best.at(trial.theta, problem.psi(trial.theta), trial.root, best.lam))


def verified(problem: Problem, sign: int, root: float, end: Point) -> Point:
    """Differentiate an end with care, at which kinks and noise raise, and take a last step.

    Raises
    ------
    ConvergenceError
        The conditions of Karush, Kuhn and Tucker do not hold.
    """
    point = problem.point(end.theta, sign, end.root, end, careful=True)
    if point.share > NEAR and end.share <= ROUNDED:
        raise ConvergenceError(
            f"A search for the end of the interval of psi has led to {point.psi:.6g}, where the "
            "gradients of psi and of the log-likelihood are not parallel. Usual causes: a "
            "derivative of psi or a score that is wrong, kinks, noise or rounding in the "
            "log-likelihood. Use float64, leave out `score=`, or use `infer(model, psi, "
            "Bootstrap())`."
        )
    if point.share <= NEGLIGIBLE or end.g.size == 1:
        return point
    trial = _land(problem, point, 0.0, root, EXACT)
    psi = problem.psi(trial.theta)
    better = not trial.kind and sign * (psi - point.psi) >= -abs(root / point.lam) * point.share**2
    return point.at(trial.theta, psi, trial.root, point.lam) if better else point


def _jump(problem: Problem, sign: int, point: Point, t: float, root: float) -> Point | None:
    """Go as far as a parabola would reach, and back to the floor of a curved valley at that psi."""
    u, v = point.metric.solve(np.stack([point.q, point.g], axis=1), 0.0).T
    ahead = None
    for k in range(HALVINGS):
        ahead = _point(problem, point.theta + (t * v - u) / 2**k, sign)
        if ahead is not None:
            break
    if ahead is None:
        return None
    return descended(problem, sign, ahead, FLOOR * max(root, ahead.root), held=True)


def descended(
    problem: Problem, sign: int, point: Point, short: float, held: bool = False
) -> Point | None:
    """Climb the log-likelihood by damped Gauss-Newton steps, with psi held or not.

    It ends where a step is as short as this, in standard errors; None if it does not.
    """
    mu, careful = 0.0, not held
    for _ in range(MOST_STEPS):
        u, v = point.metric.solve(np.stack([point.q, point.g], axis=1), mu).T
        step = ((point.g @ u) / (point.g @ v) * v if held else 0.0) - u
        if -step @ point.q <= short**2:
            return point
        if _root(problem, point.theta + step) < point.root:
            point = _point(problem, point.theta + step, sign, careful) or point
            mu = mu / 10 if mu > 1e-3 else 0.0
        elif not careful:
            careful, point = True, _point(problem, point.theta, sign, True) or point
        elif mu > LARGEST_DAMPING:
            return None
        else:
            mu = max(4 * mu, 0.1)
    return None


def _point(problem: Problem, theta: Array, sign: int, careful: bool = False) -> Point | None:
    try:
        known = np.isfinite(_root(problem, theta))
        return problem.point(theta, sign, careful=careful) if known else None
    except (EvaluationError, UnsupportedModelError):
        return None


def _height(sign: int, root: float, trial: Trial, psi: float) -> float:
    """Psi on the surface, to first order in the distance from it."""
    short = 0.0 if trial.kind or not trial.t > 0 else (root**2 - trial.root**2) / (2 * trial.t)
    return sign * psi + short


def _seen(
    problem: Problem,
    sign: int,
    root: float,
    trial: Trial,
    before: Point,
    height: float,
    best: Point | None,
) -> tuple[Point | None, str]:
    """Differentiate at a trial that is better than what is known; None and what has failed."""
    if trial.kind in ("jump", "lost"):
        return None, "The log-likelihood is NaN or infinite beyond." if best is None else UNFINISHED
    risen = _height(sign, root, trial, problem.psi(trial.theta)) - height
    if not np.isfinite(risen) and height != -np.inf:
        return None, "Psi or its derivative is not defined beyond."
    unit = (
        0.0
        if best is None
        else float(np.linalg.norm(best.metric.base.half_transpose(best.g))) * root
    )
    if not risen > 0 and (best is None or not risen >= -unit * best.share**2):
        return None, "" if best is None else UNFINISHED
    try:
        held = trial.kind == "held"
        new = problem.point(trial.theta, sign, trial.root, before, held=held)
    except EvaluationError:
        return None, "Psi or its derivative is not defined beyond."
    except UnsupportedModelError:
        return None, "The log-likelihood is NaN or infinite beyond."
    if not new.lam > 0:
        return None, "" if best is None else UNFINISHED
    return (new, "") if risen > 0 or best is None or new.share < best.share else (None, UNFINISHED)


def _land(problem: Problem, point: Point, mu: float, root: float, rtol: float) -> Trial:
    """Go along the curve p(t) to the surface."""
    curve, first = _curve(problem, point, mu, root)
    if np.isinf(point.lam):  # nothing but the metric limits a step along constraints
        first = min(first, point.strength)
    near = point.root > 0 and mu == 0 and 0 < point.lam < np.inf
    known = (point.lam, point.root - root) if near else None
    most = 1.0 if np.isinf(point.lam) else LARGEST if problem.is_bounded else FARTHEST
    return cross(problem, curve, root, rtol, first, known, problem.has_valleys, most)


def cross(
    problem: Problem,
    curve: Callable[[float], Array],
    root: float,
    rtol: float = EXACT,
    first: float = 1.0,
    known: tuple[float, float] | None = None,
    near: bool = False,
    most: float = FARTHEST,
) -> Trial:
    """Find where a curve meets the surface: secants within a bracket that grows as needed.

    A `first` trial that is far off ends the search if `near`; `known` is a t with its gap.
    """
    low, high, gap_low = 0.0, np.inf, -root
    t, (before, gap_before), smallest, lost = first, known or (0.0, -root), np.inf, False
    for tries in range(MOST_TRIALS):
        theta = curve(t)
        gap = _root(problem, theta) - root
        stalled = smallest / 2 < abs(gap) <= NOISY * root and tries > 2
        smallest = min(smallest, abs(gap))
        if stalled or abs(gap) <= rtol * root:
            return Trial(theta, root + gap, t, first)
        if near and (tries == MOST_SECANTS or (tries == 0 and not abs(gap) <= FAR * root)):
            return Trial(theta, root + gap, t, first, "far")
        low, high, gap_low = (t, high, gap) if gap < 0 else (low, t, gap_low)
        if not np.all(np.isfinite(theta)):
            lost = True  # behind the last point from which constraints can be reached
        if lost and low > 0 and high - low < LOOSE * high:
            return Trial(curve(low), root + gap_low, low, first, "held")
        if high < SHORTEST * first and low == 0:
            return Trial(theta, root + gap, t, first, "lost")
        rise = gap - gap_before if max(gap, gap_before) < np.inf else 0.0
        secant = t - gap * (t - before) / rise if rise != 0 else np.inf
        before, gap_before = t, gap
        limit = high if np.isfinite(high) else 4 * low
        t = secant if low < secant < limit else (low + high) / 2 if high < np.inf else limit
        if t > most * first:
            return Trial(theta, root + gap, t, first, "held" if problem.is_bounded else "open")
    return Trial(curve(low), root + gap_low, low, first, "jump" if gap_low < -JUMP * root else "")


def _root(problem: Problem, theta: Array) -> float:
    """Root of the deviance, infinite where the log-likelihood is not defined."""
    try:
        return problem.root(theta) if np.all(np.isfinite(theta)) else np.inf
    except (ArithmeticError, ValueError):
        return np.inf


def _curve(
    problem: Problem, point: Point, mu: float, root: float
) -> tuple[Callable[[float], Array], float]:
    """Points theta + p(t), and the t at which a parabola would have the root."""
    q, g = point.q, point.g
    u, v = point.metric.solve(np.stack([q, g], axis=1), mu).T
    gg, gq, qq = g @ v, q @ v, q @ u
    f = 1 / (1 + mu)
    missing = (root**2 - point.root**2) / 2 + (1 - f / 2) * qq
    slope, bend = (1 - f) * gq, f * gg / 2
    with np.errstate(all="ignore"):
        first = (np.sqrt(slope**2 + 4 * bend * max(missing, 0.0)) - slope) / (2 * bend)
    first = float(first) if np.isfinite(first) and first > 0 else point.strength or 1.0
    if problem.limits is None:
        return lambda t: np.asarray(point.theta + t * v - u), first
    return _within(problem.limits, point, point.metric.whitening(mu)), first


def _within(limits: Limits, point: Point, T: Array) -> Callable[[float], Array]:
    """Bend a curve so that constraints hold."""
    rows, b = point.rows, T.T @ point.g
    a = T.T @ point.q * np.isfinite(point.lam)  # where constraints alone hold psi, q has no part
    normals = rows.normals @ T

    def curve(t: float) -> Array:
        y = _nearest(t * b - a, normals, rows)
        before, wrong = np.inf, rows.equal
        for _ in range(CORRECTIONS):
            theta = limits.inside(point.theta + T @ y)
            missing = rows._replace(gaps=limits.gaps(theta), equal=wrong).violation
            size = float(np.max(abs(missing), initial=0.0))
            if size <= VIOLATED:
                return theta
            if not size < before / 2:
                break
            wrong, before = wrong | (missing != 0), size
            y = y - np.linalg.lstsq(normals[wrong], missing[wrong], rcond=None)[0]
        return np.full_like(point.theta, np.nan)

    return curve


def _nearest(y: Array, normals: Array, rows: Rows) -> Array:
    """Project y on the linearized constraints (least distance; Lawson and Hanson, 1974)."""
    equal, basis = rows.equal, np.eye(y.size)
    if np.any(equal):
        E = normals[equal]
        y = y - np.linalg.lstsq(E, rows.gaps[equal] + E @ y, rcond=None)[0]
        basis = null_space(E)
    A, b = normals[~equal] @ basis, -(rows.gaps + normals @ y)[~equal]
    if not np.any(b > 0):
        return y
    target = np.append(np.zeros(basis.shape[1]), 1.0)
    far = float(np.max(b))
    columns = np.vstack([A.T, b / far])
    left = columns @ nnls(columns, target)[0] - target
    return np.asarray(y - far * basis @ left[:-1] / left[-1] if left[-1] < 0 else y)


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
    """Psi as -1 / (psi - c), differentiated in the model's own language where psi is known."""

    function: Function
    model: FittedModel
    c: float

    def value(self, theta: Array) -> Array:
        gap = self.function.value(theta) - self.c
        if not np.all(gap):
            raise EvaluationError("psi is at the pole of its reciprocal.")
        return np.asarray(-1 / gap)

    def jacobian(self, theta: Array) -> Array:
        psi = getattr(self.function, "psi", None)  # a surrogate has none, and no pole either
        if psi is not None:
            return self.model.jacobian(lambda own: -1 / (psi(own) - self.c), theta)
        gap = self.function.value(theta) - self.c
        return np.asarray(self.function.jacobian(theta) / gap[:, None] ** 2)

    def component(self, k: int) -> "Reciprocal":
        return Reciprocal(self.function.component(k), self.model, self.c)
