"""Covariance of the parameters that a host library's fit claims."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.rounding import eps_of, is_symmetric
from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import symmetric

# Of the matrix that a library inverted: entries of the inverse are off by so many roundings, and
# that moves an eigenvalue of d correlations by at most d times as much.
CONDITION = 1e6
STAYED = 1e-3  # of a claimed standard error: below it, a covariance is the same to three digits


@dataclass(frozen=True, eq=False)
class Claimed:
    """A covariance of theta that is not the inverse information; of one theta and one set of rows.

    Attributes
    ----------
    covariance : (d, d) array
    name : str
        In the words of the host library: "HC3", "cluster", "HAC".
    df : float
        Degrees of freedom of t quantiles; infinite for normal ones.
    clusters : Clusters or None
        The groups that it is made of.
    factor : float
        Its small-sample factor.
    by_rows : bool
        Whether influences of rows, or their sums within clusters, can stand for it.
    description : str
        For printing, if it is not "<name> of the fit".
    """

    covariance: Array = field(repr=False)
    name: str
    df: float = np.inf
    clusters: Clusters | None = None
    factor: float = 1.0
    by_rows: bool = True
    description: str = ""

    def after(self, step: Array) -> "Claimed | None":
        """Return what is left of the claim when theta has moved: all of it, or nothing."""
        errors = np.sqrt(np.diag(self.covariance))
        return self if bool(np.all(abs(step) <= STAYED * errors)) else None

    def __str__(self) -> str:
        return self.description or f"{self.name} of the fit"


def checked_covariance(covariance: Any, names: Sequence[str] | None, d: int) -> Array:
    """Check a covariance of d parameters, (d, d), and put a labeled one in their order."""
    given = np.asarray(_in_order(covariance, list(names or [])), dtype=np.float64)
    if given.shape != (d, d):
        raise ValueError(
            f"covariance has shape {given.shape}, but the model has {d} parameters: give "
            f"({d}, {d}), in the order of `infer(model, parameters)`."
        )
    if not np.all(np.isfinite(given)):
        raise ValueError("covariance has entries that are NaN or infinite.")
    if not is_symmetric(given):
        raise ValueError(
            "covariance is not symmetric. Usual causes: one triangle of it, or rows and columns in "
            "different orders."
        )
    errors = np.sqrt(abs(np.diag(given)))
    errors = np.where(errors > 0, errors, 1.0)
    values = np.linalg.eigvalsh(symmetric(given / np.outer(errors, errors)))
    if values[0] < -d * CONDITION * eps_of(given):
        raise ValueError(
            "covariance is not positive semi-definite: the smallest eigenvalue of the "
            f"correlations is {values[0]:.2g}. Usual causes: standard errors or correlations "
            "in place of covariances, or a two-way clustered covariance of few groups."
        )
    return symmetric(given)


def _in_order(covariance: Any, names: list[str]) -> Any:
    """Put a covariance with labels in the order of the names."""
    labels = [label_names(getattr(covariance, axis, ())) for axis in ("index", "columns")]
    if not names or not all(labels) or labels == [names, names]:
        return covariance
    if sorted(labels[0]) != sorted(names) or labels[0] != labels[1]:
        raise ValueError(
            f"covariance has the labels {', '.join(labels[0])} in its rows and "
            f"{', '.join(labels[1])} in its columns, but the parameters are {', '.join(names)}. "
            "Give it with these labels, or as an array in this order."
        )
    order = [labels[0].index(name) for name in names]
    return np.asarray(covariance)[np.ix_(order, order)]


def label_names(index: Any) -> list[str]:
    """Write the labels of an index as names; none if all are numbers, as in a default index."""
    if callable(index):  # of a list or tuple
        return []
    labels = list(index)
    if all(isinstance(label, int | np.integer) for label in labels):
        return []
    return [":".join(map(str, a)) if isinstance(a, tuple) else str(a) for a in labels]
