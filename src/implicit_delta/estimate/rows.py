"""Sampled rows behind influences: how they are grouped and labeled, and which are the same."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.clusters import NO_GROUP
from implicit_delta.core.labels import HASHED
from implicit_delta.core.types import Array

UNIQUE = (
    "If both are rows of one data frame, label each of its rows before both fits: "
    "`df.index = [f'r{i}' for i in range(len(df))]`"
)

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Knowledge about n rows that a joint covariance with another estimate takes.

    Attributes
    ----------
    n : int
    counts : (n,) array or None
        Observations that each row is, where weights are frequencies; None for one each.
    labels : (n,) array or None
        The index of the data as numbers: whole numbers are themselves, other labels are hashed.
    ways : tuple of (n,) arrays
        The cluster of each row: none, one way of grouping, or two and both of them crossed.
    groups : bool
        Whether these are the labels of the clusters, as numbers, and not only numbered from 0.
    factors : tuple of float
        Of the variance between clusters of each way.
    lags : tuple of float
        Weights of the lags of a serially correlated variance.
    unknown : str
        The reason why rows of this estimate cannot be held against those of others, if any.
    response : str
        Name of the response and a digest of its values, if known.
    texts : tuple of str or None
        The index of the data as text, where it is not of whole numbers.
    outcomes : (n,) array or None
        Values of the response, if known; they are not saved.
    fit : str
        Identity of the fitted model; empty if unknown.
    terms : callable or None
        Returns the residuals or terms of a user's own function, (n,), for rows without labels;
        neither saved nor pickled.
    series : (n,) array or None
        The data set of each row, where lags are within data sets; None for one.
    """

    n: int
    counts: Array | None = None
    labels: Array | None = None
    ways: tuple[Array, ...] = ()
    factors: tuple[float, ...] = ()
    lags: tuple[float, ...] = ()
    unknown: str = ""
    response: str = ""
    texts: tuple[str, ...] | None = None
    groups: bool = False
    outcomes: Array | None = None
    fit: str = ""
    terms: Callable[[], Array] | None = None
    series: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "terms": None}

    def __post_init__(self) -> None:
        for name in ("counts", "labels", "outcomes", "series"):
            object.__setattr__(self, name, _column(getattr(self, name), self.n))
        object.__setattr__(self, "ways", tuple(_column(way, self.n) for way in self.ways))
        factors = tuple(map(float, self.factors)) or (1.0,) * len(self.ways)
        if len(factors) != len(self.ways):
            raise ValueError(f"{len(factors)} factors for {len(self.ways)} ways of clustering")
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "lags", tuple(map(float, self.lags)))
        if self.texts is not None and (
            len(self.texts) != self.n or not all(isinstance(text, str) for text in self.texts)
        ):
            raise ValueError(f"{len(self.texts)} texts for {self.n} rows: give a string for each")

    @property
    def present(self) -> Array:
        """Observations that each row is, (n,)."""
        return np.ones(self.n) if self.counts is None else self.counts

    @property
    def counted(self) -> bool:
        """Whether the labels are 0, 1, 2, ...: an index that nobody has chosen."""
        return self.labels is not None and np.array_equal(self.labels, np.arange(self.n))

    def shown(self) -> Sequence[str] | None:
        """Return the labels to print, (n,); None where nobody has chosen any."""
        if self.texts is not None or self.labels is None or self.counted:
            return self.texts
        return [f"{label:.0f}" if label == round(label) else f"{label}" for label in self.labels]

    def scatter(self, influence: Array) -> Array:
        """Sum outer products of influences, (n, K) to (K, K), between rows, clusters or lags."""
        return self.product(influence, self, influence)

    def product(self, own: Array, other: "Rows", others: Array, names: str = "them") -> Array:
        """Sum products of two estimates' influences, (n, K) and (m, L) to (K, L)."""
        pairs = None if other is self else same_rows(self, other, names)
        weighted, partner = self.present[:, None] * own, other.present[:, None] * others
        if not self.ways and not self.lags:
            here, there = _both(self, other, pairs)
            return np.asarray(weighted[here].T @ others[there])
        if self.lags:
            if pairs is not None:
                weighted, partner = weighted[pairs[0]], partner[pairs[1]]
            return _lagged(weighted, partner, self.lags, _series(self, other, pairs)[0])
        total = np.zeros((own.shape[1], others.shape[1]))
        for mine, theirs, one, two in zip(
            *_aligned(self, other, pairs), self.factors, other.factors, strict=True
        ):
            groups = np.unique(np.concatenate([mine, theirs]), return_inverse=True)[1]
            count = int(groups.max()) + 1
            sums = _sums(groups[: self.n], weighted, count).T @ _sums(
                groups[self.n :], partner, count
            )
            total += np.sign(one) * np.sqrt(one * two) * sums
        return total


