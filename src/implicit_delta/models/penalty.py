"""Penalty of an objective: ridges, and functions of the parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import squared_length
from implicit_delta.models.constraints import Chart

if TYPE_CHECKING:
    from implicit_delta.models.parametrization import Parametrization

EARLY_STOP = "training that stopped early"


@dataclass(frozen=True, eq=False)
class Ridge:
    r"""Half of the sum of :math:`s_j (b_j - c_j)^2`, with b the parameters or ``basis @ theta``.

    Attributes
    ----------
    strength : float or (D,) array
        Not negative.
    center : float or (D,) array
        Where it is zero: the start, for a training that stopped early.
    name : str
        Where it comes from, for messages, if a user may not know of it.
    basis : (D, d) sparse array, optional
        Coefficients of a host library that has more of them than there are parameters.
    """

    strength: float | Array
    center: float | Array = 0.0
    name: str = ""
    basis: Any = None

    def value(self, theta: Array) -> float:
        away = self._away(theta)
        if np.ndim(self.strength) == 0:
            return float(self.strength) / 2 * squared_length(away)
        return float(np.sum(self.strength * away**2)) / 2

    def score(self, theta: Array) -> Array:
        return self._pull(self.strength * self._away(theta))

    def curvature(self, theta: Array, v: Array) -> Array:
        return self._pull((self.strength * (v if self.basis is None else self.basis @ v).T).T)

    def rows(self, theta: Array) -> tuple[Array, Array]:
        """Values whose squares are twice the penalty, (D,), and their slopes, (D, d)."""
        away = self._away(theta)
        root = np.broadcast_to(np.sqrt(self.strength), away.shape)
        basis = np.eye(theta.size) if self.basis is None else self.basis.toarray()
        return root * away, root[:, None] * basis

    def noise(self, rng: np.random.Generator, d: int, count: int) -> Array:
        """Draw vectors with the Hessian as covariance, (d, count)."""
        drawn = rng.standard_normal((d if self.basis is None else self.basis.shape[0], count))
        return self._pull((np.sqrt(self.strength) * drawn.T).T)

    def _away(self, theta: Array) -> Array:
        moved = theta if self.basis is None else self.basis @ theta
        centered = np.ndim(self.center) == 0 and self.center == 0
        return np.asarray(moved if centered else moved - self.center)

    def _pull(self, slope: Array) -> Array:
        return np.asarray(slope if self.basis is None else self.basis.T @ slope)


class PenaltyFunction(Protocol):
    """A penalty that a user has written, or a host library: with its derivatives."""

    @property
    def name(self) -> str: ...
    def value(self, theta: Array) -> float: ...
    def score(self, theta: Array) -> Array: ...
    def curvature(self, theta: Array, v: Array) -> Array: ...


@runtime_checkable
class DifferencedPenalty(Protocol):
    """A penalty function with derivatives by differences, in the units of a model."""

    def of_model(self, model: Any) -> PenaltyFunction:
        """Take the units of this model."""


@dataclass(frozen=True, eq=False)
class Penalty:
    """Ridges and functions that the objective subtracts from the log-likelihood; none by default.

    Attributes
    ----------
    ridges : tuple of Ridge
    functions : tuple of PenaltyFunction
    by_rows : bool
        Whether it grows with the rows, as beside a mean loss: those of parts of the data add up.
    """

    ridges: tuple[Ridge, ...] = ()
    functions: tuple[PenaltyFunction, ...] = ()
    by_rows: bool = False

    def __bool__(self) -> bool:
        return bool(self.functions) or any(np.any(ridge.strength) for ridge in self.ridges)

    def is_same(self, other: "Penalty") -> bool:
        """Whether it has the same parts, of whatever model."""
        pairs = zip(self.parts, other.parts, strict=False)
        same = all(getattr(a, "function", a) is getattr(b, "function", b) for a, b in pairs)
        return self is other or (same and len(self.parts) == len(other.parts))

    @property
    def floor(self) -> float:
        """Lower bound of the curvature along any direction, as far as ridges tell."""
        known = (np.asarray(ridge.strength) for ridge in self.ridges if ridge.basis is None)
        return float(np.min(sum(known, np.zeros(()))))

    @property
    def parts(self) -> tuple[Ridge | PenaltyFunction, ...]:
        """Ridges and functions."""
        return (*self.ridges, *self.functions)

    @property
    def early_stop(self) -> Ridge | None:
        """The ridge that stands for the steps which a training that stopped early did not take."""
        return next((ridge for ridge in self.ridges if ridge.name == EARLY_STOP), None)

    @property
    def given(self) -> "Penalty":
        """The penalty of the training itself: without the ridge of an early stop."""
        return replace(self, ridges=tuple(r for r in self.ridges if r.name != EARLY_STOP))

    def stopped_early(self, strength: float, start: Array | None) -> "Penalty":
        """Add the ridge of an early stop, around the start of the training or zero."""
        ridge = Ridge(float(strength), 0.0 if start is None else start, EARLY_STOP)
        return replace(self, ridges=(*self.given.ridges, ridge))

    def of_model(self, model: Any) -> "Penalty":
        """Differentiate functions of a user in the units of a model."""
        if not self.functions:
            return self
        own = (
            f.of_model(model) if isinstance(f, DifferencedPenalty) else f for f in self.functions
        )
        return replace(self, functions=tuple(own))

    def value(self, theta: Array) -> float:
        return sum(part.value(theta) for part in self.parts)

    def score(self, theta: Array) -> Array:
        """Gradient, (d,): what `FittedModel.score` subtracts."""
        return self._sum(lambda part: part.score(theta), theta)

    def curvature(self, theta: Array, v: Array) -> Array:
        """Hessian times v, (d,) or (d, k)."""
        return self._sum(lambda part: part.curvature(theta, v), v)

    def along(self, chart: Chart) -> "Penalty":
        """The same in the coordinates of a chart: a ridge stays one where these are all that vary.

        What it is for parameters that are held is a constant, and left out.
        """
        ridges = tuple(_taken(ridge, chart) for ridge in self.ridges) if chart.fixes else ()
        rest = replace(self, ridges=() if chart.fixes else self.ridges)
        return replace(self, ridges=ridges, functions=(InChart(rest, chart),) if rest else ())

    def _sum(self, ask: Callable[[Ridge | PenaltyFunction], Array], like: Array) -> Array:
        found = [ask(part) for part in self.parts]
        return np.asarray(sum(found[1:], found[0])) if found else np.zeros_like(like)


NO_PENALTY = Penalty()


@dataclass(frozen=True, eq=False)
class InChart:
    """A penalty in the coordinates of a chart."""

    penalty: Penalty
    chart: "Parametrization"

    @property
    def name(self) -> str:
        return names_of(self.penalty.parts)

    def value(self, z: Array) -> float:
        return self.penalty.value(self.chart.point(z))

    def score(self, z: Array) -> Array:
        theta = self.chart.point(z)
        return self.chart.pull(theta, self.penalty.score(theta))

    def curvature(self, z: Array, v: Array) -> Array:
        """Apply the chain rule; how the slope of the chart changes is found by differences."""
        theta = self.chart.point(z)
        curved = self.penalty.curvature(theta, self.chart.push(theta, v))
        own = self.chart.pull(theta, curved)
        if self.chart.linear:
            return own
        return own + self.chart.second_order(self.penalty.score(theta), z, v)


def names_of(parts: Sequence[Ridge | PenaltyFunction]) -> str:
    """Join the names of parts that have one."""
    return ", ".join(part.name for part in parts if part.name)


def _taken(ridge: Ridge, chart: Chart) -> Ridge:
    """Leave out parameters that a chart holds."""
    if ridge.basis is not None:
        center = ridge.center - ridge.basis @ chart.point(np.zeros(chart.size))
        return replace(ridge, center=center, basis=ridge.basis[:, chart.free])
    strength, center = (
        x if np.ndim(x) == 0 else np.asarray(x)[chart.free] for x in (ridge.strength, ridge.center)
    )
    return replace(ridge, strength=strength, center=center)
