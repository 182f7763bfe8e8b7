"""Write the page: one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from implicit_delta.estimate.held import changed
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.estimate.report import sections
from implicit_delta.estimate.report.answer import answer, lines_of, question_of
from implicit_delta.estimate.report.checks import checks_of
from implicit_delta.estimate.report.opinions import Opinion, agreement, own_opinions
from implicit_delta.estimate.report.text import escaped, tag
from implicit_delta.estimate.results import Interval
from implicit_delta.estimate.tabled import SHOWN

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    Attributes
    ----------
    estimate : Estimate
    confidence_level : float
    pieces : sequence of Interval
        To show instead of the normal interval of the estimate, in ascending order.
    opinions : sequence of Opinion
        Second opinions, the first of which is the one that the others are held against.
    title, question : str, optional
    null, transform
        As in `Estimate.report`.
    facts : mapping of str to str
        About data and model, to show below the answer.
    command : str
        That made the estimate, if it was no call.
    """

    estimate: Estimate
    confidence_level: float = 0.95
    pieces: Sequence[Interval] = ()
    opinions: Sequence[Opinion] = ()
    title: str | None = None
    question: str | None = None
    null: float | None = None
    transform: Any = None
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def html(self) -> str:
        """Return the whole document."""
        effect = str(self.estimate.diagnostics.notes.get("question", ""))
        question = self.question or effect or question_of(self.estimate.names)
        heading, leads = self.title or question, []
        if question != heading:
            leads.append(question)
        subjects: tuple[str, ...] = self.estimate.names
        if effect and len(subjects) == 1:  # in words, unless the heading has just said it
            subjects = ("" if heading == effect else effect,)
        elif effect and effect not in (heading, question):
            leads.append(effect)
        parts = {name: "".join(found) for name, found in self._sections(subjects).items()}
        return Template(_resource("page.html")).substitute(
            style=_resource("page.css"),
            heading=escaped(heading),
            lead="".join(tag("p", escaped(text), class_="lead") for text in leads),
            sections="\n".join(_section(name, part) for name, part in parts.items() if part),
        )

    def _sections(self, subjects: Sequence[str]) -> dict[str, Iterator[str]]:
        estimate, level = self.estimate, checked_level(self.confidence_level)
        lines, null = lines_of(estimate, level, self.pieces, self.null, self.transform)
        opinions = self.opinions or own_opinions(estimate, level, self.transform)
        summary = agreement(opinions, {line.name: line.error for line in lines})
        checks = checks_of(estimate, [] if summary is None else [summary])
        return {
            "Answer": answer(lines, estimate, level, null, subjects, checks, self.facts),
            "Where the error comes from": sections.budget(estimate, lines),
            "Second opinions": sections.opinions(opinions, lines, summary, null),
            "Rows that matter most": sections.influence(estimate),
            "Checks": sections.checks(checks),
            "How to repeat it": sections.repeat(estimate, level, self.command),
        }


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _section(title: str, content: str) -> str:
    name = title.lower().replace(" ", "-")
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, content, id=name, aria_labelledby=f"{name}-title")


def write_page(path: str | os.PathLike[str], estimate: Estimate, **content: Any) -> Path:
    """Write the page of an estimate and return its path.

    Parameters
    ----------
    path : str or path
    estimate : Estimate
    **content
        The other fields of `Page`.
    """
    target, transform = _checked_path(path), content.get("transform")
    if isinstance(transform, str) and transform in SHOWN.values():
        shown = tuple(f"{transform}({name})" for name in estimate.names)
        estimate = changed(estimate, names=shown)
    page = Page(estimate, **content)
    for name, text in (("title", page.title), ("question", page.question)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} is a text, not {text!r:.60}.")
    target.write_text(page.html(), encoding="utf-8", newline="\n")
    return target


def _checked_path(path: Any) -> Path:
    """Return the place of a page, or raise before any work."""
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise TypeError(f"path is the name of the file to write, 'page.html', not {path!r:.60}.")
    target = Path(path)
    if target.is_dir():
        inside = str(target / "page.html")
        raise IsADirectoryError(f"{str(target)!r} is a directory: give the file in it, {inside!r}.")
    if target.suffix.lower() not in SUFFIXES:
        named = str(target.with_suffix(".html") if target.name else Path("page.html"))
        raise ValueError(
            f"The page is an HTML file, and {str(target)!r} has another ending, or none: give "
            f"{named!r}."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"There is no directory {str(target.parent)!r} to write {target.name!r} to: make it "
            "first."
        )
    return target
