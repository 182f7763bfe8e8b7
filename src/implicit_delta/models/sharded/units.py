"""Unit values that live on shards: a function of the model and of a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.moments import Moments
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.shard import Shard

INSIDE = ("function", "psi", "__self__", "func")  # where wrappers of functions keep these
DEEPEST = 8  # wrappers around a function


@dataclass(frozen=True, eq=False)
class on_shards:
    """Evaluate rows where they live: ``h(model, part)`` for each part of `from_shards`.

    In an `Average` or a `Statistic`, ``Average(on_shards(h), sample="training")``. The values of
    all parts are put one below the other, in the order of the parts; derivatives are added up
    where the rows are.

    Parameters
    ----------
    h : callable
        ``h(model, part)`` returns the value of each row of a part, (m,) or (m, K), in the model's
        own language, as `Average` has it. The part is what `build` is given.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([1.0, 2.0, 4.0, 5.0])
    >>> def build(rows):
    ...     return idm.from_loglik(lambda m: -((y[rows] - m[0]) ** 2) / 2, theta=[3.0])
    >>> model = idm.from_shards(build, [slice(0, 1), slice(1, 4)])
    >>> gap = idm.on_shards(lambda m, rows: y[rows] - m[0] / 2)
    >>> est = idm.infer(model, idm.Average(gap, sample="training"))
    >>> print(f"{est.value:.2f} +- {est.standard_error:.2f}")  # half of that of the mean
    1.50 +- 0.40
    """

    h: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        """Check that it is a function."""
        if not callable(self.h):
            raise TypeError(f"on_shards takes a function h(model, part), not {self.h!r:.60}.")

    @property
    def __name__(self) -> str:
        return getattr(self.h, "__name__", "psi")

    def __call__(self, model: Any) -> Array:
        """Gather the rows of all parts."""
        if not isinstance(model, Everywhere):
            raise TypeError(
                "on_shards(h) is evaluated on the parts of a model of `from_shards`, and this one "
                "has none: give `h` as a function of the model alone."
            )
        return model.rows(self.h)


@dataclass(frozen=True, eq=False)
class Everywhere:
    """The models of all shards at theta, in place of one model."""

    engine: Engine
    theta: Array

    def rows(self, h: Callable[[Any, Any], Any]) -> Array:
        """Evaluate h on every shard, (m,) or (m, K)."""
        found = list(self.engine.each(rows_of, h, self.theta))
        shapes = {own.shape[1:] for own in found}
        if len(shapes) > 1 or any(own.ndim == 0 for own in found):
            raise ValueError(
                "h(model, part) must return one value per row of the part, (m,) or (m, K) with the "
                f"same K for all: it returned shapes {[own.shape for own in found]!s:.80}."
            )
        return np.concatenate(found)


def lives_on_shards(psi: Any) -> on_shards | None:
    """Find the function of rows on shards inside of wrappers, if psi has one."""
    for _ in range(DEEPEST):
        if psi is None or isinstance(psi, on_shards):
            return psi
        psi = next((vars_of(psi)[name] for name in INSIDE if name in vars_of(psi)), None)
    return None


def vars_of(psi: Any) -> dict[str, Any]:
    """Attributes that hold other functions."""
    return {name: getattr(psi, name) for name in INSIDE if hasattr(psi, name)}


@dataclass(frozen=True, eq=False)
class Combined:
    """Combinations, (G, m), of the rows of one part, in the model's own language."""

    h: Callable[[Any, Any], Any]
    part: Any
    coefficients: Array

    def __call__(self, model: Any) -> Any:
        """Evaluate the rows and combine them: (G,) or (G * K,)."""
        rows = self.h(model, self.part)
        rows = np.asarray(rows) if hasattr(rows, "to_numpy") or isinstance(rows, list) else rows
        own = self.coefficients
        return ((rows.new_tensor(own) if hasattr(rows, "new_tensor") else own) @ rows).reshape(-1)


def rows_of(shard: Shard, h: Callable[[Any, Any], Any], theta: Array) -> Array:
    """Evaluate h on the rows of a shard."""
    return np.asarray(shard.model.evaluate(lambda model: unmasked(h(model, shard.part)), theta))


def unmasked(rows: Any) -> Any:
    """Refuse masked entries, which would become numbers silently."""
    if isinstance(rows, np.ma.MaskedArray) and np.ma.getmaskarray(rows).any():
        raise EvaluationError(
            "h(model, part) returned masked entries, which have no value: leave these rows out, or "
            "fill them, `rows.filled(0.0)`."
        )
    return rows


def count_of_rows(shard: Shard, h: Callable[[Any, Any], Any], theta: Array) -> int:
    """Count the rows that h has on a shard."""
    return len(rows_of(shard, h, theta))


def jacobian_of_rows(shard: Shard, h: Callable[[Any, Any], Any], theta: Array) -> Array:
    """Differentiate each row of a shard, (m * K, d)."""
    return shard.model.jacobian(lambda model: h(model, shard.part), theta)


def jacobian_of_sums(
    shard: Shard, coefficients: Array, h: Callable[[Any, Any], Any], theta: Array
) -> Array:
    """Differentiate combinations of the rows of a shard, (G * K, d)."""
    return shard.model.jacobian(Combined(h, shard.part, coefficients), theta)


def jacobian_of_total(shard: Shard, rows: int, h: Callable[[Any, Any], Any], theta: Array) -> Array:
    """Differentiate the sum of so many rows, (K, d)."""
    return jacobian_of_sums(shard, np.ones((1, rows)), h, theta)


def moments_on(shard: Shard, h: Callable[[Any, Any], Any], theta: Array) -> Moments:
    """Sums of the rows of a shard."""
    rows = rows_of(shard, h, theta)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiub":
        raise EvaluationError(
            f"h(model, part) returned shape {rows.shape} of {rows.dtype}, but must return one "
            "value per row, (m,), or (m, K) for K evaluations: not averaged and not summed."
        )
    bad = np.flatnonzero(~np.isfinite(rows[:, None] if rows.ndim == 1 else rows).all(axis=1))
    if bad.size:
        raise EvaluationError(
            f"h is NaN or infinite for row {bad[0]} of the part ({bad.size} of {len(rows)} rows). "
            "Check the evaluation data for missing values."
        )
    return Moments.of(rows.astype(np.float64))