def same_rows(one: Rows, other: Rows, names: str) -> Pairs | None:
    """Find the rows that two estimates share; None if all are the same in the same order."""
    for rows in (one, other):
        if rows.unknown:
            raise ValueError(f"Joint errors of {names}: {rows.unknown}")
    pairs = _in_clusters(one, other) or _by_labels(one, other, names)
    _check_weights(one, other, pairs, names)
    _check_dependence(one, other, pairs, names)
    return pairs


def shared_labels(one: Rows, other: Rows) -> Pairs:
    """Find the rows with the same label, in the order of one; none without labels."""
    if one.labels is None or other.labels is None:
        return (np.zeros(0, np.intp),) * 2
    _, here, there = np.intersect1d(one.labels, other.labels, return_indices=True)
    order = np.argsort(here, kind="stable")
    return here[order], there[order]


def shared_clusters(one: Rows, other: Rows) -> int:
    """Count the clusters with the same labels in both, of ways of grouping in the same place."""
    if not (one.groups and other.groups) or len(one.ways) != len(other.ways):
        return 0
    found = (
        np.setdiff1d(np.intersect1d(*ways), [NO_GROUP]).size
        for ways in zip(one.ways[:2], other.ways[:2], strict=True)
    )
    return max(found, default=0)


def _in_clusters(one: Rows, other: Rows) -> Pairs | None:
    """Find shared rows of two estimates that share clusters and only some rows, or none.

    Sums over clusters need no pairs of rows: where labels do not tell them, there are none.
    """
    if not shared_clusters(one, other):
        return None
    nothing = (np.zeros(0, np.intp),) * 2
    if one.labels is None or other.labels is None:
        return None if one.n == other.n else nothing
    if np.array_equal(one.labels, other.labels):
        return None
    repeated = any(np.unique(labels).size < labels.size for labels in (one.labels, other.labels))
    return nothing if repeated or one.counted or other.counted else shared_labels(one, other)


