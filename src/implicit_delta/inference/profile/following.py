r"""Boundary of a joint region, followed from ray to ray.

On the ray e the boundary is where :math:`q = G'\mu` (q the gradient of half the deviance, G the
Jacobian of the two quantities :math:`\eta`, :math:`\mu` two multipliers), :math:`\eta` is along e
and the deviance is :math:`r^2`. From a neighbor, whose place is extrapolated, one or two Newton
steps on these equations lead there. Their curvature is learned on the way (symmetric rank one), so
that each costs a gradient and a few values. What is found is checked by the caller.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from implicit_delta.core.types import Array

STEPS = 12  # of Newton on one ray: the metric learns one direction in each
WORSE = 3.0  # times the best so far: it leads away
CORRECTIONS = 6  # values on the way back to the surface
ON_SURFACE = 3e-7  # relative: the deviance is at its quantile
ON_RAY = 1e-6  # standard errors off the ray
STATIONARY = 1e-3  # of the gradient that may be left; it enters squared
PARALLEL = 1e-8  # a curvature along a step that is orthogonal to it tells nothing
TOGETHER = 3  # neighbors that the next place is extrapolated from


@dataclass(frozen=True)
class Place:
    """A point x (d,) with its slopes: q (d,), G (2, d), and the multipliers there (2,)."""

    x: Array
    q: Array
    G: Array

    @property
    def multipliers(self) -> Array:
        """Those of least squares."""
        return np.asarray(np.linalg.lstsq(self.G.T, self.q, rcond=None)[0])

    def left(self) -> float:
        """Share of q that the two quantities do not explain."""
        rest = self.q - self.G.T @ self.multipliers
        return float(np.linalg.norm(rest)) / max(float(np.linalg.norm(self.q)), 1e-300)


@dataclass
class Follower:
    """Deviance and two quantities as functions of x, in standard errors, and what is learned.

    Attributes
    ----------
    deviance, eta, score, slope : callable
        Of x: a number, (2,), minus q (d,), and G (2, d).
    tangent : (d, 2) array
        Of x along eta, at the maximum.
    root : float
        Of the deviance on the boundary.
    """

    deviance: Callable[[Array], float]
    eta: Callable[[Array], Array]
    score: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    tangent: Array
    root: float
    metric: Array = field(init=False)
    last: Place = field(init=False)
    bends: list[tuple[float, Array]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Begin with a quadratic log-likelihood."""
        self.metric = np.eye(self.tangent.shape[0])

    def next(self, angle: float) -> Array | None:
        """Find x on the ray of an angle, (d,); None if that takes more than small steps."""
        straight = self.root * self.tangent @ _ray(angle)
        x = straight + self._bend(angle)
        place = Place(x, x, self.slope(x)) if not hasattr(self, "last") else self._expected(x)
        return self._search(_ray(angle), place)

    def note(self, angle: float, x: Array) -> None:
        """Remember where the boundary is: by how much it is not that of a quadratic."""
        straight = self.root * self.tangent @ _ray(angle)
        self.bends = [*self.bends[1 - TOGETHER :], (angle, x - straight)]

    def _bend(self, angle: float) -> Array:
        """Extrapolate from the last neighbors by the polynomial through them."""
        total = np.zeros(self.tangent.shape[0])
        for k, (own, bend) in enumerate(self.bends):
            others = [a for j, (a, _) in enumerate(self.bends) if j != k]
            total += np.prod([(angle - a) / (own - a) for a in others]) * bend
        return total

    def _search(self, e: Array, place: Place) -> Array | None:
        best = np.inf
        for _ in range(STEPS):
            x = self._back(e, place)
            if x is None:
                return None
            place = self._seen(x)
            left = place.left()
            if left <= STATIONARY:
                return x
            if not left <= WORSE * best:
                return None
            best, place = min(best, left), self._expected(self._newton(e, place))
        return None

    def _back(self, e: Array, place: Place) -> Array | None:
        """Return to the ray and to the surface by secants (Broyden's), without new slopes."""
        across, x = np.array([-e[1], e[0]]), place.x
        rows, gap = np.stack([across @ place.G, place.q / self.root]), self._gap(across, x)
        for _ in range(CORRECTIONS):
            if abs(gap[0]) <= ON_RAY and abs(gap[1]) <= ON_SURFACE * self.root / 2:
                return x
            step = -np.linalg.lstsq(rows, gap, rcond=None)[0]
            x, before = x + step, gap
            gap = self._gap(across, x)
            if not np.linalg.norm(gap) < np.linalg.norm(before):
                return None
            rows = rows + np.outer(gap - before - rows @ step, step) / (step @ step)
        return None

    def _gap(self, across: Array, x: Array) -> Array:
        """By how much x is off the ray, and off the surface, in standard errors."""
        off = across @ self.eta(x)
        return np.array([off, (self.deviance(x) / self.root**2 - 1) * self.root / 2])

    def _newton(self, e: Array, place: Place) -> Array:
        across, d = np.array([-e[1], e[0]]), place.x.size
        matrix = np.zeros((d + 2, d + 2))
        matrix[:d, :d], matrix[:d, d:] = self.metric, -place.G.T
        matrix[d, :d], matrix[d + 1, :d] = across @ place.G, place.q
        step = np.linalg.lstsq(matrix, np.append(-place.q, [0.0, 0.0]), rcond=None)[0]
        return np.asarray(place.x + step[:d])

    def _expected(self, x: Array) -> Place:
        """Slopes at x as the last ones and the curvature predict them."""
        G, step = self.slope(x), x - self.last.x
        bent = (G - self.last.G).T @ self.last.multipliers
        return Place(x, self.last.q + self.metric @ step + bent, G)

    def _seen(self, x: Array) -> Place:
        """Slopes at x; the metric learns from the last ones."""
        place = Place(x, -self.score(x), self.slope(x))
        if hasattr(self, "last"):
            step = x - self.last.x
            change = place.q - self.last.q - (place.G - self.last.G).T @ place.multipliers
            self._learn(step, change - self.metric @ step)
        self.last = place
        return place

    def _learn(self, step: Array, missing: Array) -> None:
        along = float(missing @ step)
        if abs(along) > PARALLEL * float(np.linalg.norm(missing) * np.linalg.norm(step)):
            self.metric = self.metric + np.outer(missing, missing) / along


def _ray(angle: float) -> Array:
    return np.array([np.cos(angle), np.sin(angle)])
