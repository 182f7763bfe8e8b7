"""Sections of a page below its answer; one that has nothing to show is left out."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.estimate.report import svg
from implicit_delta.estimate.report.answer import Line, definitions, row, strips
from implicit_delta.estimate.report.checks import SIGNS, Check, mark, settings_of
from implicit_delta.estimate.report.opinions import Opinion
from implicit_delta.estimate.report.text import (
    escaped,
    finer,
    interval_of,
    listed,
    paragraph,
    places,
    share,
    tag,
)
from implicit_delta.estimate.tables import degrees, percent

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

MOST_BARS = 12  # evaluations whose budgets and second opinions are drawn one by one
TOP = 10  # rows by influence
LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "sklearn", "torch", "jax")
# Methods that are functions, with their first arguments.
FUNCTIONS = {"bootstrap(": "bootstrap(fit, data, psi, ", "refit(": "refit(train, psi, "}

SOURCES = {
    "model": "the parameters were estimated",
    "evaluation": "the evaluation rows are a sample",
    "rows": "the rows behind both fit and evaluation are a sample",
    "noise": "the value itself is random",
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


def budget(estimate: Estimate, lines: Sequence[Line]) -> Iterator[str]:
    """Show the share of each source of error, where there are several."""
    sources = list(estimate.parts)
    if len(sources) > 1:
        errors = np.array([np.atleast_1d(estimate.budget[name]) for name in sources])
        shares = _shares(errors, 1 if estimate.errors_add else 2)
        names = list(estimate.names)
        if len(names) > MOST_BARS:
            names, shares = [f"mean of {len(names):,}"], shares.mean(axis=1, keepdims=True)
        bars = [
            _bar(name, sources, own) for name, own in zip(names, shares.T.tolist(), strict=True)
        ]
        keys = (
            tag("i", class_=f"key part{k}") + tag("b", escaped(name))
            + f" {escaped(SOURCES.get(name, ''))}"
            for k, name in enumerate(sources)
        )  # fmt: skip
        legend = tag("ul", *(tag("li", key) for key in keys), class_="legend")
        yield tag("figure", tag("div", *bars, class_="strips"), legend)
        yield tag("p", SUMS if estimate.errors_add else SQUARES, class_="small")
    if estimate.drift is not None:
        moves = zip(lines, np.atleast_1d(estimate.drift).tolist(), strict=True)
        told = listed([f"{escaped(line.name)} by {line.shown(move)}" for line, move in moves])
        text = "Not in the interval is a possible bias: the training stopped early, and going on"
        yield tag("p", f"{text} with it would move {told}.")


def _shares(errors: Array, power: int) -> Array:
    """Divide powers by the sums of columns, (P, K), without overflow; none of nothing."""
    largest = errors.max(axis=0)
    scaled = (errors / np.where(largest > 0, largest, 1.0)) ** power
    total = scaled.sum(axis=0)
    return np.asarray(scaled / np.where(total > 0, total, 1.0))


def _bar(name: str, sources: Sequence[str], shares: Sequence[float]) -> str:
    text = ", ".join(f"{one} {share(x)}" for one, x in zip(sources, shares, strict=True))
    return row(name, svg.stacked(shares, f"{name}: {text}"), escaped(text))


def opinions(
    found: Sequence[Opinion], lines: Sequence[Line], summary: Check | None, null: float
) -> Iterator[str]:
    """Draw the intervals of several methods on one axis for each evaluation."""
    if summary is None:
        return
    yield tag("p", mark(summary.level), " ", escaped(summary.sentence))
    terms = list(dict.fromkeys(one.term for one in found))
    errors = {line.name: line.error for line in lines}
    for term in terms[:MOST_BARS]:
        own = [one for one in found if one.term == term]
        yield tag("h3", escaped(term)) * (len(terms) > 1)
        yield tag("figure", _opinions_of(own, errors[term], null))
    if len(terms) > MOST_BARS:
        more = f"{len(terms) - MOST_BARS:,} more evaluations are left out here."
        yield tag("p", more, class_="small")


def _opinions_of(own: Sequence[Opinion], error: float, null: float) -> str:
    (count,) = places([error], [own[0].value])
    ends = [end for one in own for span in one.spans for end in span]
    if any(len(one.spans) > 1 for one in own):
        count = finer(count, ends)
    axis = svg.Axis.of([*(one.value for one in own), *ends], null)
    return strips(axis, [_opinion_row(axis, one, own[0], error, count) for one in own])


def _opinion_row(axis: svg.Axis, one: Opinion, first: Opinion, error: float, count: int) -> str:
    level, verdict = one.verdict(first, error)
    ends = "" if np.isnan(one.value) else interval_of(one.spans, count)
    label = f"{one.method}: {ends or 'no interval'}, {verdict}"
    drawing = svg.strip(axis, one.value, one.spans, label, level)
    told = tag("span", f"{SIGNS[level]} {escaped(verdict)}", class_=f"told {level}")
    return row(one.method, drawing, f"{escaped(ends)} {told}")


def influence(estimate: Estimate) -> Iterator[str]:
    """Draw the rows that move the estimate most, if their influence was kept."""
    if estimate.influence is None:
        return
    top, errors = estimate.top_influence(TOP), np.atleast_1d(estimate.standard_error)
    scaled = top.influence / np.where(errors > 0, errors, 1.0)
    most = np.abs(scaled).argmax(axis=1)
    moves = scaled[np.arange(len(most)), most].tolist()
    axis = svg.Axis.of([0.0, *moves], most=2)  # beside names and numbers there is little room
    terms = [estimate.names[k] if len(errors) > 1 else "" for k in most]
    labels = top.row if top.label is None else top.label
    rows = [_influence_row(axis, *one) for one in zip(labels, moves, terms, strict=True)]
    text = (
        f"Of {len(estimate.influence):,} rows, these move the estimate most. Leaving one out moves "
        "it the other way by about as much, here in standard errors."
    )
    yield tag("p", text)
    yield tag("figure", strips(axis, rows), class_="short")


def _influence_row(axis: svg.Axis, label: object, move: float, term: str) -> str:
    told = f"row {label} moves {term or 'the estimate'} by {move:+.2g} standard errors"
    return row(f"row {label}", svg.bar(axis, move, told), f"<b>{move:+.2f}</b> {escaped(term)}")


def checks(found: Sequence[Check]) -> Iterator[str]:
    """List every diagnostic with its mark and its sentence."""
    if found:
        yield tag("ul", *map(_check, found), class_="checks")


def _check(one: Check) -> str:
    value = tag("span", escaped(one.value), class_="value")
    name = tag("div", tag("b", escaped(one.name)), " ", value)
    return tag("li", mark(one.level), name, paragraph(one.sentence))


def repeat(estimate: Estimate, level: float, command: str = "") -> Iterator[str]:
    """Write the command or the call, the settings, the versions and the date."""
    found = estimate.diagnostics
    yield tag("p", "The command:" if command else "The call, as far as the estimate knows it:")
    yield tag("pre", tag("code", escaped(command or _call(estimate))))
    entries = {
        "method": estimate.method,
        "quantiles": _quantiles(estimate),
        "confidence level": percent(level),
        "seed": estimate.method.partition("rng=")[2].partition(")")[0].partition(",")[0],
        **settings_of(estimate),
        "cost": f"{found.passes:,} passes over the data, {found.seconds:.3g} seconds",
        "versions": ", ".join(_versions()),
        "written": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
    }
    yield definitions({name.replace("_", " "): text for name, text in entries.items()})


def _quantiles(estimate: Estimate) -> str:
    least, most = float(np.min(estimate.df)), float(np.max(estimate.df))
    if np.isinf(least):
        return "normal"
    span = " to ".join(dict.fromkeys(degrees(df) for df in (least, most)))
    return f"Student's t, {span} degrees of freedom"


def _call(estimate: Estimate) -> str:
    """Write the call: methods print as the code that makes them."""
    for name, whole in FUNCTIONS.items():
        if estimate.method.startswith(name):
            return whole + estimate.method.removeprefix(name)
    if estimate.method[:1].isupper() and "(" in estimate.method:
        return f"infer(model, psi, {estimate.method}{_robust(estimate)})"
    return estimate.method


def _robust(estimate: Estimate) -> str:
    """Write the arguments behind the variance, as far as its description has them."""
    noted = str(estimate.diagnostics.notes.get("variance", ""))
    kind, _, rest = noted.partition(" (")
    robust = f", robust={rest.partition(',')[0].partition(')')[0]!r}"
    if kind == "clustered":
        return f", clusters=...{robust}"
    return robust if kind == "robust" else ", covariance=..." if kind == "covariance=" else ""


def _versions() -> Iterator[str]:
    """Versions of what is loaded."""
    yield f"Python {platform.python_version()}"
    for name in ("implicit_delta", *LIBRARIES):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            yield f"{name.replace('_', '-')} {version}"
