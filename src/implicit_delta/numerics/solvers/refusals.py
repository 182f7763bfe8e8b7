"""The texts with which a matrix is refused that has no inverse, or not the right one."""

from collections.abc import Sequence

from implicit_delta.errors import NotAMaximumError

REMEDIES = (
    "Try `polish(model)`, a penalty (`l2=`), `Infinitesimal(damping=...)` or "
    '`Infinitesimal(curvature="ggn")`.'
)


def saddle(curvature: float) -> NotAMaximumError:
    """Say that the curvature is negative along one direction."""
    return NotAMaximumError(
        "The log-likelihood is not at a strict maximum: its curvature along one direction is "
        f"{curvature:.1e}. Usual causes: training stopped early, redundant parameters. {REMEDIES}",
        curvature,
    )


def flat(curvature: float, parameters: Sequence[int] = ()) -> NotAMaximumError:
    """Say that the curvature is zero to working precision along one direction."""
    where = ""
    if parameters:
        plural = "s" if len(parameters) > 1 else ""
        positions = ", ".join(str(index) for index in parameters)
        where = f", which moves mostly the parameter{plural} at position{plural} {positions}"
    return NotAMaximumError(
        "The log-likelihood has no strict maximum: it is flat, to working precision, along one "
        f"direction{where} (curvature {curvature:.1e}). Usual causes: redundant parameters "
        "(collinear columns, units that duplicate each other), parameters that the data do not "
        "reach. Remove what is redundant, or add a penalty (`l2=`) or "
        "`Infinitesimal(damping=...)`.",
        curvature,
    )


def not_finite() -> NotAMaximumError:
    """Say that a product with the matrix overflowed or is not a number."""
    return NotAMaximumError(
        "The curvature of the log-likelihood is not finite at the given parameters. Usual causes: "
        "parameters at the edge of their domain (a variance of zero), overflow in the "
        "log-likelihood or in its second derivative. Try a parametrization without edges "
        "(a log scale), a penalty (`l2=`), or float64."
    )
