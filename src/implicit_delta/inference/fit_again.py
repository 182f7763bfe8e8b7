"""Fit a black box again to other rows, and evaluate psi."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.composed import Composed, Owned
from implicit_delta.evaluation.replicated import accepts_rng
from implicit_delta.evaluation.values import checked_value
from implicit_delta.inference.drawn_data import DrawnData
from implicit_delta.inference.trainings import Look, black_box, look_at, plain
from implicit_delta.methods.outcomes import Outcome

Fit: TypeAlias = Callable[..., Any]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, eq=False)
class FitAndPsi:
    """Fit and evaluate, once."""

    fit: Fit
    psi: Callable[..., Any]
    kind: str

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Psi, made once: it knows the names of its first call."""
        return Owned(self.psi) if takes_data(self.psi) else black_box(self.psi)

    def first(self, rows: DrawnData, stream: np.random.SeedSequence) -> tuple[Any, Look]:
        """Fit to the data themselves; refuse a fit that changes them."""
        copy = rows.copied()
        with seeded(stream):
            fitted = self._fitted(copy, None)
            if rows.changed_in(copy):
                raise TypeError(
                    "fit(data) changes its data in place: the copy that it was given is another "
                    "after the fit, and a psi or a second fit would see the changed one. Work on a "
                    "copy: `data = data.copy()` in the first line of `fit`."
                )
            return fitted, self._look(fitted, copy, detailed=True)

    def look(self, data: Any, stream: np.random.SeedSequence, weights: Array | None = None) -> Look:
        """Fit to these data and evaluate."""
        with seeded(stream):
            return self._look(self._fitted(data, weights), data, detailed=False)

    def _fitted(self, data: Any, weights: Array | None) -> Any:
        options = {} if weights is None else {"sample_weight": weights}
        fitted = self.fit(data, **options)
        if fitted is None:
            raise TypeError("fit(data) returned None; it must return what was fitted.")
        return fitted

    def _look(self, fitted: Any, data: Any, *, detailed: bool) -> Look:
        where = "at the data" if detailed else "at a replicate"
        if takes_data(self.psi):
            raw = plain(self.function(fitted, data))
            return Look.of(raw, checked_value(raw, where), self.function)
        function = self.function
        if not detailed or not isinstance(function, Composed):
            raw = plain(function(fitted))
            return Look.of(raw, checked_value(raw, where), function)
        return look_at(fitted, function, where, detailed=True)


@dataclass(frozen=True, eq=False)  # Dask wants a function that can be hashed
class Replicate:
    """Draw rows, fit and evaluate."""

    question: FitAndPsi
    rows: DrawnData
    labels: tuple[str, ...] | None
    shape: tuple[int, ...]

    def __call__(self, stream: np.random.SeedSequence) -> Outcome:
        rng = np.random.default_rng(stream)
        if self.question.kind == "bayesian":
            return self.outcome(self.rows.copied(), stream, self.rows.weights(rng))
        return self.outcome(self.rows.drawn(rng), stream)

    def outcome(
        self, data: Any, stream: np.random.SeedSequence, weights: Array | None = None
    ) -> Outcome:
        """Fit to these rows; an error of whatever kind is a failure with a reason."""
        try:
            look = self.question.look(data, stream, weights)
            return Outcome(self._in_order(look), "")
        except Exception as error:  # whatever the fit of a stranger raises
            return Outcome(None, f"{type(error).__name__}: {error}")

    def _in_order(self, look: Look) -> Array:
        """Put labeled values in the order of those of the data."""
        value, labels = np.atleast_1d(look.value), labels_of(look.raw)
        if labels is not None and self.labels is not None and labels != self.labels:
            missing = sorted(set(self.labels) ^ set(labels))
            if missing or len(set(labels)) < len(labels):
                raise EvaluationError(
                    f"psi has other names here than at the data: {', '.join(missing)[:80]}"
                )
            value = value[[labels.index(label) for label in self.labels]]
        if value.shape != self.shape:
            raise EvaluationError(
                f"psi has {value.size} values here, and {self.shape[0]} at the data"
            )
        return value


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Leave a group of units out, fit and evaluate."""

    refit: Replicate
    stream: np.random.SeedSequence

    def __call__(self, group: NDArray[np.intp]) -> Outcome:
        return self.refit.outcome(self.refit.rows.without(group), self.stream)


@contextmanager
def seeded(stream: np.random.SeedSequence) -> Iterator[None]:
    """Seed NumPy's global state, and put it back afterwards."""
    state = np.random.get_state()  # noqa: NPY002 - that of random_state=None
    np.random.seed(stream.generate_state(1))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def labels_of(raw: Any) -> tuple[str, ...] | None:
    """Return the names that a Series brings."""
    if not hasattr(raw, "to_numpy") or not hasattr(raw, "index"):
        return None
    return tuple(map(str, raw.index))


def takes_data(psi: Any) -> bool:
    """Whether psi has a second argument that has to be given, other than `rng`."""
    try:
        arguments = list(inspect.signature(psi).parameters.values())
    except (TypeError, ValueError):
        return False
    needed = [a for a in arguments if a.default is a.empty and a.kind in POSITIONAL]
    return len(needed) > 1 and not accepts_rng(psi)
