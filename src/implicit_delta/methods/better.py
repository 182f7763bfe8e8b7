"""Better optima that a method meets on its way."""

from collections.abc import Iterable

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.models.coordinates import start_text
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network

HIGHER, ROUNDED = 0.01, 1e-7  # rise of the objective, and relative to it, that is no rounding
UNFINISHED = 0.5  # rise that is left where psi drifts by up to one standard error


def risen(model: FittedModel, theta: Array, top: float) -> float:
    """Measure by how much the objective is higher at theta than at the fit; zero where it ends."""
    with np.errstate(all="ignore"):
        gain = model.objective(theta) - top
    return float(gain) if ROUNDED * abs(top) < gain < np.inf else 0.0


def better_optimum(
    model: FittedModel, found: Iterable[tuple[float, Array]], where: str, least: float = HIGHER
) -> Finding | None:
    """Find the best of some thetas, with the rise there, if it is better than the fit.

    A network is hardly ever at its highest maximum, and nobody expects it.
    """
    gain, theta = max(found, key=lambda pair: pair[0], default=(0.0, model.theta))
    if is_network(model) or gain <= least:
        return None
    return Finding(
        "warn",
        "better_optimum",
        f"A better optimum was found {where}: the objective is higher by {gain:.4g} at theta = "
        f"{start_text(model, theta)}. The model has stopped at a local maximum, and what is said "
        "here is about that one.",
        number=gain,
        remedies=(
            f"Fit it again from there: {model.facts.source or 'from_...'}(..., "
            f"start={start_text(model, theta)}).",
        ),
    )
