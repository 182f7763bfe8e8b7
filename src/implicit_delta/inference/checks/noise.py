"""Noise: a log-likelihood that is computed too roughly for its derivatives."""

from implicit_delta.core.findings import Finding
from implicit_delta.inference.checks.case import Case
from implicit_delta.models.objective import objective_of
from implicit_delta.models.rows import DifferencedRows

SHOWN = 1e-3  # of a standard error: it changes the digits that are printed


def noise(case: Case) -> Finding | None:
    """Find noise of the log-likelihood, and how uncertain it leaves a standard error."""
    model = case.model
    if model is None or not isinstance(model.rows, DifferencedRows):
        return None
    found, doubt = objective_of(model).uncertainty()
    if not found:
        return None
    share = doubt / 2  # of a variance
    return Finding(
        "warn" if share > SHOWN else "note",
        "noise",
        f"The log-likelihood is noisy: from one theta to the next it changes by a standard "
        f"deviation of {found:.1g} that no slope explains. Derivatives were taken over steps that "
        f"are long enough for that; a standard error is uncertain by at most {share:.1g} of "
        "itself.",
        number=found,
        causes=(
            "an ODE solver, a quadrature or an optimizer inside of it with a loose tolerance",
            "too few random numbers",
            "single precision",
        ),
        remedies=("Compute it more tightly, if these digits matter.",),
    )
