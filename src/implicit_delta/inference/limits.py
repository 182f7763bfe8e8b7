"""Report of the constraints that hold an estimate, or are close to it."""

from implicit_delta._core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.models.boundaries import near_limits


def told_of_limits(evaluation: Evaluation) -> dict[str, str]:
    """Note the active constraints with their multipliers; warn of limits close by."""
    model = evaluation.fitted
    if model is None or model.constraints is None:
        return {}
    active, near = model.active(), near_limits(model)
    notes = {"constraints": str(active)}
    if not near:
        return notes
    told = "; ".join(map(str, near))
    warn(
        f"The estimate is close to a limit of its constraints: {told}. So close there is no normal "
        "approximation. The standard error takes no notice of a limit that is not reached, and is "
        "made as if one that is reached were known to hold, which may be far too small. Use "
        "`profile(model, psi)`, whose interval respects the constraints.",
        ImplicitDeltaWarning,
    )
    return {**notes, "near": told}
