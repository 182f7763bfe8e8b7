"""Means and totals over evaluation rows, of all of them or of each group."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import FEWEST, Clusters, is_missing
from implicit_delta.core.labels import distinct, places_in
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows in sorted order.

    Attributes
    ----------
    codes : (m,) array of int
        The group of each row.
    labels : tuple of str
    index : sequence or None
        Labels of the rows, if they came as a pandas Series.
    """

    codes: NDArray[np.intp]
    labels: tuple[str, ...]
    index: Any = None

    @classmethod
    def of(cls, by: Any) -> "Groups":
        """Number the labels that a user gave, one for each row."""
        if isinstance(by, str) or not hasattr(by, "__len__"):
            raise TypeError(
                f"by is {by!r:.40}, but must have one label for each row that h returns: for a "
                'column of a data frame `by=frame["column"]`.'
            )
        listed = isinstance(by, list | tuple)
        given = np.fromiter(by, dtype=object) if listed else np.asarray(by, dtype=object)
        if given.ndim != 1 or given.size == 0:
            raise ValueError(
                f"by has shape {given.shape}: give one label for each row, (m,). For groups by "
                "several columns give pairs, `by=list(zip(a, b))`."
            )
        missing = [row for row, label in enumerate(given) if is_missing(label)]
        if missing:
            raise ValueError(
                f"by is missing for {len(missing)} rows, the first of them row {missing[0]}. Give "
                'these a label of their own, for example `by.fillna("unknown")`.'
            )
        labels = _in_order(set(given))
        place = {label: k for k, label in enumerate(labels)}
        codes = np.array([place[label] for label in given], dtype=np.intp)
        index = getattr(by, "index", None) if hasattr(by, "to_numpy") else None
        return cls(codes, distinct(tuple(map(str, labels))), index)

    def check(self, rows: Any) -> None:
        """Refuse labels of other rows than those that h returned."""
        if len(rows) != self.codes.size:
            raise EvaluationError(
                f"by has {self.codes.size} labels, but h returned {len(rows)} rows: give one label "
                "for each. If the fit has dropped rows with missing values, drop their labels too."
            )
        if places_in(self.index, getattr(rows, "index", None)) is not None:
            raise EvaluationError(
                "by and the rows that h returned have different labels, or the same in another "
                "order. Give `by.loc[rows.index]`; if they are in the same order and only the "
                "labels differ, `by.to_numpy()`."
            )

    def indicator(self, weights: Array) -> Array:
        """Weights of the rows of each group, (G, m)."""
        matrix = np.zeros((len(self.labels), self.codes.size))
        matrix[self.codes, np.arange(self.codes.size)] = weights
        return matrix


