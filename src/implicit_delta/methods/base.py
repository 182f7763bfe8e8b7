"""Contract of a method, and its result."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.factored import Covariance
from implicit_delta.core.findings import Finding
from implicit_delta.core.named import changed_fields
from implicit_delta.core.thresholds import UNCERTAIN
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, NotDeterministicWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.normal_draws import still
from implicit_delta.models.model import FittedModel

PROBE = 0.5  # of a standard error: the push at which the bend of psi is reported


@dataclass(frozen=True)
class Response:
    r"""The move of theta and psi when :math:`\lambda \psi_k` is added to the objective.

    Attributes
    ----------
    covariance : (K, K) array or Factored
        Column k: :math:`d\psi / d\lambda` under :math:`\psi_k`. Not yet symmetric, unless of very
        many evaluations: then it is L L', in the rank of the parameters.
    directions : (d, K) array or None
        Column k: :math:`d\theta / d\lambda` under :math:`\psi_k`, where the method finds it.
    basis : (d, r) array or None
        Of the directions of a factored covariance: they are ``basis @ L.T``.
    draws : (B, K) array or None
        Psi over replicates, for methods that make them.
    method : str
        The method with everything that was left open filled in.
    smallest_curvature, nonlinearity, bias, residual : float
        See `implicit_delta.estimate.Diagnostics`; NaN where the method does not find it.
    bent : int or None
        The evaluation that has this nonlinearity, if known.
    drift : float
        Drift as the method found it, for methods without directions.
    score : (d,) array or None
        Of the objective at theta, if the method has computed it.
    exact : bool
        Whether the directions solve ``A w = g`` with A minus the Hessian of the objective, which
        the objective itself can confirm.
    acceleration : (K,) array or None
        Skewness of the influences over six, from methods that make replicates of observations.
    falls : mapping of int to (float, float)
        By evaluation: the fall of the objective half a standard error ahead and behind.
    robust : bool
        Whether the covariance holds for a misspecified model, so that no sandwich is made; of
        clusters, if the method has `by_clusters`.
    refitted : bool
        Whether the covariance is that of fits to drawn data, so that none that a host library
        claims takes its place.
    whole : bool
        Whether the covariance has the sampling error of an average over the training rows in it.
    passes : int
        Passes over the data made in other processes, which the model's own count misses.
    findings : tuple of Finding
        What the method has found about its own result; reported with those of the checks.
    notes : mapping
        Diagnostics of this method alone.
    """

    covariance: Covariance
    method: str
    directions: Array | None = None
    draws: Array | None = None
    smallest_curvature: float = np.nan
    nonlinearity: float = np.nan
    bent: int | None = None
    bias: float = np.nan
    residual: float = np.nan
    drift: float = np.nan
    score: Array | None = None
    exact: bool = False
    acceleration: Array | None = None
    basis: Array | None = None
    falls: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    robust: bool = False
    refitted: bool = False
    whole: bool = False
    passes: int = 0
    findings: tuple[Finding, ...] = ()
    notes: Mapping[str, float | str] = field(default_factory=dict)


class Method(ABC):
    """Configuration of one way to find the response: a frozen dataclass with ``repr=False``.

    A method that declares `robust` may find the robust variance by itself: of independent rows, and
    of clusters if it has `by_clusters` too. Everything else is a sandwich of its directions.
    """

    robust: ClassVar[bool] = False

    @abstractmethod
    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Find the response of the model's optimum to each of the K evaluations."""

    def check(  # noqa: B027, most methods have an answer to all of it
        self, *, robust: bool, covariance: bool, influence: bool
    ) -> None:
        """Refuse what was asked for beside psi, if the method is known to have no answer.

        That is a robust or clustered variance, a covariance that the user brings, and influences.
        """

    def by_clusters(self, clusters: Clusters) -> "Method":
        """Return the method for observations that were sampled in clusters.

        A method that draws observations draws whole clusters. Without this member the variance is
        the clustered sandwich of the directions.
        """
        return self

    def accounts_for(self, clusters: Clusters | None) -> bool:
        """Whether a response that is robust is what was requested, and not only its directions."""
        clustered = type(self).by_clusters is not Method.by_clusters
        return self.robust and (clusters is None or clustered)

    def __repr__(self) -> str:
        """Return the code that makes this configuration."""
        return f"{type(self).__name__}({changed_fields(self)})"


def described_range(pushes: Array) -> str:
    """Write lambdas as one number, or as the smallest and the largest."""
    low, high = f"{pushes.min():.4g}", f"{pushes.max():.4g}"
    return low if low == high else f"{low} to {high}"


def relative_bend(ahead: float, center: float, behind: float) -> float:
    r"""Compare the two ends of a push: :math:`|a + b - 2c| / |a - b|`."""
    rise = abs(ahead - behind)
    return float(abs(ahead + behind - 2 * center) / rise) if rise > 0 else 0.0


def check_moved(evaluation: Evaluation, values: Array, where: str) -> None:
    """Refuse outputs of psi (B, K) that are the same at every draw or replicate.

    Those that are known not to depend on the parameters may be.
    """
    flats = still(values) & ~np.broadcast_to(evaluation.constant, values.shape[1])
    constant = [name for name, flat in zip(evaluation.names, flats, strict=True) if flat]
    if constant:
        raise EvaluationError(
            f"{', '.join(constant[:5])} is the same at every {where}, up to rounding: it does not "
            "depend on the model, or its steps are wider than the uncertainty of the parameters. "
            "Does psi use its argument? What is constant has no standard error: leave it out."
        )


def uncertainty(error: float, advice: str, limit: float = UNCERTAIN) -> Finding | None:
    """Find a standard error that another seed would change, by this part of it."""
    if not error > limit:
        return None
    return Finding(
        "warn",
        "monte_carlo_error",
        f"The standard error is uncertain by about {error:.0%} of itself, so that another seed "
        "gives another one.",
        number=error,
        remedies=(advice,),
        warning=NotDeterministicWarning,
    )


def first_of(*findings: Finding | None) -> tuple[Finding, ...]:
    """Keep the first that was found: the others may be its consequences."""
    return tuple(filter(None, findings))[:1]


def refuse_flat(what: str, model: FittedModel) -> NoReturn:
    """Refuse a psi whose derivative is exactly zero."""
    predictor = model.facts.host.predictor
    hint = "" if predictor is None else predictor.constant
    raise EvaluationError(
        f"{what} Does psi use its argument?{hint} If it does, it is piecewise constant (a count, "
        "an accuracy, a rank, an argmax), or its parameters are detached. Such a psi still has a "
        "standard error: use `Simulation()`, or wrap it in `Smoothed(psi)`."
    )
