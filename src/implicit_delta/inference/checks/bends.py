"""Bends: a psi that is not close to linear within its standard error."""

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import BEND_REFUSES, BEND_WARNS, PLAIN_WARNS
from implicit_delta.errors import ConvergenceError, NonlinearityWarning
from implicit_delta.inference.checks.case import Case

DRAWS_WARN = 0.05  # of the variance of psi over draws, by what is not linear
STRAIGHTENED = (
    "Use `profile(model, psi)`, `Simulation()`, `Smoothed(psi)` if it has steps or many kinks, or "
    "a transform of psi that is closer to linear."
)
SANDWICHED = (
    "Ask for a transform of psi that is closer to linear, or use `bootstrap(fit, data, psi)`, "
    "which fits to resampled rows."
)


def bend(case: Case) -> Finding | None:
    """Find a psi that bends within half a standard error; NaN is unknown.

    Without falls of the objective the bend is a plain one, against the length of the step.
    """
    found, response, evaluation = case.bend, case.response, case.evaluation
    if not found > (BEND_WARNS if response.falls else PLAIN_WARNS):
        return None
    several = evaluation.size > 1 and response.bent is not None
    of = f" of {evaluation.names[response.bent or 0]!r:.60}" if several else ""
    on = ", on the log scale," if evaluation.logs[response.bent or 0] else ""
    by_equations = case.model is not None and (not case.model.rows.symmetric)
    return Finding(
        "refuse" if found > BEND_REFUSES else "warn",
        "bend",
        f"psi bends within half a standard error (nonlinearity {found:.2g}{of}, where 0 is a "
        f"straight line), so a symmetric interval{on} is doubtful.",
        number=found,
        remedies=(SANDWICHED if by_equations else STRAIGHTENED,),
        error=ConvergenceError,
        warning=NonlinearityWarning,
    )


def bent_draws(case: Case) -> Finding | None:
    """Find a robust variance that replaces that of draws over which psi bends."""
    share = case.nonlinear_share
    if not share > DRAWS_WARN:
        return None
    return Finding(
        "warn",
        "bent_draws",
        f"{share:.0%} of the variance of psi over the draws is not linear in the parameters, "
        "and a robust variance is that of the linear part: it is doubtful here, and there are "
        "no percentiles.",
        number=share,
        remedies=("Use `Bootstrap()`, which is robust and follows a psi that bends.",),
        warning=NonlinearityWarning,
    )
