"""Influence of each training row, and the robust and clustered variances made of it."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from implicit_delta._core.clusters import Clusters
from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning, UnsupportedModelError
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel, scatter_of

Correction: TypeAlias = Literal["HC0", "HC1", "CR0", "CR1", "CR1S"]

FEWEST_EFFECTIVE = 2.0  # clusters of equal size: with two there is no variance between them


@dataclass(frozen=True)
class Sandwich:
    r"""Robust covariance :math:`\sum_i w_i f_i f_i'` of influences f, or of sums within clusters.

    Attributes
    ----------
    clusters : Clusters or None
    factor : float
        The small-sample correction.
    """

    clusters: Clusters | None = None
    factor: float = 1.0
    name: str = "HC0"

    @classmethod
    def of(cls, model: FittedModel, robust: bool | Correction, clusters: Any) -> "Sandwich | None":
        """Check what a user asked for; None if that is the model's own variance."""
        groups = None
        if clusters is not None:
            groups = Clusters.of(clusters, model.weights, model.rows)
            _warn_of_one_cluster(groups, model.weights)
        if model.weight_kind == "sampling" and not robust:
            return cls(groups, _design_factor(model, groups), "design")
        factor = small_sample_factor(model, robust, groups)
        plain = "HC0" if groups is None else "CR0"
        name = plain if isinstance(robust, bool) else str(robust)
        return None if not robust and groups is None else cls(groups, factor, name)

    def __str__(self) -> str:
        if self.name == "design":
            groups = "" if self.clusters is None else f" ({self.clusters.count} clusters)"
            return f"design-based{groups}"
        if self.clusters is None:
            return f"robust ({self.name})"
        return f"clustered ({self.name}, {self.clusters.count} clusters)"

    def df(self, model: FittedModel, response: Response) -> float | Array:
        """Degrees of freedom of the variance, one number or (K,)."""
        if self.name == "design":  # as in R's svyglm
            units = model.counts.sum() if self.clusters is None else self.clusters.count
            return max(float(units) - model.d, 1.0)
        return model.df if self.clusters is None else self.clusters.count - 1.0

    def of_rows(self, model: FittedModel, rows: Array) -> Array:
        """Make the covariance of influences, (n, K) to (K, K)."""
        return self.factor * scatter_of(rows, model.counts, self.clusters)

    def of_directions(self, model: FittedModel, directions: Array) -> Array:
        """Make the covariance of responses, (d, K) to (K, K); no row leaves the data."""
        return self.factor * model.scatter(model.theta, directions, self.clusters)


def _design_factor(model: FittedModel, clusters: Clusters | None) -> float:
    """Return n / (n - 1), with n the rows or clusters that were sampled."""
    count = float(model.counts.sum()) if clusters is None else clusters.count
    if count < 2:
        raise UnsupportedModelError(
            'The design-based variance of weight_kind="sampling" is that between rows, and there '
            "is only one with any weight. Give the log-likelihood of each row, and its weight."
        )
    return count / (count - 1)


def _warn_of_one_cluster(clusters: Clusters, weights: Array) -> None:
    """Warn of a cluster that holds most rows: the others fix its sum, and so the variance."""
    effective = clusters.effective(weights)
    if effective < FEWEST_EFFECTIVE:
        warn(
            f"One of the {clusters.count} clusters holds most of the observations: they vary as "
            f"little as {effective:.2f} clusters of equal size, and clustered standard errors are "
            "then far too small. Give labels of smaller groups.",
            ImplicitDeltaWarning,
        )


def checked_directions(model: FittedModel, response: Response) -> Array:
    """Return the directions, (d, K), if influences can be made of them; explain otherwise."""
    if response.directions is None:
        raise UnsupportedModelError(
            f"{response.method.split('(')[0]} does not find the direction in which the parameters "
            "respond, which robust and clustered errors and influences are made of. Use "
            "`Infinitesimal` or `FiniteDifference`."
        )
    if model.n == 1:
        raise UnsupportedModelError(
            "Robust and clustered errors and influences need the log-likelihood of each "
            "observation, but the model has only one (its data are dependent)."
        )
    return response.directions


def small_sample_factor(
    model: FittedModel, robust: bool | Correction, clusters: Clusters | None
) -> float:
    r"""Return the factor by which small samples inflate a robust covariance.

    With n observations (the sum of `counts`), d parameters and G clusters:

    ==============  ===========================================================
    HC0, CR0, True  1
    HC1             n / (n - d)
    CR1             G / (G - 1)
    CR1S            G / (G - 1) * (n - 1) / (n - d), as in Stata and statsmodels
    ==============  ===========================================================
    """
    if isinstance(robust, bool):
        return 1.0
    if robust not in get_args(Correction):
        raise ValueError(f"robust is True, False or one of {get_args(Correction)}, not {robust!r}.")
    if robust.startswith("CR") != (clusters is not None):
        raise ValueError(
            f"robust={robust!r} does not fit: HC0 and HC1 are for independent observations, CR0, "
            f"CR1 and CR1S for clusters, and clusters were {'not ' * (clusters is None)}given."
        )
    factor = 1.0
    if robust in ("CR1", "CR1S") and clusters is not None:
        factor = clusters.count / (clusters.count - 1)
    if robust in ("HC1", "CR1S"):
        n = float(model.counts.sum())
        if n <= model.d:
            raise ValueError(
                f"robust={robust!r} divides by n - d, but there are {n:g} observations and "
                f"{model.d} parameters. Use robust=True."
            )
        factor *= (n if robust == "HC1" else n - 1) / (n - model.d)
    return factor
