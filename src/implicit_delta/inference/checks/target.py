"""Target: what the interval covers is not the truth, or its limit is close."""

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import SHRINKAGE_WARNS
from implicit_delta.errors import ShrinkageWarning
from implicit_delta.inference.checks.case import Case
from implicit_delta.models.penalty import names_of


def shrinkage(case: Case) -> Finding | None:
    """Find a psi that the penalty has moved by much of its standard error."""
    found = case.target.shrinkage
    if case.model is None or not found > SHRINKAGE_WARNS:
        return None
    note = names_of(case.model.penalty.ridges)
    return Finding(
        "warn",
        "shrinkage",
        f"The penalty has moved psi by {found:.2g} standard errors (shrinkage), and the interval "
        f"covers psi of the penalized fit, not the truth.{f' {note}' if note else ''}",
        number=found,
        remedies=(
            "Fit the model without it, or use `infer(model, psi, debias=True)`, one Newton step "
            "without the penalty.",
        ),
        warning=ShrinkageWarning,
    )


def limit(case: Case) -> Finding | None:
    """Find an estimate that is close to a limit of its constraints."""
    if not case.near:
        return None
    return Finding(
        "warn",
        "limit",
        f"The estimate is close to a limit of its constraints: {case.near}. So close there is no "
        "normal approximation. The standard error takes no notice of a limit that is not reached, "
        "and is made as if one that is reached were known to hold, which may be far too small.",
        remedies=("Use `profile(model, psi)`, whose interval respects the constraints.",),
    )
