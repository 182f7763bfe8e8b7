"""Solve estimating equations: a root of as many as parameters, or the GMM estimate of more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.optimize import NoConvergence, newton_krylov, root
from scipy.special import chdtrc

from implicit_delta.calculus.functions import Derivative
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.models.equation_system import System, balance, check_regular
from implicit_delta.optimize import Objective, Squares, climb

MOST_STEPS = 50  # of Newton's method
SHORTEST = 2.0**-12  # share of a step below which damping has failed
# In the units of `System.units`, about standard errors: a step whose square is nothing, one that
# rounding may leave if it shrinks no more, and a round of GMM that changes nothing. One rounding
# of a parameter counts as a steady step, where its standard error is not much more than that.
STEADY, STUCK, SETTLED = 1e-10, 1e-6, 1e-8
MOST_ASCENTS, EACH = 60, 20  # of the scatter, and after how many Newton's method takes over
MOST_STARTS = 5  # at random, when all else has failed
MOST_ROUNDS = 100  # of iterated GMM
SINGULAR = 1e-12  # smallest eigenvalue of the correlation of equations that rounding leaves

Scatter = Callable[[Array], Array]  # theta to the sum of outer products of the rows, (q, q)


class Hansen(NamedTuple):
    """Hansen's J test of the equations that are more than the parameters."""

    statistic: float
    df: int
    p_value: float


@dataclass(frozen=True)
class Solved:
    """Parameters (d,), the weighting of the equations (q, q) that they belong to, and J."""

    theta: Array
    weighting: Array | None = None
    hansen: Hansen | None = None


def root_of(system: System, start: Array, names: Sequence[str] | None = None) -> Array:
    """Find the root near a start: Newton's method, damped, from there and from better places."""
    if start.size > DENSE_LIMIT:
        return _large_root(system, start)
    with np.errstate(all="ignore"):
        for point in _places(system, start):
            theta, done = _newton(system, point)
            if done:
                return theta
        slope = system.slope(start).value
        check_regular(system, start, Derivative(slope, np.zeros_like(slope)), names)
    raise ConvergenceError(_no_root("damped Newton steps do not settle"))


def _places(system: System, start: Array) -> Iterator[Array]:
    """Places to start Newton's method from, the user's own first."""
    yield start
    yield from _ascents(system, start, 1.0)
    yield from _ascents(system, start, -1.0)
    spread, units = system.spread(start), system.units(start)
    scale = np.where(spread > 0, spread, 1.0)

    def scaled(z: Array) -> Array:
        return _finite(system.total(start + units * z) / scale)

    for method in ("hybr", "lm"):
        yield start + units * root(scaled, np.zeros_like(start), method=method).x
    rng, wide = np.random.default_rng(0), np.sqrt(system.weights.size) * units
    for _ in range(MOST_STARTS):  # as far apart as single rows would put them
        yield start + wide * rng.normal(size=start.size)


def _ascents(system: System, start: Array, sign: float) -> Iterator[Array]:
    """Climb as if the equations were a score, by their own scatter (Berndt, Hall, Hall, Hausman).

    Newton's method goes astray where the likelihood of a score is not concave; this does not.
    """
    theta = start
    for step in range(1, MOST_ASCENTS + 1):
        rows = system.rows(theta)
        if not np.all(np.isfinite(rows)):
            return
        spread = np.sqrt(system.weights @ rows**2)
        rows = rows / np.where(spread > 0, spread, 1.0)
        scatter = (system.weights[:, None] * rows).T @ rows
        move = np.linalg.pinv(scatter, hermitian=True) @ (system.weights @ rows)
        theta = theta + sign * move / np.where(spread > 0, spread, np.inf)
        if step % EACH == 0 and np.all(np.isfinite(theta)):
            yield theta


def gmm(
    system: System,
    scatter: Scatter,
    start: Array,
    weighting: str | Array,
    first: Array | None,
) -> Solved:
    """Minimize ``M' W M`` with M the summed equations; W fixed, or efficient in rounds."""
    q = system.total(start).size
    if not isinstance(weighting, str):
        return Solved(_least(system, start, weighting), weighting)
    theta = _least(system, start, np.eye(q) if first is None else first)
    W = inverse_scatter(scatter(theta))
    if weighting == "iterated":
        theta, W = _settled(system, scatter, theta, W)
    theta = _least(system, theta, W)
    return Solved(theta, W, hansen_of(system.total(theta), W, theta.size))


def _settled(system: System, scatter: Scatter, theta: Array, W: Array) -> tuple[Array, Array]:
    """Climb and weigh by turns until neither changes the other: theta (d,) and W (q, q).

    Each climb takes one step at least, so that the rounds need not end at rounding; the last does.
    """
    for _ in range(MOST_ROUNDS):
        before, theta = theta, _climbed(system, theta, cholesky(W, lower=False))
        W = inverse_scatter(scatter(theta))
        if _length(theta - before, theta, system.units(theta)) < SETTLED:
            return theta, W
    raise ConvergenceError(
        f"Iterated GMM did not settle within {MOST_ROUNDS} rounds. Use "
        'weighting="two-step", or give other equations or another `start=`.'
    )


def hansen_of(total: Array, W: Array, d: int) -> Hansen:
    r"""Hansen's :math:`J = M' W M`, chi-square with q - d degrees of freedom."""
    J, df = float(total @ W @ total), total.size - d
    return Hansen(J, df, float(chdtrc(df, J)))


