"""The surface of a likelihood region, and psi upon it."""

from dataclasses import dataclass

import numpy as np

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, UnsupportedModelError
from implicit_delta.inference.profile.region import Region
from implicit_delta.models.objective import objective_of
from implicit_delta.optimize import Objective

FARTHEST = 1e4  # times its first length: a ray that is still in the region never leaves it
MOST_TRIALS = 60
EXACT, NOISY = 1e-10, 1e-5  # relative error of r: what is asked for, and what rounding may leave
JUMP = 1e-2  # relative error of r that only a jump of the log-likelihood leaves
STEP = 1e-3  # standard errors over which the gradient of psi is differenced
GOOD_ENOUGH = 1e-2  # gradient that rounding (of single precision) may leave; enters squared


@dataclass(frozen=True)
class Point:
    """The best theta for one value of psi.

    Attributes
    ----------
    theta : (d,) array
    psi : float
    lam : float
        The multiplier: theta is stationary for L + lam * psi.
    root : float
        Square root of the deviance.
    """

    theta: Array
    psi: float
    lam: float
    root: float

    def rises(self, sign: int, beyond: float) -> bool:
        """Whether psi is more extreme than `beyond`, and would be even more so farther out."""
        return sign * (self.psi - beyond) > 0 and sign * self.lam > 0


