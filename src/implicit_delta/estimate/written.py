"""An estimate with all it knows: as text, and for notebooks, where all but the table folds."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.tables import (
    aligned,
    as_html,
    budget_cells,
    decimals,
    diagnostic_cells,
    elided,
    estimate_rows,
    estimate_table,
    percent,
    tests_line,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from implicit_delta.estimate import Estimate
    from implicit_delta.estimate.diagnostics import Diagnostics


def estimate_text(estimate: Estimate, level: float, null: Any, transform: Any) -> str:
    """Write the table with the method, the sources of error and the diagnostics."""
    K = len(estimate.names)
    title = (
        f"{K} evaluation{'s' * (K > 1)} by {estimate.method}, {percent(level)} confidence intervals"
    )
    blocks = [title, estimate_table(estimate.to_dict(level, null=null, transform=transform))]
    if estimate.target:
        blocks.append(f"Target: {estimate.target}.")
    if len(estimate.budget) > 2:
        blocks.append(f"{estimate.budget.title}\n{aligned(estimate.budget.cells())}")
    diagnostics = diagnostic_cells(estimate.diagnostics)
    if diagnostics:
        blocks.append("Diagnostics\n" + aligned(diagnostics, left=True))
    return "\n\n".join(blocks)


def estimate_html(estimate: Estimate) -> str:
    """Write the table, the target, and what folds."""
    columns = estimate.to_dict()
    caption = f"{estimate.method}, {percent(0.95)} confidence intervals. {tests_line(columns)}"
    blocks = [as_html(estimate_rows(columns), caption)]
    if estimate.target:
        blocks.append(f"<p>Target: {html.escape(estimate.target)}.</p>")
    if len(estimate.budget) > 2:
        blocks.append(estimate.budget._repr_html_())
    return "".join([*blocks, diagnostics_html(estimate.diagnostics)])


def diagnostics_html(diagnostics: Diagnostics) -> str:
    """Write the diagnostics that are known, folded; nothing where none is."""
    cells = diagnostic_cells(diagnostics)
    return _folded("Diagnostics", as_html([["", "value", "meaning"], *cells], "")) if cells else ""


class Budget(dict[str, Any]):
    """Standard error by source: a dict, with a table that folds in notebooks."""

    def __init__(self, errors: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """Keep the names of the evaluations for the table."""
        super().__init__(errors)
        self.names = names

    def __reduce__(self) -> Any:
        """Rebuild through the constructor, which takes the names too."""
        return Budget, (dict(self), self.names)

    @property
    def title(self) -> str:
        """Heading of the table."""
        bias = " (drift, a possible bias, is not in the total)" if "drift" in self else ""
        return f"Standard error by source{bias}"

    def _repr_html_(self) -> str:
        return _folded(self.title, as_html(self.cells(), ""))

    def cells(self) -> list[list[str]]:
        """Format one row per evaluation, one column per source."""
        errors = {source: np.atleast_1d(error) for source, error in self.items()}
        digits = decimals(errors["total"], errors["total"])
        rows = list(zip(digits, self.names, *errors.values(), strict=True))
        return elided(["", *errors], rows, budget_cells)


def _folded(title: str, content: str) -> str:
    """Fold on one line of the source, so that a table keeps its lines whatever follows it."""
    inside = " ".join(content.splitlines())
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"
