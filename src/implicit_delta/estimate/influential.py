"""Training rows that move an estimate most, as a pair of arrays and as a table."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.labels import distinct
from implicit_delta.core.types import Array
from implicit_delta.estimate.held import covariance_of
from implicit_delta.estimate.quantiles import deviations
from implicit_delta.estimate.tables import aligned, as_html, data_frame, decimals, number, shortened

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

MOST_COLUMNS = 6  # evaluations of a printed table; `to_frame` has all of them
CAPTION = "Influence: change of the estimate for one more copy of the row."


class _Pair(NamedTuple):
    row: NDArray[np.intp]
    influence: Array


class Influential(_Pair):
    """Training rows that move the estimate most: their numbers (k,) and influences (k, K).

    Unpacks as these two. Printed, it is a table, with the labels of the rows if the data had some.
    The numbers are positions among the rows of the fit, not the index: rows that the fit has left
    out are not counted. ``fitted.drop(index=fitted.index[top.row])`` drops them, with ``fitted``
    the frame of the rows of the fit.

    Attributes
    ----------
    row : (k,) array
        Positions of the rows in the training data, from 0.
    influence : (k, K) array
        First-order change of each evaluation when one more copy of the row is added.
    label : tuple of str or None
        The index of these rows in their data frame.
    names : tuple of str
        Of the evaluations.
    """

    label: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()

    def __new__(
        cls,
        row: NDArray[np.intp],
        influence: Array,
        label: tuple[str, ...] | None = None,
        names: tuple[str, ...] = (),
    ) -> Influential:
        """Make the pair, with labels and names beside it."""
        made = super().__new__(cls, row, influence)
        made.label = label
        made.names = names or tuple(f"influence[{k}]" for k in range(np.shape(influence)[1]))
        return made

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as columns: row, label if there are any, and each evaluation."""
        labels = [] if self.label is None else [list(self.label)]
        columns = [self.row.tolist(), *labels, *np.asarray(self.influence).T.tolist()]
        header = distinct(["row", *["label"] * len(labels), *self.names])
        return dict(zip(header, columns, strict=True))

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return the table as a data frame, the strongest row first."""
        return data_frame(library, self.to_dict())

    def __repr__(self) -> str:
        return f"{aligned(self._cells())}\n{CAPTION}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return as_html(self._cells(), CAPTION)

    def _cells(self) -> list[list[str]]:
        shown, more = self.names[:MOST_COLUMNS], len(self.names) > MOST_COLUMNS
        header = ["row", *(["label"] if self.label else []), *map(shortened, shown)]
        sizes = np.max(np.abs(self.influence), axis=0, initial=0.0)
        places = [decimals([size], [size])[0] for size in sizes]
        rows = [
            [
                str(self.row[i]),
                *([shortened(self.label[i])] if self.label else []),
                *(number(self.influence[i, k], places[k]) for k in range(len(shown))),
                *["..."] * more,
            ]
            for i in range(len(self.row))
        ]
        return [[*header, *["..."] * more], *rows]


def strongest(estimate: Estimate, k: int) -> Influential:
    """Find the k rows of largest influence, in standard errors; see `Estimate.top_influence`."""
    if estimate.strongest is None:
        check_kept(estimate)
    count = operator.index(k)
    if count < 0:
        raise ValueError(f"k is the number of rows to return, not {k!r}")
    errors = deviations(covariance_of(estimate))
    if estimate.influence is None:
        assert estimate.strongest is not None
        return Influential(*estimate.strongest(errors, count), estimate.names)
    scaled = np.abs(estimate.influence) / np.where(errors > 0, errors, 1.0)
    found = np.argsort(-scaled.max(axis=1), kind="stable")[:count]
    texts = None if estimate.rows is None else estimate.rows.shown()
    label = None if texts is None else tuple(texts[i] for i in found)
    return Influential(found, estimate.influence[found], label, estimate.names)


def check_kept(estimate: Estimate) -> None:
    """Refuse an estimate without the influence of all rows."""
    if estimate.influence is None:
        raise ValueError(
            "The influence of the training rows was not kept: ask for it with "
            "`infer(..., influence=True)`."
        )
