"""Questions about whatever is fitted again: to the rows of the first fit, or of each fit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.core.findings import Finding, present
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Average, Replicated, Smoothed, Statistic
from implicit_delta.evaluation.entries import entries_of
from implicit_delta.evaluation.questions import Question, Worded
from implicit_delta.evaluation.replicated import accepts_rng
from implicit_delta.inference.several import several
from implicit_delta.models.prediction import as_table


def asked_again(psi: Any, data: Any = None) -> Any:
    """Make one function of what was fitted, of a question or of a list or dict of them.

    What is neither is returned as it is.
    """
    entries = entries_of(psi)
    if entries is not None:
        functions = [asked_again(_checked(entry.psi), data) for entry in entries]
        return several(entries, functions)
    return _of_question(psi, data) if isinstance(psi, Question) and data is not None else psi


def _of_question(question: Question, data: Any) -> Any:
    """Make a psi of a question and the data of the fits.

    Without data of its own a question is about the rows of the first fit, as they are; with
    ``population=True`` about those of each replicate, so that their sampling counts.
    """
    if not question.population:
        return OfTheseRows(question, table=None if question.data is not None else rows_of(data))
    if question.by is not None and len(np.shape(question.by)) and not _names(question.by):
        raise EvaluationError(
            "by= has a label for each row of the data, and the rows are others in each replicate. "
            "Make it a column of the data, and give its name."
        )
    rows, scenarios = rows_of(data), question.scenarios
    fixed = replace(question, population=False, scenarios=scenarios.fixed(rows))
    return OfEachFit(fixed, present(scenarios.range_in(rows)))


def _checked(psi: Any) -> Any:
    """Refuse an entry whose own error a list or dict of black boxes has no place for."""
    entries = entries_of(psi)
    random = callable(psi) and not isinstance(psi, Question) and accepts_rng(psi)
    if isinstance(psi, Average | Replicated | Smoothed | Statistic) or random:
        what = "a random function" if random else type(psi).__name__
        raise TypeError(
            f"{what} adds an error of its own, and stands alone here: "
            "a list or dict for `bootstrap` and `refit` holds plain functions of what was fitted "
            "and questions. Ask for it in a call of its own."
        )
    if not callable(psi) and entries is None:
        raise TypeError(
            f"An entry of psi is {psi!r:.40}, but must be a function of what was fitted, "
            '`lambda fitted: ...`, or a question such as `average_comparison("x")`. Names of '
            "parameters are for fitted models, `infer(model, psi)`."
        )
    return psi


@dataclass(frozen=True, eq=False)
class _OfFits(Worded):
    """A question about whatever is fitted."""

    question: Question
    findings: tuple[Finding, ...] = ()

    @property
    def __name__(self) -> str:
        return self.question.__name__

    @property
    def scale(self) -> str:
        return self.question.scale

    def sentence(self) -> str:
        return self.question.sentence()


@dataclass(frozen=True, eq=False)
class OfTheseRows(_OfFits):
    """A question about the same rows after each fit."""

    table: Any = None

    def __call__(self, fitted: Any) -> Any:
        """Answer for what was fitted."""
        return self.question(fitted, self.table)


@dataclass(frozen=True, eq=False)
class OfEachFit(_OfFits):
    """A question about the rows of each fit."""

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
