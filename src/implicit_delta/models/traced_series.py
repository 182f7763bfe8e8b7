"""Parameters like those of a host library: vectors, plain or traced, in the place of Series."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.calculus.tracing.traced import Traced
from implicit_delta.core.optional import optional
from implicit_delta.models.prediction import Predictor


class TracedSeries(Traced):
    """A traced vector with labels, and those methods of a Series that pick entries."""

    def __init__(self, vector: Traced, index: Any) -> None:
        pd = optional("pandas", "a vector with labels")
        super().__init__(vector.node)
        self.index = index
        self.values = vector
        self._places = pd.Series(np.arange(len(index)), index=index)

    def __getitem__(self, key: Any) -> Any:
        return self._at(self._places[key])

    @property
    def loc(self) -> "_Picker":
        return _Picker(lambda key: self._at(self._places.loc[key]))

    @property
    def iloc(self) -> "_Picker":
        return _Picker(lambda key: self._at(self._places.iloc[key]))

    def filter(self, *args: Any, **kwargs: Any) -> Any:
        return self._at(self._places.filter(*args, **kwargs))

    def drop(self, *args: Any, **kwargs: Any) -> Any:
        return self._at(self._places.drop(*args, **kwargs))

    def to_numpy(self) -> Traced:
        return self.values

    def _at(self, places: Any) -> Any:
        if np.ndim(places) == 0:
            return self.values[int(places)]
        return TracedSeries(self.values[np.asarray(places)], places.index)


@dataclass(frozen=True)
class _Picker:
    pick: Callable[[Any], Any]

    def __getitem__(self, key: Any) -> Any:
        return self.pick(key)


@dataclass(frozen=True, eq=False)
class LikeParams:
    """Turn a flat vector, plain or traced, into an object like ``results.params``.

    That is an array, a Series or, with the coefficients of each class in a column, a DataFrame.
    """

    params: Any
    predictor: Predictor | None = None

    def __call__(self, b: Any) -> Any:
        """Give b the shape and the labels of the parameters, and a method `predict`."""
        if self.predictor is not None:
            from implicit_delta.models.statsmodels.params import like

            return like(self.params, b, self.predictor)
        if self.params.ndim == 2:
            b = b.reshape(self.params.shape[::-1]).T
        if not hasattr(self.params, "index"):
            return b
        if isinstance(b, Traced):
            return b if self.params.ndim == 2 else TracedSeries(b, self.params.index)
        labels = {"columns": self.params.columns} if self.params.ndim == 2 else {}
        return type(self.params)(b, index=self.params.index, **labels)
