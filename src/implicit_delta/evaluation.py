"""What is computed from a fitted model: psi, and the care it needs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta._typing import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.base import FittedModel


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
        As the user gave it, in the model's own language.
    value : (K,) array
        At the model's theta.
    scalar : bool
        Whether psi returned a number rather than an array.
    names : tuple of str
    """

    model: FittedModel
    psi: Psi
    value: Array
    scalar: bool
    names: tuple[str, ...]

    @classmethod
    def of(cls, model: FittedModel, psi: Psi, names: Any = None) -> "Evaluation":
        """Evaluate psi once and check that a standard error of it makes sense."""
        if not callable(psi):
            raise TypeError(
                f"psi must be a function of the model, not {type(psi).__name__}: for example "
                "`lambda theta: theta[0] / theta[1]`."
            )
        raw = model.theta if psi is parameters else model.evaluate(psi, model.theta)
        value = _checked(raw, "at the fitted parameters")
        labels = _names(names, psi, model, raw, value)
        return cls(model, psi, np.atleast_1d(value), value.ndim == 0, labels)

    @property
    def size(self) -> int:
        """K, the number of evaluations."""
        return self.value.size

    def __call__(self, theta: Array) -> Array:
        """Evaluate at theta, (K,)."""
        if self.psi is parameters:
            return theta.copy()
        value = _checked(self.model.evaluate(self.psi, theta), "near the fitted parameters")
        if np.atleast_1d(value).shape != self.value.shape:
            raise EvaluationError(
                f"psi returned {self.value.size} value(s) at the fitted parameters and "
                f"{value.size} nearby. It must always return the same shape; a selection that "
                "depends on the parameters (a filter, a top-k) has to keep its length."
            )
        return np.atleast_1d(value)

    def jacobian(self, theta: Array) -> Array:
        """Differentiate at theta, (K, d)."""
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
        """Take the k-th evaluation alone."""
        if self.size == 1:
            return self
        return Evaluation(
            self.model, _Component(self, k), self.value[k : k + 1], True, (self.names[k],)
        )


@dataclass(frozen=True, eq=False)
class _Component:
    """Entry k of psi, in the model's own language."""

    evaluation: Evaluation
    k: int

    def __call__(self, model: Any) -> Any:
        return self.evaluation.psi(model)[self.k]


def _checked(raw: Any, where: str) -> Array:
    try:
        value = np.asarray(raw)
    except (TypeError, ValueError) as error:
        raise EvaluationError(f"psi returned a {type(raw).__name__}: {error}") from error
    if value.dtype.kind == "c":
        raise EvaluationError(f"psi returned complex numbers; take .real or abs() of them.")
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
        raise EvaluationError(f"psi returned an empty array: there is nothing to infer.")
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
    stem = getattr(psi, "__name__", "psi")
    stem = "psi" if stem == "<lambda>" else stem
    return (stem,) if value.ndim == 0 else tuple(f"{stem}[{k}]" for k in range(value.size))
