"""Cluster labels as numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """Groups of observations that may be dependent within.

    Attributes
    ----------
    codes : (n,) array of int
        The group of each observation, from 0; those without weight have the code `count`.
    count : int
        The number of groups with any weight, at least 2.
    """

    codes: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, labels: Any, weights: Array) -> "Clusters":
        """Number the labels given by a user, one for each observation."""
        if isinstance(labels, Clusters):
            return labels
        given = np.asarray(labels)
        if given.shape != weights.shape:
            raise ValueError(
                f"clusters has shape {given.shape}, but there are {weights.size} observations: "
                f"give one label for each, shape ({weights.size},)."
            )
        _check_no_missing(given)
        present = weights > 0
        groups, numbers = np.unique(given[present], return_inverse=True)
        if groups.size < 2:
            raise ValueError(
                "There is only one cluster, so the variance between clusters is unknown. Leave "
                "clusters out, or give labels of smaller groups."
            )
        codes = np.full(weights.shape, groups.size, dtype=np.intp)
        codes[present] = numbers
        return cls(codes, groups.size)

    def sums(self, rows: Array) -> Array:
        """Sum rows (n, k) within each group: (count, k)."""
        sums = np.zeros((self.count + 1, rows.shape[1]))
        np.add.at(sums, self.codes, rows)
        return sums[: self.count]

    def __repr__(self) -> str:
        return f"<{self.count} clusters>"


def _check_no_missing(labels: NDArray[Any]) -> None:
    """Refuse missing labels: which cluster a row without label is in nobody knows."""
    # NaN and NaT alone differ from themselves
    missing = np.array([label is None or label != label for label in labels.tolist()])
    if np.any(missing):
        raise ValueError(
            f"clusters is missing for {int(np.sum(missing))} observations, the first of them row "
            f"{int(np.argmax(missing))}. Give each observation a label; one that belongs to no "
            "group is a cluster of its own."
        )
