"""Pictures of a page as inline SVG.

Places along an axis are percentages and heights are pixels, so that a picture fills any width while
its letters and lines keep their size. Colors are classes of the style sheet.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.estimate.report.text import escaped, tag

ROOM = 0.05  # of the range, left free on either side of an axis
NEAR_NULL = 0.6  # of the range: a null that is not farther away is on the axis
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TINY = 5  # letters of a text that has room beside the edge
SHORT, LONG = 7, 12  # letters of a label, of which five, three or two fit on a narrow screen
EDGE = 0.06  # of the width: a long text so close to an edge is flush with it
CLOSE = 0.08  # of the width: a tick so close to the null has no room for its label
MIDDLE = 15.0  # pixels, of a strip
MOST_POINTS = 400  # of a band: more than a screen shows

Spans = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """The range that a picture shows, in which the null is marked if it is there."""

    low: float
    high: float
    null: float = 0.0
    most: int = 5  # ticks

    @classmethod
    def of(cls, numbers: Iterable[float], null: float = 0.0, most: int = 5) -> "Axis":
        """Hold all finite numbers, and the null if it is close; NaN is none."""
        known = [x for x in numbers if math.isfinite(x)] or [0.0]
        low, high = min(known), max(known)
        half = high / 2 - low / 2 or abs(high) / 2 or 0.5  # halves do not overflow
        if null < low and low / 2 - null / 2 <= NEAR_NULL * half:
            low = null
        if null > high and null / 2 - high / 2 <= NEAR_NULL * half:
            high = null
        half = high / 2 - low / 2 or half
        limit = float(np.finfo(np.float64).max)
        ends = max(low - 2 * ROOM * half, -limit), min(high + 2 * ROOM * half, limit)
        return cls(*ends, null, most)

    def share(self, x: float) -> float:
        """Place of a number, from 0 to 1; what lies outside is at the edge."""
        if math.isnan(x):
            return 0.5
        x = min(max(x, self.low), self.high)
        return (x / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def at(self, x: float) -> str:
        """Place of a number as SVG has it."""
        return f"{100 * self.share(x):.2f}%"

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers on the axis with their labels: as many as fit on a narrow screen."""
        for most in range(self.most, 0, -1):
            step = self._step(most)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            ticks = [step * k for k in range(first, min(last, first + most) + 1)]
            labels = [_label(tick, step) for tick in ticks]
            longest = max(map(len, labels), default=0)
            if most <= 2 or longest <= SHORT or (most == 3 and longest <= LONG):
                break
        return list(zip(ticks, labels, strict=True))

    def marks(self) -> list[tuple[float, str, str]]:
        """Places of lines with their labels and kinds: the null, and ticks with room beside it."""
        if not self.low <= self.null <= self.high:
            return [(tick, text, "grid") for tick, text in self.ticks()]
        null = self.share(self.null)
        free = [(x, text) for x, text in self.ticks() if abs(self.share(x) - null) > CLOSE]
        return [*((x, text, "grid") for x, text in free), (self.null, f"{self.null:.6g}", "zero")]

    def _step(self, most: int) -> float:
        raw = min((self.high / 2 - self.low / 2) / most * 2, 1e308)  # which may overflow
        power = 10.0 ** math.floor(math.log10(raw)) if raw > 1e-300 else 1e-300
        return next((s * power for s in STEPS if s * power >= raw), 10 * power)


def _label(tick: float, step: float) -> str:
    if abs(tick) < step / 2:
        return "0"
    if 1e-4 <= abs(tick) < 1e7:
        half = f"{step:.1e}".startswith("2.5")  # steps of 2.5 need one more decimal
        return f"{tick:,.{min(max(0, -math.floor(math.log10(step) + 1e-9) + half), 12)}f}"
    digits, power = f"{tick:.2e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def strip(axis: Axis, value: float, spans: Spans, label: str, tone: str = "") -> str:
    """Draw one interval, or its pieces: a line with its ends, and a dot at the value."""
    shapes = [_grid(axis)]
    for low, high in spans:
        if not math.isnan(low) and not math.isnan(high):
            shapes.append(_line(axis.at(low), MIDDLE, axis.at(high), MIDDLE, "span"))
            shapes += [_end(axis, x) for x in (low, high)]
    if math.isfinite(value):
        shapes.append(tag("circle", class_="dot", cx=axis.at(value), cy=MIDDLE, r=5))
    return picture(shapes, 2 * MIDDLE, label, f"strip {tone}".strip())


