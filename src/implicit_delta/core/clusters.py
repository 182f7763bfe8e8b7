"""Cluster labels as numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.labels import label_codes, places_in
from implicit_delta.core.types import Array

NO_GROUP = 2.0**55  # of observations without weight: no label has this code
FEWEST = 3  # the scores of all clusters sum to zero: those of two say nothing that one does not


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """Groups of observations that may be dependent within.

    Attributes
    ----------
    codes : (n,) array of int
        The group of each observation, from 0; those without weight have the code `count`.
    count : int
        The number of groups with any weight, at least 3.
    labels : (count,) array or None
        The labels of the groups as numbers, by which those of another fit are the same.
    """

    codes: NDArray[np.intp]
    count: int
    labels: Array | None = None

    @classmethod
    def of(cls, labels: Any, weights: Array, rows: Any = None, grouped: bool = False) -> "Clusters":
        """Number the labels given by a user, one for each observation.

        Parameters
        ----------
        labels : (n,) array, list or pandas Series
            Numbers, strings, dates, tuples, or some of each.
        weights : (n,) array
            Of the observations; those without any are left out.
        rows : sequence, optional
            Labels of the observations, by which a Series is put in their order.
        grouped : bool
            Whether the observations are groups of rows, for messages.
        """
        if isinstance(labels, Clusters):
            return labels
        given = _column(_in_order(labels, rows), weights.size, grouped)
        _check_no_missing(given)
        present = weights > 0
        groups, numbers = _numbered(given[present])
        count = len(groups)
        if count < FEWEST:
            only = (
                "There is only one cluster, so the variance between clusters is unknown."
                if count < 2
                else "There are two clusters, and the variance between two clusters is not "
                "estimable: their deviations are equal and opposite."
            )
            raise ValueError(
                f"{only} Give labels of smaller groups, if rows are independent between these. An "
                "effect that varies between so few groups only has no standard error."
            )
        codes = np.full(weights.shape, count, dtype=np.intp)
        codes[present] = numbers
        return cls(codes, count, label_codes(groups))

    def crossed(self, other: "Clusters") -> "Clusters":
        """Make the groups that are alike in both ways."""
        present = self.codes < self.count
        pairs = self.codes[present] * other.count + other.codes[present]
        codes = np.full(self.codes.shape, 0, dtype=np.intp)
        found, codes[present] = np.unique(pairs, return_inverse=True)
        codes[~present] = found.size
        if self.labels is None or other.labels is None:
            return Clusters(codes, found.size)
        ways = self.labels[found // other.count], other.labels[found % other.count]
        both = np.fromiter(zip(*ways, strict=True), dtype=object, count=found.size)
        return Clusters(codes, found.size, label_codes(both))

    def labeled(self) -> Array:
        """Label each observation by its group, as numbers (n,)."""
        labels = np.arange(self.count) if self.labels is None else self.labels
        return np.append(labels, NO_GROUP)[self.codes]

    def sums(self, rows: Array) -> Array:
        """Sum rows (n, k) within each group: (count, k)."""
        sums = np.zeros((self.count + 1, rows.shape[1]))
        np.add.at(sums, self.codes, rows)
        return sums[: self.count]

    def effective(self, weights: Array) -> float:
        """Return how many clusters of equal size are as uneven: one, if one holds nearly all."""
        shares = self.sums(weights[:, None]) / weights.sum()
        return float(1 / np.sum(shares**2))

    def __repr__(self) -> str:
        return f"<{self.count} clusters>"


def ways_of(
    labels: Any, weights: Array, rows: Any = None, grouped: bool = False
) -> tuple[Clusters, ...]:
    """Number labels that a user gave for one way of grouping, or for two as a tuple of two."""
    if not isinstance(labels, tuple) or len(labels) == weights.size:
        return (Clusters.of(labels, weights, rows, grouped),)
    if not labels or not all(map(_is_column, labels)):
        return (Clusters.of(labels, weights, rows, grouped),)
    if len(labels) != 2:
        raise ValueError(
            f"clusters is a tuple of {len(labels)} groupings: give one array of labels, or a tuple "
            "of two, `clusters=(firm, year)`."
        )
    return tuple(Clusters.of(way, weights, rows, grouped) for way in labels)


def _is_column(labels: Any) -> bool:
    return not isinstance(labels, str | bytes) and hasattr(labels, "__len__")


def _in_order(labels: Any, rows: Any) -> Any:
    """Put a Series in the order of the model's rows, without those that the fit has dropped."""
    places = places_in(getattr(labels, "index", None), rows)
    if places is None:
        return labels
    if np.any(places < 0):
        raise ValueError(
            f"clusters is labeled by its index, which lacks or repeats {int(np.sum(places < 0))} "
            f"of the {len(places)} rows of the model, the first of them "
            f"{list(rows)[int(np.argmin(places))]!r}. Give the column of the data that the model "
            "was fitted to, or, if its order is that of the model's rows, `clusters.to_numpy()`."
        )
    return np.asarray(labels)[places]


