"""Find the least squares: from a start, from several, or from others where that one led astray."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.differentiate import SETTLED
from implicit_delta.calculus.noise import noise_of
from implicit_delta.calculus.tracing import trace_terms
from implicit_delta.calculus.units import sizes
from implicit_delta.core.calls import Limited, is_spent
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, ImplicitDeltaError
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.constraints import box
from implicit_delta.models.loglik_rows import rows_of
from implicit_delta.models.noise import Noise
from implicit_delta.models.restarts import CLIMBS, best_draws, draw_starts, without_effect
from implicit_delta.models.squares import MARGIN, LeastSquares, trace_agrees, unit_columns
from implicit_delta.models.starts import Optimum, best_of
from implicit_delta.models.traced_loglik import TracedScore
from implicit_delta.optimize import Objective, Squares, climb

MOST_ALTERNATIONS = 50
FIRST_SHARE = 5 / 6  # of the calls, for the search from the start that was given
FORWARD = 2.0**-26  # of the size of a parameter: the root of rounding, for one difference
COARSE = 1e-2  # of the size of a parameter: the longest such step, where the residuals are noisy
ROUGH = 1e-8  # of a column: the error of such a difference
LONGER = 100.0  # times that step: what changes with it is an error of the difference
BESIDE = 0.1  # of a standard error: differences of the residuals there are their bends
SHORT = 1e-6  # of a standard error: the same of slopes, whose rounding is 1e-16 of that
MUCH = 0.4  # of the Gauss-Newton curvature, of which usual fits leave out a tenth (guards.py)
FEW_ROWS = 0.9  # of all leverages, in as many rows as there are parameters: a peak on one of them
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

Names = tuple[str, ...] | None
Fitted = tuple[LeastSquares, tuple[Optimum, ...], Noise]
Failures = (ImplicitDeltaError, ArithmeticError, ValueError)


def fitted(
    problem: LeastSquares, starts: Sequence[Array], names: Names, most: int, drawn: int = 0
) -> Fitted:
    """Fit from one start or more, by a traced Jacobian where that can be had and holds at the end.

    Beside those that are given, ``drawn`` starts in the scale of the problem.

    Returns the problem with that Jacobian, the minima (the least first), and the noise.
    """
    if problem.derivative is None and trace_terms(problem.function, starts[0]) is not None:
        try:
            exact = replace(problem, derivative=TracedScore(problem.function))
            found = _fitted(exact, starts, names, most, drawn)
            if trace_agrees(exact, found[1][0].theta):
                return found
        except Failures as error:  # differences tell what is wrong
            if is_spent(error):
                raise
    return _fitted(problem, starts, names, most, drawn)


def _fitted(
    problem: LeastSquares, starts: Sequence[Array], names: Names, most: int, drawn: int
) -> Fitted:
    points = list(starts)
    if drawn:
        points += Fit(problem, starts[0], names).promising(drawn)

    def search(start: Array) -> tuple[Array, float]:
        fit = Fit(problem.limited(most), start, names)
        theta = fit.searched() if len(starts) == 1 and start is starts[0] else fit.proper()
        return theta, problem.height(theta)

    optima = best_of(search, points, problem.units)
    theta, noise = Fit(problem, optima[0].theta, names).with_noise(optima[0].theta)
    return problem, (replace(optima[0], theta=theta), *optima[1:]), noise


@dataclass(frozen=True, eq=False)
class Fit:
    """The search for the least squares from a start."""

    problem: LeastSquares
    start: Array
    names: Names

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Limits of single parameters, (d,) and (d,)."""
        if self.problem.constraints is None:
            return np.full(self.start.size, -np.inf), np.full(self.start.size, np.inf)
        return box(self.problem.constraints, self.start)

    @cached_property
    def drawn(self) -> tuple[list[Array], NDArray[np.bool_]]:
        """Other starts, and which parameters matter at this one."""
        return draw_starts(self.problem.recalled, self.start, *self.limits)

    @cached_property
    def step(self) -> float:
        """Step of one difference, in sizes of the parameters: the root of the relative noise."""
        signs = np.random.default_rng(0).choice([-1.0, 1.0], self.start.size)
        beside = FORWARD * sizes(self.start) * signs
        try:
            with np.errstate(all="ignore"):
                noise = noise_of(self.problem.recalled, self.start, beside)
                size = np.linalg.norm(self.problem.recalled(self.start))
                found = float(np.sqrt(np.linalg.norm(noise) / size))
        except (ArithmeticError, ValueError):  # the residuals end at the start
            return FORWARD
        return min(max(found, FORWARD), COARSE) if np.isfinite(found) else FORWARD

    def searched(self) -> Array:
        """Solve from the start; where that ends at a doubtful point, from others too.

        A proper minimum is left only for one that is better by more than a search among as many
        basins as there are rows finds in noise: d / 2 + 2 log n nats.
        """
        best, failure = self._first()
        if not failure:
            assert best is not None
            return best
        if is_spent(failure) and self.problem.constraints is not None:
            self.problem.constraints.check_slopes(failure.theta)  # type: ignore[union-attr]
        least = self.start.size / 2 + 2 * np.log(self.problem.weights.values.size)
        height = -np.inf if best is None else self.problem.height(best) + least
        for other in self.others():
            if self.problem.height(other) > height:
                best, height = other, self.problem.height(other)
        if best is None and is_spent(failure):
            return self.minimum(failure.theta)  # type: ignore[union-attr]
        if best is None:
            raise self._failed(failure)
        return best

    def within(self, share: float) -> "Fit":
        """The same search, in a share of the calls that are left."""
        calls = self.problem.function
        assert isinstance(calls, Limited)
        return replace(self, problem=self.problem.limited(np.ceil(share * calls.left)))

    def _first(self) -> tuple[Array | None, Exception | str]:
        """Find the minimum from the start, if it is one, and what is wrong or doubtful about it."""
        try:
            found = self.within(FIRST_SHARE).minimum(self.start)
            doubt = self.doubt(found)
            return found if doubt in PROPER else None, doubt
        except (ImplicitDeltaError, ArithmeticError) as error:
            return None, error

    def _failed(self, failure: Exception | str) -> Exception:
        if not isinstance(failure, ConvergenceError | str):
            return failure
        parts = (failure, without_effect(self.drawn[1], self.names), NOWHERE)
        return ConvergenceError(" ".join(str(text) for text in parts if text))

    def proper(self) -> Array:
        """Solve from the start, for a minimum that may be taken as it is."""
        best, failure = self._first()
        if best is None:
            raise self._failed(failure)
        return best

    def promising(self, count: int) -> list[Array]:
        """Draw starts in the scale of the problem, and keep the best after a few steps."""
        points = draw_starts(self.problem.recalled, self.start, *self.limits, count)[0]
        improved = [np.clip(self._improved(point), *self.limits) for point in points]
        return best_draws(lambda x: -self.problem.squares(x), improved, count)

    def others(self) -> Iterator[Array]:
        """Proper minima that other starts lead to, the most promising start first."""
        try:
            points = self.promising(CLIMBS)
        except ConvergenceError:  # the calls are spent
            return
        for point in points:
            try:
                found = self.within(1 / 2).minimum(point)
                doubt = self.doubt(found)
            except Failures:
                continue
            if doubt in PROPER:
                yield found

    def minimum(self, start: Array, noise: float | None = None) -> Array:
        """Find the least squares, under the constraints if there are any and they bind."""
        noise = self.problem.first_noise(start) if noise is None else noise
        constraints = self.problem.constraints
        if constraints is None:
            return self._unconstrained(start, noise)
        if not constraints.equal.any():
            try:
                theta = self._unconstrained(start, noise)
            except (ConvergenceError, ArithmeticError, ValueError) as error:
                if is_spent(error):
                    raise
                theta = np.full_like(start, np.nan)  # the bounds may be needed
            if constraints.holds(theta):
                return theta
        model = self.problem.model(start, Noise(noise, np.inf))
        return constrained_maximum(replace(model, rows=rows_of(model).for_climbing()))

    def _unconstrained(self, start: Array, noise: float) -> Array:
        """Climb with the simplest differences first, and end with those of known error."""
        found = None
        if self.problem.derivative is None:
            found = climb(self._objective(noise, rough=True), start, limits=self.limits)
        first = start if found is None else found.x
        found = climb(self._objective(noise), first, limits=self.limits)
        if not found.converged:
            raise ConvergenceError(
                "The least-squares fit has not converged (sum of squares "
                f"{-2 * found.value * noise:.4g}): {found.message} Usual causes: a start far away, "
                "or residuals that are noisy (a solver inside of them with a loose tolerance, "
                "single precision, random numbers). Compute them more tightly, try another start, "
                "a penalty (l2=), or fit it yourself and give theta=."
            )
        return found.x

    def _objective(self, noise: float, rough: bool = False) -> Objective:
        """Residuals in units of the noise, with the ridge as d further ones."""
        problem, ridge = self.problem, np.sqrt(self.problem.l2)
        root = np.sqrt(problem.weights.values / noise)

        def residuals(theta: Array) -> Array:
            found = root * problem.recalled(theta)
            return np.append(found, ridge * theta) if ridge else found

        def jacobian(theta: Array) -> tuple[Array, Array]:
            rows, error = self._slopes(theta, root, rough)
            return (
                (np.vstack([rows, ridge * np.eye(theta.size)]), error) if ridge else (rows, error)
            )

        known = isinstance(problem.variance, float) or ridge > 0
        return Objective(residuals=Squares(residuals, jacobian, 1.0 if known else None))

    def _slopes(self, theta: Array, root: Array, rough: bool) -> tuple[Array, Array]:
        """Slopes times roots, (n, d), and the error of each column; roughly where not traced."""
        try:
            if not rough:
                return self.problem.weighted_slopes(theta, root**2)
        except FloatingPointError:
            if self.problem.derivative is None:
                raise
        rows = root[:, None] * self._forward(theta)
        return rows, ROUGH * self.step / FORWARD * np.linalg.norm(rows, axis=0)

    def with_noise(self, theta: Array) -> tuple[Array, Noise]:
        """Estimate the noise; with a penalty in turn with the parameters."""
        noise = Noise(0.0, np.inf)
        for _ in range(MOST_ALTERNATIONS):
            previous, noise = noise.variance, self.problem.noise(theta)
            if self.problem.l2 == 0 or abs(noise.variance - previous) <= 1e-12 * noise.variance:
                return theta, noise
            theta = self.minimum(theta, noise.variance)
        raise ConvergenceError(
            f"The noise variance still moves after {MOST_ALTERNATIONS} alternations with the "
            f"parameters (now {noise.variance:.3g}). The penalty l2={self.problem.l2:g} may be so "
            "weak that the model interpolates; give a larger one, or variance= as a number."
        )

    def _improved(self, point: Array) -> Array:
        """Take a few steps from a point: linear parameters then suit the others."""
        rough = self.problem.derivative is None
        try:
            return climb(self._objective(1.0, rough), point, max_calls=FEW, limits=self.limits).x
        except (ArithmeticError, ValueError):
            return point

    def _forward(self, theta: Array, times: float = 1.0) -> Array:
        """Differentiate by one step each, (n, d)."""
        center, steps = self.problem.recalled(theta), times * self.step * sizes(theta)
        ahead = [self.problem.recalled(theta + step) for step in np.diag(steps)]
        return np.asarray((np.stack(ahead, axis=1) - center[:, None]) / steps)

    def doubt(self, theta: Array) -> str:
        """Tell why theta may not be the least squares; nothing if it looks like them.

        Combinations of parameters that have no effect at other points either are redundant in the
        model: they are left to psi.

        The Hessian of the sum of squares, in the norm of Gauss-Newton, is 1 + B. Where the
        residuals are noise about a curve, B is small; it is large at minima where they are not.
        """
        if self.problem.l2 > 0 or self.problem.is_exact(theta):
            return ""
        along = self.problem.directions(theta)
        rows, error = self.problem.weighted_slopes(theta, self.problem.weights.values)
        rows, error = rows @ along, error @ abs(along)
        rows, lengths = unit_columns(np.where(np.all(np.isfinite(rows), axis=0), rows, 0.0))
        left, values, right = np.linalg.svd(rows, full_matrices=False)
        unknown = MARGIN * np.linalg.norm(error / lengths)  # as in the search (Weyl)
        k = int(np.sum(values > max(SETTLED * np.sqrt(lengths.size), unknown)))
        if k < theta.size == lengths.size and self._rank_elsewhere(along) > k:
            return FLAT  # at a bound of another one a parameter may well lose its effect
        left, steps = left[:, :k], along @ (right[:k].T / values[:k] / lengths[:, None])
        bends = self._bends(theta, left, steps)
        if k and np.linalg.eigvalsh(np.nan_to_num(bends))[0] <= -1:
            return SADDLE
        if not np.all(np.isfinite(bends)):
            return BENT
        if np.max(abs(np.linalg.eigvalsh(bends)), initial=0.0) > MUCH:
            return BENT
        leverages = np.sort(np.sum(left**2, axis=1))[::-1]  # k in all
        if np.sum(leverages[:k]) > FEW_ROWS * k and leverages.size > 2 * k > 0:
            return BENT
        return AT_A_BOUND if along.shape[1] < theta.size else ""

    def _bends(self, theta: Array, left: Array, steps: Array) -> Array:
        """B along steps (d, k) that move the residuals by the columns of `left`, (k, k)."""
        problem, eye = self.problem, np.eye(left.shape[1])
        root = np.sqrt(problem.weights.values)
        center = root * problem.recalled(theta)
        noise = float(np.linalg.norm(center)) / center.size**0.5
        if problem.derivative is not None:
            h = SHORT * noise
            ahead = np.array([problem.gradient(theta + h * step) for step in steps.T])
            here = (root * center) @ problem.jacobian(theta)
            return symmetric((ahead - here) @ steps / h) - eye
        h = BESIDE * noise

        def bend(v: Array) -> float:
            ahead = root * problem.recalled(theta + h * steps @ v)
            return float(2 * center @ (ahead - center - h * left @ v) / h**2)

        bends = np.diag([bend(e) for e in eye])
        for i, j in zip(*np.tril_indices(len(eye), -1), strict=True):
            bends[i, j] = bends[j, i] = (bend(eye[i] + eye[j]) - bends[i, i] - bends[j, j]) / 2
        return bends

    def _rank_elsewhere(self, along: Array) -> int:
        """Count the directions (d, k) that have an effect at other points, the most at any.

        A singular value counts if it exceeds that of the error (Weyl), which is the change of the
        columns with the step, by as much as separates no effect from one: `EFFECT`.
        """
        ranks, root = [0], np.sqrt(self.problem.weights.values)[:, None]
        with np.errstate(all="ignore"):
            for point in self.drawn[0]:
                try:
                    rows, other = (root * self._forward(point, h) @ along for h in (1.0, LONGER))
                except (ArithmeticError, ValueError):
                    continue
                unit, lengths = unit_columns(rows)
                error = np.linalg.norm((rows - other) / lengths)
                if np.isfinite(error):
                    values = np.linalg.svd(unit, compute_uv=False)
                    ranks.append(int(np.sum(values > EFFECT + error)))
        return max(ranks)
