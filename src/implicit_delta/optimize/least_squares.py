"""Levenberg-Marquardt with geodesic acceleration: least squares, also along curved valleys.

Differs from the textbook (Moré 1978) in this. One singular value decomposition serves all dampings
at a point, so a rejected step costs one evaluation. Where the last step did not keep what the
linear model promised, the next one is bent by the second derivative along it (Transtrum and Sethna
2012, "Improvements to the Levenberg-Marquardt algorithm", eq. 13 to 15), for one evaluation more.
The scale of a parameter, the largest length of its column, is forgotten by half at each step, so
that a column that was huge far away hides nothing. It ends by the length of the step in standard
errors, not by the fall of the sum of squares, which is its square.

The 54 fits of NIST (`benchmarks.nist`) are solved for any of BENDS 0.5 to 1.5, PROMISED 0.9 to 2,
FORGOTTEN 0.3 to 0.7, LEAST_SHARE 0.1 to 0.2 and SHORT 0.01 to 0.1, in numbers of calls that differ
by a tenth; with RAISE = 2 two are not.
"""

from dataclasses import dataclass, replace

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.optimize.objective import Maximum, Squares

FIRST = 1e-2  # damping at the start, of the curvature of one parameter
LARGEST = 1e16  # damping beyond which a step is lost in the rounding of the parameters
RAISE = 3.0  # after a rejected step; twice that after the next, and so on (Nielsen 1999)
LEAST_SHARE = 0.1  # of the damping that is left after a step that the linear model has foretold
ENOUGH = 1e-4  # of the promised fall: a step with less is rejected
PROMISED = 0.9  # of the promised fall: where less was kept the valley is curved
SHORT = 0.1  # of a step, over which its second derivative is taken (Transtrum and Sethna)
BENDS = 0.75  # twice the acceleration over the step: a series beyond does not converge (ibid.)
FORGOTTEN = 0.5  # of the scale of a parameter that is left after a step
KNOWN = 1e-12  # singular value of columns of length one: smaller ones are lost in rounding
MARGIN = 10.0  # times the error of the Jacobian: smaller singular values are not known
NEAR = 1e-3  # standard errors: here the fall of the sum of squares tells less than the next step
ARRIVED = 1e-7  # standard errors: the last step is taken and needs no proof
HIDDEN = 1.0  # standard errors: whole steps are tried from here where noise hides their fall
ROUNDINGS = 4.0  # of the parameters: a smaller effect on the residuals is none


@dataclass(frozen=True, eq=False)
class _Place:
    """A point with its residuals and the singular value decomposition of its scaled Jacobian."""

    x: Array
    residuals: Array
    jacobian: Array
    scale: Array
    left: Array
    values: Array
    right: Array

    @classmethod
    def at(cls, squares: Squares, x: Array, residuals: Array, scale: Array) -> "_Place":
        jacobian, error = squares.jacobian(x)
        if not np.all(np.isfinite(jacobian)):
            raise FloatingPointError("The residuals have no derivative there.")
        lengths = np.linalg.norm(jacobian, axis=0)
        scale = np.maximum(FORGOTTEN * scale, lengths)
        unit = np.where(scale > 0, scale, 1.0)
        left, values, right = np.linalg.svd(jacobian / unit, full_matrices=False)
        least = max(KNOWN * np.sqrt(x.size), MARGIN * float(np.linalg.norm(error / unit)))  # Weyl
        return cls(x, residuals, jacobian, unit, left, np.where(values > least, values, 0.0), right)

    @property
    def cost(self) -> float:
        return float(self.residuals @ self.residuals)

    @property
    def reach(self) -> float:
        """Length of the Gauss-Newton step, in the unit of the residuals."""
        return float(np.linalg.norm((self.left.T @ self.residuals)[self.values > 0]))

    def distance(self, noise: float | None) -> float:
        """Length of the Gauss-Newton step in standard errors."""
        freedom = max(self.residuals.size - int(np.sum(self.values > 0)), 1)
        unit = np.sqrt(self.cost / freedom) if noise is None else noise
        return self.reach / max(unit, np.finfo(float).tiny)

    def is_lost(self) -> bool:
        """Whether the last digits of the parameters move the residuals by more than the step."""
        rounding = np.linalg.norm(self.jacobian * np.spacing(abs(self.x)))
        return self.reach <= ROUNDINGS * float(rounding)

    def step(self, residuals: Array, damping: float) -> Array:
        """Minimize ``|r + J p|^2 + damping |scale p|^2`` over p, (d,)."""
        shares = self.values / (self.values**2 + damping + (self.values == 0))
        return np.asarray(-(self.right.T @ (shares * (self.left.T @ residuals))) / self.scale)

    def promised(self, step: Array) -> float:
        """Fall of the sum of squares by the linear model."""
        ahead = self.residuals + self.jacobian @ step
        return self.cost - float(ahead @ ahead)