def _column(labels: Any, n: int, grouped: bool) -> NDArray[Any]:
    """Make one array of n labels, without turning numbers among strings into strings."""
    listed = isinstance(labels, list | tuple)
    given = np.fromiter(labels, dtype=object) if listed else np.asarray(labels)
    if given.shape in ((n,), (n, 1)):
        return given.reshape(n)
    names = _columns_named(given)
    what = f"is {labels!r:.60}" if names else f"has shape {given.shape}"
    if grouped:
        raise ValueError(
            f"clusters {what}, but the units of this model are its {n} groups, "
            "already independent of each other: use `robust=True`; or, where groups depend on each "
            f"other, one label per group in order of appearance, shape ({n},), as of "
            '`data.groupby("group", sort=False)["label"].first()`.'
        )
    advice = "If rows with missing values were dropped in the fit, drop their labels too."
    if given.ndim == 2:
        advice = (
            "For groups by several columns give pairs, `list(zip(a, b))`; for two ways of "
            "grouping a tuple of two, `clusters=(a, b)`."
        )
    if names:
        advice = f"Names of columns are not looked up: give the column itself, {names}."
    raise ValueError(
        f"clusters {what}, but there are {n} observations: give one label for each, shape ({n},). "
        + advice
    )


def _columns_named(labels: NDArray[Any]) -> str:
    """Write the columns that were given by name: strings, too few to be labels of clusters."""
    names = [str(label) for label in labels.flat if isinstance(label, str)]
    if labels.size > FEWEST or not names:
        return ""
    if labels.size == 1:
        return f"`clusters=df[{names[0]!r}]`"
    return ", ".join(f"`df[{name!r}]` for {name!r}" for name in names)


def _numbered(labels: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """List the different labels, and number each of them from 0."""
    if labels.dtype.kind != "O":
        groups, numbers = np.unique(labels, return_inverse=True)
        return groups, numbers
    found: dict[Any, int] = {}
    try:
        codes = [found.setdefault(label, len(found)) for label in labels]
    except TypeError as error:
        raise TypeError(
            f"clusters has labels that cannot be told apart ({error}): give numbers, strings or "
            "tuples of them."
        ) from error
    return np.fromiter(found, dtype=object, count=len(found)), codes


def _check_no_missing(labels: NDArray[Any]) -> None:
    """Refuse missing labels: which cluster a row without label is in nobody knows."""
    if labels.dtype.kind == "O":
        missing = np.array([is_missing(label) for label in labels], dtype=bool)
    else:
        missing = np.asarray(labels != labels)  # NaN and NaT alone differ from themselves
    if np.any(missing):
        raise ValueError(
            f"clusters is missing for {int(np.sum(missing))} observations, the first of them row "
            f"{int(np.argmax(missing))}. Give each observation a label; one that belongs to no "
            "group is a cluster of its own."
        )


def is_missing(label: Any) -> bool:
    """Whether a label stands for a missing one, in any library."""
    if isinstance(label, tuple):
        return any(map(is_missing, label))
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):  # as pandas' NA does from everything, truth included
        return type(label).__name__ == "NAType"
