"""Linear combinations of evaluations, and what they are called."""

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.estimate.quantiles import deviations


def combine(rows: Array, V: Array) -> Array:
    """Return ``rows @ V @ rows.T``, with variances that are nothing but rounding set to zero."""
    combined = rows @ V @ rows.T
    scale = np.abs(rows) @ deviations(V)
    rounding = 4 * len(V) * np.finfo(np.float64).eps * scale**2
    combined[np.abs(np.diag(combined)) <= rounding, :] = 0.0
    combined[:, np.diag(combined) == 0.0] = 0.0
    return (combined + combined.T) / 2


def combination_names(rows: Array, names: tuple[str, ...]) -> tuple[str, ...]:
    """Spell out each combination; one that is too long gets a number."""
    return tuple(_spelled(row, names) or f"contrast[{i}]" for i, row in enumerate(rows))


def _spelled(row: Array, names: tuple[str, ...]) -> str:
    """Write up to three terms in words, those with a plus first; nothing for longer sums."""
    used = sorted(np.flatnonzero(row), key=lambda k: row[k] < 0)
    if not 1 <= len(used) <= 3:
        return ""
    text = "".join(f" {'-' if row[k] < 0 else '+'} {_factor(abs(row[k]))}{names[k]}" for k in used)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def _factor(size: float) -> str:
    return "" if size == 1 else f"{size:.4g} "
