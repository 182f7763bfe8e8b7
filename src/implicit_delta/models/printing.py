"""Text of `print(model)`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.penalty import names_of
from implicit_delta.models.processes import processes_of
from implicit_delta.models.rows import NormalizedRows
from implicit_delta.models.starts import spelled_optima

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def name_of_model(model: Any) -> str:
    """Name the function that made a model, or the type of anything else, for messages."""
    source = getattr(getattr(model, "facts", None), "source", "")
    return str(source or type(model).__name__)


def log_likelihood_of(model: "FittedModel") -> float:
    """Log-likelihood at theta with all its constants; NaN where these are not known."""
    if not isinstance(model.rows, NormalizedRows):
        return np.nan
    return model.rows.log_likelihood(model.theta, model.weights)


def headline(model: "FittedModel") -> str:
    """Write where the model comes from, its sizes and its log-likelihood in one line."""
    fixed = f" ({len(model.space.fixed)} fixed)" if model.space.fixed else ""
    rows = f"{model.n} rows, " if model.n else ""
    sizes = f"{model.facts.source or 'FittedModel'}: {rows}{model.d} parameters{fixed}"
    value = np.nan if processes_of(model).is_collective else log_likelihood_of(model)
    if not np.isfinite(value):
        return sizes
    digits = f"{value:.1f}" if 100 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{sizes}, log-likelihood {digits}"


def described(model: "FittedModel", opening: str) -> str:
    """Write a line on the likelihood, the penalty and each constraint below an opening."""
    lines = _lines(model)
    if np.any(model.weights.values != 1):
        lines["weights"] = f"{range_text(model.weights.values)} ({model.weights.kind})"
    return "\n".join([opening, *(f"  {label}: {text}" for label, text in lines.items())])


def _lines(model: "FittedModel") -> dict[str, str]:
    ridges = [np.ravel(ridge.strength) for ridge in model.penalty.given.ridges]
    strengths = np.concatenate(ridges) if ridges else np.zeros(1)
    written = names_of(model.penalty.functions)
    lines = {**model.facts.notes, **({"penalty": written} if written else {})}
    if np.any(strengths):
        lines["l2" if strengths.size == 1 else "ridge"] = range_text(strengths)
    if stop := model.penalty.early_stop:
        lines["early stop"] = f"ridge {stop.strength:.3g} (evidence)"
    if model.space.constraints is not None:
        lines["constraints"] = str(model.space.constraints)
    if model.facts.optima:
        lines["optima"] = spelled_optima(model.facts.optima)
    return lines


def range_text(values: Array) -> str:
    """Write the smallest and the largest of some numbers."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
