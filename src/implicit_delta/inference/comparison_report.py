"""Pages of a comparison of methods and of a profile."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.held import changed
from implicit_delta.estimate.report import Opinion, write_page

if TYPE_CHECKING:
    from implicit_delta.estimate import Interval
    from implicit_delta.inference.comparison import Comparison, Row
    from implicit_delta.inference.profile.result import Profile


def comparison_report(
    comparison: Comparison,
    path: str | os.PathLike[str],
    title: str | None,
    question: str | None,
) -> Path:
    """Write the page of the first estimate, with all methods as second opinions."""
    estimates = {
        method: result
        for method, result in comparison.results.items()
        if isinstance(result, Estimate)
    }
    if not estimates:
        raise ValueError(
            "No method has given an estimate to write a page of"
            + "".join(f"; {method}: {why}" for method, why in comparison.failures.items())
            + ". Add one that answers, or write the page of a profile by its own `report`."
        )
    first = next(iter(estimates))
    rows = sorted(comparison.rows, key=lambda row: row.method != first)  # stable
    opinions = [
        Opinion(
            row.method, row.term, row.estimate, row.low, row.high,
            comparison.failures.get(row.method, ""), _pieces(comparison, row),
        )
        for row in rows
    ]  # fmt: skip
    return write_page(
        path,
        changed(estimates[first], names=tuple(comparison.names)),  # a function may name its own
        title=title,
        question=question,
        confidence_level=comparison.confidence_level,
        opinions=opinions,
    )


def _pieces(comparison: Comparison, row: Row) -> tuple[Interval, ...]:
    """Return all pieces of a profile; other methods have one interval."""
    found = comparison.results.get(row.method)
    if not isinstance(found, tuple):
        return ()
    return found[comparison.names.index(row.term)].pieces[comparison.confidence_level]


def profile_report(
    profile: Profile,
    path: str | os.PathLike[str],
    title: str | None,
    question: str | None,
) -> Path:
    """Write the page of the likelihood-ratio interval, with the symmetric one beside it."""
    level, interval = next(iter(profile.intervals.items()))
    own, wald = (
        Opinion(method, profile.name, profile.value, float(low), float(high), pieces=pieces)
        for method, (low, high), pieces in (
            ("profile", interval, profile.pieces[level]),
            ("Wald", profile.wald(level), ()),
        )
    )
    return write_page(
        path,
        _estimate_of(profile, level),
        title=title,
        question=question,
        confidence_level=level,
        pieces=profile.pieces[level],
        opinions=[own, wald],
    )


def _estimate_of(profile: Profile, level: float) -> Estimate:
    """Carry value, errors and notes over; a page draws the profile's own interval."""
    sources = {name: error for name, error in profile.budget.items() if name != "total"}
    parts = {name: [[error**2]] for name, error in sources.items()} if len(sources) > 1 else {}
    notes = {"limits": ", ".join(profile.limits)} if profile.limits else {}
    if len(profile.pieces[level]) > 1:
        notes["pieces"] = "the values are not one interval: all pieces are in the answer"
    penalty = "psi at the maximum of the penalized likelihood, not at the true parameters"
    return Estimate(
        value=profile.value,
        covariance=[[profile.standard_error**2]],  # type: ignore[arg-type]
        names=(profile.name,),
        method=f"profile(model, psi, confidence_level={level:g})",
        parts=parts,  # type: ignore[arg-type]
        df=profile.df if profile.df > 0 else math.inf,
        target=penalty if profile.penalized else "",
        diagnostics=Diagnostics(passes=profile.passes, seconds=profile.seconds, notes=notes),
    )
