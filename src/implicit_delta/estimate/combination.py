"""Linear combinations of evaluations: covariances, draws, names."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.dependence import add_errors
from implicit_delta.core.factored import Covariance, Factored, settled
from implicit_delta.core.types import Array
from implicit_delta.estimate.maps import product, row_entries
from implicit_delta.estimate.quantiles import deviations

SOURCE = "model: "  # opens the name of a part that is one data set's share of the model's


def without_sources(parts: Mapping[str, Covariance]) -> dict[str, Covariance]:
    """Put the shares of data sets together again, as the part ``model``."""
    shares = [V for part, V in parts.items() if part.startswith(SOURCE)]
    others = {part: V for part, V in parts.items() if not part.startswith(SOURCE)}
    return {"model": sum(shares[1:], shares[0]), **others} if shares else others


def combine(rows: Any, V: Covariance) -> Covariance:
    """Return ``rows @ V @ rows.T``, with variances that are nothing but rounding set to zero."""
    combined = product(rows, V)
    scale = np.abs(rows) @ deviations(V)
    rounding = 4 * len(V) * np.finfo(np.float64).eps * scale**2
    if isinstance(combined, Factored):
        return settled(combined.scaled(1.0 * (np.abs(combined.diagonal()) > rounding)))
    combined[np.abs(np.diag(combined)) <= rounding, :] = 0.0
    combined[:, np.diag(combined) == 0.0] = 0.0
    return (combined + combined.T) / 2


def added(
    parts: Mapping[str, Covariance],
    bound: Callable[[Covariance, Covariance], Covariance] = add_errors,
) -> Covariance:
    """Return the total of parts of which model and evaluation depend on each other somehow."""
    rest = [V for part, V in parts.items() if part not in ("model", "evaluation")]
    return sum(rest, bound(parts["model"], parts["evaluation"]))


def combine_draws(rows: Any, draws: Array, before: Array, after: Array) -> Array:
    """Combine draws of the model's part that were stretched to the total, and stretch them anew.

    `before`, (K,), and `after`, (q,), are the ratios of total and model, for the evaluations and
    for their combinations.
    """
    center = draws.mean(axis=0)
    return np.asarray(center @ rows.T + after * ((draws - center) / before @ rows.T))


def stretch(parts: Mapping[str, Covariance], total: Covariance) -> Array:
    """Return the ratio of the total standard error to that of the draws, 1 where that is none.

    These are of the model alone, or of the rows of an average and the model together.
    """
    model = deviations(parts.get("model", parts.get("rows", total)))
    return np.divide(deviations(total), model, out=np.ones_like(model), where=model > 0)


def combination_names(rows: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Spell out each combination; one that is too long gets a number."""
    entries = enumerate(row_entries(rows))
    return tuple(_spelled(*row, names) or f"contrast[{i}]" for i, row in entries)


def _spelled(places: NDArray[Any], sizes: Array, names: tuple[str, ...]) -> str:
    """Write up to three terms in words, those with a plus first; nothing for longer sums."""
    if not 1 <= len(places) <= 3:
        return ""
    used = sorted(zip(places, sizes, strict=True), key=lambda term: term[1] < 0)
    text = "".join(f" {'-' if c < 0 else '+'} {_multiple(c, names[k])}" for k, c in used)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def _multiple(size: float, name: str) -> str:
    if size == 1:
        return name
    return grouped(name) if size == -1 else f"{abs(size):.4g} {grouped(name)}"


def grouped(name: str) -> str:
    """Put a name that is a sum, a product or a quotient in brackets."""
    return f"({name})" if any(f" {sign} " in name for sign in "+-*/") else name
