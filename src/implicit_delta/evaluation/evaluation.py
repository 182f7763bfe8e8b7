"""What is computed from a fitted model: psi, and the care it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.average import checked_units
from implicit_delta.evaluation.composed import Composed, composed
from implicit_delta.evaluation.smoothed import Smoothed, Surrogate
from implicit_delta.models.base import FittedModel

SAME = 1e-6  # relative: rounding in parallel sums differs by less, the noise of a simulator by more


def parameters(model: Any) -> Any:
    """Evaluate to the parameters themselves: psi = theta.

    Its covariance is the inverse Fisher information (the paper's remark on computing it). Pass the
    function itself, ``infer(model, parameters)``; it works with the models of every ecosystem.
    """
    return model


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Psi bound to a model: always (K,) values and a (K, d) Jacobian, checked on the way.

    Attributes
    ----------
    model : FittedModel
    psi : callable
        As the user gave it, in the model's own language; averages and replicates are means.
    value : (K,) array
        At the model's theta.
    scalar : bool
        Whether psi returned a number rather than an array.
    names : tuple of str
    noise : (K, K) array or None
        Covariance of the noise that a random psi has left in `value`.
    units : (m, K) array or None
        The rows that an `Average` is the mean of, at the model's theta.
    surrogate : Surrogate or None
        What a `Smoothed` psi, or one of many `parameters`, is replaced by away from theta.
    notes : mapping
        What the evaluation has to report, beside the method.
    """

    model: FittedModel
    psi: Psi
    value: Array
    scalar: bool
    names: tuple[str, ...]
    noise: Array | None = None
    units: Array | None = None
    surrogate: "Surrogate | _Coordinate | None" = None
    notes: Mapping[str, float | str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: FittedModel, psi: Any, names: Any = None) -> "Evaluation":
        """Evaluate psi and check that a standard error of it makes sense."""
        smoothed = psi if isinstance(psi, Smoothed) else None
        inner = composed(model, psi if smoothed is None else smoothed.psi)
        units = _units(model, inner)
        raw, values = _first_look(model, inner)
        value, noise = values.mean(axis=0), _noise_of_mean(values)
        labels = _names(names, inner, model, raw, value)
        plain = cls(model, inner, np.atleast_1d(value), value.ndim == 0, labels, noise, units)
        if smoothed is None:
            return plain
        surrogate, notes = smoothed.linearize(model, plain, plain.value)
        return replace(plain, surrogate=surrogate, notes=notes)

    @property
    def size(self) -> int:
        """K, the number of evaluations."""
        return self.value.size

    @property
    def sample(self) -> str | None:
        """How the rows of an average are related to the training rows."""
        average = self.psi.average if isinstance(self.psi, Composed) else None
        return None if average is None else average.sample

    def __call__(self, theta: Array) -> Array:
        """Evaluate at theta, (K,)."""
        if self.surrogate is not None:
            return self.surrogate.value(theta)
        if self.psi is parameters:
            return theta.copy()
        value = np.atleast_1d(_value(self.model, self.psi, theta, "near the fitted parameters"))
        if value.shape != self.value.shape:
            raise EvaluationError(
                f"psi returned {self.value.size} value(s) at the fitted parameters and "
                f"{value.size} nearby. It must always return the same shape; a selection that "
                "depends on the parameters (a filter, a top-k) has to keep its length."
            )
        return value

    def jacobian(self, theta: Array) -> Array:
        """Differentiate at theta, (K, d)."""
        if self.surrogate is not None:
            return self.surrogate.jacobian(theta)
        if self.psi is parameters:
            return np.eye(theta.size)
        jacobian = self.model.jacobian(self.psi, theta)
        if not np.all(np.isfinite(jacobian)):
            raise EvaluationError(
                "The derivative of psi is NaN or infinite at the fitted parameters. Usual causes: "
                "a square root or logarithm of zero, a division by zero, 0 * inf in a mask."
            )
        return jacobian

    def component(self, k: int) -> "Evaluation":
        """Take the k-th evaluation alone, for refits: without what belongs to all of them."""
        if self.size == 1:
            return self
        surrogate: Surrogate | _Coordinate | None = None
        if self.surrogate is not None:
            surrogate = self.surrogate.component(k)
        elif self.psi is parameters:  # whose model need not be an array with entries
            surrogate = _Coordinate(k)
        return Evaluation(
            self.model,
            _Component(self.psi, k),
            self.value[k : k + 1],
            True,
            (self.names[k],),
            surrogate=surrogate,
        )


@dataclass(frozen=True)
class _Coordinate:
    """Entry k of theta itself."""

    k: int

    def value(self, theta: Array) -> Array:
        return theta[self.k : self.k + 1].copy()

    def jacobian(self, theta: Array) -> Array:
        return np.eye(1, theta.size, self.k)

    def component(self, k: int) -> "_Coordinate":
        return self


@dataclass(frozen=True, eq=False)
class _Component:
    """Entry k of psi, in the model's own language."""

    psi: Psi
    k: int

    def __call__(self, model: Any) -> Any:
        return self.psi(model)[self.k]


def _first_look(model: FittedModel, psi: Psi) -> tuple[Any, Array]:
    """Evaluate at the fitted parameters: as returned, and checked, one row per replicate.

    The first evaluation is made twice, to see that it is the same.
    """
    if psi is parameters:
        return model.theta, model.theta[None]
    where = "at the fitted parameters"
    looks = psi.replicates() if isinstance(psi, Composed) and psi.seeds else [psi]
    values = [_value(model, look, model.theta, where) for look in looks]
    raw = model.evaluate(looks[0], model.theta)
    _check_same(values[0], _checked(raw, where))
    return raw, np.array(values)


def _units(model: FittedModel, psi: Psi) -> Array | None:
    """Evaluate each row of an average, before anything else: a bad row is then named."""
    if not isinstance(psi, Composed) or psi.average is None:
        return None
    values = np.asarray(model.evaluate(psi.units, model.theta))
    return checked_units(values, psi.average.sample, model.n)


def _noise_of_mean(values: Array) -> Array | None:
    """Covariance of the mean over replicates, (K, K)."""
    if len(values) == 1:
        return None
    rows = values.reshape(len(values), -1)
    return np.atleast_2d(np.cov(rows, rowvar=False)) / len(values)


def _check_same(first: Array, second: Array) -> None:
    if first.shape == second.shape and np.all(abs(first - second) <= SAME * np.max(abs(first))):
        return
    raise EvaluationError(
        f"psi returned {first!s:.40} and then {second!s:.40} for the same parameters: it is random "
        "or keeps a state. Give it an argument `rng` and take all random numbers from it, "
        "`def psi(model, rng)`: it is then evaluated with the same seeds everywhere, and its noise "
        "is reported. Dropout or shuffling must be off."
    )


def _value(model: FittedModel, psi: Psi, theta: Array, where: str) -> Array:
    """Evaluate and check; for a random psi that is not finite, name the seed."""
    raw = model.evaluate(psi, theta)
    if isinstance(psi, Composed) and psi.seeds and not _finite(raw):
        failing = (look for look in psi.replicates() if not _finite(model.evaluate(look, theta)))
        where += f", with rng = numpy.random.default_rng({next(failing).seeds[0]})"
    return _checked(raw, where)


def _finite(raw: Any) -> bool:
    value = np.asarray(raw)
    return value.dtype.kind != "f" or bool(np.all(np.isfinite(value)))


def _checked(raw: Any, where: str) -> Array:
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
    if not np.all(np.isfinite(value)):
        raise EvaluationError(
            f"psi is NaN or infinite {where} ({raw!r:.60}). A standard error "
            "of it has no meaning; check the inputs of psi for missing values."
        )
    return value.astype(np.float64)


def _names(given: Any, psi: Psi, model: FittedModel, raw: Any, value: Array) -> tuple[str, ...]:
    """Use the names given, those of a labelled result, or the function's own with an index."""
    if given is not None:
        labels = (given,) if isinstance(given, str) else tuple(map(str, given))
        if len(labels) != max(value.size, 1):
            raise ValueError(f"{len(labels)} names were given for {value.size} evaluations.")
        return labels
    if psi is parameters:
        return model.names or tuple(f"theta[{j}]" for j in range(model.d))
    if value.ndim == 1 and hasattr(raw, "index") and hasattr(raw, "to_numpy"):
        return tuple(map(str, raw.index))
    stem = getattr(psi.function if isinstance(psi, Composed) else psi, "__name__", "psi")
    stem = "psi" if stem == "<lambda>" else stem
    return (stem,) if value.ndim == 0 else tuple(f"{stem}[{k}]" for k in range(value.size))
