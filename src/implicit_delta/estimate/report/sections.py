"""Sections of a page below its answer: budget, second opinions, influence, checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.core.labels import LARGEST_NUMBER
from implicit_delta.core.types import Array
from implicit_delta.estimate.held import covariance_of, parts_of
from implicit_delta.estimate.quantiles import deviations
from implicit_delta.estimate.report import svg
from implicit_delta.estimate.report.answer import Line, finer, row, strips
from implicit_delta.estimate.report.checks import SIGNS, Check, Level, mark
from implicit_delta.estimate.report.opinions import Opinion
from implicit_delta.estimate.report.text import escaped, interval_of, listed, places, share, tag

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate, Influential

MOST_BARS = 12  # evaluations whose budgets and second opinions are drawn one by one
TOP = 10  # rows by influence
CODE = re.compile("`([^`]+)`")  # as warnings have it

SOURCES = {
    "model": "the parameters were estimated",
    "evaluation": "the evaluation rows are a sample",
    "rows": "the rows behind both fit and evaluation are a sample",
    "noise": "psi itself is random",
    "training": "the training wobbles over its last steps",
    "initialization": "another start of the training ends elsewhere",
}
SQUARES = (
    "Shares of the variance: independent errors add in squares, so that a source with a tenth of "
    "the variance adds only a twentieth to the standard error."
)
SUMS = (
    "Shares of the standard error: how the sources depend on each other is unknown, so that their "
    "standard errors are added."
)


def budget(estimate: Estimate, lines: Sequence[Line]) -> list[str]:
    """Show the share of each source of error."""
    sources = list(estimate.parts) or ["model"]
    if len(sources) == 1:
        only = escaped(SOURCES.get(sources[0], sources[0]))
        return [tag("p", f"All of it has one source: {only}."), *_drift(estimate, lines)]
    errors = np.array([deviations(V) for V in parts_of(estimate).values()])
    shares = _shares(errors, 1 if estimate.errors_add else 2)
    names = list(estimate.names)
    if len(names) > MOST_BARS:
        names, shares = [f"mean of {len(names):,}"], shares.mean(axis=1, keepdims=True)
    bars = [
        row(name, svg.stacked(parts, f"{name}: {told}"), escaped(told))
        for name, parts in zip(names, shares.T.tolist(), strict=True)
        for told in [_told(sources, parts)]
    ]
    legend = (
        tag(
            "li",
            tag("i", class_=f"key part{k}"),
            tag("b", escaped(source)),
            f" {escaped(SOURCES.get(source, ''))}",
        )
        for k, source in enumerate(sources)
    )
    return [
        tag("figure", tag("div", *bars, class_="strips"), tag("ul", *legend, class_="legend")),
        tag("p", SUMS if estimate.errors_add else SQUARES, class_="small"),
        *_drift(estimate, lines),
    ]


def _shares(errors: Array, power: int) -> Array:
    """Divide powers by the sums of columns, (P, K), without overflow; none of nothing."""
    largest = errors.max(axis=0)
    scaled = (errors / np.where(largest > 0, largest, 1.0)) ** power
    total = scaled.sum(axis=0)
    return np.asarray(scaled / np.where(total > 0, total, 1.0))


def _told(sources: Sequence[str], shares: Sequence[float]) -> str:
    return ", ".join(f"{one} {share(x)}" for one, x in zip(sources, shares, strict=True))


def _drift(estimate: Estimate, lines: Sequence[Line]) -> list[str]:
    if estimate.drift is None:
        return []
    moves = [
        f"{escaped(one.name)} by {one.shown(move)}"
        for one, move in zip(lines, estimate.drift.tolist(), strict=True)
    ]
    text = (
        "Apart from that, and not in the interval, is a possible bias: the training stopped early, "
        f"and going on with it would move {listed(moves)}."
    )
    return [tag("p", text)]


def opinions(
    found: Sequence[Opinion],
    lines: Sequence[Line],
    summary: Check | None,
    null: float,
    command: str = "",
) -> list[str]:
    """Draw the intervals of several methods on one axis for each evaluation."""
    if summary is None:
        code = tag("code", escaped('compare(model, psi).report("page.html")'))
        text = f"No other method was asked. {code} puts the same question to several."
        if command:
            option = tag("code", escaped('--method "Bootstrap(500)"'))
            text = f"No other method was asked. The same command with {option} asks one."
        return [tag("p", text)]
    terms = list(dict.fromkeys(one.term for one in found))
    errors = {one.name: one.error for one in lines}
    more = len(terms) - MOST_BARS
    return [
        tag("p", mark(summary.level), " ", escaped(summary.sentence)),
        *(
            _opinions_of(
                [one for one in found if one.term == term], errors[term], null, len(terms) > 1
            )
            for term in terms[:MOST_BARS]
        ),
        tag("p", f"{more:,} more evaluations are left out here.", class_="small") * (more > 0),
    ]


def _opinions_of(own: list[Opinion], error: float, null: float, several: bool) -> str:
    first = own[0]
    (count,) = places([error], [first.value])
    if any(len(one.spans) > 1 for one in own):
        count = finer(count, [end for one in own for span in one.spans for end in span])
    numbers = (x for one in own for x in (one.value, *np.ravel(one.spans).tolist()))
    axis = svg.Axis.of(numbers, null)
    rows = [_opinion_row(axis, one, count, *one.verdict(first, error)) for one in own]
    return tag("h3", escaped(first.term)) * several + tag("figure", strips(axis, rows))


def _opinion_row(axis: svg.Axis, one: Opinion, count: int, level: Level, verdict: str) -> str:
    ends = "" if np.isnan(one.value) else interval_of(one.spans, count)
    label = f"{one.method}: {ends or 'no interval'}, {verdict}"
    drawing = svg.strip(axis, one.value, one.spans, label, level)
    told = tag("span", f"{SIGNS[level]} {escaped(verdict)}", class_=f"told {level}")
    return row(one.method, drawing, f"{escaped(ends)} {told}")


def influence(estimate: Estimate, command: str = "") -> list[str]:
    """Draw the rows that move the estimate most."""
    if estimate.influence is None and command:
        return [tag("p", "This method does not tell the influence of the rows.")]
    if estimate.influence is None:
        code = tag("code", "infer(model, psi, influence=True)")
        return [tag("p", f"The influence of the rows was not kept. Ask for it with {code}.")]
    top = estimate.top_influence(TOP)
    errors = deviations(covariance_of(estimate))
    scaled = top.influence / np.where(errors > 0, errors, 1.0)
    most = np.abs(scaled).argmax(axis=1)
    moves = scaled[np.arange(len(most)), most].tolist()
    axis = svg.Axis.of([0.0, *moves], most=2)  # beside names and numbers there is little room
    terms = [estimate.names[k] if len(errors) > 1 else "" for k in most]
    rows = map(_influence_row, [axis] * len(moves), _labels(estimate, top), moves, terms)
    text = (
        f"Of {len(estimate.influence):,} rows, these move the estimate most. Leaving one out moves "
        "it the other way by about as much, here in standard errors."
    )
    return [tag("p", text), tag("figure", strips(axis, rows), class_="short")]


def _influence_row(axis: svg.Axis, label: str, move: float, term: str) -> str:
    told = f"row {label} moves {term or 'the estimate'} by {move:+.2g} standard errors"
    return row(f"row {label}", svg.bar(axis, move, told), f"<b>{move:+.2f}</b> {escaped(term)}")


def _labels(estimate: Estimate, top: Influential) -> Sequence[str]:
    """Name rows by the index of their data where that is known, else by position."""
    if (known := getattr(top, "label", None)) is not None:
        return [str(label) for label in known]
    labels = None if estimate.rows is None else estimate.rows.labels
    if labels is None or np.any(np.abs(labels) > LARGEST_NUMBER):
        return [str(one) for one in top.row]
    return [f"{labels[one]:.15g}" for one in top.row]


def checks(found: Sequence[Check]) -> list[str]:
    """List every diagnostic with its mark and its sentence."""
    return [tag("ul", *map(_check, found), class_="checks")]


def _check(one: Check) -> str:
    value = tag("span", escaped(one.value), class_="value")
    name = tag("div", tag("b", escaped(one.name)), " ", value)
    sentence = CODE.sub(r"<code>\1</code>", escaped(one.sentence))
    return tag("li", mark(one.level), name, tag("p", sentence))