def _aligned(
    one: Rows, other: Rows, pairs: Pairs | None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Return the clusters of all rows of both, coded alike, for each way of grouping."""
    if pairs is None:
        return one.ways, one.ways
    if pairs[0].size < max(one.n, other.n):
        return one.ways, other.ways
    order = np.argsort(pairs[1])
    return one.ways, tuple(way[pairs[0][order]] for way in one.ways)


def matched_by_order(one: Rows, other: Rows) -> bool:
    """Whether only the order, or indexes that nobody has chosen, tell that rows are the same."""
    unlabeled = one.labels is None or other.labels is None
    return (unlabeled or (one.counted and other.counted)) and _in_clusters(one, other) is None


def same_response(one: Rows, other: Rows, pairs: Pairs | None) -> bool | None:
    """Whether the response has the same values in rows that are paired; None if unknown."""
    names = {rows.response.rpartition(" ")[0] for rows in (one, other)}
    if len(names) > 1 or not one.response:
        return None
    if one.outcomes is not None and other.outcomes is not None:
        here, there = (slice(None), slice(None)) if pairs is None else pairs
        return np.array_equal(one.outcomes[here], other.outcomes[there])
    whole = pairs is None or pairs[0].size == max(one.n, other.n)
    return one.response == other.response if whole else None


def label_texts(index: Any, codes: Array | None) -> tuple[str, ...] | None:
    """Write an index of rows as text, unless it is of numbers, which are their own codes."""
    return None if codes is None or np.all(codes > HASHED) else tuple(map(str, index))


def _column(numbers: Any, n: int) -> Array | None:
    if numbers is None:
        return None
    column = np.asarray(numbers, dtype=np.float64)
    if column.flags.writeable:
        column = column.copy()
    if column.shape != (n,):
        raise ValueError(f"{column.shape} numbers for {n} rows")
    column.setflags(write=False)
    return column


def _by_labels(one: Rows, other: Rows, names: str) -> Pairs | None:
    a, b = one.labels, other.labels
    if a is None or b is None:
        if one.n != other.n:
            raise ValueError(
                f"{names} were fitted to {one.n} and {other.n} rows, and without labels nobody "
                "knows which of them are the same. Fit both to the same rows, or to data frames "
                f"with an index; {_separate(one, other)} Units "
                "of MixedLM and of conditional models are groups of rows: resample these, "
                '`bootstrap(fit_both, data, psi, clusters=data["group"])`.'
            )
        return None
    if np.array_equal(a, b):
        return None
    here, there = shared_labels(one, other)
    repeated = any(np.unique(labels).size < labels.size for labels in (a, b))
    if repeated or not here.size:
        reason, advice = (
            ("an index that repeats labels", UNIQUE)
            if repeated
            else (
                "no label of a row in common",
                "Fit both to rows of one data frame, without `reset_index` in between",
            )
        )
        raise ValueError(
            f"{names} were fitted to {one.n} and {other.n} rows with {reason}, so nobody knows "
            f"which rows are the same. {advice}; {_separate(one, other)}"
        )
    return here, there


def _separate(one: Rows, other: Rows) -> str:
    """Advise on rows none of which are shared, as far as anybody knows."""
    if one.lags or other.lags:
        return (
            "rows that are near in time depend on each other even where none is shared: for those "
            "of one series make one model of all of them. For separate series use `join(a, b, "
            "independent=True)`."
        )
    if one.ways and other.ways:
        return (
            "for separate samples, which share no cluster either, use `join(a, b, "
            "independent=True)`; for rows of the same clusters give `clusters=` the same labels "
            "in both."
        )
    return (
        "for separate samples use `join(a, b, independent=True)`; for other rows of the same "
        "clusters give `clusters=` to both."
    )


def _check_weights(one: Rows, other: Rows, pairs: Pairs | None, names: str) -> None:
    """Refuse rows that are different numbers of observations; none is a row that was left out."""
    here, there = _both(one, other, pairs)
    unequal = np.flatnonzero(one.present[here] != other.present[there])
    if unequal.size:
        first = np.arange(one.n)[here][unequal[0]]
        raise ValueError(
            f"{names} weigh the same rows differently: row {first} counts "
            f"{one.present[here][unequal[0]]:.6g} and {other.present[there][unequal[0]]:.6g} "
            "times. Fit both with the same `weights=`, or, if the weights are no counts, say so "
            'with `weight_kind="precision"` or `"sampling"`.'
        )


def _both(one: Rows, other: Rows, pairs: Pairs | None) -> tuple[Any, Any]:
    """Choose the shared rows that count in both."""
    if pairs is None and one.counts is None and other.counts is None:
        return slice(None), slice(None)
    here, there = (np.arange(one.n),) * 2 if pairs is None else pairs
    counted = (one.present[here] > 0) & (other.present[there] > 0)
    return here[counted], there[counted]


def _check_dependence(one: Rows, other: Rows, pairs: Pairs | None, names: str) -> None:
    """Refuse two estimates that disagree on which rows depend on each other."""
    kinds = [
        f"{len(rows.ways) or 'no'} clusters" if not rows.lags else f"{len(rows.lags) - 1} lags"
        for rows in (one, other)
    ]
    agree = kinds[0] == kinds[1] and one.lags == other.lags
    agree = agree and np.array_equal(*_series(one, other, pairs))
    missing = pairs is not None and max(one.n, other.n) > pairs[0].size
    if agree and not one.ways and not (one.lags and missing):
        return
    if agree and not missing and all(map(_same_groups, *_codes(one, other, pairs))):
        return
    if agree and missing and one.groups and other.groups and shared_clusters(one, other):
        if all(map(np.array_equal, *_codes(one, other, pairs))):
            return
        raise ValueError(
            f"{names} have other clusters for the same rows. Ask for both with the same labels: "
            "`infer(model, psi, clusters=labels, influence=True)`."
        )
    if agree and missing:
        raise ValueError(
            f"{names} were fitted to rows that are only partly the same, and "
            + (
                "serially correlated errors reach beyond single rows. Fit both to the same rows."
                if one.lags
                else "their clusters have no label in common. Give `clusters=` the same labels in "
                "both, such as a column of the data frame."
            )
        )
    raise ValueError(
        f"{names} have errors that let different rows depend on each other. Ask for both with the "
        "same grouping: `infer(model, psi, clusters=labels, influence=True)`, and the same "
        "`HAC(lags)` where rows are in time order. If they are other rows of the same clusters, "
        "label them: `df.index = [f'r{i}' for i in range(len(df))]` before both fits."
    )


def _codes(one: Rows, other: Rows, pairs: Pairs | None) -> tuple[Iterable[Array], Iterable[Array]]:
    if pairs is None:
        return one.ways, other.ways
    return [way[pairs[0]] for way in one.ways], [way[pairs[1]] for way in other.ways]


def _same_groups(a: Array, b: Array) -> bool:
    """Whether two codings make the same groups."""
    pairs = np.unique(np.column_stack([a, b]), axis=0)
    return len(pairs) == np.unique(a).size == np.unique(b).size


def _sums(groups: NDArray[np.intp], rows: Array, count: int) -> Array:
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, groups, rows)
    return sums


def _series(one: Rows, other: Rows, pairs: Pairs | None) -> tuple[Array, Array]:
    """The data set of each row that two estimates share, as both have it."""
    found = [np.zeros(own.n) if own.series is None else own.series for own in (one, other)]
    if pairs is None:
        return found[0], found[1]
    return found[0][pairs[0]], found[1][pairs[1]]


def _lagged(a: Array, b: Array, weights: tuple[float, ...], series: Array) -> Array:
    """Sum the products of rows, and of those some lags apart in the same data set."""
    total = weights[0] * (a.T @ b)
    for lag, weight in enumerate(weights[1:], start=1):
        same = (series[lag:] == series[:-lag])[:, None]
        total = total + weight * (a[lag:].T @ (same * b[:-lag]) + a[:-lag].T @ (same * b[lag:]))
    return np.asarray(total)
