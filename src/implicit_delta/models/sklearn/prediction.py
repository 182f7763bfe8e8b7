"""Predictors of scikit-learn estimators: tables go through the transformers of a pipeline."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.glm.likelihood import HostLikelihood
from implicit_delta.models.glm.network import Network
from implicit_delta.models.glm.prediction import (
    Binary,
    LinearPrediction,
    Mean,
    NetworkPrediction,
    Response,
    Rows,
    Softmax,
)
from implicit_delta.models.prediction import (
    Prediction,
    Predictor,
    as_table,
    column_of,
    labels_of,
    names_of,
    replaced,
)

CHANGED = (
    "X was changed since: it has other values now than when `from_sklearn` was called. Make the "
    "model again, or give a copy: `from_sklearn(estimator, X.copy(), y)`."
)
MIXED = (
    "The features of a row depend on the other rows that are transformed with it (a mean or a rank "
    "of the rows at hand), so that a row has no prediction of its own. Use a transformer that "
    "keeps what it has learned in `fit`, as StandardScaler does."
)
FEW = 3  # rows whose features are made again by themselves
SAME = 1e-8  # of the largest number of a feature: a product of other shapes rounds in another order


@dataclass(frozen=True, eq=False)
class SklearnPredictor(Predictor):
    """Predictions of `predict`, or of `predict_proba` for classifiers.

    Attributes
    ----------
    X : table
        As it was given to `from_sklearn`.
    features : (n, p) array
        Features of the last step in the training rows.
    read : callable
        Turns a table into these features.
    pipelines : list
        Pipelines around the last step.
    likelihood : HostLikelihood
    response : Response
    classes : tuple or None
    """

    X: Any
    features: Array
    read: Callable[[Any], Array]
    pipelines: Sequence[Any]
    likelihood: HostLikelihood
    response: Response
    classes: tuple[Any, ...] | None = None

    @cached_property
    def table(self) -> Any:
        """The training rows, as pandas or as an array."""
        dense = self.X.toarray() if hasattr(self.X, "toarray") else self.X
        if type(dense).__module__.partition(".")[0] == "polars":
            return as_table(dense, dense)
        return dense if hasattr(dense, "iloc") else np.asarray(dense)

    @property
    def constant(self) -> str:
        if self.classes is None:
            return ""
        return " (`predict` of a classifier returns labels, which have steps: use `predict_proba`.)"

    def on(self, data: Any) -> Prediction:
        return self._predicted(self._features(data), data)

    def scenarios(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        """Transform the table with each of the columns; without a transformer set the feature."""
        if data is self.table and (changed := self.changed()):
            raise EvaluationError(changed)
        if not any(len(pipeline.steps) > 1 for pipeline in self.pipelines):
            return self._set(data, variable, columns)
        found = [self._features(replaced(data, variable, column)) for column in columns]
        self._check_changed(variable, found)
        return [self._predicted(features, data) for features in found]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        column = column_of(self.table, variable)
        place = names_of(self.table).index(variable)
        for encoder, columns in _encoders(self.pipelines, names_of(self.table)):
            if place in columns:
                return tuple(encoder.categories_[columns.index(place)].tolist())
        return labels_of(column)

    def reads(self, name: Any) -> bool:
        """Whether the features of a few rows change with the values of this column."""
        few = slice(None, FEW)
        some = self.table.iloc[few] if hasattr(self.table, "iloc") else self.table[few]
        column = np.asarray(column_of(self.table, name))
        for value in list(dict.fromkeys(column.tolist()))[:FEW]:
            moved = replaced(some, name, np.full(len(some), value, column.dtype))
            if not _same_numbers(self.read(moved), self.features[few]):
                return True
        return False

    def changed(self) -> str:
        return "" if _same_numbers(self.read(self.table), self.features) else CHANGED

    def tangent(self, theta: Array) -> "SklearnPredictor":
        assert isinstance(self.likelihood, Network)
        return replace(self, likelihood=self.likelihood.touching(theta))

    def _features(self, data: Any) -> Array:
        if data is self.table:
            return self.features
        if self._mixed:
            raise EvaluationError(MIXED)
        return self.read(data)

    @cached_property
    def _mixed(self) -> bool:
        """Whether a few rows have other features by themselves."""
        few = slice(None, FEW)
        some = self.table.iloc[few] if hasattr(self.table, "iloc") else self.table[few]
        return not _same_numbers(self.read(some), self.features[few])

    def _predicted(self, features: Array, data: Any) -> Prediction:
        index = getattr(data, "index", None)
        if isinstance(self.likelihood, Network):
            network = replace(self.likelihood, X=features)
            return NetworkPrediction(network, self.response, index)
        return LinearPrediction(Rows(self._design(features)), self.response, index)

    def _design(self, features: Array) -> Array:
        """Append the constant that the coefficients have."""
        own = getattr(self.likelihood, "X", features)
        if features is self.features:
            return np.asarray(own)
        constant = own.shape[1] > features.shape[1]
        return np.column_stack([features, np.ones(len(features))]) if constant else features

    def _set(self, data: Any, variable: Any, columns: Sequence[Any]) -> list[Prediction]:
        """Share all features but one."""
        place = names_of(self.table).index(variable)
        base = self._features(data)
        plain = [np.asarray(column, dtype=np.float64)[:, None] for column in columns]
        if isinstance(self.likelihood, Network):
            return [self._predicted(_with(base, place, column), data) for column in plain]
        whole, index = Rows(self._design(base)), getattr(data, "index", None)
        return [
            LinearPrediction(whole, self.response, index, np.array([place]), column)
            for column in plain
        ]

    def _check_changed(self, variable: Any, found: list[Array]) -> None:
        if all(np.array_equal(found[0], other) for other in found[1:]):
            raise ValueError(
                f"{variable!r} changes no feature of the last step between these values: the "
                "pipeline leaves it out or puts both into one bin, so that its effect is exactly "
                "zero by assumption and has no error bar. Choose other values or another variable."
            )


def _same_numbers(found: Array, known: Array) -> bool:
    if found.shape != known.shape:
        return False
    return bool(np.all(abs(found - known) <= SAME * np.max(abs(known), axis=0)))


def _with(features: Array, place: int, column: Array) -> Array:
    changed = features.copy()
    changed[:, place] = column[:, 0]
    return changed


def _encoders(steps: Sequence[Any], names: list[Any]) -> Iterator[tuple[Any, list[int]]]:
    """Find encoders of categories that read columns of the table, with their positions."""
    if not steps:
        return
    first, everything = steps[0], list(range(len(names)))
    kind = type(first).__name__
    if kind == "Pipeline":
        yield from _encoders([step for _, step in first.steps], names)
    elif kind == "ColumnTransformer":
        for _, part, columns in first.transformers_:
            places = _places(columns, names)
            own = _encoders([part], [names[place] for place in places])
            yield from ((encoder, [places[c] for c in inner]) for encoder, inner in own)
    elif hasattr(first, "categories_") and hasattr(first, "transform"):
        yield first, everything


def _places(columns: Any, names: list[Any]) -> list[int]:
    """Positions of columns that scikit-learn was given by name, position, slice or mask."""
    if isinstance(columns, slice):
        return list(range(len(names)))[columns]
    given = np.atleast_1d(np.asarray(columns, dtype=object))
    if given.size and all(isinstance(column, bool | np.bool_) for column in given):
        return [int(place) for place in np.flatnonzero(given)]
    return [names.index(c) if c in names else int(c) for c in given]


def response_of(estimator: Any, outputs: int) -> Response:
    """Choose the response of an estimator to its linear predictors, or to its outputs."""
    if hasattr(estimator, "classes_"):
        two = len(estimator.classes_) == 2 and outputs == 1
        return Binary(expit) if two else Softmax(len(estimator.classes_), base=False)
    link = getattr(getattr(estimator, "_base_loss", None), "link", None)
    if type(link).__name__ == "LogLink" or getattr(estimator, "out_activation_", "") == "exp":
        return Mean(np.exp, np.exp)
    return Mean(_same, np.ones_like)


def _same(eta: Array) -> Array:
    return eta
