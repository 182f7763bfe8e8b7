"""Covariance of the parameters that a host library's fit claims."""

from dataclasses import dataclass, field

import numpy as np

from implicit_delta._core.clusters import Clusters
from implicit_delta._core.types import Array

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
    """

    covariance: Array = field(repr=False)
    name: str
    df: float = np.inf
    clusters: Clusters | None = None
    factor: float = 1.0
    by_rows: bool = True

    def after(self, step: Array) -> "Claimed | None":
        """Return what is left of the claim when theta has moved: all of it, or nothing."""
        errors = np.sqrt(np.diag(self.covariance))
        return self if bool(np.all(abs(step) <= STAYED * errors)) else None

    def __str__(self) -> str:
        return f"{self.name} of the fit"
