"""Validate and name the values that psi returns."""

from typing import Any, Protocol

import numpy as np

from implicit_delta.core.labels import as_names, distinct
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.composed import Composed, Owned

SAME = 1e-6  # relative: rounding in parallel sums differs by less, the noise of a simulator by more
MAGNIFIED = 64  # times: differences divide what two calls differ by by twice 1/128 of a unit


class Evaluable(Protocol):
    """A fitted model, or its tangent."""

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi at theta; see `FittedModel.evaluate`."""


def value_at(model: Evaluable, psi: Psi, theta: Array, where: str) -> Array:
    """Evaluate and check; for a random psi that is not finite, name the seed."""
    raw = raw_at(model, psi, theta)
    if isinstance(psi, Composed) and psi.seeds and not _finite(raw):
        failing = (look for look in psi.replicates() if not _finite(raw_at(model, look, theta)))
        where += f", with rng = numpy.random.default_rng({next(failing).seeds[0]})"
    return checked_value(raw, where)


def raw_at(model: Evaluable, psi: Psi, theta: Array) -> Any:
    """Evaluate at a copy of theta, which psi must not change where the two are one."""
    scratch = theta.copy()
    try:
        raw = model.evaluate(psi, scratch)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise EvaluationError(
            "psi returned a sequence of numbers and arrays of different shapes; return a number or "
            "a one-dimensional array (K,), for example with np.concatenate or np.ravel."
        ) from error
    if (scratch != theta).any():
        raise EvaluationError(
            "psi changes the parameters of the model that it is given in place, where no "
            "derivative can follow. Compute new tensors instead: `2 * p`, not `p.mul_(2)`."
        )
    return raw


def checked_value(raw: Any, where: str) -> Array:
    """Convert what psi returned to float64, () or (K,), or explain why it has no error bar."""
    try:
        value = np.asarray(raw)
    except (TypeError, ValueError) as error:
        raise EvaluationError(f"psi returned a {type(raw).__name__}: {error}") from error
    if value.dtype.kind == "c":
        raise EvaluationError("psi returned complex numbers; take .real or abs() of them.")
    if value.dtype.kind not in "fiub":
        raise EvaluationError(
            f"psi returned {type(raw).__name__} {raw!r:.60}, but must return a real number or "
            "a one-dimensional array of them. Is a `return` missing?"
        )
    if value.ndim > 1:
        raise EvaluationError(
            f"psi returned shape {value.shape}; return a number or a one-dimensional array "
            "(K,), for example with .ravel()."
        )
    if value.size == 0:
        raise EvaluationError("psi returned an empty array: there is nothing to infer.")
    if not np.isfinite(value).all():
        raise EvaluationError(
            f"psi is NaN or infinite {where} ({raw!r:.60}). A standard error "
            "of it has no meaning; check the inputs of psi for missing values."
        )
    return value.astype(np.float64)


def check_same(first: Array, second: Array) -> None:
    """Refuse a psi that returned two values for the same parameters."""
    if first.shape == second.shape and np.all(abs(first - second) <= SAME * np.max(abs(first))):
        return
    short, full = (
        [np.array2string(x, precision=digits, threshold=3) for x in (first, second)]
        for digits in (6, 17)
    )
    before, after = full if short[0] == short[1] else short
    raise EvaluationError(
        f"psi returned {before:.40} and then {after:.40} for the same parameters: it is random "
        "or keeps a state. Give it an argument `rng` and take all random numbers from it, "
        "`def psi(model, rng)`: it is then evaluated with the same seeds everywhere, and its noise "
        "is reported. Dropout or shuffling must be off."
    )


def blur_of(raw: Any, first: Array, second: Array) -> Array:
    """Return by how much psi is uncertain, (K,): rounded in its type, or another in the next call.

    A psi in double precision that returns the same number twice has none.
    """
    kind = np.asarray(raw).dtype
    rounding = float(np.finfo(kind).eps) if kind.kind == "f" and kind.itemsize < 8 else 0.0
    return np.atleast_1d(np.maximum(MAGNIFIED * abs(first - second), rounding * abs(first)))


def noise_of_mean(values: Array) -> Array | None:
    """Covariance of the mean over replicates, (R,) or (R, K) to (K, K); None for one of them."""
    if len(values) == 1:
        return None
    rows = values.reshape(len(values), -1)
    return np.atleast_2d(np.cov(rows, rowvar=False)) / len(values)


def evaluation_names(
    given: Any, psi: Any, raw: Any = None, value: Array | None = None
) -> tuple[str, ...]:
    """Use the names given, those of a labeled result, or the function's own with an index.

    In place of psi and its value, default names can be given themselves.
    """
    count = len(psi) if value is None else max(value.size, 1)
    if given is not None:
        labels = as_names(given)
        if len(labels) != count:
            raise ValueError(f"{len(labels)} names were given for {count} evaluations.")
        if distinct(labels) != labels:
            raise ValueError(f"names are empty or there twice: {labels!r:.80}.")
        return labels
    if value is None:
        return tuple(psi)
    if value.ndim == 1 and hasattr(raw, "index") and hasattr(raw, "to_numpy"):
        return tuple(map(str, raw.index))
    inner = psi.function if isinstance(psi, Composed) else psi
    if isinstance(inner, Owned) and inner.names is not None:
        return inner.names
    stem = getattr(inner.function if isinstance(inner, Owned) else inner, "__name__", "psi")
    stem = "psi" if stem == "<lambda>" else stem
    return (stem,) if value.ndim == 0 else tuple(f"{stem}[{k}]" for k in range(value.size))


def _finite(raw: Any) -> bool:
    value = np.asarray(raw)
    return value.dtype.kind != "f" or bool(np.all(np.isfinite(value)))
