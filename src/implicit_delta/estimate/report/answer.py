"""The answer of a page: sentences, a picture, and the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from implicit_delta.estimate.report import svg
from implicit_delta.estimate.report.checks import Check, clusters_of, mark, verdict_of
from implicit_delta.estimate.report.text import (
    brief,
    escaped,
    finer,
    interval_of,
    listed,
    one_line,
    places,
    shown,
    tag,
)
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.scales import scales
from implicit_delta.estimate.tabled import columns_of
from implicit_delta.estimate.tables import percent

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

FEW = 30  # intervals that are drawn one by one
MOST_ROWS = 1000  # of a table
MOST_SENTENCES = 3  # beyond, a table says it better
TRUTH = "what this model would give with unlimited data of this kind"
OF_MODEL = "of the model (assumes that it is right and that rows are independent)"
REFITS = "between refits to rows drawn anew (assumes that rows are independent)"
BY_CLUSTERS = "between refits to whole clusters drawn anew"
GIVEN = "from a covariance of the parameters that was given"
BY_MODEL = (
    "Infinitesimal", "FiniteDifference", "StochasticFiniteDifference", "Simulation", "profile",
)  # fmt: skip


class Line(NamedTuple):
    """The answer for one evaluation: one interval, or its pieces, and the decimals to show."""

    name: str
    value: float
    error: float
    spans: tuple[tuple[float, float], ...]
    places: int
    p_value: float = math.nan

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest end."""
        return self.spans[0][0], self.spans[-1][1]

    def shown(self, x: float) -> str:
        """Format a number like the others of the line."""
        return shown(x, self.places)


def lines_of(
    estimate: Estimate, level: float, pieces: Sequence[Interval], null: Any, transform: Any
) -> tuple[list[Line], float]:
    """Lay out K answers, and the null of their tests, NaN where it differs between them.

    Pieces are those of one evaluation, instead of its normal interval; they have no test.
    """
    columns = columns_of(estimate, level, null=null, transform=transform)
    counts = places(columns["std_error"], columns["estimate"])
    ends = zip(columns["conf_low"], columns["conf_high"], strict=True)
    spans, tests = [(pair,) for pair in ends], columns["p_value"]
    if pieces:
        spans = [tuple((float(a), float(b)) for a, b in pieces)]  # type: ignore[list-item]
        counts = [finer(counts[0], [columns["estimate"][0], *np.ravel(spans)])]
        tests = [math.nan]
    rows = zip(
        estimate.names, columns["estimate"], columns["std_error"], spans, counts, tests, strict=True
    )
    nulls = set(columns["null"])
    return [Line(*row) for row in rows], nulls.pop() if len(nulls) == 1 else math.nan


def question_of(names: Sequence[str]) -> str:
    """Ask for the evaluations by name."""
    if len(names) > MOST_SENTENCES:
        return f"How large are {len(names)} quantities, and how sure is that?"
    verb = "is" if len(names) == 1 else "are"
    return f"How large {verb} {listed([one_line(name) for name in names])}, and how sure is that?"


def answer(
    lines: Sequence[Line],
    estimate: Estimate,
    level: float,
    null: float,
    subjects: Sequence[str],
    checks: Sequence[Check],
    facts: Mapping[str, str],
) -> Iterator[str]:
    """State the answer in sentences about the subjects, with the facts that it rests on."""
    if len(lines) <= MOST_SENTENCES:
        for subject, line in zip(subjects, lines, strict=True):
            yield _sentence(subject, line, level)
    else:
        yield tag("p", _many(len(lines), level), class_="answer")
    worst, verdict = verdict_of(checks)
    yield tag("p", tag("a", mark(worst), " ", verdict, href="#checks"), class_="verdict")
    yield _forest(lines, level, null) if len(lines) <= FEW else _band(lines, level, null)
    yield definitions({**facts, **_known_facts(estimate, facts)}, "facts")
    target = escaped(estimate.target or TRUTH)
    reading = (
        f"A {percent(level)} confidence interval comes from a procedure that covers its target in "
        f"{percent(level)} of repetitions, if the assumptions behind it hold. The target here: "
        f"{target}."
    )
    yield tag("p", reading, class_="small")
    yield tag("details", tag("summary", "Numbers"), *_numbers(lines, level, null))


def definitions(entries: Mapping[str, str], kind: str = "") -> str:
    """List names with their texts, without those that are empty."""
    pairs = (
        tag("dt", escaped(name)) + tag("dd", escaped(text))
        for name, text in entries.items()
        if text
    )
    return tag("dl", *pairs, class_=kind)


def strips(axis: svg.Axis, rows: Iterable[str]) -> str:
    """Stack rows above their common axis."""
    below = tag("div", "<span></span>", svg.scale(axis), "<span></span>", class_="row axis")
    return tag("div", *rows, below, class_="strips")


def row(name: str, drawing: str, numbers: str) -> str:
    """Put a name, a drawing and numbers side by side."""
    first, last = tag("span", escaped(name), class_="name"), tag("span", numbers, class_="numbers")
    return tag("div", first, drawing, last, class_="row")