@dataclass(frozen=True, eq=False)
class Summary:
    """The mean of all rows, or of each group; or the total."""

    groups: Groups | None = None
    total: bool = False

    def __call__(self, values: Any, weights: Array | None = None) -> Any:
        """Summarize the first axis in the values' own language, group by group."""
        values = _plain(values)
        if weights is not None and weights.size != values.shape[0]:
            weights = None
        if self.groups is None:
            mean = mean_over_rows(values, weights)
            size = values.shape[0] if weights is None else float(weights.sum())
            return mean * size if self.total else mean
        self.groups.check(values)
        matrix = self._matrix(np.ones(self.groups.codes.size) if weights is None else weights)
        own = values.new_tensor(matrix) if hasattr(values, "new_tensor") else matrix
        rows = values.to_numpy() if hasattr(values, "to_numpy") else values
        return (own @ rows).reshape(-1)

    def units(self, rows: Array, weights: Array, clusters: Clusters | None, fair: bool) -> Array:
        r"""Rows (m, L) whose weighted mean is the summary and whose error is the summary's.

        The mean of a group is a ratio of two sums; its linearization is
        :math:`\psi_g + \frac{W}{W_g} 1_g (h - \psi_g)`. A `fair` variance of each group divides
        by its number of rows, or of clusters, less one.
        """
        whole = float(weights.sum())
        if self.groups is None:
            return rows * whole if self.total else rows
        member = self.groups.indicator(np.ones(len(rows)))
        if self.total:
            spread = member.T[:, :, None] * rows[:, None, :] * whole
            return np.asarray(spread.reshape(len(rows), -1))
        means = self._matrix(weights) @ rows
        factors = self._small_samples(clusters) if fair else np.ones(len(member))
        scale = (factors * whole / (member @ weights))[:, None] * member
        away = scale.T[:, :, None] * (rows[:, None, :] - means)
        return np.asarray((means + away).reshape(len(rows), -1))

    def names(self, rows: Any, known: tuple[str, ...] | None = None) -> tuple[str, ...] | None:
        """Name the groups, and the columns of h within each; None without groups."""
        if self.groups is None:
            return None
        width = 1 if np.ndim(rows) == 1 else np.shape(rows)[1]
        found: Any = known or getattr(rows, "columns", range(width))
        columns = [f": {name}" for name in found]
        parts = [""] if width == 1 and not known else columns
        return tuple(f"{label}{part}" for label in self.groups.labels for part in parts)

    def df(self, clusters: Clusters | None) -> float:
        """Degrees of freedom of the group with the fewest clusters."""
        if clusters is None:
            return np.inf
        return clusters.count - 1.0 if self.groups is None else min(self._sizes(clusters)) - 1.0

    def coefficients(self, weights: Array) -> Array:
        """Coefficients of the rows in the mean or total of all, or of each group, (G, m)."""
        if self.groups is not None:
            return self._matrix(weights)
        return (weights if self.total else weights / weights.sum())[None]

    def _matrix(self, weights: Array) -> Array:
        """Weights of the rows in each group's mean or total, (G, m)."""
        assert self.groups is not None
        matrix = self.groups.indicator(weights)
        sums = matrix.sum(axis=1, keepdims=True)
        if np.any(sums <= 0):
            empty = self.groups.labels[int(np.argmin(sums))]
            raise EvaluationError(f"The group {empty} has no rows, or none with a weight.")
        return matrix if self.total else matrix / sums

    def _small_samples(self, clusters: Clusters | None) -> Array:
        """Root of n_g / (n_g - 1) of each group over n / (n - 1) of all, (G,)."""
        assert self.groups is not None
        sizes, least = np.array(self._sizes(clusters)), 2 if clusters is None else FEWEST
        if np.any(sizes < least):
            few = self.groups.labels[int(np.argmin(sizes))]
            kind = "row(s)" if clusters is None else "cluster(s)"
            raise EvaluationError(
                f"The group {few} has {sizes.min()} {kind}, from which the sampling error of its "
                f"mean cannot be estimated; it takes {least}. Merge it with another, or leave it "
                "out; for an estimate about these very rows pass a plain function, without "
                "`Average`."
            )
        whole = self.groups.codes.size if clusters is None else clusters.count
        return np.asarray(np.sqrt(sizes / (sizes - 1) * (whole - 1) / whole))

    def _sizes(self, clusters: Clusters | None) -> list[int]:
        """Count the rows of each group, or the clusters that have rows in it."""
        assert self.groups is not None
        codes, count = self.groups.codes, range(len(self.groups.labels))
        if clusters is None:
            return [int(np.sum(codes == g)) for g in count]
        return [np.unique(clusters.codes[codes == g]).size for g in count]


def mean_over_rows(values: Any, weights: Array | None = None) -> Any:
    """Average over the first axis, in the values' own language: NumPy, torch, JAX or pandas."""
    values = _plain(values)
    if weights is None or weights.size != values.shape[0]:
        # pandas would leave out rows that are NaN, and still divide by all of them
        pandas = type(values).__module__.partition(".")[0] == "pandas"
        total = values.sum(axis=0, skipna=False) if pandas else values.sum(0)
        return total / values.shape[0]
    own = values.new_tensor(weights) if hasattr(values, "new_tensor") else weights
    return own @ values / weights.sum()


def _plain(values: Any) -> Any:
    """Turn lists and polars into arrays, and short floats of NumPy into long ones."""
    if isinstance(values, list | tuple) or type(values).__module__.partition(".")[0] == "polars":
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return values.astype(np.float64, copy=False)  # a sum of float16 overflows at 65504
    return values


def _in_order(labels: set[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:  # numbers among strings
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))
