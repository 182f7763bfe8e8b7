"""The answer of a page: sentences, a picture, and the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.report import svg
from implicit_delta.estimate.report.checks import Check, mark, verdict_of
from implicit_delta.estimate.report.facts import known_facts
from implicit_delta.estimate.report.sentences import (
    MOST_SENTENCES,
    answer_sentence,
    many_sentence,
    reading,
)
from implicit_delta.estimate.report.text import brief, escaped, interval_of, places, shown, tag
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.scales import scales
from implicit_delta.estimate.tabled import columns_of
from implicit_delta.estimate.tables import percent

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

FEW = 30  # intervals that are drawn one by one
MOST_ROWS = 1000  # of a table
SHOWN = ("estimate", "std_error", "conf_low", "conf_high", "p_value", "null")
MOST_FINER = 3  # decimals beyond those that the standard error asks for


@dataclass(frozen=True)
class Line:
    """The answer for one evaluation: one interval, or its pieces, and the decimals to show."""

    name: str
    value: float
    spans: tuple[tuple[float, float], ...]
    error: float
    places: int
    p_value: float = math.nan

    @property
    def interval(self) -> str:
        """The ends in brackets."""
        return interval_of(self.spans, self.places)

    @property
    def numbers(self) -> list[float]:
        """The value and all ends."""
        return [self.value, *(end for span in self.spans for end in span)]

    @property
    def low(self) -> float:
        """The lowest end."""
        return self.spans[0][0]

    @property
    def high(self) -> float:
        """The highest end."""
        return self.spans[-1][1]

    def shown(self, x: float) -> str:
        """Format a number like the others of the line."""
        return shown(x, self.places)

    def label(self, level: float) -> str:
        """Tell it all in words."""
        value = self.shown(self.value)
        return f"{self.name}: {value}, {percent(level)} interval {self.interval}"


def lines_of(
    estimate: Estimate,
    level: float,
    pieces: Sequence[Interval] = (),
    null: float | None = None,
    transform: Any = None,
) -> tuple[list[Line], float]:
    """Lay out K answers, and the null of their tests, NaN where it differs between them.

    Pieces are those of one evaluation, instead of its normal interval; they have no test.
    """
    columns = columns_of(estimate, level, null=null, transform=transform)
    value, errors, low, high, p_values, nulls = (columns[name] for name in SHOWN)
    spans: list[tuple[tuple[float, float], ...]]
    spans = [((a, b),) for a, b in zip(low, high, strict=True)]
    count = places(errors, value)
    if pieces:
        spans = [tuple((float(a), float(b)) for a, b in pieces)]
        count = [finer(count[0], [value[0], *(end for span in spans[0] for end in span)])]
    tests = [math.nan] if pieces else p_values
    rows = zip(estimate.names, value, spans, errors, count, tests, strict=True)
    return [Line(*row) for row in rows], nulls[0] if len(set(nulls)) == 1 else math.nan


def finer(count: int, numbers: Sequence[float]) -> int:
    """Add decimals where an end, which no standard error made, is much smaller than that."""
    sizes = [abs(x) for x in numbers if np.isfinite(x) and x != 0]
    return min(max([count, *places(sizes, sizes)]), count + MOST_FINER) if sizes else count


def answer(
    lines: Sequence[Line],
    estimate: Estimate,
    level: float,
    checks: list[Check],
    null: float,
    subjects: Sequence[str],
    facts: Mapping[str, str],
) -> list[str]:
    """State the answer in sentences about the subjects, with the facts that it rests on."""
    said = (
        [
            answer_sentence(subject, one.value, one.spans, one.places, level)
            for subject, one in zip(subjects, lines, strict=True)
        ]
        if len(lines) <= MOST_SENTENCES
        else [many_sentence(len(lines), level)]
    )
    worst, verdict = verdict_of(checks)
    return [
        *(tag("p", sentence, class_="answer") for sentence in said),
        tag("p", tag("a", mark(worst), " ", verdict, href="#checks"), class_="verdict"),
        _picture(lines, level, null),
        _facts({**facts, **known_facts(estimate, facts)}),
        tag("p", reading(level, estimate.target), class_="small"),
        tag("details", tag("summary", "Numbers"), *_numbers(lines, level, null)),
    ]


def _facts(known: Mapping[str, str]) -> str:
    pairs = ((escaped(name), escaped(text)) for name, text in known.items() if text)
    return tag("dl", *(tag("dt", name) + tag("dd", text) for name, text in pairs), class_="facts")


def _picture(lines: Sequence[Line], level: float, null: float) -> str:
    if len(lines) == 1:
        return _single(lines[0], level, null)
    return _forest(lines, level, null) if len(lines) <= FEW else _band(lines, level, null)


def _single(one: Line, level: float, null: float) -> str:
    axis = svg.Axis.of(one.numbers, null)
    ends = [end for low, high in one.spans for end in (low, high) if high > low]
    texts = {x: one.shown(x) for x in (one.value, *ends) if np.isfinite(x)}
    drawing = svg.single(axis, one.value, one.spans, texts, one.label(level))
    return tag("figure", drawing, svg.scale(axis), class_="alone")


def _forest(lines: Sequence[Line], level: float, null: float) -> str:
    """Draw one interval per row; evaluations of other sizes get an axis of their own."""
    blocks = []
    for group in scales([one.low for one in lines], [one.high for one in lines]):
        chosen = [lines[k] for k in group]
        axis = svg.Axis.of((x for one in chosen for x in one.numbers), null)
        blocks.append(strips(axis, [_interval_row(axis, one, level) for one in chosen]))
    return tag("figure", *blocks)


def _interval_row(axis: svg.Axis, one: Line, level: float) -> str:
    drawing = svg.strip(axis, one.value, one.spans, one.label(level))
    numbers = f"{tag('b', escaped(one.shown(one.value)))} {escaped(one.interval)}"
    return row(one.name, drawing, numbers)


def strips(axis: svg.Axis, rows: Iterable[str]) -> str:
    """Stack rows above their common axis."""
    below = tag("div", "<span></span>", svg.scale(axis), "<span></span>", class_="row axis")
    return tag("div", *rows, below, class_="strips")


def row(name: str, drawing: str, numbers: str) -> str:
    """Put a name, a drawing and numbers side by side."""
    first, last = tag("span", escaped(name), class_="name"), tag("span", numbers, class_="numbers")
    return tag("div", first, drawing, last, class_="row")


def _band(lines: Sequence[Line], level: float, null: float) -> str:
    value, low, high = (np.array([getattr(one, x) for one in lines]) for x in _ENDS)
    label = (
        f"{len(lines)} estimates in their order with {percent(level)} intervals, from "
        f"{brief(float(low.min()))} to {brief(float(high.max()))}"
    )
    drawing, axis = svg.band(value, low, high, null, label)
    ends = tag("span", escaped(lines[0].name)), tag("span", escaped(lines[-1].name))
    chart = tag("div", _ticks(axis), drawing, class_="chart")
    return tag("figure", chart, tag("figcaption", *ends, class_="ends"))


_ENDS = ("value", "low", "high")


def _ticks(axis: svg.Axis) -> str:
    """Write the numbers beside a band; a hidden copy of the widest makes room for them."""
    ticks = axis.marks()
    widest = max((text for _, text, _ in ticks), key=len, default="")
    placed = (
        tag("span", escaped(text), style=f"top:{100 * (1 - axis.share(tick)):.1f}%")
        for tick, text, _ in ticks
    )
    return tag("div", tag("i", escaped(widest)), *placed, class_="ticks", aria_hidden="true")


def _numbers(lines: Sequence[Line], level: float, null: float) -> tuple[str, ...]:
    """Return a table of all evaluations; of very many, the first ones."""
    tested = not all(math.isnan(one.p_value) for one in lines)
    head = ["", "estimate", "std. error", "low", "high", *(["p-value"] if tested else [])]
    body = [
        [
            escaped(one.name),
            *(one.shown(x) for x in (one.value, one.error, low, high)),
            *([_p_value(one.p_value)] if tested else []),
        ]
        for one in lines[:MOST_ROWS]
        for low, high in one.spans
    ]
    about = f"Low and high: {percent(level)} confidence interval."
    value = "what was given for it" if math.isnan(null) else f"{null:.6g}" if null else "zero"
    about += f" p-value: of the hypothesis that the value is {value}." * tested
    rest = len(lines) - MOST_ROWS
    about += f" {rest:,} more are left out here." * (rest > 0)
    return table(head, body), tag("p", about, class_="small")


def _p_value(p: float) -> str:
    return "-" if np.isnan(p) else "&lt;0.0001" if p < 1e-4 else f"{p:.4f}"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Write a table that scrolls by itself where it is too wide."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    lines = (
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest))
        for first, *rest in body
    )
    inside = tag("table", tag("thead", top), tag("tbody", *lines))
    return tag("div", inside, class_="table", tabindex=0, role="region", aria_label="Numbers")
