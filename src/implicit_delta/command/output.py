"""Answers as text, JSON and CSV, and the files that a command writes."""

import csv
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

import implicit_delta
from implicit_delta import Estimate
from implicit_delta.command.check import found
from implicit_delta.command.failure import Failure
from implicit_delta.core.optional import optional
from implicit_delta.estimate.report import write_page
from implicit_delta.estimate.tabled import ON_SCALE, columns_of
from implicit_delta.estimate.tables import estimate_table, percent

SCHEMA = "implicit-delta/fit/1"
LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "patsy", "formulaic")
SUFFIXES = {
    "report": (".html", ".htm"),
    "save": (".npz",),
    "plot": (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".eps", ".ps"),
}
LEVELS = ("average_prediction", "predictions")  # questions for which zero is not "no effect"


class Answer(NamedTuple):
    """A question as it was typed, its estimate, and the columns to print.

    Attributes
    ----------
    text : str
    estimate : Estimate
    columns : dict
        Of the table, at the level, null and transform that were requested.
    scale : dict
        Null and transform, for pages and pictures.
    """

    text: str
    estimate: Estimate
    columns: dict[str, list[Any]]
    scale: dict[str, Any]

    @classmethod
    def of(cls, text: str, estimate: Estimate, options: Any) -> "Answer":
        """Make the columns, which may refuse a transform or a null."""
        scale = {"null": options.null, "transform": options.transform}
        return cls(text, estimate, columns_of(estimate, options.level, **scale), scale)

    @property
    def no_effect(self) -> float | None:
        """Return what a picture marks: the value that is tested, unless it is a level."""
        given: float | None = self.scale["null"]
        first, *others = self.columns["null"]
        tested = not self.text.startswith(LEVELS) and set(others) <= {first}
        return float(first) if given is None and tested else given


Answers = Sequence[Answer]


def as_text(answers: Answers, level: float) -> str:
    """Write a table for each answer, below its question."""
    return "\n\n".join(
        f"{one.text}, {percent(level)} confidence intervals\n{_table(one)}" for one in answers
    )


def _table(one: Answer) -> str:
    """Write the table; the line below it names a scale of tests that the user has chosen."""
    text, scale = estimate_table(one.columns), one.scale["transform"]
    if scale not in ON_SCALE:
        return text
    table, _, line = text.rpartition("\n")
    return f"{table}\n{line.replace(';', f' on the {scale} scale;', 1)}"


def as_json(answers: Answers, about: dict[str, Any], **rest: Any) -> str:
    """Write the answers at full precision with everything that repeats them.

    What is not a finite number is null.
    """
    own = {"implicit-delta": implicit_delta.__version__, "python": platform.python_version()}
    versions = {**own, **{name: found(name) for name in LIBRARIES}}
    entries = {"answers": [_entry(one) for one in answers], **rest}
    content = {"schema": SCHEMA, "command": about.pop("command"), "versions": versions}
    return json.dumps(plain({**content, **about, **entries}), indent=2, allow_nan=False)


def plain(content: Any) -> Any:
    """Turn arrays into lists, and numbers that are NaN or infinite into None."""
    if isinstance(content, dict):
        return {str(name): plain(entry) for name, entry in content.items()}
    if isinstance(content, np.ndarray | list | tuple):
        return [plain(entry) for entry in content]
    if isinstance(content, np.generic):
        return plain(content.item())
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    return content if isinstance(content, bool | int | str | None) else str(content)


def _entry(one: Answer) -> dict[str, Any]:
    columns, estimate = one.columns, one.estimate
    diagnostics = asdict(estimate.diagnostics)
    del diagnostics["seconds"]  # the rest is the same in every run
    return {
        "ask": one.text,
        "method": estimate.method,
        "target": estimate.target,
        "rows": [dict(zip(columns, row, strict=True)) for row in _rows(one)],
        "covariance": estimate.covariance,
        "budget": {name: np.atleast_1d(error) for name, error in estimate.budget.items()},
        "diagnostics": diagnostics,
    }


def _rows(one: Answer) -> Iterator[tuple[Any, ...]]:
    return zip(*one.columns.values(), strict=True)


def _write_csv(file: TextIO, answers: Answers) -> None:
    """Write the rows of all answers, each with its question, at full precision."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["ask", *answers[0].columns])
    writer.writerows([one.text, *row] for one in answers for row in _rows(one))


def check_places(options: Any) -> None:
    """Refuse files that cannot be written, or that would overwrite the data or each other."""
    taken = {} if options.data == "-" else {os.path.realpath(options.data): "the data"}
    for option in ("csv", *SUFFIXES):
        path = getattr(options, option)
        if path is None:
            continue
        given, place = f"--{option} {path}", Path(path)
        if place.is_dir():
            raise Failure(f"{given} is a folder: name a file.")
        if not place.parent.is_dir():
            raise Failure(f"{given}: there is no folder {place.parent}.")
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise Failure(f"{given} cannot be written.")
        endings = SUFFIXES.get(option)
        if endings and place.suffix.lower() not in endings:
            raise Failure(f"{given}: the name must end in {endings[0]}.")
        real = os.path.realpath(path)
        if real in taken:
            raise Failure(f"{given} would overwrite {taken[real]}.")
        taken[real] = f"--{option}"
    if options.plot is not None:
        optional("matplotlib", "--plot")


def write_files(
    answers: Answers, options: Any, facts: dict[str, str], command: str
) -> Iterator[str]:
    """Write the files that were requested, numbered if answers are several; yield their names."""
    if options.csv is not None:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            _write_csv(file, answers)
        yield options.csv

    def page(path: str, one: Answer) -> None:
        question = options.question
        if question is None and one.text in one.estimate.names:
            question = f"How large is the coefficient of {one.text}, and how sure is that?"
        write_page(
            path,
            one.estimate,
            title=options.title,
            question=question,
            confidence_level=options.level,
            facts=facts,
            command=command,
            **one.scale,
        )

    writers: dict[str, Callable[[str, Answer], object]] = {
        "report": page,
        "plot": lambda path, one: _plot(path, one, options.level),
        "save": lambda path, one: one.estimate.save(path),
    }
    for option, write in writers.items():
        path = getattr(options, option)
        for k, one in enumerate(answers if path is not None else (), start=1):
            name = path if len(answers) == 1 else numbered(path, k)
            write(name, one)
            yield name


def numbered(path: str, k: int) -> str:
    """Number a file.

    Examples
    --------
    >>> numbered("page.html", 2)
    'page-2.html'
    """
    place = Path(path)
    return str(place.with_name(f"{place.stem}-{k}{place.suffix}"))


def _plot(path: str, one: Answer, level: float) -> None:
    optional("matplotlib", "--plot").use("Agg")  # there may be no display
    scale = {**one.scale, "null": one.no_effect}
    figure: Any = one.estimate.plot(confidence_level=level, **scale).figure
    try:
        figure.savefig(path, dpi=150)
    finally:
        optional("matplotlib.pyplot", "--plot").close(figure)
