"""Compare the derivative of psi with the changes of psi: a part may be missing from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, NonlinearityWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.module_checks import GRADIENT_FREE
from implicit_delta.models.objective import objective_of

Draw = Callable[[Array], Array]  # standard normal numbers (d,) to a step of theta

# With derivative g and a missing part b, psi and g differ along a step A^-1/2 z by N(0, r^2 V),
# where r^2 V = b' A^-1 b, and the standard error is off by at most r of itself. A gap of |z| r in
# none of three orthogonal directions has |z| < 1/4: in 0.8% of cases for r = 8%, and in none
# where there are at most three parameters. Random directions of many parameters are orthogonal
# up to 1 / sqrt(d).
DIRECTIONS, NEARLY_ORTHOGONAL = 3, 1000
# Derivatives by differences may be off by 1% of the length of a gradient.
GAP_WARNS, GAP_REFUSES = 0.02, 0.1  # of a standard error
FARTHEST = 4.0  # standard errors, along all directions together: weights of networks go astray
# A gap by a missing part is the same at all short lengths, one by a bend 64 times smaller at the
# next length, one by noise 8 times larger or so.
SHORTER, LENGTHS = 8.0, 12
ALIKE, LENGTHS_ALIKE = 0.25, 3
ROUNDINGS = 16  # of psi: changes by less are not resolved
RESOLVED = 256  # roundings of psi: an evaluation with a smaller error is constant
JUMP_WARNS = 0.02  # of a standard error: the distance from the tangent, if psi has steps
MOST_SEARCHED = 8  # evaluations in which a jump is looked for
# The part of a smooth psi that is odd and not linear has an eighth of its size at half the length.
LEAST_SMOOTH, MOST_SMOOTH = 1 / 16, 1 / 4
# Halving an interval 16 times leaves 2^-16 of a change that is spread over it, or a little more
# where it is steep, and all of a jump. More than 1000 steps within a standard error are a slope.
HALVINGS, LEFT = 16, 2.0**-10


@dataclass(frozen=True, eq=False)
class Line:
    """Psi along a step from theta, against its slope (K,) there, both in units of psi.

    `scale` is the change that is typical along such a step, (K,): the standard error, if steps are
    those of N(0, A^-1).
    """

    evaluation: Evaluation
    center: Array
    step: Array
    slope: Array
    scale: Array
    length: float
    ends: Array | None

    def at(self, t: float) -> Array | None:
        """Psi at this length, (K,); None where it has no value."""
        try:
            with np.errstate(all="ignore"):
                return self.evaluation(self.evaluation.model.theta + t * self.step)
        except Exception:  # of any kind: psi was not made for parameters so far away
            return None

    def pair(self, t: float) -> Array | None:
        """Psi at this length ahead and behind, (2, K); None where it has no value."""
        ahead = self.at(t)
        behind = None if ahead is None else self.at(-t)
        return None if ahead is None or behind is None else np.array([ahead, behind])

    def sides(self, t: float) -> Array | None:
        """Slopes ahead and behind, less that of the derivative, (2, K)."""
        ends = self.ends if t == self.length else self.pair(t)
        return None if ends is None else (ends - self.center) / [[t], [-t]] - self.slope

    def gap(self, rounding: Array) -> Array:
        """Difference of the slopes of psi and its derivative, (K,), if three lengths agree on it.

        Also at all shorter ones, unless it ends there by steps: at a kink or a bound of psi at a
        distance it ends otherwise.
        """
        found, gaps = np.zeros_like(self.scale), list[Array]()
        least, ended = GAP_WARNS * self.scale, np.zeros_like(self.scale)
        for t in self.length / SHORTER ** np.arange(LENGTHS):
            sides = self.sides(float(t))
            if sides is None:
                continue
            gap, hidden = sides.mean(axis=0), ROUNDINGS * rounding / t
            ended = np.where((ended == 0) & (abs(gap) <= least) & (hidden <= least), t, ended)
            seen = (ended == 0) & (abs(gap) > least + hidden)
            if not np.any(seen):
                break
            gaps.append(np.where(seen, gap, np.nan))
            alike = np.ptp(gaps[-LENGTHS_ALIKE:], axis=0) < ALIKE * abs(gap)
            found = np.where(alike & (len(gaps) >= LENGTHS_ALIKE), gap, found)
        for k in np.flatnonzero((found != 0) & (ended > 0)):
            line = replace(self, length=SHORTER * float(ended[k]), ends=None)
            line = replace(line, ends=line.pair(line.length))
            found[k] *= line.jumps(int(k), rounding)
        return found

    def off(self, t: float) -> Array:
        """Distance from the tangent, (K,), without its even part."""
        sides = self.sides(t)
        return np.zeros_like(self.scale) if sides is None else abs(t * sides.mean(axis=0))

    def is_smooth(self, k: int) -> bool:
        """Whether the distance from the tangent is mostly of third order."""
        share = self.off(self.length / 2)[k] / self.off(self.length)[k]
        return bool(LEAST_SMOOTH < share < MOST_SMOOTH)

    def jumps(self, k: int, rounding: Array) -> bool:
        """Whether psi leaves its tangent all at once: halve the way, to the larger change.

        A jump is a share of the whole distance from the tangent, at parameters that the likelihood
        does not exclude.
        """
        whole = self.off(self.length)[k]
        for way in (self.length, -self.length):
            low, high = 0.0, way
            start, end = self._from_tangent(low, k), self._from_tangent(high, k)
            least = max(LEFT * whole, LEFT * abs(end - start), ROUNDINGS * rounding[k])
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                at = self._from_tangent(middle, k)
                if abs(at - start) > abs(end - at):
                    high, end = middle, at
                else:
                    low, start = middle, at
                if not abs(end - start) > least:
                    break
            else:
                return self._fall(low) <= FARTHEST**2  # a parabola's is at most half of that
        return False

    def _from_tangent(self, t: float, k: int) -> float:
        value = self.center if t == 0 else self.at(t)
        return np.nan if value is None else float(value[k] - t * self.slope[k])

    def _fall(self, t: float) -> float:
        model = self.evaluation.model
        if not model.rows.symmetric:
            return 0.0  # no objective excludes anything
        return model.objective(model.theta) - model.objective(model.theta + t * self.step)


def slope_mismatch(lines: list[Line], errors: Array) -> Finding | None:
    """Find evaluations that do not change as their derivative implies; raise if much."""
    evaluation = lines[0].evaluation
    rounding = np.spacing(abs(evaluation.value))
    if evaluation.blur is not None:
        rounding = np.maximum(rounding, evaluation.blur)
    moving = errors > RESOLVED * rounding

    def share(change: Array, line: Line) -> Array:
        return np.where(moving, abs(np.asarray(ratio(change, line.scale))), 0.0)

    gaps = np.max([share(line.gap(rounding), line) for line in lines], axis=0)
    if np.any(gaps):
        return _detached(evaluation, int(np.argmax(gaps)), float(np.max(gaps)))
    offs = np.array([share(line.off(line.length), line) for line in lines])
    for k in np.argsort(-offs.max(axis=0))[:MOST_SEARCHED]:
        line, off = lines[int(np.argmax(offs[:, k]))], float(np.max(offs[:, k]))
        if off > JUMP_WARNS and not line.is_smooth(k) and line.jumps(int(k), rounding):
            return _steps(evaluation, k, off)
    return None


def bends_of(lines: list[Line]) -> Array | None:
    """Second differences over the length of a whole step, (S, K); None without both ends."""
    ends = [line.ends for line in lines if line.ends is not None]
    if len(ends) < len(lines):
        return None
    return np.asarray((np.sum(ends, axis=1) - 2 * lines[0].center) / lines[0].length ** 2)


def derivative_mismatch(
    evaluation: Evaluation, errors: Array, curvature: Curvature
) -> Finding | None:
    """Compare psi with its derivative where no root of the curvature A is known."""
    if not evaluation.is_function:
        return None
    model = evaluation.model
    draw = scaled_draw(model, lambda m, v: m.information(m.theta, v, curvature))
    jacobian = evaluation.jacobian(model.theta)
    return slope_mismatch(lines_of(evaluation, jacobian, errors, draw, whitened=False), errors)


def lines_of(
    evaluation: Evaluation, jacobian: Array, errors: Array, draw: Draw, *, whitened: bool
) -> list[Line]:
    """Evaluate psi at both ends of a few random steps in orthogonal directions.

    Steps that are not whitened are not those of N(0, A^-1). Their scale is the length of the terms
    of ``g' step``.
    """
    d, center = evaluation.model.d, evaluation.center()
    few = d < NEARLY_ORTHOGONAL
    z = _orthogonal(d) if few else np.random.default_rng(2).standard_normal((d, DIRECTIONS))
    length, lines = min(1.0, FARTHEST / float(np.sqrt(d))), []
    for column in z.T:
        step = draw(column)
        scale = errors if whitened else np.linalg.norm(jacobian * step, axis=1)
        line = Line(evaluation, center, step, jacobian @ step, scale, length, None)
        lines.append(replace(line, ends=line.pair(length)))
    return lines


@lru_cache(maxsize=8)
def _orthogonal(d: int) -> Array:
    """A few random directions, (d, k), of length sqrt(d)."""
    z = np.random.default_rng(2).standard_normal((d, min(d, DIRECTIONS)))
    return np.asarray(np.linalg.qr(z)[0] * np.sqrt(d))


def scaled_draw(model: FittedModel, curve: Callable[[FittedModel, Array], Array]) -> Draw:
    """Draw along one random direction, of the length that N(0, A^-1) has along it."""

    def scaled(z: Array) -> Array:
        known = objective_of(model).outer_products
        step = z if known is None else known.units * z
        fall = float(step @ curve(model, step))
        return np.asarray(step * np.sqrt(z @ z / fall)) if fall > 0 else np.zeros_like(step)

    return scaled


def _detached(evaluation: Evaluation, k: int, share: float) -> Finding:
    caution = evaluation.model.facts.precision.caution
    text = f"{caution} " * bool(caution) + (
        f"{_name(evaluation, k)} does not change as its derivative implies: along a random "
        f"direction they differ by {share:.1%} of its standard error. Usual causes: a part of psi "
        "is detached from its argument (`.detach()`, `.item()`, `.numpy()`, `torch.no_grad()`, "
        "`jax.lax.stop_gradient`, `round`, a cast to integers, an argmax, a quantile), its own "
        "derivative is wrong (`custom_jvp`, a custom backward), or it has a kink at the fitted "
        "parameters. Let all of psi depend on its argument by functions that have a derivative, "
        f"or wrap one with steps or many kinks in `Smoothed(psi)`. {GRADIENT_FREE}"
    )
    if share > GAP_REFUSES:
        raise EvaluationError(text)
    return Finding("warn", "derivative", text, number=share, warning=NonlinearityWarning)


def _steps(evaluation: Evaluation, k: int, off: float) -> Finding:
    return Finding(
        "warn",
        "jumps",
        f"{_name(evaluation, k)} jumps near the fitted parameters, and its derivative has no part "
        f"of that: a standard error away they differ by {off:.0%} of the standard error. It has "
        "steps (`round`, a cast to integers, a count, a comparison, an argmax), or a solver with a "
        "loose tolerance in it.",
        number=off,
        remedies=(
            "Use `Smoothed(psi)` or `Simulation()`, which follow steps; of a solver, lower `rtol` "
            "and `atol`.",
        ),
        warning=NonlinearityWarning,
    )


def _name(evaluation: Evaluation, k: int) -> str:
    return evaluation.names[k] if evaluation.size > 1 else "psi"
