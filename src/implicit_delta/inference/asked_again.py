"""Questions about whatever is fitted again: to the rows of the first fit, or of each fit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.questions import Question
from implicit_delta.models.prediction import as_table


def asked_again(question: Question, data: Any) -> Any:
    """Make a psi of a question and the data of the fits.

    Without data of its own a question is about the rows of the first fit, as they are; with
    ``population=True`` about those of each replicate, so that their sampling counts.
    """
    if not question.population:
        table = None if question.data is not None else rows_of(data)
        return OfTheseRows(question, table)
    if question.by is not None and len(np.shape(question.by)) and not _names(question.by):
        raise EvaluationError(
            "by= has a label for each row of the data, and the rows are others in each replicate. "
            "Make it a column of the data, and give its name."
        )
    fixed = replace(question, population=False)
    return OfEachFit(replace(fixed, scenarios=fixed.scenarios.fixed(rows_of(data))))


@dataclass(frozen=True, eq=False)
class OfTheseRows:
    """A question about the same rows after each fit."""

    question: Question
    table: Any

    @property
    def __name__(self) -> str:
        return self.question.scenarios.name

    def __call__(self, fitted: Any) -> Any:
        """Answer for what was fitted."""
        return self.question(fitted, self.table)


@dataclass(frozen=True, eq=False)
class OfEachFit:
    """A question about the rows of each fit."""

    question: Question

    @property
    def __name__(self) -> str:
        return self.question.scenarios.name

    def __call__(self, fitted: Any, data: Any) -> Any:
        """Answer for what was fitted to these data."""
        return self.question(fitted, rows_of(data))


def rows_of(data: Any) -> Any:
    """Take the table of regressors out of the data of a fit: itself, or its first part."""
    first = data
    if isinstance(data, tuple | list):
        first = data[0]
    elif isinstance(data, Mapping) and np.ndim(next(iter(data.values()))) == 2:
        first = data.get("X", next(iter(data.values())))
    if hasattr(first, "toarray"):
        first = first.toarray()
    return as_table(first, first)


def _names(by: Any) -> bool:
    return isinstance(by, list | tuple) and all(isinstance(name, str) for name in by)
