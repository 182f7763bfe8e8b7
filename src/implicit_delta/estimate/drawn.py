"""Numbers of a picture: values, ends and the null on the scale that is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.estimate.checks import real_numbers
from implicit_delta.estimate.intervals import on_log_scale
from implicit_delta.estimate.tables import decimals, number
from implicit_delta.estimate.transforms import IDENTITY, Shown

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

SHOWN = ("exp", "expit")  # scales that are shown; other transforms are those of the interval


class Drawn(NamedTuple):
    """K intervals as they are drawn.

    Attributes
    ----------
    value, low, high : (K,) arrays
    sizes : (low, high) pair of (K,) arrays
        The ends on the scale of the axis, by which evaluations share one: logarithms on a log axis.
    null : float
        Where "no effect" is on this scale.
    logarithmic : bool
        Whether the axis is to be: exponentials on both sides of 1 then weigh the same.
    """

    value: Array
    low: Array
    high: Array
    sizes: tuple[Array, Array]
    null: float
    logarithmic: bool

    def take(self, places: Any) -> Drawn:
        """Choose some of the evaluations, in this order."""
        low, high = self.sizes
        return self._replace(
            value=self.value[places],
            low=self.low[places],
            high=self.high[places],
            sizes=(low[places], high[places]),
        )

    def texts(self) -> list[str]:
        """Write each as value [low, high], with two digits of the width of a side at least."""
        half = (self.high - self.low) / 2
        if self.logarithmic:  # the shorter side is as long as the low end, which needs digits too
            half = np.minimum(self.high - self.value, self.value - self.low)
        places = [p - 2 if p < 0 else max(p - 2, 0) for p in decimals(half, self.value)]
        rows = zip(places, self.value, self.low, self.high, strict=True)
        return [f"{number(x, p)} [{number(a, p)}, {number(b, p)}]" for p, x, a, b in rows]


def drawn(
    estimate: Estimate, level: float, simultaneous: bool, transform: Any, null: float | None = None
) -> Drawn:
    """Find the intervals that a picture shows.

    ``"log"``, ``"logit"``, ``"identity"`` and pairs of functions are the scale on which the
    interval is made, as in `Estimate.confidence_interval`; ``"exp"`` and ``"expit"`` show the
    estimate of a logarithm or a logit as what it is the logarithm or logit of, as in
    `Estimate.to_dict`.
    """
    shown = Shown(transform if _is_shown(transform) else None)
    scale = IDENTITY if _is_shown(transform) else transform
    ratios = bool(on_log_scale(estimate).all()) and not _is_shown(transform)
    ends = estimate.confidence_interval(level, simultaneous=simultaneous, transform=scale)
    low, high = map(np.atleast_1d, ends)
    columns = {"estimate": np.atleast_1d(estimate.value), "std_error": np.zeros(len(low))}
    columns = shown({**columns, "conf_low": low, "conf_high": high})
    value, *both = (columns[name] for name in ("estimate", "conf_low", "conf_high"))
    _check_finite(np.column_stack([value, *both]), estimate.names, transform)
    exponentials = _is_shown(transform) and transform == "exp"
    sizes = (low, high) if exponentials else (both[0], both[1])
    logarithmic = exponentials or (ratios and transform is None)
    if logarithmic and not exponentials:
        sizes = (np.log(low), np.log(high))
    line = _checked_null(null, 1.0 if ratios else shown.null, logarithmic)
    return Drawn(value, both[0], both[1], sizes, line, logarithmic)


def _is_shown(transform: Any) -> bool:
    return isinstance(transform, str) and transform in SHOWN


def _checked_null(null: Any, usual: float, logarithmic: bool) -> float:
    given = real_numbers("null", usual if null is None else null)
    if given.shape != () or not np.isfinite(given) or (logarithmic and given <= 0):
        raise ValueError(
            f"null is one number on the scale that is drawn{', above 0' * logarithmic}, where a "
            f"line marks it, not {null!r:.60}"
        )
    return float(given)


def _check_finite(numbers: Array, names: tuple[str, ...], transform: Any) -> None:
    good = np.all(np.isfinite(numbers), axis=1)
    if transform == "exp":
        good &= np.all(numbers > 0, axis=1)
    if not good.all():
        raise ValueError(
            f"{names[int(np.argmin(good))]!r} is too large or too small to be drawn with "
            f"transform={transform!r:.40}. Is it a logarithm? Draw it without transform, or leave "
            "it out: `est[[...]].plot(...)`."
        )
