"""Checks and advice that torch and JAX models share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from implicit_delta.core.rounding import sum_rounding
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.core.warn import warn
from implicit_delta.errors import EvaluationError, NotDeterministicWarning, UnsupportedModelError
from implicit_delta.likelihoods import Likelihood

RANDOM = 1e-3  # of the size of the terms: two runs that differ by more are not one function

EVIDENCE = "evidence"
GRADIENT_FREE = (
    "A metric of rows (accuracy, AUC, F1) is a `Statistic(units, function)`. For another psi "
    "without a gradient use `Simulation()`, or `Bootstrap()` if the training was finished."
)
NO_ROWS = "There are no rows in data."


@dataclass(frozen=True)
class Words:
    """Words of a backend in messages, and the type of its arrays."""

    owner: str  # the first argument of the user's functions
    array: str
    kind: type
    needed: str  # ends where the type of what was given follows


@dataclass(frozen=True)
class Options:
    """Arguments that `from_torch` and `from_jax` share; see there."""

    l2: float | Literal["evidence"]
    penalty: Callable[[Any], Any] | None
    batch_size: int | None
    weights: Any
    weight_kind: WeightKind
    dtype: Any
    outputs: Callable[[Any, Any], Any] | None = None
    targets: Callable[[Any], Any] | None = None
    parameters: Any = None
    start: Any = None
    checkpoints: Any = None
    replicates: Any = None
    columns: Any = None

    @property
    def ridge(self) -> float:
        """The coefficient of the penalty of the training; none if the evidence is to find one."""
        return 0.0 if self.l2 == EVIDENCE else float(self.l2)

    def __post_init__(self) -> None:
        if self.l2 != EVIDENCE and (isinstance(self.l2, str) or not 0 <= self.l2 < np.inf):
            raise ValueError(f'l2 must be a finite number >= 0 or "evidence", not {self.l2!r}.')
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size!r}.")


def refuse_own(parameter: str, entry: str, copy: str, given: str) -> NoReturn:
    """Refuse psi because it uses the user's own fitted object rather than its argument."""
    raise EvaluationError(
        f"psi uses {parameter!r} of what was given to {entry}, and not only its own argument: the "
        "first stays as it is while the parameters vary, so that its part of the error is missing. "
        f"Compute all of psi from its argument (`lambda {given}: ...`), also in functions and "
        f"objects that psi calls. A baseline that is meant to be fixed is a copy (`baseline = "
        f"{copy}`), or a number computed before."
    )


def check_lengths(lengths: Iterable[int], arrays: str) -> int:
    """Return the number of rows if all arrays have the same, and any."""
    different = sorted(set(lengths))
    if not different:
        raise ValueError(f"There are no {arrays} in data: give a tuple such as (X, y).")
    if len(different) > 1:
        raise ValueError(
            f"The {arrays} in data have different lengths, {different}: all must have one row per "
            "observation."
        )
    if different == [0]:
        raise ValueError(NO_ROWS)
    return different[0]


def check_pair(batch: Any, likelihood: Likelihood, words: Words) -> None:
    """Insist on a batch of inputs and targets."""
    several = isinstance(batch, (tuple, list))
    if not several or len(batch) < 2:
        raise UnsupportedModelError(
            f"{type(likelihood).__name__}() needs {words.needed} {type(batch).__name__}"
            f"{f' of {len(batch)}' if several else ''}. Give functions "
            f"`outputs({words.owner}, batch)` and `targets(batch)` that take them from a batch; or "
            f"instead of the likelihood a function `loglik({words.owner}, batch)` that returns the "
            "log-likelihood of each row."
        )


def check_targets(targets: Any, words: Words) -> None:
    """Insist on targets that are an array."""
    if not isinstance(targets, words.kind):
        raise ValueError(f"The targets are a {type(targets).__name__}, not {words.array}.")


def is_batches(data: Any) -> bool:
    """Distinguish a list of batches from one of arrays."""
    plain = lambda item: hasattr(item, "shape") or isinstance(item, (str, bytes, float, int))  # noqa: E731
    return isinstance(data, list) and bool(data) and not any(map(plain, data))


def check_one_per_row(terms: Any, kind: type, words: Words) -> None:
    """Insist on terms (b,): not their mean, not their sum."""
    call = f"loglik({words.owner}, batch)"
    if not isinstance(terms, kind):
        raise ValueError(
            f"{call} returned {type(terms).__name__}, not {words.array} of log-likelihoods, one "
            "per row of the batch."
        )
    shape = tuple(terms.shape)  # type: ignore[attr-defined]
    if len(shape) != 1:
        raise ValueError(
            f"{call} returned {f'shape {shape}' if shape else 'one number'}, but must return one "
            "log-likelihood per row of the batch, shape (b,). Return the terms without summing or "
            'averaging them (reduction="none", then a sum over all that belongs to one row): with '
            "a mean the standard error would silently be wrong by sqrt(n)."
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


def reason_of(error: Exception) -> str:
    """Return the first line of what an error says, or its type, as a part of a sentence."""
    return first_line(error).rstrip(".: ") or type(error).__name__


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, as a sentence."""
    line = str(error).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."


@dataclass(frozen=True, eq=False)
class TermsRounding:
    """Difference of two computations of the terms (b,) that rounding explains.

    A computed sum is the exact one of weights that are off by a relative rounding error. So terms
    that are differences of large numbers differ by more than their own rounding: by what they
    change when all weights change by so much. The step is the square root of that, so that the
    change stands out from rounding, and noise between two runs adds less than itself.

    Attributes
    ----------
    run : callable
        Theta to terms; may raise at other parameters than the given ones.
    theta, terms : array
        The parameters, and their terms.
    longest : int
        Length of the longest sum in the model.
    eps : float
        Of its dtype.
    """

    run: Callable[[Array], Array]
    theta: Array
    terms: Array
    longest: int
    eps: float

    def explains(self, gap: float) -> bool:
        """Whether two computations may differ by so much; elsewhere than at theta if need be."""
        relative = sum_rounding(self.longest, self.eps)
        rest = gap - relative * float(np.mean(abs(self.terms)))
        return rest <= 0 or rest <= relative**0.5 * self._change(relative**0.5)

    def _change(self, step: float) -> float:
        """Largest finite change of a term when all weights change by this share, up or down."""
        factor = np.random.default_rng(0).random(self.theta.size, dtype=self.theta.dtype.type) + 0.5
        for sign in (1, -1):
            try:
                change = abs(self.run(self.theta * (1 + sign * step * factor)) - self.terms)
            except Exception:  # not defined there, in the words of the user's code
                continue
            return float(np.max(change, where=np.isfinite(change), initial=0.0))
        return 0.0


def check_same(first: Array, second: Array, rounding: TermsRounding, text: str) -> None:
    """Refuse terms that differ between two runs; warn if they do by little.

    The text has a place for the gap, relative to the mean size of the terms.
    """
    gap = float(np.max(abs(first - second)))
    if rounding.explains(gap):
        return
    gap /= float(np.mean(abs(first))) + 1e-300
    if gap > RANDOM:
        raise UnsupportedModelError(text.format(gap=gap))
    warn(text.format(gap=gap), NotDeterministicWarning)
