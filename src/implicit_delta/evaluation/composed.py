"""One function of the model, made of replicates, an average and the user's function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.average import (
    Average,
    Sample,
    Sampling,
    checked_units,
    clusters_of,
    sampling_of_mean,
)
from implicit_delta.evaluation.keyed import flattened, side_by_side, unmasked
from implicit_delta.evaluation.questions import Question
from implicit_delta.evaluation.replicated import Replicated, accepts_rng, mean_over_seeds
from implicit_delta.evaluation.smoothed import Smoothed
from implicit_delta.evaluation.statistic import Statistic
from implicit_delta.evaluation.summary import Summary

COPIES = {"numpy": "copy", "pandas": "copy", "torch": "clone", "array": "__copy__"}


@dataclass(frozen=True)
class Owned:
    """The user's function, whose arrays are copied at once: they may be overwritten by a call.

    A dict becomes one array, of numbers or (with `rows`) of columns. Its names in the first call,
    or the labels of a Series, are kept, and the order of the next ones is theirs.
    """

    function: Callable[..., Any]
    rows: bool = False
    _names: list[tuple[str, ...]] = field(init=False, default_factory=list, compare=False)
    _index: list[Any] = field(init=False, default_factory=list, compare=False)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the numbers, if a call has returned a dict."""
        return self._names[0] if self._names else None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call and copy; refuse masked entries."""
        result = unmasked(self.function(*arguments, **options))
        if isinstance(result, Question | Average | Replicated | Smoothed | Statistic):
            raise EvaluationError(
                f"psi is a function that returns a {type(result).__name__}: pass what it returns "
                'as psi, as in `infer(model, average_slope("x"))`, without a function around it.'
            )
        if isinstance(result, Mapping):
            return self._in_order(*(side_by_side if self.rows else flattened)(result))
        library = type(result).__module__.partition(".")[0]
        if library == "pandas" and not self.rows and type(result).__name__ == "Series":
            result = self._as_labeled_first(result)
        copy = getattr(result, COPIES.get(library, ""), None)
        return result if copy is None else copy()

    def _as_labeled_first(self, series: Any) -> Any:
        """Put the same labels in another order back into that of the first call."""
        if not self._index:
            self._index.append(series.index)
        first, index = self._index[0], series.index
        moved = len(index) == len(first) and not index.equals(first)
        same = moved and first.is_unique and index.is_unique and bool(index.isin(first).all())
        return series.loc[first] if same else series

    def _in_order(self, names: tuple[str, ...], values: Any) -> Any:
        """Take the numbers in the order of the first call, whatever that of the keys is now."""
        if not self._names:
            self._names.append(names)
        known = self._names[0]
        if names == known:
            return values
        if set(names) != set(known):
            others = ", ".join(sorted(set(names) ^ set(known)))
            raise EvaluationError(
                f"psi has other names here than at the data: {others:.80}. A dict must always have "
                "the same keys, and arrays in it the same length."
            )
        places = np.array([names.index(name) for name in known])
        if not self.rows:
            return values[places]
        return values.iloc[:, places] if hasattr(values, "iloc") else values[:, places]


@dataclass(frozen=True, eq=False)
class Composed:
    """A function of the model, averaged over seeds if it is random and over rows if it has any."""

    function: Owned
    seeds: tuple[int, ...]
    sample: Sample | None
    weights: Array | None
    clusters: Any = None
    summary: Summary = field(default_factory=Summary)

    def units(self, model: Any) -> Any:
        """Average over the seeds alone: the rows, if there are any."""
        if not self.seeds:
            return self.function(model)
        return mean_over_seeds(self.function, self.seeds, model)

    def __call__(self, model: Any) -> Any:
        """Average over seeds and rows, in the model's own language."""
        values = self.units(model)
        return values if self.sample is None else self.summary(values, self.weights)

    @property
    def plain(self) -> bool:
        """Whether sums are all that its error is made of: one mean of rows that count alike."""
        apart = self.sample in ("independent", "unknown")
        return apart and not self.seeds and self.clusters is None and self.summary.groups is None

    def coefficients(self, m: int) -> Array:
        """Coefficients of m rows in each summary, (G, m)."""
        weights = np.ones(m) if self.weights is None or self.weights.size != m else self.weights
        return self.summary.coefficients(weights)

    def sampled(self, raw: Any, shares: Array) -> tuple[Array, Sampling | None]:
        """Rows whose mean is the summary, (m, K), and its error from their sampling.

        Training rows, with these shares (n,), have none of their own.
        """
        assert self.sample is not None
        rows = checked_units(np.asarray(raw), self.sample, shares.size)
        if self.summary.groups is not None:
            self.summary.groups.check(raw)
        if self.sample == "training":
            return self.summary.units(rows, shares, None, fair=False), None
        clusters = clusters_of(self.clusters, raw)
        units = self.summary.units(rows, np.ones(len(rows)), clusters, fair=True)
        return units, sampling_of_mean(units, clusters, self.summary.df(clusters))

    def replicates(self) -> "list[Composed]":
        """Return the same function with each of the seeds alone."""
        return [replace(self, seeds=(seed,)) for seed in self.seeds]


def composed(psi: Any, weights: Array | None = None) -> Psi:
    """Take the wrappers apart, always in this order: replicates of an average of a function.

    A training row with a weight, (n,), counts that much in an average over the training rows.
    """
    replicated = psi if isinstance(psi, Replicated) else None
    inner = psi.psi if isinstance(psi, Replicated) else psi
    average = inner if isinstance(inner, Average) else None
    function = inner.h if isinstance(inner, Average) else inner
    if isinstance(function, Statistic):
        raise TypeError(
            "A Statistic is smoothed by itself and averages nothing: pass it as psi, without "
            f"{type(psi).__name__} around it."
        )
    if isinstance(function, Question) and function is not psi:
        raise TypeError(
            f"A question is smooth and averages by itself: pass it as psi, without "
            f"{type(psi).__name__} around it. As a sample of a population its rows count with "
            "`population=True`."
        )
    if isinstance(function, Smoothed | Replicated | Average):
        raise TypeError(
            f"{type(function).__name__} cannot be inside {type(psi).__name__}. From outside to "
            "inside: Smoothed(Replicated(Average(h)))."
        )
    if not callable(function):
        raise TypeError(
            f"psi must be a function of the model, not {type(function).__name__}: for example "
            "`lambda theta: theta[0] / theta[1]`. Several are a list or a dict."
        )
    random, owned = accepts_rng(function), Owned(function, rows=average is not None)
    if replicated is not None and not random:
        raise TypeError("Replicated needs a psi with an argument called `rng`, to give it seeds.")
    if average is None and not random:
        return owned
    seeds = (replicated or Replicated(function)).seeds() if random else ()
    sample = None if average is None else average.sample
    counted = sample == "training" and weights is not None and np.ptp(weights) > 0
    clusters = None if average is None else average.clusters
    summary = Summary() if average is None else average.summary
    return Composed(owned, seeds, sample, weights if counted else None, clusters, summary)
