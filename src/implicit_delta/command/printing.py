"""Answers as text, JSON and CSV."""

import csv
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import numpy as np

import implicit_delta
from implicit_delta import Estimate
from implicit_delta.command.check import found
from implicit_delta.command.fitting import Fit, Specification
from implicit_delta.command.reading import Table
from implicit_delta.estimate.tabled import ON_SCALE, columns_of
from implicit_delta.estimate.tables import estimate_table, percent

SCHEMA = "implicit-delta/fit/1"
LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "patsy", "formulaic")
UNREPEATABLE = {"seconds"}  # of the diagnostics: the rest is the same in every run


@dataclass(frozen=True, eq=False)
class Answer:
    """A question as it was typed, its estimate, and the columns to print.

    Attributes
    ----------
    text : str
    estimate : Estimate
    columns : dict
        Of the table, at the level, null and transform that were asked for.
    how : dict
        Null and transform, for pages and pictures.
    """

    text: str
    estimate: Estimate
    columns: dict[str, list[Any]]
    how: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, estimate: Estimate, options: Any) -> "Answer":
        """Make the columns, which may refuse a transform or a null."""
        how = {"null": options.null, "transform": options.transform}
        return cls(text, estimate, columns_of(estimate, options.level, **how), how)


Answers = Sequence[Answer]


def as_text(answers: Answers, level: float) -> str:
    """Write a table for each answer, below its question."""
    return "\n\n".join(
        f"{one.text}, {percent(level)} confidence intervals\n{_table(one)}" for one in answers
    )


def _table(one: Answer) -> str:
    """Write the table; the line below it names a scale of tests that the user has chosen."""
    text, scale = estimate_table(one.columns), one.how.get("transform")
    if scale not in ON_SCALE:
        return text
    table, _, line = text.rpartition("\n")
    return f"{table}\n{line.replace(';', f' on the {scale} scale;', 1)}"


def as_json(content: dict[str, Any]) -> str:
    """Write at full precision; what is no finite number is null."""
    return json.dumps(plain(content), indent=2, allow_nan=False)


def document(
    answers: Answers,
    level: float,
    *,
    arguments: Sequence[str],
    table: Table,
    asked: Specification,
    fit: Fit,
    settings: dict[str, Any],
    warned: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Collect the answers with everything that repeats them."""
    kind = type(fit.results.model)
    return {
        "schema": SCHEMA,
        "command": ["implicit-delta", *arguments],
        "versions": _versions(),
        "data": {
            "file": table.name,
            "sha256": table.sha256,
            "rows_read": fit.rows_read,
            "rows_used": len(fit.frame),
        },
        "model": {
            **asdict(asked),
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "coefficients": list(fit.model.names),
        },
        "settings": {"level": level, **settings},
        "answers": [_answer(one) for one in answers],
        "notes": list(fit.notes),
        "warnings": list(warned),
    }


def write_csv(file: TextIO, answers: Answers) -> None:
    """Write the rows of all answers, each with its question, at full precision."""
    writer = csv.writer(file, lineterminator="\n")
    for k, one in enumerate(answers):
        if not k:
            writer.writerow(["ask", *one.columns])
        writer.writerows([one.text, *row] for row in zip(*one.columns.values(), strict=True))


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


def _answer(one: Answer) -> dict[str, Any]:
    columns, estimate = one.columns, one.estimate
    diagnostics = asdict(estimate.diagnostics)
    return {
        "ask": one.text,
        "method": estimate.method,
        "target": estimate.target,
        "rows": [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ],
        "covariance": estimate.covariance,
        "budget": {name: np.atleast_1d(error) for name, error in estimate.budget.items()},
        "diagnostics": {n: entry for n, entry in diagnostics.items() if n not in UNREPEATABLE},
    }


def _versions() -> dict[str, str | None]:
    own = {"implicit-delta": implicit_delta.__version__, "python": platform.python_version()}
    return {**own, **{name: found(name) for name in LIBRARIES}}
