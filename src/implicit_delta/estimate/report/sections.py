"""Sections of a page, each a string of HTML."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.estimate.quantiles import deviations
from implicit_delta.estimate.report import svg
from implicit_delta.estimate.report.opinions import Opinion
from implicit_delta.estimate.report.sentences import (
    MOST_SENTENCES,
    answer_sentence,
    many_sentence,
    reading,
)
from implicit_delta.estimate.report.text import brief, escaped, interval_of, listed, places, shown
from implicit_delta.estimate.report.verdicts import (
    SIGNS,
    WORDS,
    Check,
    Level,
    settings_of,
    verdict_of,
)
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.rows import LARGEST_NUMBER
from implicit_delta.estimate.scales import scales
from implicit_delta.estimate.tables import percent

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

FEW = 30  # intervals that are drawn one by one
MOST_ROWS = 1000  # of a table
MOST_BARS = 12  # budgets and second opinions that are drawn one by one
TOP = 10  # rows by influence
LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "sklearn", "torch", "jax")

SOURCES = {
    "model": "the parameters were estimated",
    "evaluation": "the evaluation rows are a sample",
    "rows": "the rows behind both fit and evaluation are a sample",
    "noise": "psi itself is random",
    "training": "the training wobbles over its last steps",
    "initialization": "another start of the training ends elsewhere",
}


def header(heading: str, lead: str) -> str:
    """Open the page with its question."""
    below = f'<p class="lead">{escaped(lead)}</p>' if lead else ""
    return f'<header><p class="kicker">Estimate with its error</p><h1>{escaped(heading)}</h1>{below}</header>'


@dataclass(frozen=True)
class Answer:
    """Names, values and ends of intervals, with the decimals to show."""

    names: tuple[str, ...]
    value: Array
    low: Array
    high: Array
    places: tuple[int, ...]
    level: float

    @classmethod
    def of(cls, estimate: Estimate, interval: Interval, level: float) -> Answer:
        """Lay out K answers."""
        value, low, high = (np.atleast_1d(x) for x in (estimate.value, *interval))
        count = places(list(deviations(estimate.covariance)), list(value))
        return cls(estimate.names, value, low, high, tuple(count), level)

    def rows(self) -> list[tuple[str, float, float, float, int]]:
        """Return name, value, both ends and decimals of each."""
        columns = (self.value.tolist(), self.low.tolist(), self.high.tolist())
        return list(zip(self.names, *columns, self.places, strict=True))


def answer(found: Answer, estimate: Estimate, checks: list[Check], tested: bool = True) -> str:
    """State the answer in sentences and as a picture; p-values belong to the normal interval."""
    rows = found.rows()
    if len(rows) <= MOST_SENTENCES:
        said = [answer_sentence(*row, found.level) for row in rows]
    else:
        said = [many_sentence(len(rows), found.level)]
    level, verdict = verdict_of(checks)
    parts = [
        *(f'<p class="answer">{sentence}</p>' for sentence in said),
        f'<p class="verdict"><a href="#checks">{mark(level)} {escaped(verdict)}</a></p>',
        _picture(found),
        f'<p class="small">{reading(found.level, estimate.target)}</p>',
        _table(found, estimate, tested),
    ]
    return _section("answer", "Answer", *parts)


def mark(level: Level) -> str:
    """Show a level by its sign, its word and its color."""
    return f'<span class="mark {level}"><span aria-hidden="true">{SIGNS[level]}</span> {WORDS[level]}</span>'


def _picture(found: Answer) -> str:
    if len(found.names) == 1:
        return _single(found)
    return _forest(found) if len(found.names) <= FEW else _band(found)


def _single(found: Answer) -> str:
    ((name, value, low, high, count),) = found.rows()
    axis = svg.Axis.of([value, low, high])
    label = f"{name}: {shown(value, count)}, {percent(found.level)} interval {interval_of(low, high, count)}"
    texts = [shown(x, count) if np.isfinite(x) else "" for x in (value, low, high)]
    return f'<figure class="alone">{svg.single(axis, value, low, high, texts, label)}{svg.scale(axis)}</figure>'


def _forest(found: Answer) -> str:
    """Draw one interval per row; evaluations of other sizes get an axis of their own."""
    rows = found.rows()
    blocks = []
    for group in scales(found.low, found.high):
        axis = svg.Axis.of(x for k in group for x in rows[k][1:4])
        blocks.append(_strips(axis, [_interval_row(axis, *rows[k], found.level) for k in group]))
    return f"<figure>{''.join(blocks)}</figure>"


def _interval_row(
    axis: svg.Axis, name: str, value: float, low: float, high: float, count: int, level: float
) -> str:
    ends = interval_of(low, high, count)
    label = f"{name}: {shown(value, count)}, {percent(level)} interval {ends}"
    numbers = f"<b>{escaped(shown(value, count))}</b> {escaped(ends)}"
    return _row(escaped(name), svg.strip(axis, value, low, high, label), numbers)


def _strips(axis: svg.Axis, rows: Iterable[str]) -> str:
    end = f'<div class="row axis"><span></span>{svg.scale(axis)}<span></span></div>'
    return f'<div class="strips">{"".join(rows)}{end}</div>'


def _row(name: str, drawing: str, numbers: str) -> str:
    return f'<div class="row"><span class="name">{name}</span>{drawing}<span class="numbers">{numbers}</span></div>'


def _band(found: Answer) -> str:
    label = (
        f"{len(found.names)} estimates in their order with {percent(found.level)} intervals, from "
        f"{brief(float(found.low.min()))} to {brief(float(found.high.max()))}"
    )
    drawing, axis = svg.band(found.value, found.low, found.high, label)
    ticks = "".join(
        f'<span style="top:{100 * (1 - axis.share(tick)):.1f}%">{escaped(text)}</span>'
        for tick, text in axis.ticks()
    )
    widest = max((text for _, text in axis.ticks()), key=len, default="0")
    first, last = escaped(found.names[0]), escaped(found.names[-1])
    return (
        '<figure><div class="chart">'
        f'<div class="ticks" aria-hidden="true"><i>{escaped(widest)}</i>{ticks}</div>{drawing}</div>'
        f'<figcaption class="ends"><span>{first}</span><span>{last}</span></figcaption></figure>'
    )


def _table(found: Answer, estimate: Estimate, tested: bool) -> str:
    """Fold the numbers of all evaluations away; of very many, the first ones."""
    columns = estimate.to_dict(found.level)
    head = ["", "estimate", "std. error", "low", "high", *(["p-value"] if tested else [])]
    body = [
        [
            escaped(name),
            *(shown(x, count) for x in (value, error, low, high)),
            *([_p_value(p)] if tested else []),
        ]
        for (name, value, low, high, count), error, p in zip(
            found.rows()[:MOST_ROWS], columns["std_error"], columns["p_value"], strict=False
        )
    ]
    rest = len(found.names) - len(body)
    note = f"<p class='small'>{rest:,} more are left out here.</p>" if rest else ""
    caption = f"Low and high: {percent(found.level)} confidence interval." + (
        " p-value: of the value zero." if tested else ""
    )
    inner = f"{_cells(head, body)}<p class='small'>{caption}</p>{note}"
    return f"<details><summary>Numbers</summary>{inner}</details>"


def _p_value(p: float) -> str:
    return "-" if np.isnan(p) else "&lt;0.0001" if p < 1e-4 else f"{p:.4f}"


def _cells(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = (
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in body
    )
    return f'<div class="table" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def budget(estimate: Estimate) -> str:
    """Show what share of the variance each source of error has."""
    drift = _drift_line(estimate)
    sources = list(estimate.parts)
    if len(sources) < 2:
        only = SOURCES.get(sources[0] if sources else "model", "")
        text = f"All of it has one source: {escaped(only or sources[0])}."
        return _section("budget", "Where the error comes from", f"<p>{text}</p>", drift)
    errors = np.array([deviations(V) for V in estimate.parts.values()])
    shares = _shares(errors if estimate.errors_add else errors**2)
    unit = "standard error" if estimate.errors_add else "variance"
    rows = [
        _row(escaped(name), svg.stacked(share, _told(sources, share, name)), _percents(share))
        for name, share in _budget_rows(estimate.names, shares)
    ]
    legend = "".join(
        f'<li><i class="key part{k}"></i><b>{escaped(source)}</b> '
        f"{escaped(SOURCES.get(source, ''))}</li>"
        for k, source in enumerate(sources)
    )
    added = (
        "Shares of the standard error: how the sources depend on each other is unknown, so that "
        "standard errors are added."
        if estimate.errors_add
        else "Shares of the variance: independent errors add in squares, so that a source with a "
        "tenth of the variance adds only a twentieth to the standard error."
    )
    figure = f'<figure><div class="strips stacks">{"".join(rows)}</div><ul class="legend">{legend}</ul></figure>'
    small = f'<p class="small">{added}</p>'
    return _section("budget", f"Where the {unit} comes from", figure, small, drift)


def _shares(sizes: Array) -> Array:
    """Divide by the sums of columns, (P, K), which may be zero or overflow."""
    largest = sizes.max(axis=0)
    scaled = sizes / np.where(largest > 0, largest, 1.0)
    total = scaled.sum(axis=0)
    return np.asarray(scaled / np.where(total > 0, total, 1.0))


def _budget_rows(names: Sequence[str], shares: Array) -> list[tuple[str, list[float]]]:
    if len(names) > MOST_BARS:
        return [(f"mean of {len(names):,}", shares.mean(axis=1).tolist())]
    return list(zip(names, shares.T.tolist(), strict=True))


def _told(sources: Sequence[str], shares: Sequence[float], name: str) -> str:
    pairs = (f"{source} {share:.0%}" for source, share in zip(sources, shares, strict=True))
    return f"{name}: {', '.join(pairs)}"


def _percents(shares: Sequence[float]) -> str:
    return " + ".join(f"{share:.0%}" for share in shares)


def _drift_line(estimate: Estimate) -> str:
    if estimate.drift is None:
        return ""
    count = places(list(deviations(estimate.covariance)), list(np.atleast_1d(estimate.value)))
    moves = [
        f"{escaped(name)} by {shown(move, p)}"
        for name, move, p in zip(estimate.names, estimate.drift.tolist(), count, strict=True)
    ]
    return (
        "<p>Beside it, and not in the interval, is a possible bias: the training stopped early, "
        f"and going on with it would move {listed(moves)}.</p>"
    )


def opinions(found: Sequence[Opinion], estimate: Estimate, summary: Check | None) -> str:
    """Draw the intervals of several methods on one axis for each evaluation."""
    if summary is None:
        text = (
            "No other method was asked. <code>compare(model, psi).report(&quot;page.html&quot;)"
            "</code> puts the same question to several, and draws their intervals here."
        )
        return _section("opinions", "Second opinions", f"<p>{text}</p>")
    terms = list(dict.fromkeys(one.term for one in found))
    errors = dict(zip(estimate.names, deviations(estimate.covariance).tolist(), strict=True))
    blocks = [
        _opinions_of([one for one in found if one.term == term], errors[term], len(terms) > 1)
        for term in terms[:MOST_BARS]
    ]
    more = len(terms) - MOST_BARS
    rest = f'<p class="small">{more:,} more evaluations are left out here.</p>' if more > 0 else ""
    said = f"<p>{mark(summary.level)} {escaped(summary.sentence)}</p>"
    return _section("opinions", "Second opinions", said, *blocks, rest)


def _opinions_of(own: list[Opinion], error: float, several: bool) -> str:
    first = own[0]
    count = places([error], [first.value])[0]
    axis = svg.Axis.of(x for one in own for x in (one.value, one.low, one.high))
    rows = [_opinion_row(axis, one, count, *one.verdict(first, error)) for one in own]
    title = f"<h3>{escaped(first.term)}</h3>" if several else ""
    return f"{title}<figure>{_strips(axis, rows)}</figure>"


def _opinion_row(axis: svg.Axis, one: Opinion, count: int, level: Level, verdict: str) -> str:
    ends = "" if np.isnan(one.value) else interval_of(one.low, one.high, count)
    label = f"{one.method}: {ends or 'no interval'}, {verdict}"
    drawing = svg.strip(axis, one.value, one.low, one.high, label, level)
    told = f'<span class="told {level}">{SIGNS[level]} {escaped(verdict)}</span>'
    return _row(escaped(one.method), drawing, f"{escaped(ends)} {told}")


def influence(estimate: Estimate) -> str:
    """List the rows that move the estimate most."""
    if estimate.influence is None:
        text = (
            "The influence of the rows was not kept. Ask for it with "
            "<code>infer(model, psi, influence=True)</code>."
        )
        return _section("influence", "Rows that matter most", f"<p>{text}</p>")
    top = estimate.top_influence(TOP)
    errors = deviations(estimate.covariance)
    scaled = top.influence / np.where(errors > 0, errors, 1.0)
    most = np.abs(scaled).argmax(axis=1)
    moves = scaled[np.arange(len(most)), most]
    axis = svg.Axis.of([0.0, *moves])
    rows = [
        _influence_row(axis, label, move, estimate.names[k] if len(errors) > 1 else "")
        for label, move, k in zip(_labels(estimate, top.row), moves.tolist(), most, strict=True)
    ]
    said = (
        f"<p>Of {len(estimate.influence):,} rows, these move the estimate most. Leaving one out "
        "moves it the other way by about as much, here in standard errors.</p>"
    )
    return _section(
        "influence",
        "Rows that matter most",
        said,
        f'<figure class="short">{_strips(axis, rows)}</figure>',
    )


def _influence_row(axis: svg.Axis, label: str, move: float, term: str) -> str:
    told = f"row {label} moves {term or 'the estimate'} by {move:+.2g} standard errors"
    numbers = f"<b>{move:+.2f}</b> {escaped(term)}"
    return _row(f"row {escaped(label)}", svg.bar(axis, move, told), numbers)


def _labels(estimate: Estimate, rows: Array) -> list[str]:
    """Name rows by the index of their data where that is of whole numbers, else by position."""
    labels = None if estimate.rows is None else estimate.rows.labels
    if labels is None or np.any(np.abs(labels) > LARGEST_NUMBER):
        return [str(row) for row in rows]
    return [f"{labels[row]:.15g}" for row in rows]


def checks(found: list[Check]) -> str:
    """List every diagnostic with its mark and its sentence."""
    items = "".join(
        f"<li>{mark(check.level)}<div><b>{escaped(check.name)}</b> "
        f'<span class="value">{escaped(check.value)}</span></div>'
        f"<p>{escaped(check.sentence)}</p></li>"
        for check in found
    )
    return _section("checks", "Checks", f'<ul class="checks">{items}</ul>')


def repeat(estimate: Estimate, level: float, date: str) -> str:
    """Tell what is needed to get the same numbers again."""
    found = estimate.diagnostics
    seed = re.search(r"\b(?:rng|seed)=(\w+)", estimate.method)
    entries = {
        "method": estimate.method,
        "variance": str(found.notes.get("variance", "as the model has it")),
        "quantiles": _quantiles(estimate),
        "confidence level": percent(level),
        **({"seed": seed[1]} if seed else {}),
        **{k.replace("_", " "): v for k, v in settings_of(estimate).items() if k != "variance"},
        "cost": f"{found.passes:,} passes over the data, {found.seconds:.3g} seconds",
        "versions": ", ".join(_versions()),
        "written": date,
    }
    terms = "".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in entries.items())
    call = f"<p>The call, as far as the estimate knows it:</p><pre><code>{escaped(_call(estimate))}</code></pre>"
    return _section("repeat", "How to repeat it", call, f"<dl>{terms}</dl>")


def _quantiles(estimate: Estimate) -> str:
    least, most = float(np.min(estimate.df)), float(np.max(estimate.df))
    if np.isinf(least):
        return "normal"
    span = f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
    return f"Student's t, {span} degrees of freedom"


def _call(estimate: Estimate) -> str:
    """Write the call: methods print as the code that makes them."""
    method = estimate.method
    doors = {"bootstrap(": "bootstrap(fit, data, psi, ", "refit(": "refit(train, psi, "}
    for name, whole in doors.items():
        if method.startswith(name):
            return whole + method.removeprefix(name)
    if re.match(r"[A-Z]\w*\(", method):
        return f"infer(model, psi, {method}{_robust(estimate)})"
    return method


def _robust(estimate: Estimate) -> str:
    """Write the arguments behind the variance, as far as its description has them."""
    told = str(estimate.diagnostics.notes.get("variance", ""))
    if told == "covariance=":
        return ", covariance=..."
    kind = re.match(r"(clustered|robust) \((\w+)", told)
    if kind is None:
        return ""
    return f"{', clusters=...' * (kind[1] == 'clustered')}, robust={kind[2]!r}"


def _versions() -> Iterable[str]:
    """Versions of what is loaded, Python first."""
    own = getattr(sys.modules.get("implicit_delta"), "__version__", "unknown")
    yield f"implicit-delta {own}"
    yield f"Python {platform.python_version()}"
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            yield f"{name} {version}"


def _section(name: str, title: str, *parts: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>\n{"".join(parts)}\n</section>'
