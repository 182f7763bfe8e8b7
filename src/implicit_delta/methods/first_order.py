"""First-order picture of a bootstrap: its limit for many rows, and the skewness behind BCa."""

from dataclasses import dataclass

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.findings import Finding
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError, NonlinearityWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.outcomes import monte_carlo_errors
from implicit_delta.methods.replication import Replication
from implicit_delta.models.model import FittedModel
from implicit_delta.models.redraws import influences_of
from implicit_delta.models.reducers import scatter_of
from implicit_delta.models.sources import measurement_variance

RESAMPLING = 1.5  # times its limit, and the Monte-Carlo error: far beyond small samples
MISFIT = 3.0  # times the error of the model: overdispersion alone seldom is ninefold
MOST_ROWS = 10**7  # influences that are held at a time
FEW_ROWS = (
    "Usual causes: a few rows that carry the fit, and resamples without them; a log-likelihood "
    "whose scale is not that of the data (a variance left at one); or terms that were not sampled, "
    "such as bins with their counts: give one term for each value and `weights=` counts."
)
FAR_FROM_NORMAL = (
    "Usual causes: few observations, a log-likelihood that is far from a parabola, or new data "
    "whose fit is at the edge of what is possible. Look at `kind='percentile'`."
)


@dataclass(frozen=True)
class FirstOrder:
    """Where a bootstrap is held against its limit.

    Attributes
    ----------
    finding : Finding or None
        The bootstrap is far from it.
    acceleration : (K,) array or None
        Skewness of the influences over six.
    reason : str
        Why there is no acceleration.
    """

    finding: Finding | None = None
    acceleration: Array | None = None
    reason: str = ""

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        ascent: Ascent,
        replication: Replication,
        draws: Array,
    ) -> "FirstOrder":
        """Linearize, and compare with the spread of psi over replicates, (B, K)."""
        model = evaluation.model
        if ascent.scale is None:
            return cls(reason=f"the response of more than {DENSE_LIMIT} parameters is not computed")
        if model.d > len(draws):  # the derivative of psi would cost more than the draws
            return cls(reason=f"that takes at least {model.d} replicates, one for each parameter")
        try:
            scaled = ascent.scale.half_transpose(evaluation.jacobian(model.theta).T)
            directions = ascent.scale.half(scaled)
            scatter, rows = _scatter(evaluation, directions, replication.clusters)
        except ImplicitDeltaError as error:
            return cls(reason=f"psi could not be differentiated ({error})")
        stated = measurement_variance(model, model.theta, directions)
        scatter = scatter if stated is None else scatter + stated
        own = np.linalg.norm(scaled, axis=0)
        found = _disagreement(draws, _limits(evaluation, replication, own, scatter))
        reason = _obstacle(evaluation, replication, rows, scatter)
        if rows is None or reason:
            return cls(found, reason=reason)
        return cls(found, _acceleration(model, directions, rows, replication))


def _scatter(
    evaluation: Evaluation, directions: Array, clusters: Clusters | None
) -> tuple[Array, Array | None]:
    """Robust covariance (K, K) of the same rows, and the influence of each, (n, K), unless many.

    In an average over the training rows each has its own deviation too.
    """
    model, training = evaluation.model, evaluation.sample == "training"
    if model.n * evaluation.size > MOST_ROWS and not training:
        return model.scatter(model.theta, directions, clusters), None
    rows = influences_of(model, model.theta, directions)
    if training:
        rows = rows + evaluation.deviations
    return scatter_of(rows, model.weights.counts, clusters), rows


def _obstacle(
    evaluation: Evaluation, replication: Replication, rows: Array | None, scatter: Array
) -> str:
    """Say why skewness of the influences would not make a BCa interval; nothing if it does."""
    if rows is None:
        return f"the influences of {evaluation.model.n} rows are not held"
    if np.any(np.diag(scatter) == 0):
        return "psi has no slope at the fitted parameters: it moves in steps"
    if evaluation.noise is not None or evaluation.sample in ("independent", "unknown"):
        return (
            "the error of the evaluation itself is part of it, and these replicates are those of "
            "the model, stretched"
        )
    if not replication.symmetric:
        return 'smooth weights are skewed themselves; use `Bootstrap(1000, kind="resample")`'
    return ""


def _acceleration(
    model: FittedModel, directions: Array, rows: Array, replication: Replication
) -> Array:
    r"""Skewness over six: :math:`\sum f^3 / 6 (\sum f^2)^{3/2}` of all that is drawn."""
    squares, cubes, count = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0
    for source in replication.sources(model):
        own = rows if source is model else influences_of(source, model.theta, directions)
        units, often = replication.units(source, own)
        away = units - np.average(units, axis=0, weights=often)
        squares, cubes, count = squares + often @ away**2, cubes + often @ away**3, count + 1
    return ratio(cubes / count, 6 * (squares / count) ** 1.5)


def _limits(
    evaluation: Evaluation, replication: Replication, own: Array, scatter: Array
) -> list[tuple[Array, float, str, str]]:
    """Standard errors that a bootstrap should be near, by how much, their name, and advice.

    Clusters and sampling weights are there because the model is not relied on.
    """
    if replication.from_model:
        return [(own, RESAMPLING, "the one of the curvature", FAR_FROM_NORMAL)]
    limits = [(np.sqrt(np.diag(scatter)), RESAMPLING, "the robust one of the same rows", FEW_ROWS)]
    sampled = evaluation.model.weights.kind == "sampling" or evaluation.sample == "training"
    if replication.clusters is None and not sampled:
        limits.append((own, MISFIT, "the one of the model", FEW_ROWS))
    return limits


def _disagreement(draws: Array, limits: list[tuple[Array, float, str, str]]) -> Finding | None:
    """Find a spread that is beyond a limit by more than chance."""
    errors, chance = np.std(draws, axis=0, ddof=1), 1 + monte_carlo_errors(draws)
    for expected, limit, name, causes in limits:
        times = ratio(errors, expected, otherwise=1.0)
        k = int(np.argmax(times / chance))
        if times[k] > limit * chance[k]:
            return Finding(
                "warn",
                "bootstrap_limit",
                f"The bootstrap has a standard error of {errors[k]:.4g}, {times[k]:.2g} times "
                f"{name}, {expected[k]:.4g}.",
                number=float(times[k]),
                remedies=(causes,),
                warning=NonlinearityWarning,
            )
    return None
