"""Validate and convert what users give to `from_*` functions; count passes over the data."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.types import Array


def given_point(theta: Any, start: Any, l2: float, what: str) -> Array:
    """Take the parameters from where they were given: the maximum itself, or a start."""
    if (theta is None) == (start is None):
        raise ValueError(
            f"Give either theta= ({what}) or start= (where to start looking for it), and not both."
        )
    if not np.isfinite(l2) or l2 < 0:
        raise ValueError(f"l2 must be a finite number >= 0, not {l2!r}.")
    return as_parameters(theta if theta is not None else start)


@dataclass
class Counter:
    """Passes over the data; shared by a model and what is made from it.

    Attributes
    ----------
    count : int
    seconds : float
        Of the last one, where that was measured.
    bar : optional
        Shows them while it is open; a pickled counter has none.
    """

    count: int = 0
    seconds: float = 0.0
    bar: Any = None

    def called(self, seconds: float) -> None:
        """Count a call that took this long."""
        self.count, self.seconds = self.count + 1, seconds
        if self.bar is not None:
            self.bar.update(1)

    def __reduce__(self) -> tuple[type["Counter"], tuple[int, float]]:
        return Counter, (self.count, self.seconds)


def as_parameters(values: Any) -> Array:
    """Check and copy parameters given by a user."""
    point = np.array(values, dtype=np.float64)
    if point.ndim == 0:
        point = point.reshape(1)
    if point.ndim != 1 or point.size == 0:
        raise ValueError(f"The parameters must be one flat vector (d,), not {point.shape}.")
    if not np.all(np.isfinite(point)):
        raise ValueError(f"The parameters are not finite: {point}.")
    return point


class NoRowsError(ValueError):
    """There is no row, or none that counts."""


def as_weights(weights: Any, n: int) -> Array:
    """Check and copy observation weights given by a user."""
    if weights is None:
        return np.ones(n)
    if isinstance(weights, str):
        raise ValueError(
            f"weights is {weights!r}, but there are {n} observations: give one weight for each. "
            f"Names of columns are not looked up: give the column, `df[{str(weights)!r}]`."
        )
    array = np.array(weights, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(
            f"weights has shape {array.shape}, but there are {n} observations: give one weight "
            f"for each, shape ({n},)."
        )
    if not np.any(array):
        raise NoRowsError(
            "weights are all zero, and must be finite, none negative and at least one positive."
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError("weights must be finite, none negative and at least one positive.")
    return array


def as_rate(optimizer: Any) -> float:
    """Check a learning rate given by a user."""
    if isinstance(optimizer, int | float) and 0 < optimizer < np.inf:
        return float(optimizer)
    raise TypeError(
        "This model is trained by plain stochastic gradient ascent: give the learning rate as a "
        f"positive number, not {optimizer!r}."
    )


def refuse_masked(values: Any, name: str) -> None:
    """Refuse an array with masked values: its rows would count."""
    if np.ma.is_masked(values):
        raise ValueError(
            f"{name}(theta) returned an array with {np.ma.getmaskarray(values).sum()} masked "
            "values. Use the rows that are known alone, `y.compressed()`, and the same rows of "
            "everything else."
        )


def count_terms(values: Any, name: str) -> int:
    """Return n if the values are n finite terms; explain what is wrong otherwise."""
    terms = np.asarray(values)
    if terms.ndim == 0:
        raise ValueError(
            f"{name}(theta) returned one number, {terms[()]}, where one value per observation, "
            "shape (n,), is needed. Return the terms without summing or averaging them: with a "
            "mean the standard error would silently be wrong by sqrt(n). If the data really are "
            "one dependent observation, return their whole log-likelihood with shape (1,)."
        )
    if terms.shape == (0,):
        raise NoRowsError(f"{name}(theta) returned shape (0,): there are no observations.")
    if terms.ndim != 1 or terms.size == 0:
        raise ValueError(
            f"{name}(theta) returned shape {terms.shape}, but must return one log-likelihood per "
            "observation, shape (n,). Sum over everything that belongs to one observation"
            f"{', for example with .ravel()' if terms.size == max(terms.shape, default=0) else ''}."
        )
    if terms.dtype.kind not in "fiub":
        raise ValueError(f"{name}(theta) returned values of type {terms.dtype}, not real numbers.")
    outside = "or parameters outside their range, such as a negative variance?"
    check_finite_terms(terms, f"{name}(theta) is {{term}} for observation {{row}}", outside)
    return terms.size


def check_finite_terms(terms: Any, opening: str, causes: str) -> None:
    """Name the first observation whose term is not finite.

    The opening has places for the number of the ``{row}`` and its ``{term}``.
    """
    bad = np.flatnonzero(~np.isfinite(terms))
    if bad.size:
        raise ValueError(
            f"{opening.format(row=bad[0], term=terms[bad[0]])} ({bad.size} of {terms.size} are not "
            f"finite). Are there missing values in the data, {causes}"
        )


def check_rows(values: Any, shape: tuple[int, int], name: str) -> None:
    """Explain what is wrong with derivatives of rows, if anything is."""
    rows = np.asarray(values)
    if rows.shape != shape:
        raise ValueError(
            f"{name}(theta) returned shape {rows.shape}, but must return one row per observation "
            f"and one column per parameter, {shape}: not summed over observations."
        )
    if not np.all(np.isfinite(rows.astype(np.float64))):
        raise ValueError(f"{name}(theta) has entries that are NaN or infinite.")


def as_seed(rng: Any) -> int:
    """Reduce a scipy-style `rng` to one number, so that the draws can be named and repeated."""
    if rng is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**32))
    if isinstance(rng, int | np.integer) and rng >= 0:
        return int(rng)
    raise ValueError(f"rng must be a seed (an integer >= 0), a numpy Generator or None: {rng!r}.")
