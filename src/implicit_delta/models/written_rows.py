"""Rows of any backend as functions of the parameters, which add to those of a user."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.rows import NormalizedRows, RedrawableRows, Rows
from implicit_delta.models.weights import Weights


def can_be_written(model: Any) -> bool:
    """Whether the rows are stored here and know their log-likelihood with all its constants."""
    rows = model.rows
    if isinstance(rows, LoglikRows):
        return True
    known = isinstance(rows, NormalizedRows) and not hasattr(rows, "processes")
    return known and bool(np.isfinite(log_likelihood_of(model)))


def written_rows(rows: Rows) -> LoglikRows:
    """Take the terms and their slopes for functions."""
    if isinstance(rows, LoglikRows):
        return rows
    draw = DrawOf(rows) if isinstance(rows, RedrawableRows) else None
    return LoglikRows(TermsOf(rows), rows.n, rows.d, SlopesOf(rows), draw=draw)


@dataclass(frozen=True, eq=False)
class TermsOf:
    """The terms, (d,) to (n,)."""

    rows: Rows

    def __call__(self, theta: Array) -> Array:
        return self.rows.terms(theta)


@dataclass(frozen=True, eq=False)
class SlopesOf:
    """Derivatives of the terms, (d,) to (n, d)."""

    rows: Rows

    def __call__(self, theta: Array) -> Array:
        blocks = self.rows.terms_along(theta, np.eye(theta.size))
        return np.concatenate([block for _, block in blocks])


@dataclass(frozen=True, eq=False)
class DrawOf:
    """Draws of new data."""

    rows: RedrawableRows

    def __call__(
        self, rows: LoglikRows, theta: Array, weights: Weights, rng: np.random.Generator
    ) -> LoglikRows:
        return written_rows(self.rows.redraw(theta, weights, rng))