class Surface:
    r"""All theta of one deviance :math:`r^2`: one on each ray, :math:`\hat\theta + \rho(u)\, u`.

    As :math:`\rho` is solved for, psi is a function of the direction u alone. With the gradients s
    of L and g of psi, a change of u moves theta by :math:`\rho P` times it, where :math:`P = I -
    u s' / s'u`. So the derivative of psi is :math:`\rho P' g`, which vanishes where
    :math:`s + \lambda g = 0` with :math:`\lambda = -s'u / g'u`; and there the curvature of
    :math:`\lambda \psi` is :math:`\rho^2 P' M P`, with M that of :math:`L + \lambda \psi`.

    Parameters
    ----------
    region : Region
        Psi and the deviance.
    root : float
        r, the square root of the deviance.
    center : (d,) array, optional
        Where the rays start, by default at the maximum.
    """

    def __init__(self, region: Region, root: float, center: Array | None = None) -> None:
        self.region, self.root = region, root
        self.model, self.evaluation = region.model, region.evaluation
        self.center = self.model.theta if center is None else center
        self._cache = LastCache()

    def search(
        self, start: Array, sign: int, beyond: float | None = None
    ) -> tuple[Point | None, str]:
        """Climb from the ray `start` to a maximum of sign * psi on the surface.

        Psi must rise outwards, and be more extreme than `beyond` if given, from the start on.
        Returns the point, or None and what has failed ("" if psi does not rise).
        """
        beyond = -sign * np.inf if beyond is None else beyond
        try:
            first = self.point(start)
            if self.is_open(start) or not first.rises(sign, beyond):
                return None, ""
            ascent = self.region.ascent
            problem = self._problem(first.lam)
            found = ascent.maximizer.maximize(problem, self.length(start) * start)
            rounded = ascent.scale is not None and found.gradient_norm < GOOD_ENOUGH
            point = self.point(found.x)
            held = (found.converged or rounded) and point.rises(sign, beyond)
            return (point, "") if held else (None, "No search from there has converged.")
        except EvaluationError:
            return None, "Psi or its derivative is not defined beyond."
        except UnsupportedModelError:
            return None, "The log-likelihood is NaN or infinite beyond."

    def theta(self, u: Array) -> Array:
        """Intersect the ray u with the surface, (d,)."""
        return np.asarray(self.center + self.length(u) * u)

    def psi(self, u: Array) -> float:
        """Psi where the ray u meets the surface."""
        return float(self.evaluation(self.theta(u))[0])

    def slope(self, u: Array) -> Array:
        """Derivative of psi with respect to u, (d,)."""
        s, g = self._gradients(u)
        return np.asarray(self.length(u) * (g - (g @ u) / (s @ u) * s))

    def point(self, u: Array) -> Point:
        """Intersect the ray u with the surface, with the multiplier there (nan if psi is flat)."""
        s, g = self._gradients(u)
        lam = -(s @ u) / (g @ u) if g @ u != 0 else np.nan
        return Point(self.theta(u), self.psi(u), float(lam), self.root)

    def length(self, u: Array) -> float:
        """Solve for rho; the root of the deviance is nearly linear in it."""
        return self._solution(u)[0]

    def is_open(self, u: Array) -> bool:
        """Whether the ray never reaches the surface."""
        return self.length(u) >= FARTHEST

    def at_a_jump(self, u: Array) -> bool:
        """Whether the log-likelihood jumps, or ends, before the ray reaches the surface."""
        length, gap = self._solution(u)
        return length < FARTHEST and gap < -JUMP * self.root

    def _solution(self, u: Array) -> tuple[float, float]:
        found: tuple[float, float] = self._cache.get(u.copy(), "length", lambda: self._solve(u))
        return found

    def _problem(self, lam: float) -> Objective:
        """Make lam * psi an objective: in this unit its curvature is close to that of -L."""
        return Objective(
            lambda u: lam * self._psi_or_minus_infinity(u, np.sign(lam)),
            lambda u: lam * self.slope(u),
            lambda u, v: self._curve(u, v, lam),
            self.region.ascent.scale,
        )

    def _gradients(self, u: Array) -> tuple[Array, Array]:
        def gradients() -> tuple[Array, Array]:
            theta = self.theta(u)
            return objective_of(self.model).rough_score(theta), self.evaluation.jacobian(theta)[0]

        found: tuple[Array, Array] = self._cache.get(u.copy(), "gradients", gradients)
        return found

    def _curve(self, u: Array, v: Array, lam: float) -> Array:
        """Multiply a block v, (d, k), by the curvature of lam * psi along the surface."""
        s, _ = self._gradients(u)
        theta, length = self.theta(u), self.length(u)
        moves = v - np.multiply.outer(u, s @ v) / (s @ u)
        image = self.model.information(theta, moves, self.region.ascent.curvature)
        sizes = np.sqrt(np.abs(np.sum(moves * image, axis=0)))
        bends = [self._bend(theta, w, size) for w, size in zip(moves.T, sizes, strict=True)]
        image = length**2 * (image - lam * np.stack(bends, axis=1))
        return np.asarray(image - np.multiply.outer(s, u @ image) / (s @ u))

    def _bend(self, theta: Array, move: Array, size: float) -> Array:
        """Multiply the Hessian of psi by a move of this many standard errors."""
        if size == 0:
            return np.zeros_like(move)
        step = STEP / size * move
        ahead, behind = (self.evaluation.jacobian(theta + way)[0] for way in (step, -step))
        return np.asarray((ahead - behind) * size / (2 * STEP))

    def _solve(self, u: Array) -> tuple[float, float]:
        """Secant method within a bracket that grows until it holds the solution.

        Returns rho and by how much the root of the deviance differs there from r.
        """
        low, high, gap_low = 0.0, np.inf, -self.root
        rho, before, gap_before = 1.0, 0.0, -self.root
        for _ in range(MOST_TRIALS):
            gap = self._gap(rho * u)
            stalled = abs(gap) <= NOISY * self.root and abs(gap) > abs(gap_before) / 2
            if stalled or abs(gap) <= EXACT * self.root:
                return rho, gap
            low, high, gap_low = (rho, high, gap) if gap < 0 else (low, rho, gap_low)
            rise = gap - gap_before if max(gap, gap_before) < np.inf else 0.0
            secant = rho - gap * (rho - before) / rise if rise != 0 else np.inf
            before, gap_before = rho, gap
            limit = high if np.isfinite(high) else 4 * low
            rho = secant if low < secant < limit else (low + high) / 2 if high < np.inf else limit
            if rho > FARTHEST:
                return FARTHEST, gap
        return low, gap_low

    def _gap(self, step: Array) -> float:
        """Root of the deviance less r."""
        return float(np.sqrt(self.region.deviance(self.center + step))) - self.root

    def _psi_or_minus_infinity(self, u: Array, sign: float) -> float:
        try:
            return self.psi(u)
        except EvaluationError:
            return float(-sign * np.inf)
