"""Files that a command writes: checked before the work, and numbered if answers are several."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from implicit_delta.command.failure import Failure
from implicit_delta.command.printing import Answer, Answers, write_csv
from implicit_delta.command.wording import told
from implicit_delta.core.optional import optional
from implicit_delta.estimate.report import write_page

SUFFIXES = {
    "report": (".html", ".htm"),
    "save": (".npz",),
    "plot": (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".eps", ".ps"),
}


@dataclass(frozen=True)
class Page:
    """Texts of a page that the estimate does not know: headings, facts, the command."""

    title: str | None
    question: str | None
    facts: Mapping[str, str]
    command: str

    def write(self, path: str, one: Answer, level: float) -> None:
        """Write the page of an answer; what was asked is one of its facts."""
        found, say = one.estimate.diagnostics, partial(told, scale=one.how.get("transform"))
        findings = (
            replace(item, text=say(item), causes=(), remedies=()) for item in found.findings
        )
        diagnostics = replace(
            found, warnings=tuple(map(say, found.warnings)), findings=tuple(findings)
        )
        write_page(
            path,
            replace(one.estimate, diagnostics=diagnostics),
            title=self.title,
            question=self.question,
            confidence_level=level,
            facts={"Question": one.text, **self.facts},
            command=self.command,
            **one.how,
        )


@dataclass(frozen=True)
class Outputs:
    """Names of files; None for those that are not asked for."""

    csv: str | None = None
    report: str | None = None
    plot: str | None = None
    save: str | None = None

    def given(self) -> dict[str, str]:
        """Return the files that are asked for, by their options."""
        return {name: path for name, path in vars(self).items() if path is not None}

    def check(self, source: str) -> None:
        """Refuse files that cannot be written, or that would overwrite the data."""
        taken = {} if source == "-" else {os.path.realpath(source): "the data"}
        for option, path in self.given().items():
            _check_place(option, path)
            if (place := os.path.realpath(path)) in taken:
                raise Failure(f"--{option} {path} would overwrite {taken[place]}.")
            taken[place] = f"--{option}"
        if self.plot is not None:
            optional("matplotlib", "--plot")

    def write(self, answers: Answers, level: float, page: Page) -> Iterator[str]:
        """Write all of them; yield their names."""
        if self.csv is not None:
            with open(self.csv, "w", encoding="utf-8", newline="") as file:
                write_csv(file, answers)
            yield self.csv
        writers: dict[str, Callable[[str, Answer], object]] = {
            "report": lambda path, one: page.write(path, one, level),
            "plot": lambda path, one: _plot(path, one, level),
            "save": lambda path, one: one.estimate.save(path),
        }
        for option, writer in writers.items():
            if (path := getattr(self, option)) is not None:
                for k, one in enumerate(answers, start=1):
                    place = path if len(answers) == 1 else numbered(path, k)
                    writer(place, one)
                    yield place


def numbered(path: str, k: int) -> str:
    """Number a file.

    Examples
    --------
    >>> numbered("page.html", 2)
    'page-2.html'
    """
    place = Path(path)
    return str(place.with_name(f"{place.stem}-{k}{place.suffix}"))


def _check_place(option: str, path: str) -> None:
    place = Path(path)
    if place.is_dir():
        raise Failure(f"--{option} {path} is a folder: name a file.")
    if not place.parent.is_dir():
        raise Failure(f"--{option} {path}: there is no folder {place.parent}.")
    if not os.access(place if place.exists() else place.parent, os.W_OK):
        raise Failure(f"--{option} {path} cannot be written.")
    if place.suffix.lower() not in SUFFIXES.get(option, (place.suffix.lower(),)):
        raise Failure(f"--{option} {path}: the name must end in {SUFFIXES[option][0]}.")


def _plot(path: str, one: Answer, level: float) -> None:
    optional("matplotlib", "--plot").use("Agg")  # there may be no display
    figure: Any = one.estimate.plot(confidence_level=level, **one.how).figure
    try:
        figure.savefig(path, dpi=150)
    finally:
        optional("matplotlib.pyplot", "--plot").close(figure)
