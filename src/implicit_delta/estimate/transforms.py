"""Intervals built on another scale, so that they stay inside the range of the value."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from implicit_delta.core.types import Array

Transform: TypeAlias = str | tuple[Callable[[Any], Any], Callable[[Any], Any]]


IDENTITY: Literal["identity"] = "identity"  # the value itself, of a ratio too
PLACES = 17  # between the ends of an interval, where the inverse is watched


class _Scale(NamedTuple):
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]
    domain: str


_SCALES = {
    "log": _Scale(np.log, np.exp, lambda value, _: 1 / value, "above 0"),
    "logit": _Scale(
        logit, expit, lambda value, _: 1 / (value * (1 - value)), "strictly between 0 and 1"
    ),
}


def gaps(
    value: Array, nulls: Array, logs: NDArray[np.bool_], names: tuple[str, ...]
) -> tuple[Array, Array]:
    """Distances from hypotheses, (K,), on the log scale or on that of the value; and its slopes."""
    low = logs & (nulls <= 0)
    if np.any(low):
        k = int(np.argmax(low))
        raise ValueError(
            f"{names[k]!r} is a ratio, tested on the log scale, where null has to be above 0, and "
            f"is {nulls[k]:.6g}: no effect is 1. For the test of the value itself give "
            '`test(null, transform="identity")`.'
        )
    positive, ones = np.where(logs, value, 1.0), np.where(logs, nulls, 1.0)
    return np.where(logs, np.log(positive / ones), value - nulls), 1 / positive


class Shown:
    """Show an estimate through an increasing function: exponentials, or probabilities."""

    def __init__(self, transform: str | None) -> None:
        shown = {None: None, IDENTITY: None, "exp": "log", "expit": "logit"}
        if transform not in shown:
            raise ValueError(f"transform is 'identity', 'exp', 'expit' or None, not {transform!r}")
        name = shown[transform]
        self.scale = None if name is None else _SCALES[name]

    @property
    def null(self) -> float:
        """Where zero is shown."""
        return 0.0 if self.scale is None else float(self.scale.inverse(np.zeros(1))[0])

    def back(self, nulls: Array) -> Array:
        """Bring hypotheses about what is shown to the scale of the estimate."""
        if self.scale is None:
            return nulls
        with np.errstate(all="ignore"):
            found = self.scale.forward(nulls)
        if not np.isfinite(found).all():
            raise ValueError(f"null has to be {self.scale.domain} on the scale that is shown")
        return found

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Transform the columns of a table that are on the scale of the estimate."""
        if self.scale is None:
            return columns
        with np.errstate(all="ignore"):
            shown = {name: self.scale.inverse(columns[name]) for name in ("conf_low", "conf_high")}
            value = self.scale.inverse(columns["estimate"])
            error = columns["std_error"] / self.scale.slope(np.asarray(value), np.zeros(1))
        return {**columns, **shown, "estimate": value, "std_error": error}


def ends_on_scale(
    transform: Transform,
    value: Array,
    error: Array,
    critical: float | Array,
    names: tuple[str, ...],
) -> tuple[Array, Array]:
    """Build the interval on the scale of a transform and map it back, (K,) and (K,)."""
    scale = _scale(transform)
    with np.errstate(all="ignore"):
        center, slope = scale.forward(value), scale.slope(value, error)
        usable = np.isfinite(center) & np.isfinite(slope) & (slope != 0)
        if not usable.all():
            k = int(np.argmin(usable))
            raise ValueError(
                f"The transform needs values {scale.domain}, but {names[k]!r} is "
                f"{value[k]:.6g}. Choose another transform, or none."
            )
        half = critical * np.abs(slope) * error
        ends = scale.inverse(center - half), scale.inverse(center + half)
        if not isinstance(transform, str):
            _check_round_trip(scale, center, half, names)
            _check_one_way(scale, center, half, names)
    return np.minimum(*ends), np.maximum(*ends)


def on_scale(transform: Transform, value: Array, error: Array) -> tuple[Array, Array]:
    """Return values and their first-order errors on the scale of a transform, (K,) each."""
    scale = _scale(transform)
    with np.errstate(all="ignore"):
        return scale.forward(value), np.abs(scale.slope(value, error)) * error