def bar(axis: Axis, value: float, label: str) -> str:
    """Draw a bar from zero."""
    left, right = sorted([axis.share(0.0), axis.share(value)])
    rect = _rect(left, right - left, "bar", y=MIDDLE - 6, height=12, rx=2)
    return picture([_grid(axis), rect], 2 * MIDDLE, label, "strip")


def stacked(shares: Sequence[float], label: str) -> str:
    """Draw shares that add to one, side by side."""
    lefts = np.cumsum([0.0, *shares]).tolist()
    parts = zip(lefts, shares, strict=False)
    shapes = [_rect(*part, f"part part{k}", y=0, height=28) for k, part in enumerate(parts)]
    return picture(shapes, 28, label, "stack")


def scale(axis: Axis) -> str:
    """Draw the numbers below strips of one axis."""
    texts = (_text(axis, tick, label) for tick, label, _ in axis.marks())
    return tag("svg", *texts, class_="scale", height=20, aria_hidden="true")


def band(value: Array, low: Array, high: Array, null: float, label: str) -> tuple[str, Axis]:
    """Draw K intervals by index as one band with a line; return its vertical axis, too."""
    value, low, high = _thinned(value, low, high)
    axis = Axis.of([*low, *high], null)
    across = np.linspace(0, 1000, len(value))

    def points(y: Array) -> list[str]:
        heights = (200 * (1 - axis.share(float(one))) for one in y)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(across, heights, strict=True)]

    around = " ".join([*points(high), *points(low)[::-1]])
    heights = [(200 * (1 - axis.share(tick)), kind) for tick, _, kind in axis.marks()]
    shapes = [
        *(_line("0", y, "1000", y, kind) for y, kind in heights),
        tag("polygon", class_="band", points=around),
        tag("polyline", class_="curve", points=" ".join(points(value))),
    ]
    inner = tag("svg", *shapes, viewBox="0 0 1000 200", preserveAspectRatio="none")
    return picture([inner], 200, label, "wide"), axis


def _thinned(value: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Take neighbors together where there are more points than a screen shows."""
    groups = np.array_split(np.arange(len(value)), min(len(value), MOST_POINTS))
    starts = [int(group[0]) for group in groups]
    middle = np.array([np.sum(value[group] / len(group)) for group in groups])
    return middle, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def picture(shapes: Iterable[str], height: float, label: str, kind: str) -> str:
    """Wrap shapes, with a title for those who do not see them."""
    alternative = {"role": "img", "aria_label": label}
    title = tag("title", escaped(label))
    return tag("svg", title, *shapes, class_=kind, height=f"{height:g}", **alternative)


def _grid(axis: Axis) -> str:
    """Draw the ticks of an axis through a strip."""
    places = ((axis.at(tick), kind) for tick, _, kind in axis.marks())
    return "".join(_line(x, 0, x, 2 * MIDDLE, kind) for x, kind in places)


def _text(axis: Axis, x: float, text: str) -> str:
    share = axis.share(x) if len(text) > TINY else 0.5
    anchor = "start" if share < EDGE else "end" if share > 1 - EDGE else "middle"
    return tag("text", escaped(text), class_="tick", x=axis.at(x), y=15, text_anchor=anchor)


def _rect(left: float, width: float, kind: str, **place: float) -> str:
    across = {"x": f"{100 * left:.2f}%", "width": f"{100 * width:.2f}%"}
    return tag("rect", class_=kind, **across, **place)


def _line(x1: str, y1: float, x2: str, y2: float, kind: str) -> str:
    return tag("line", class_=kind, x1=x1, y1=f"{y1:g}", x2=x2, y2=f"{y2:g}")


def _end(axis: Axis, x: float) -> str:
    """Close an interval with a cap, or leave it open with an arrow where it has no end."""
    if math.isfinite(x):
        return _line(axis.at(x), MIDDLE - 6, axis.at(x), MIDDLE + 6, "cap")
    place, turn = ("100%", "-8,-5 0,0 -8,5") if x > 0 else ("0%", "8,-5 0,0 8,5")
    return tag("svg", tag("polyline", class_="cap", points=turn), class_="open", x=place, y=MIDDLE)
