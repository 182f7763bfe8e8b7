"""The most extreme psi over likelihood regions of growing size: one side of a profile.

How it differs from the textbook (Venzon and Moolgavkar, 1988) and from a push with lambda alone:

- The path is walked in r, the root of the deviance, and not in psi or lambda. So each step is one
  in standard errors of theta, whatever psi does: lambda may stop growing along the path (where
  L + lambda psi has no maximum left), and psi may have a pole or an extreme on it.
- Every trial lies on the surface of the region. What is maximized there is lambda psi, which has
  the unit of a log-likelihood, so that the curvature of L scales this problem too.
- What a search leaves unfinished enters only squared, since psi is stationary on the surface.
"""

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.surface import FARTHEST, Point, Surface
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.base import FittedModel

LONGEST_STEP, SHORTEST_STEP = 1.0, 1e-6  # in r
EXPLODES = 1e3  # growth of log(psi) per unit of r: psi has a pole there
FLAT = 1e-3  # slope of psi in r, against that at the fitted point: psi has an extreme there
SATURATED = 1e-2  # relative change of psi over the last nine tenths of a ray without end
GOOD_ENOUGH = 1e-2  # gradient that rounding (of single precision) may leave; enters squared
PROBES, RUNAWAY = 61, 5.0  # evaluations on the way to a pole, and growth of psi that shows one


class Side:
    """One side of the path: the points that were needed so far, outwards from the fitted one.

    Parameters
    ----------
    model : FittedModel
        At its maximum.
    evaluation : Evaluation
        Of one number.
    ascent : Ascent
        How to climb.
    sign : {-1, 1}
        Towards smaller or larger psi.
    tangent : (d,) array
        Derivative of theta with respect to r at the fitted point.
    error : float
        Derivative of psi with respect to r there: its standard error.

    Attributes
    ----------
    points : list of Point
        Ordered by r.
    unbounded_from, extreme_from : float
        The r from which on psi is unbounded, and from which on it gets no more extreme.
    """

    def __init__(
        self,
        model: FittedModel,
        evaluation: Evaluation,
        ascent: Ascent,
        sign: int,
        tangent: Array,
        error: float,
    ) -> None:
        self.points = [Point(model.theta, float(evaluation.value[0]), 0.0, 0.0)]
        self.unbounded_from = self.extreme_from = np.inf
        self._model, self._evaluation, self._ascent = model, evaluation, ascent
        self._top = model.objective(model.theta)
        self._sign, self._tangent, self._error = sign, tangent, error
        self._step = LONGEST_STEP

    def end(self, root: float) -> float:
        """Find the most extreme psi where the root of the deviance is at most `root`."""
        while self.points[-1].root < root < min(self.unbounded_from, self.extreme_from):
            last = self.points[-1].root
            steps = np.ceil((root - last) / self._step)
            self._advance(root if steps == 1 else last + (root - last) / steps)
        if root >= self.unbounded_from:
            return self._sign * np.inf
        return [p.psi for p in self.points if p.root <= root][-1]

    def _advance(self, root: float) -> None:
        """Try for the point at `root`; where there is none, the next trial is half as far."""
        surface = Surface(self._model, self._evaluation, self._top, root)
        start = self._predict(root)
        try:
            point, failure = self._search(surface, start)
        except (EvaluationError, UnsupportedModelError) as error:
            point, failure = None, str(error)
        if surface.length(start) >= FARTHEST:
            self._leave(surface, start)
        elif point is None or not self._rises(point):
            self._retreat(root, point, failure)
        else:
            self.points.append(point)
            self._step = min(2 * self._step, LONGEST_STEP)
            if self._explodes(point):
                self.unbounded_from = root

    def _search(self, surface: Surface, start: Array) -> tuple[Point | None, str]:
        """Look for the extreme of psi on the surface, unless the start shows that psi turns."""
        first = surface.point(start)
        if not self._rises(first) or surface.length(start) >= FARTHEST:
            return first, ""
        u = surface.length(start) * start
        found = self._ascent.maximizer.maximize(surface.problem(self._ascent, first.lam), u)
        rounded = self._ascent.scale is not None and found.gradient_norm < GOOD_ENOUGH
        return surface.point(found.x) if found.converged or rounded else None, found.message

    def _rises(self, point: Point) -> bool:
        """Whether psi is more extreme than so far, and would be even more so farther out."""
        return self._sign * (point.psi - self.points[-1].psi) > 0 and self._sign * point.lam > 0

    def _explodes(self, point: Point) -> bool:
        return point.root > EXPLODES * abs(point.lam * (point.psi - self.points[0].psi))

    def _retreat(self, root: float, point: Point | None, failure: str) -> None:
        last = self.points[-1]
        self._step = (root - last.root) / 2
        if self._step > SHORTEST_STEP:
            return
        if self._pole_ahead():
            self.unbounded_from = last.root
        elif point is not None and last.root <= FLAT * abs(last.lam) * self._error:
            self.extreme_from = last.root
        else:
            raise ConvergenceError(
                f"The profile could not be followed beyond psi = {last.psi:.6g} (deviance "
                f"{last.root**2:.3g}). {failure} Usual causes: psi or the log-likelihood is not "
                "smooth or not defined there, or has a second maximum. Try a lower "
                "confidence_level, another parametrization, or `Bootstrap()`."
            )

    def _pole_ahead(self) -> bool:
        """Follow the predicted path to see whether psi runs away and comes back from elsewhere.

        Close to a pole the derivative of psi by differences is of no use; psi itself is.
        """
        last, fitted = self.points[-1], self.points[0]
        if last.root == 0:
            return False
        simple = abs(last.lam * (last.psi - fitted.psi)) / last.root  # how far a simple pole is
        psi = []
        for root in last.root + simple * np.linspace(0, 3, PROBES):
            try:
                theta = fitted.theta + self._predict(root)
                psi.append(self._sign * (float(self._evaluation(theta)[0]) - fitted.psi))
            except EvaluationError:
                psi.append(np.inf)
        peak = int(np.argmax(psi))
        return psi[peak] > RUNAWAY * psi[0] and min(psi[peak:]) < 0

    def _leave(self, surface: Surface, ray: Array) -> None:
        """Follow a ray that stays in the region for ever, and see whether psi stays finite."""
        rays = (0.1 * FARTHEST * ray, FARTHEST * ray)
        ends = [float(self._evaluation(self._model.theta + far)[0]) for far in rays]
        if abs(ends[1] - ends[0]) > SATURATED * abs(ends[1] - self.points[0].psi):
            self.unbounded_from = surface.root
        else:
            self.points.append(Point(surface.theta(ray), ends[1], 0.0, surface.root))
            self.extreme_from = surface.root

    def _predict(self, root: float) -> Array:
        """Extrapolate the chord from the fitted point, per unit of r, to `root`."""
        last = self.points[-1]
        if last.root == 0:
            return root * self._tangent
        before, chord = self.points[-2], self._chord(last)
        turn = (chord - self._chord(before)) / (last.root - before.root)
        return np.asarray(root * (chord + (root - last.root) * turn))

    def _chord(self, point: Point) -> Array:
        if point.root == 0:
            return self._tangent
        return np.asarray((point.theta - self.points[0].theta) / point.root)
