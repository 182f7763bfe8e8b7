"""What the ecosystems whose models are modules check and advise alike."""

import warnings
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import NotDeterministicWarning, UnsupportedModelError

RANDOM = 1e-3  # of the size of the terms: two runs that differ by more are not one function
ROUNDING = 100.0  # times the precision of the type: what the order of a sum may change
MOST_NAMES = 10_000  # beyond, a table of parameters has no reader

GRADIENT_FREE = (
    "For a psi without a gradient use `Simulation()`, `Bootstrap()` or "
    "`FiniteDifference(maximize=nelder_mead)`."
)
NO_OUTPUTS = (
    'curvature="ggn" needs to know the outputs of the model and the likelihood of the targets '
    "given them: use `Gaussian()`, `Bernoulli()`, `Categorical()` or `Poisson()`. A loglik "
    'function of your own has only curvature="hessian".'
)


def check_numbers(l2: float, batch_size: int | None) -> None:
    """Refuse what is not a penalty or a batch size."""
    if not np.isfinite(l2) or l2 < 0:
        raise ValueError(f"l2 must be a finite number >= 0, not {l2!r}.")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size!r}.")


def check_one_per_row(shape: tuple[int, ...], call: str) -> None:
    """Insist on terms (b,): not their mean, not their sum."""
    if len(shape) == 1:
        return
    what = "one number" if len(shape) == 0 else f"shape {tuple(shape)}"
    raise ValueError(
        f"{call} returned {what}, but must return one log-likelihood per row of the batch, shape "
        '(b,). Return the terms without summing or averaging them (reduction="none", then a sum '
        "over all that belongs to one row): with a mean the standard error would silently be "
        "wrong by sqrt(n)."
    )


def check_finite(terms: Array, remedy: str) -> None:
    """Name the first row whose term is not finite."""
    bad = np.flatnonzero(~np.isfinite(terms))
    if bad.size:
        raise ValueError(
            f"The log-likelihood is {terms[bad[0]]} for row {bad[0]} ({bad.size} of {terms.size} "
            "are not finite). Are there missing values in the data, an overflow in float32 "
            f"(try {remedy}), or did the training diverge?"
        )


def check_same(first: Array, second: Array, precision: float, text: str) -> None:
    """Refuse terms that differ between two runs; warn if they do by little.

    The text has a place for the gap, relative to the mean size of the terms.
    """
    gap = float(np.max(abs(first - second))) / (float(np.mean(abs(first))) + 1e-300)
    if gap <= ROUNDING * precision:
        return
    if gap > RANDOM:
        raise UnsupportedModelError(text.format(gap=gap))
    warnings.warn(text.format(gap=gap), NotDeterministicWarning, stacklevel=5)


def parameter_names(layout: Any) -> tuple[str, ...] | None:
    """Name each of the d numbers in pairs of a name and a shape: ``0.weight[2,1]``."""
    if sum(int(np.prod(shape)) for _, shape in layout) > MOST_NAMES:
        return None
    return tuple(label for name, shape in layout for label in _labels(name, shape))


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    if int(np.prod(shape)) == 1:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]
