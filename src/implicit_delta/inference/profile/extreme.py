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
from typing import NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import nnls

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError, UnsupportedModelError
from implicit_delta.inference.profile.problem import (
    LARGEST,
    NEAR,
    ROUNDED,
    STATIONARY,
    Limits,
    Point,
    Problem,
    Rows,
)

FARTHEST = 1e4  # times the first t: a curve that is still in the region never leaves it
SHORTEST = 1e-3  # times the first t: no part of a curve is inside
MOST_TRIALS, MOST_STEPS, MOST_REJECTED = 60, 80, 8
EXACT, LOOSE, NOISY = 1e-10, 1e-4, 1e-5  # relative error of r: at the end, before, by rounding
JUMP = 1e-3  # relative error of r that only a jump of the log-likelihood leaves
# Where least squares leave a curved valley: relative gap of a first trial that is far off, and
# secants until then; the distance from its floor to which descents go, relative to the root.
FAR_OFF, MOST_SECANTS, FLOOR, MOST_JUMPS, LARGEST_DAMPING = 0.3, 5, 0.1, 12, 1e8
CORRECTIONS, VIOLATED = 20, 1e-9  # steps back to nonlinear constraints; standard errors
UNFINISHED = "No search from there has converged."


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
        done = best is not None and best.unexplained <= tolerance
        exact = (done or point.g.size == 1) and tolerance < ROUNDED
        trial = _to_surface(problem, point, mu, root, EXACT if exact else LOOSE)
        if trial.kind == "far":
            ahead, jumps = _across_valley(problem, sign, point, trial.first, root), jumps + 1
            if ahead is None or jumps > MOST_JUMPS:
                return Found(None, UNFINISHED)
            point, best, mu = ahead, None, 0.0
            continue
        if (best is None and trial.kind == "open") or (trial.kind == "jump" and point.g.size == 1):
            return Found(None, "", trial.kind, trial.theta)
        if done and best is not None and trial.kind in ("", "held"):
            lam = trial.t if np.isfinite(best.lam) else best.lam
            return Found(best.at(trial.theta, problem.psi(trial.theta), trial.root, lam))
        new, failure = _accepted(problem, sign, root, trial, point, height, best)
        if new is None:
            mu, rejected = max(4 * mu, 0.5), rejected + 1
            turns = best is None and not failure and not problem.is_bounded
            if rejected > (2 if turns else MOST_REJECTED):
                break
            continue
        if new.unexplained <= tolerance and (exact or tolerance >= ROUNDED):
            return Found(new)
        height, point, best = max(height, _height(sign, root, trial, new.psi)), new, new
        mu, rejected = (mu / 4 if mu > 0.2 else 0.0), 0
    if best is None or best.unexplained > ROUNDED:
        return Found(None, UNFINISHED if best is not None else failure)
    trial = _to_surface(problem, best, 0.0, root, EXACT)
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
    if point.unexplained > NEAR and end.unexplained <= ROUNDED:
        raise ConvergenceError(
            f"A search for the end of the interval of psi has led to {point.psi:.6g}, where the "
            "gradients of psi and of the log-likelihood are not parallel. Usual causes: a "
            "derivative of psi or a score that is wrong, kinks, noise or rounding in the "
            "log-likelihood. Use float64, leave out `score=`, or use `infer(model, psi, "
            "Bootstrap())`."
        )
    if point.unexplained <= STATIONARY or end.g.size == 1:
        return point
    trial = _to_surface(problem, point, 0.0, root, EXACT)
    psi = problem.psi(trial.theta)
    better = (
        not trial.kind and sign * (psi - point.psi) >= -abs(root / point.lam) * point.unexplained**2
    )
    return point.at(trial.theta, psi, trial.root, point.lam) if better else point


def _across_valley(
    problem: Problem, sign: int, point: Point, t: float, root: float
) -> Point | None:
    """Go as far as a parabola would reach, and back to the floor of a curved valley at that psi."""
    u, v = point.metric.solve(np.stack([point.q, point.g], axis=1), 0.0).T
    ahead = _point(problem, point.theta + t * v - u, sign)
    if ahead is None:
        return None
    return descended(problem, sign, ahead, FLOOR * max(root, ahead.root), held=True)


def descended(
    problem: Problem, sign: int, point: Point, short: float, held: bool = False
) -> Point | None:
    """Climb the log-likelihood by damped Gauss-Newton steps, with psi held or not.

    It ends where a step is as short as this, in standard errors; None if it does not.
    """
    mu = 0.0
    for _ in range(MOST_STEPS):
        u, v = point.metric.solve(np.stack([point.q, point.g], axis=1), mu).T
        step = ((point.g @ u) / (point.g @ v) * v if held else 0.0) - u
        if -step @ point.q <= short**2:
            return point
        if problem.root(point.theta + step) < point.root:
            point = _point(problem, point.theta + step, sign, not held) or point
            mu = mu / 10 if mu > 1e-3 else 0.0
        elif mu > LARGEST_DAMPING:
            return None
        else:
            mu = max(4 * mu, 0.1)
    return None


def _point(problem: Problem, theta: Array, sign: int, careful: bool = False) -> Point | None:
    try:
        known = np.isfinite(problem.root(theta))
        return problem.point(theta, sign, careful=careful) if known else None
    except (EvaluationError, UnsupportedModelError):
        return None


def _height(sign: int, root: float, trial: Trial, psi: float) -> float:
    """Psi on the surface, to first order in the distance from it."""
    short = 0.0 if trial.kind or not trial.t > 0 else (root**2 - trial.root**2) / (2 * trial.t)
    return sign * psi + short


def _accepted(
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
    if not risen > 0 and (best is None or not risen >= -unit * best.unexplained**2):
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
    return (
        (new, "")
        if risen > 0 or best is None or new.unexplained < best.unexplained
        else (None, UNFINISHED)
    )


def _to_surface(problem: Problem, point: Point, mu: float, root: float, rtol: float) -> Trial:
    """Go along the curve p(t) to the surface."""
    curve, first = _curve(problem, point, mu, root)
    if np.isinf(point.lam):  # nothing but the metric limits a step along constraints
        first = min(first, point.usable_lam)
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
        gap = problem.root(theta) - root
        stalled = smallest / 2 < abs(gap) <= NOISY * root and tries > 2
        smallest = min(smallest, abs(gap))
        if stalled or abs(gap) <= rtol * root:
            return Trial(theta, root + gap, t, first)
        if near and (tries == MOST_SECANTS or (tries == 0 and not abs(gap) <= FAR_OFF * root)):
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
    first = float(first) if np.isfinite(first) and first > 0 else point.usable_lam or 1.0
    if problem.limits is None:
        return lambda t: np.asarray(point.theta + t * v - u), first
    return _along_constraints(problem.limits, point, point.metric.whitening(mu)), first


def _along_constraints(limits: Limits, point: Point, T: Array) -> Callable[[float], Array]:
    """Bend a curve so that constraints hold."""
    rows, b = point.rows, T.T @ point.g
    a = T.T @ point.q * np.isfinite(point.lam)  # where constraints alone hold psi, q has no part
    normals = rows.normals @ T

    def curve(t: float) -> Array:
        y = t * b - a
        if not np.all(np.isfinite(y)):
            return np.full_like(point.theta, np.nan)
        y = _nearest(y, normals, rows)
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