def _scale(transform: Any) -> _Scale:
    if isinstance(transform, str) and transform in _SCALES:
        return _SCALES[transform]
    if not (isinstance(transform, tuple | list) and [*map(callable, transform)] == [True, True]):
        raise ValueError(
            f"transform is one of {', '.join(map(repr, [IDENTITY, *_SCALES]))} or a pair of "
            f"functions (forward, inverse), not {transform!r}"
        )
    forward, inverse = map(_one_at_a_time, transform)
    return _Scale(
        forward,
        inverse,
        lambda value, error: _slopes(forward, value, error),
        "inside the domain of forward, where it is not flat",
    )


def _one_at_a_time(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Apply a function of one number, from math or NumPy alike, with NaN where it is undefined."""

    def apply(x: float) -> float:
        try:
            return float(function(x))
        except (ValueError, ArithmeticError):
            return math.nan
        except TypeError as error:
            raise ValueError(f"transform takes functions of one number to one: {error}") from error

    return lambda numbers: np.array([apply(x) for x in numbers])


def _check_round_trip(scale: _Scale, center: Array, half: Array, names: tuple[str, ...]) -> None:
    """Refuse functions that do not undo each other at the value and at both ends.

    A tenth of the half-width is granted at the ends, where forward is ill-conditioned near the
    edge of its domain (arctanh near 1) and infinite on it.
    """
    for point, share in ((center, 1e-6), (center - half, 0.1), (center + half, 0.1)):
        mapped = scale.inverse(point)
        back = scale.forward(mapped)
        size = share * half + 1e-6 * np.abs(point)
        near = np.abs(back - point) <= np.where(size > 0, size, 1e-12)  # zero has no size
        good = ~np.isnan(mapped) & (near | ~np.isfinite(back))
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(
                f"forward and inverse do not undo each other for {names[k]!r}: {point[k]:.6g} on "
                f"the transformed scale comes back as {back[k]:.6g}. Either they are not a pair, "
                "or the interval leaves the range of forward; take a forward onto the whole line."
            )


def _check_one_way(scale: _Scale, center: Array, half: Array, names: tuple[str, ...]) -> None:
    """Refuse an inverse that turns or jumps over a pole between the ends, such as that of 1 / x."""
    path = np.array([scale.inverse(center + t * half) for t in np.linspace(-1, 1, PLACES)])
    slack = 1e-9 * np.max(np.where(np.isfinite(path), np.abs(path), 0.0), axis=0)
    steps = np.diff(path, axis=0)
    good = ~np.any(steps < -slack, axis=0) | ~np.any(steps > slack, axis=0)
    if not good.all():
        raise ValueError(
            f"inverse is not monotone between the ends for {names[int(np.argmin(good))]!r}, so its "
            "interval is not what lies between them. Usual cause: a pole, as of 1 / x at 0, "
            "within the interval. Choose another transform, or none."
        )


def _slopes(forward: Callable[[Array], Array], value: Array, error: Array) -> Array:
    """Differentiate by Ridders' method: central differences, extrapolated, the most stable kept.

    The step starts wide and is halved, so that a value close to the edge of the domain is
    reached too; differences that rounding could have made are not looked at.
    """
    step = np.maximum(np.abs(value) / 4, error)
    step[step == 0] = 1.0
    best, doubt = np.full_like(value, np.nan), np.full_like(value, np.inf)
    previous: list[Array] = []
    for _ in range(40):
        up, down = forward(value + step), forward(value - step)
        trusted = np.abs(up - down) > 1e-8 * np.maximum(np.abs(up), np.abs(down))
        row = [np.where(trusted, (up - down) / ((value + step) - (value - step)), np.nan)]
        for order, old in enumerate(previous[:6], start=1):
            row.append(row[-1] + (row[-1] - old) / (4**order - 1))
            gap = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - old))
            best, doubt = np.where(gap < doubt, row[-1], best), np.fmin(gap, doubt)
        previous, step = row, step / 2
    return best