@dataclass(frozen=True)
class _Damping:
    """Damping of the next step, what it is raised by, and whether the valley is curved."""

    size: float = FIRST
    raised: float = RAISE
    is_curved: bool = False

    def after(self, kept: float) -> "_Damping":
        """Less after a step that kept what was promised; more after a rejected one."""
        if not kept > ENOUGH:
            return _Damping(self.size * self.raised, 2 * self.raised, True)
        share = max(LEAST_SHARE, 1 - (2 * kept - 1) ** 3)
        return _Damping(self.size * min(share, RAISE), RAISE, kept < PROMISED)


def least_squares(squares: Squares, start: Array, iterations: int = 0) -> Maximum:
    """Climb to the minimum of a sum of squares; the value is minus half of it."""
    here = _Place.at(squares, start, squares.residuals(start), np.zeros_like(start))
    damping = _Damping()
    while damping.size < LARGEST:
        if here.is_lost():
            found = _maximum(here, squares, True, "Rounding allows no better.", iterations)
            return replace(found, hidden=True)
        if here.distance(squares.noise) < NEAR:
            return _finished(squares, here, iterations)
        ahead, kept = _ahead(squares, here, damping)
        damping, iterations = damping.after(kept), iterations + 1
        here = here if ahead is None else ahead
    # Noise in the residuals hides the fall of a step of its root, but not where whole steps lead.
    if here.distance(squares.noise) < HIDDEN:
        return _finished(squares, here, iterations)
    return _maximum(here, squares, False, "No step leads to a smaller sum of squares.", iterations)


def _ahead(squares: Squares, here: _Place, damping: _Damping) -> tuple[_Place | None, float]:
    """Go to the next place, if there is one; with the share of the promised fall that is kept."""
    step = here.step(here.residuals, damping.size)
    promised = here.promised(step)
    turn = _turn(squares, here, step, damping.size) if damping.is_curved else np.zeros_like(step)
    if turn is None or not promised > 0:
        return None, 0.0
    x = here.x + step + turn
    residuals = _tried(squares, x)
    kept = (here.cost - float(residuals @ residuals)) / promised
    if not kept > ENOUGH:
        return None, 0.0
    try:
        return _Place.at(squares, x, residuals, here.scale), kept
    except (ArithmeticError, ValueError):  # it has no derivative there
        return None, 0.0


def _turn(squares: Squares, here: _Place, step: Array, damping: float) -> Array | None:
    """Bend the step along the valley (geodesic acceleration); None if it is too long for that."""
    moved = (_tried(squares, here.x + SHORT * step) - here.residuals) / SHORT
    with np.errstate(all="ignore"):
        turn = here.step(2 / SHORT * (moved - here.jacobian @ step), damping)
    short = 2 * np.linalg.norm(here.scale * turn) <= BENDS * np.linalg.norm(here.scale * step)
    return turn / 2 if short else None


def _tried(squares: Squares, x: Array) -> Array:
    """Evaluate the residuals; infinite where they are not defined, (n,)."""
    try:
        return squares.residuals(x)
    except (ArithmeticError, ValueError):
        return np.array([np.inf])


def _finished(squares: Squares, here: _Place, iterations: int) -> Maximum:
    """Take whole steps for as long as they become shorter.

    Where each is the same share q of the one before, all that are left add up to q / (1 - q).
    """
    share = 0.5
    while True:
        ahead = here.x + here.step(here.residuals, 0.0)
        left = here.distance(squares.noise) * share / (1 - share)
        if left <= ARRIVED:
            found = _maximum(here, squares, True, "The last step is short.", iterations + 1)
            return replace(found, x=ahead, distance=left)
        try:
            place = _Place.at(squares, ahead, _tried(squares, ahead), here.scale)
        except (ArithmeticError, ValueError):
            place = here
        if not place.reach < here.reach:
            return _maximum(here, squares, True, "Noise allows no better.", iterations)
        share, here, iterations = place.reach / here.reach, place, iterations + 1


def _maximum(
    here: _Place, squares: Squares, converged: bool, message: str, iterations: int
) -> Maximum:
    return Maximum(
        x=here.x,
        value=-here.cost / 2,
        iterations=iterations,
        converged=converged,
        message=message,
        distance=here.distance(squares.noise),
    )