def inverse_scatter(matrix: Array) -> Array:
    """Invert the sum of outer products of rows, (q, q); refuse equations that are redundant."""
    scale = np.sqrt(np.diag(matrix))
    still = np.flatnonzero(scale == 0)
    if still.size:
        raise UnsupportedModelError(
            f"Equation {still[0]} is zero for every row, so it has no variance to weigh it by. "
            "With more equations than parameters leave it out, and compute what it defines from "
            "the parameters: `infer(model, lambda th: th[0] - th[1])`."
        )
    correlation = matrix / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < SINGULAR * values[-1]:
        share = abs(vectors[:, 0])
        involved = [str(j) for j in np.argsort(-share) if share[j] > 0.1 * share.max()][:6]
        raise UnsupportedModelError(
            f"Equations {', '.join(involved)} (columns, from 0) are linearly dependent in all "
            "rows, so they cannot be weighted efficiently. Leave one of them out; or give "
            "`weighting=`, a (q, q) matrix."
        )
    factor = cho_factor(correlation, lower=True)
    return np.asarray(cho_solve(factor, np.diag(1 / scale)) / scale[:, None])


def _newton(system: System, start: Array) -> tuple[Array, bool]:
    """Damped Newton steps; each must shrink the next step with the same derivative (Deuflhard).

    That test does not depend on the scales of the equations.
    """
    theta, last = start, np.inf
    for _ in range(MOST_STEPS):
        total = system.total(theta)
        if not np.all(np.isfinite(total)):
            return theta, False
        try:
            slope = system.slope(theta).value
            solve, units = _solver(slope), system.units(theta, slope)
        except UnsupportedModelError:
            return theta, False
        step = -solve(total)
        if np.any(abs(total + slope @ step) > STUCK * (system.spread(theta) + abs(slope) @ units)):
            return theta, False  # the derivative is singular: no step leads to a root
        size = _length(step, theta, units)
        if size < STEADY or (size < STUCK and size >= 0.5 * last):
            return theta + step, True
        share = _damped(system, theta, step, solve, units)
        if share == 0:
            return theta, bool(size < STUCK)
        theta, last = theta + share * step, size
    return theta, False


def _damped(
    system: System, theta: Array, step: Array, solve: Callable[[Array], Array], units: Array
) -> float:
    """Share of a step that makes progress; 0 if none does."""
    share, size = 1.0, np.linalg.norm(step / units)
    while share > SHORTEST:
        total = system.total(theta + share * step)
        if np.all(np.isfinite(total)):
            left = np.linalg.norm(solve(total) / units)
            if left <= (1 - share / 4) * size:
                return share
        share /= 2
    return 0.0


def _solver(slope: Array) -> Callable[[Array], Array]:
    """Least-squares solutions: on the way the derivative may be singular."""
    if not np.all(np.isfinite(slope)):
        raise UnsupportedModelError(_no_root("the derivative of the equations is not finite"))
    left, right = balance(slope)
    if slope.shape[0] > slope.shape[1]:  # a scale of rows would be another weighting
        left = np.ones_like(left)
        right = 1 / np.maximum(np.linalg.norm(slope, axis=0), 1e-300)
    inverse = np.linalg.pinv(left[:, None] * slope * right, rcond=1e-14)
    return lambda total: np.asarray(right * (inverse @ (left * total)))


def _least(system: System, start: Array, W: Array) -> Array:
    """Minimize ``M' W M`` to rounding: least squares, then Gauss-Newton steps."""
    half = cholesky(W, lower=False)  # H'H = W
    theta, size, units = _climbed(system, start, half), np.inf, system.units(start)
    for _ in range(MOST_STEPS):
        step = -_solver(half @ system.slope(theta).value)(half @ system.total(theta))
        smaller = _length(step, theta, units)
        if not smaller < 0.9 * size:
            break
        theta, size = theta + step, smaller
    if not size < STUCK:
        raise ConvergenceError(_no_root(f"the last step is {size:.1g} standard errors long"))
    return np.asarray(theta)


def _climbed(system: System, start: Array, half: Array) -> Array:
    """Minimize ``|H M|^2`` by least squares, (d,)."""
    squares = Squares(
        lambda theta: half @ system.total(theta),
        lambda theta: (half @ system.slope(theta).value, np.zeros(theta.size)),
    )
    try:
        found = climb(Objective(residuals=squares), start)
    except (ArithmeticError, ValueError) as error:
        raise ConvergenceError(_no_root(str(error))) from None
    if not found.converged:
        raise ConvergenceError(_no_root(found.message))
    return found.x


def _large_root(system: System, start: Array) -> Array:
    spread = system.spread(start)
    scale = np.where(spread > 0, spread, 1.0)
    try:
        return np.asarray(
            newton_krylov(lambda th: system.total(th) / scale, start, method="gmres", f_tol=1e-9)
        )
    except (NoConvergence, ValueError) as error:
        raise ConvergenceError(_no_root(f"{type(error).__name__} of Newton-Krylov")) from None


def _length(step: Array, theta: Array, units: Array) -> float:
    """Length of the longest step, in units, or in roundings of its parameter if these are more."""
    return float(np.max(abs(step) / np.maximum(units, np.spacing(abs(theta)) / STEADY)))


def _finite(values: Array) -> Array:
    return np.nan_to_num(values, nan=1e100, posinf=1e100, neginf=-1e100)


def _no_root(reason: str) -> str:
    return (
        f"No root of the equations was found: {reason}. Usual causes: they have none (separated "
        "classes in a propensity score, a variance that goes to zero), jump (quantiles: give "
        "`theta=` and `jacobian=`), do not determine a parameter, compute in single "
        "precision, or the start is far away. Give another `start=`, or fit the model elsewhere "
        "and give `theta=`."
    )