def _sentence(subject: str, line: Line, level: float) -> str:
    """State the answer for one evaluation; without a subject it is that of the heading."""
    opening = f"<b>{escaped(subject)}</b> is" if subject else "This is"
    opening += f" estimated at {_number(line, line.value)}"
    if not any(high > low for low, high in line.spans):
        return tag("p", f"{opening}, without any error.", class_="answer")
    span = ", or with ".join(_range(line, low, high) for low, high in line.spans)
    text = f"{opening}; the data are compatible with {span} ({percent(level)} confidence)."
    return tag("p", text, class_="answer")


def _range(line: Line, low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "any value"
    if math.isinf(high):
        return f"{_number(line, low)} and anything above"
    if math.isinf(low):
        return f"{_number(line, high)} and anything below"
    return f"{_number(line, low)} to {_number(line, high)}"


def _number(line: Line, x: float) -> str:
    return tag("span", line.shown(x), class_="number")


def _many(count: int, level: float) -> str:
    return (
        f"{count:,} quantities were estimated, each with a {percent(level)} confidence interval. "
        f"Each interval alone misses in {100 * (1 - level):.4g}% of repetitions; that at least one "
        f"of the {count:,} misses is more likely."
    )


def _forest(lines: Sequence[Line], level: float, null: float) -> str:
    """Draw one interval per row; evaluations of other sizes get an axis of their own."""
    blocks = []
    for group in scales(*zip(*(line.ends for line in lines), strict=True)):
        chosen = [lines[k] for k in group]
        axis = svg.Axis.of((x for one in chosen for x in (one.value, *np.ravel(one.spans))), null)
        blocks.append(strips(axis, [_forest_row(axis, line, level) for line in chosen]))
    return tag("figure", *blocks)


def _forest_row(axis: svg.Axis, line: Line, level: float) -> str:
    value, interval = line.shown(line.value), interval_of(line.spans, line.places)
    label = f"{line.name}: {value}, {percent(level)} interval {interval}"
    drawing = svg.strip(axis, line.value, line.spans, label)
    return row(line.name, drawing, f"{tag('b', escaped(value))} {escaped(interval)}")


def _band(lines: Sequence[Line], level: float, null: float) -> str:
    value, low, high = np.array([(line.value, *line.ends) for line in lines]).T
    label = (
        f"{len(lines)} estimates in their order with {percent(level)} intervals, from "
        f"{brief(float(low.min()))} to {brief(float(high.max()))}"
    )
    drawing, axis = svg.band(value, low, high, null, label)
    ends = (tag("span", escaped(lines[k].name)) for k in (0, -1))
    chart = tag("div", _ticks(axis), drawing, class_="chart")
    return tag("figure", chart, tag("figcaption", *ends, class_="ends"))


def _ticks(axis: svg.Axis) -> str:
    """Write the numbers beside a band; a hidden copy of the widest makes room for them."""
    ticks = axis.marks()
    widest = max((text for _, text, _ in ticks), key=len, default="")
    placed = (
        tag("span", escaped(text), style=f"top:{100 * (1 - axis.share(tick)):.1f}%")
        for tick, text, _ in ticks
    )
    return tag("div", tag("i", escaped(widest)), *placed, class_="ticks", aria_hidden="true")


def _numbers(lines: Sequence[Line], level: float, null: float) -> Iterator[str]:
    """Write a table of all evaluations, of very many the first ones; it scrolls if too wide."""
    tested = not all(math.isnan(line.p_value) for line in lines)
    names = ["", "estimate", "std. error", "low", "high", *["p-value"] * tested]
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    body = []
    for line in lines[:MOST_ROWS]:
        for ends in line.spans:
            cells = [line.shown(x) for x in (line.value, line.error, *ends)]
            cells += [_p_value(line.p_value)] * tested
            name = tag("th", escaped(line.name), scope="row")
            body.append(tag("tr", name, *(tag("td", escaped(cell)) for cell in cells)))
    inside = tag("table", tag("thead", head), tag("tbody", *body))
    yield tag("div", inside, class_="table", tabindex=0, role="region", aria_label="Numbers")
    value = "what was given for it" if math.isnan(null) else f"{null:.6g}" if null else "zero"
    rest = len(lines) - MOST_ROWS
    about = f"Low and high: {percent(level)} confidence interval."
    about += f" p-value: of the hypothesis that the value is {value}." * tested
    yield tag("p", about + f" {rest:,} more are left out here." * (rest > 0), class_="small")


def _p_value(p: float) -> str:
    return "-" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def _known_facts(estimate: Estimate, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variance, and the number of rows if nothing is given about the data."""
    rows = {} if estimate.rows is None or "Data" in given else {"Rows": f"{estimate.rows.n:,}"}
    return {"Variance": _variance(estimate), **rows}


def _variance(estimate: Estimate) -> str:
    """Describe the variance; an estimate that was made by hand does not know it."""
    noted, method = str(estimate.diagnostics.notes.get("variance", "")), estimate.method
    if noted:
        return GIVEN if noted == "covariance=" else noted
    name = method.partition("(")[0].lower()
    if name in map(str.lower, BY_MODEL) or "kind='parametric'" in method:
        return OF_MODEL
    if name == "bootstrap":
        return BY_CLUSTERS if clusters_of(estimate) else REFITS
    return ""
