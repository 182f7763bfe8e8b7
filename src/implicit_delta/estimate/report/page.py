"""Write the page: one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from implicit_delta.estimate.drawn import SHOWN
from implicit_delta.estimate.held import changed
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.estimate.report import sections
from implicit_delta.estimate.report.answer import answer, lines_of
from implicit_delta.estimate.report.opinions import Opinion, agreement, own_opinions
from implicit_delta.estimate.report.repeat import repeat
from implicit_delta.estimate.report.sentences import question_of
from implicit_delta.estimate.report.text import escaped, tag
from implicit_delta.estimate.report.verdicts import checks_of
from implicit_delta.estimate.results import Interval

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

SUFFIXES = (".html", ".htm")
# No script, no font, no picture from elsewhere: a browser holds the page to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    Attributes
    ----------
    estimate : Estimate
    level : float
        Confidence level.
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
    level: float = 0.95
    pieces: Sequence[Interval] = ()
    opinions: Sequence[Opinion] = ()
    title: str | None = None
    question: str | None = None
    null: float | None = None
    transform: Any = None
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def words(self) -> str:
        """The question in words, if the estimate knows it."""
        return str(self.estimate.diagnostics.notes.get("question", ""))

    def html(self) -> str:
        """Return the whole document."""
        question = self.question or self.words or question_of(self.estimate.names)
        heading = self.title or question
        style = (files(__package__) / "page.css").read_text(encoding="utf-8")
        head = [
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            tag("title", escaped(heading)),
            tag("style", "\n", style),
        ]
        top = tag(
            "header",
            tag("p", "Estimate with its error", class_="kicker"),
            tag("h1", escaped(heading)),
            tag("p", escaped(question), class_="lead") if self.title and self.question else "",
        )
        body = tag("main", "\n".join([top, *self._sections()]))
        whole = "\n".join(["", "<head>", *head, "</head>", tag("body", "\n", body, "\n"), ""])
        return f"<!doctype html>\n{tag('html', whole, lang='en')}\n"

    def _sections(self) -> list[str]:
        estimate, level = self.estimate, self.level
        lines, null = lines_of(estimate, level, self.pieces, self.null, self.transform)
        opinions = self.opinions or own_opinions(estimate, level, self.transform)
        summary = agreement(opinions, {one.name: one.error for one in lines})
        checks = checks_of(estimate, [] if summary is None else [summary])
        found = {
            "Answer": answer(
                lines,
                estimate,
                level,
                checks,
                null,
                self._subjects(),
                self.facts,
            ),
            "Where the error comes from": sections.budget(estimate, lines),
            "Second opinions": sections.opinions(opinions, lines, summary, null, self.command),
            "Rows that matter most": sections.influence(estimate, self.command),
            "Checks": sections.checks(checks),
            "How to repeat it": repeat(estimate, level, _now(), self.command),
        }
        return [_section(title, parts) for title, parts in found.items()]

    def _subjects(self) -> tuple[str, ...]:
        """Subjects of the sentences of the answer: names, or the question unless it is on top."""
        if not self.words or len(self.estimate.names) > 1:
            return self.estimate.names
        return (self.words if self.title or self.question else "",)


def _section(title: str, parts: Sequence[str]) -> str:
    name = title.lower().replace(" ", "-")
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def write_page(
    path: str | os.PathLike[str],
    estimate: Estimate,
    *,
    title: str | None = None,
    question: str | None = None,
    confidence_level: float = 0.95,
    pieces: Sequence[Interval] = (),
    opinions: Sequence[Opinion] = (),
    null: float | None = None,
    transform: Any = None,
    facts: Mapping[str, str] | None = None,
    command: str = "",
) -> Path:
    """Write the page of an estimate and return its path; see `Estimate.report`."""
    target = _checked_path(path)
    for name, text in (("title", title), ("question", question)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} is a text, not {text!r:.60}.")
    level = checked_level(confidence_level)
    if isinstance(transform, str) and transform in SHOWN:
        shown = tuple(f"{transform}({name})" for name in estimate.names)
        estimate = changed(estimate, names=shown)
    page = Page(
        estimate, level, pieces, opinions, title, question, null, transform, facts or {}, command
    )
    target.write_text(page.html(), encoding="utf-8", newline="\n")
    return target


def _checked_path(path: Any) -> Path:
    """Refuse whatever is no place for a page, before any work."""
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise TypeError(f"path is the name of the file to write, 'page.html', not {path!r:.60}.")
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(
            f"{str(target)!r} is a directory: give the file in it, {str(target / 'page.html')!r}."
        )
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"The page is an HTML file, and {str(target)!r} has another ending, or none: give "
            f"{str(target.with_suffix('.html') if target.name else Path('page.html'))!r}."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"There is no directory {str(target.parent)!r} to write {target.name!r} to: make it "
            f"first, `os.makedirs({str(target.parent)!r})`."
        )
    return target


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
