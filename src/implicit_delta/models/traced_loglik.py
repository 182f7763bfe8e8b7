"""Exact derivatives of a user's terms, traced through NumPy.

A function (d,) to (n,) that can be traced has the gradient of its weighted sum by one sweep
backward, for a few times its own cost, derivatives of all rows along a direction by one forward,
and the Hessian of the sum by both. A point where tracing fails (an overflow, an edge of the domain)
is differenced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from time import perf_counter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.tracing import History, trace_terms
from implicit_delta.calculus.units import sizes
from implicit_delta.core.arguments import Counter
from implicit_delta.core.cache import LastCache, Recent
from implicit_delta.core.types import Array
from implicit_delta.models.checks import difference

Gradient: TypeAlias = Callable[[Array], Array]

TRACE_FROM = 8  # parameters: with fewer, second differences of the terms are as cheap
STEP = 1e-2  # of the size of a parameter, where no unit is known
SAME = 1e-6  # of the largest row: differences that have settled agree far better
FAR = 0.5  # of the unit: differences over it see kinks
UNCERTAIN = 0.02  # of a derivative: twice that of a standard error
DOUBT = 1e-4  # of the largest row, where units are known: more is noise, a kink or a jump


@dataclass(frozen=True, eq=False)
class TracedScore:
    """Derivatives (n, d) of the terms of a function (d,) to (n,); gradients are remembered."""

    traced: ClassVar[bool] = True
    function: Callable[[Array], Any]
    counter: Counter = field(default_factory=Counter)
    cache: Recent = field(default_factory=Recent)  # gradients: second derivatives take some again
    digests: LastCache = field(default_factory=LastCache)  # of weights

    def without_cache(self) -> "TracedScore":
        """Forget gradients."""
        return TracedScore(self.function, self.counter)

    def __call__(self, theta: Array) -> Array:
        """Differentiate every term."""
        return self.along(theta, np.eye(theta.size))

    def along(self, theta: Array, v: Array) -> Array:
        """Differentiate every term along directions (d,) or (d, k): (n,) or (n, k)."""
        history = self._trace(theta)
        if history is not None:
            with np.errstate(all="ignore"):
                found = history.push(v.reshape(theta.size, -1).T).T
            if np.all(np.isfinite(found)):
                return found.reshape(-1, *v.shape[1:])
        return np.asarray(self._differences(theta) @ v)

    def weighted(self, theta: Array, weights: Array) -> Array:
        """Differentiate the weighted sum of the terms, (d,)."""
        digest = self.digests.get(weights, "digest", lambda: _digest(weights))
        key = np.append(np.asarray(theta), digest)
        return self.cache.get(key, lambda: self._gradient(theta, weights))

    def hessian(self, theta: Array, weights: Array, v: Array) -> Array | None:
        """Multiply the Hessian of the weighted sum of the terms by (d, k); None at an edge."""
        history = self._trace(theta)
        if history is None:
            return None
        with np.errstate(all="ignore"):
            found = history.hessian(weights, v.reshape(theta.size, -1).T).T.reshape(v.shape)
        return found if np.all(np.isfinite(found)) else None

    def _gradient(self, theta: Array, weights: Array) -> Array:
        history = self._trace(theta)
        found = None if history is None else _pulled(history, weights)
        return _weighted(weights, self._differences(theta)) if found is None else found

    def _trace(self, theta: Array) -> History | None:
        started = perf_counter()
        history = trace_terms(self.function, np.asarray(theta))
        self.counter.called(perf_counter() - started)
        return history

    def _differences(self, theta: Array) -> Array:
        def terms(point: Array) -> Array:
            self.counter.count += 1
            return np.array(self.function(point), dtype=np.float64)

        return differentiate(terms, np.array(theta)).value


def can_be_traced(function: Callable[[Array], Any], point: Array, checked: bool) -> bool:
    """Whether terms can be traced and there are enough parameters; checked now, or later."""
    if point.size < TRACE_FROM:
        return False
    return tells_the_truth(function, point) if checked else trace_terms(function, point) is not None


def is_traced(scores: Any) -> bool:
    """Whether derivatives are traced ones, not given by the user."""
    return getattr(scores, "traced", False)


def tells_the_truth(
    function: Callable[[Array], Any], point: Array, units: Array | None = None
) -> bool:
    """Compare a trace with plain calls: the terms, and their differences along one direction.

    In natural units these differences also see kinks, jumps and noise nearby, which leave them
    uncertain; without units an uncertain one does not tell.
    """
    history = trace_terms(function, point)
    if history is None:
        return False
    plain = np.array(function(point.copy()))
    if plain.shape != history.value.shape or difference(plain, history.value):
        return False
    size = STEP * sizes(point) if units is None else units
    step = size * np.random.default_rng(0).choice([-1.0, 1.0], size=point.size)
    try:
        found = differentiate(
            lambda theta: np.array(function(theta), dtype=np.float64),
            point,
            directions=step[:, None],
        )
    except FloatingPointError:
        return units is None
    with np.errstate(all="ignore"):
        exact = history.push(step[None])[0]
    top = float(np.max(abs(found.value), initial=0.0))
    gaps = abs(exact - found.value[:, 0]) - 10 * found.error[:, 0]
    settled = units is None or np.max(found.error) <= DOUBT * top
    return bool(settled and np.all(gaps <= SAME * max(top, float(np.max(abs(exact))))))


def weighted_rows(scores: Callable[[Array], Any], theta: Array, weights: Array) -> Array:
    """Weight the rows of derivatives and add them up, (d,): by one sweep, if they are traced."""
    own = getattr(scores, "weighted", None)
    if own is not None:
        return np.array(own(theta, weights))
    return _weighted(weights, np.array(scores(theta.copy()), dtype=np.float64))


def rows_along(scores: Callable[[Array], Any], theta: Array, v: Array) -> Array:
    """Multiply the rows of derivatives by (d,) or (d, k): by one sweep, if they are traced."""
    own = getattr(scores, "along", None)
    return np.asarray(scores(theta.copy()) @ v if own is None else own(theta, v))


def weighted_hessian(
    scores: Callable[[Array], Any] | None, theta: Array, weights: Array, v: Array
) -> Array | None:
    """Multiply the Hessian of the weighted sum by (d, k), if it is traced; None otherwise."""
    own = getattr(scores, "hessian", None)
    return None if own is None else own(theta, weights, v)


def looks_smooth(gradient: Gradient, x: Array, units: Array, hessian: Array) -> bool:
    """Whether a Hessian tells the change of the gradient over a good part of a unit.

    Kinks nearby, which no derivative at x can see, are part of that change.
    """
    mix = np.random.default_rng(1).choice([-1.0, 1.0], size=x.size) / np.sqrt(x.size)
    told, step = hessian @ (units * mix) * units, units * mix
    coarse, fine = (
        (gradient(x + r * step) - gradient(x - r * step)) * units / (2 * r) for r in (FAR, FAR / 2)
    )
    gap = np.linalg.norm(fine + (fine - coarse) / 3 - told)
    return bool(gap <= UNCERTAIN * np.linalg.norm(told))


def _digest(weights: Array) -> Array:
    """Eight bytes that stand for all weights."""
    return np.frombuffer(blake2b(weights.tobytes(), digest_size=8).digest())


def _pulled(history: History, weights: Array) -> Array | None:
    with np.errstate(all="ignore"):
        gradient = history.pull(weights[None])[0]
    return gradient if np.all(np.isfinite(gradient)) else None


def _weighted(weights: Array, rows: Array) -> Array:
    """Leave out rows of weight zero, whatever they are."""
    rows = rows if np.all(weights) else np.where(weights[:, None] > 0, rows, 0.0)
    return np.asarray(weights @ rows)
