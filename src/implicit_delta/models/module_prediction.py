"""Predictions of modules from named columns, in the language of their framework."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.language import Language
from implicit_delta.models.prediction import Prediction, Predictor, check_known, names_of


class ModuleLanguage(Language, Protocol):
    """Language of a network at its fitted parameters."""

    @property
    def theta(self) -> Array: ...

    def tangent(self, theta: Array) -> "ModuleLanguage":
        """Linearize the outputs around theta."""


@dataclass(frozen=True, eq=False)
class ModulePredictor(Predictor):
    """Means of the targets, from inputs whose columns have names.

    Attributes
    ----------
    columns : tuple of str
    inputs : callable
        Returns the training inputs, (n, p).
    mean : callable
        ``mean(parameters, inputs)`` in the types of the framework: (m,) or (m, C).
    language : ModuleLanguage
    """

    columns: tuple[str, ...]
    inputs: Callable[[], Array]
    mean: Callable[[Any, Array], Any]
    language: ModuleLanguage

    @cached_property
    def table(self) -> Any:
        """The training rows, as a data frame."""
        pd = optional("pandas", "columns=")
        return pd.DataFrame(self.inputs(), columns=list(self.columns))

    @cached_property
    def classes(self) -> tuple[int, ...] | None:  # type: ignore[override]
        """Numbers of the outputs, if there are several."""
        shape = self.on(self.table.iloc[:2]).value(self.language.theta).shape
        return None if len(shape) == 1 else tuple(range(shape[1]))

    def on(self, data: Any) -> Prediction:
        for name in self.columns:
            check_known(name, names_of(data), "data")
        x = np.array(data[list(self.columns)], dtype=np.float64)  # torch wants it writable
        bad = ~np.isfinite(x).all(axis=1)
        if np.any(bad):
            raise EvaluationError(
                f"data has missing or infinite values in {bad.sum()} of {len(x)} rows, the first "
                f"of them {data.index[np.argmax(bad)]!r}, which have no prediction. Drop them: "
                "`data.dropna()`."
            )
        return ModulePrediction(self.language, partial(_outcomes, self.mean, x), data.index)

    def tangent(self, theta: Array) -> "ModulePredictor":
        return replace(self, language=self.language.tangent(theta))


def _outcomes(mean: Callable[[Any, Array], Any], x: Array, parameters: Any) -> Any:
    """Predict, (m,) for one output."""
    found = mean(parameters, x)
    if found.ndim == 2 and found.shape[1] == 1:
        return found[:, 0]
    if found.ndim > 2 or found.shape[0] != len(x):
        raise EvaluationError(
            f"The outputs have shape {tuple(found.shape)} for {len(x)} rows: questions need one "
            "number, or one for each class, per row."
        )
    return found


@dataclass(frozen=True, eq=False)
class ModulePrediction:
    """Predictions as a psi of the model; at a center, of its tangent there."""

    language: Language
    psi: Callable[[Any], Any]
    index: Any = None
    center: Array | None = None

    def value(self, theta: Array) -> Array:
        if self.center is None:
            return np.asarray(self.language.evaluate(self.psi, theta), dtype=np.float64)
        step = theta - self.center
        return np.asarray(self.language.evaluate_tangent(self.psi, self.center, step), np.float64)

    def slope(self, theta: Array, weights: Array | None) -> Array:
        if weights is not None:
            matrix = weights.reshape(len(weights), -1)
            return self._jacobian(partial(_weighed, self.psi, matrix), theta)
        slopes = self._jacobian(partial(_flat, self.psi), theta)
        return slopes.reshape(*self.value(theta).shape, -1)

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        return None

    def _jacobian(self, psi: Callable[[Any], Any], theta: Array) -> Array:
        return self.language.jacobian(psi, theta, lambda: np.ones(theta.size))  # not by differences

    def tangent(self, theta: Array) -> "ModulePrediction":
        """Predict by the tangent of the model at theta."""
        return replace(self, center=theta.copy())


def _flat(psi: Callable[[Any], Any], parameters: Any) -> Any:
    return psi(parameters).reshape(-1)


def _weighed(psi: Callable[[Any], Any], weights: Array, parameters: Any) -> Any:
    values = _flat(psi, parameters)
    own = values.new_tensor(weights) if hasattr(values, "new_tensor") else weights
    return own @ values


def checked_columns(columns: Any, inputs: Any, supervised: bool) -> tuple[str, ...]:
    """Check names of the columns of the inputs against the inputs of one batch."""
    names = (columns,) if isinstance(columns, str) else tuple(map(str, columns))
    shape = tuple(getattr(inputs, "shape", ()))
    if not supervised or len(shape) != 2:
        raise ValueError(
            "columns= names the columns of the inputs, which takes data (X, y) with X of shape "
            "(n, p) and a likelihood such as `Gaussian()`. Leave it out, and write questions as "
            "functions of the module."
        )
    if len(names) != shape[1] or len(set(names)) < len(names):
        raise ValueError(
            f"columns has {len(names)} names, {len(set(names))} of them different, but the inputs "
            f"have {shape[1]} columns: give one name for each."
        )
    return names
