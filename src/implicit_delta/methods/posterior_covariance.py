"""Response of a posterior mean to the weight of each row: its covariance with the row's term."""

from dataclasses import dataclass

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import ImplicitDeltaWarning, NotDeterministicWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import Method, Response, check_moved
from implicit_delta.models.base import FittedModel, scatter_of
from implicit_delta.models.draws import DrawsModel
from implicit_delta.numerics.arrays import ratio
from implicit_delta.numerics.mixing import effective_sizes, split_rhat

UNCERTAIN = 0.2  # of a variance by the noise of the draws: a tenth of a standard error
FEWEST_EFFECTIVE = 200  # independent draws: a variance is then known to about that share
BLOCKS, MIXED = (
    4,
    1.05,
)  # of split R-hat: 200 independent draws exceed it once in 2500 times
# Standard errors over posterior standard deviations: a prior of ten times the information of the
# data, and data of 16 times the variance that the likelihood lets them have.
BELONGING = (0.3, 4.0)


@dataclass(frozen=True, repr=False)
class PosteriorCovariance(Method):
    r"""The infinitesimal jackknife of posterior functionals, from draws.

    The derivative of :math:`E[\psi]` by the weight of row i is :math:`\mathrm{Cov}(\psi, \ell_i)`
    over the posterior. Directions are the centered values of psi at the draws, over their number
    less one.
    """

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Evaluate psi at each draw."""
        assert isinstance(model, DrawsModel)
        at = evaluation.on(model.pinned())
        values = np.array([at(theta) for theta in model.draws])
        check_moved(evaluation, values, "draw")
        directions = centered(values) / (len(values) - 1)
        covariance = scatter_of(model.influences(model.theta, directions), model.counts)
        return Response(
            covariance=covariance,
            directions=directions,
            method=f"{type(self).__name__}(draws={len(values)})",
            score=np.zeros(len(values)),
            doubt=_doubt(model, values, covariance),
            notes={"posterior_sd_ratio": float(np.max(_over_posterior(values, covariance)))},
        )


def centered(values: Array) -> Array:
    """Subtract the mean over draws."""
    return np.asarray(values - values.mean(axis=0))


def _over_posterior(values: Array, covariance: Array) -> Array:
    """Compare standard errors with the spread of psi over the posterior, (K,)."""
    return np.asarray(np.sqrt(ratio(np.diag(covariance), np.var(values, axis=0, ddof=1))))


def _doubt(model: DrawsModel, values: Array, covariance: Array) -> Warning | None:
    """Look for too few, correlated or unmixed draws, and for draws of another posterior."""
    products = _products(model, values)
    series = np.hstack([values, products])
    sizes = effective_sizes(series)
    errors = np.sqrt(np.var(products, axis=0) / sizes[values.shape[1] :])
    noise = _noise(model, values, covariance, errors) + _mixing(series, float(np.min(sizes)))
    apart = _belonging(model, _over_posterior(values, covariance))
    if not noise and not apart:
        return None
    category = NotDeterministicWarning if noise else ImplicitDeltaWarning
    return category(" ".join(noise + apart))


def _products(model: DrawsModel, values: Array) -> Array:
    """Return what each draw adds to the variances, (S, K): these are the means of it."""
    away = centered(model.log_terms)
    influences = model.per_observation(away.T @ centered(values) / len(values))
    return centered(values) * (away @ model.per_observation(model.counts[:, None] * influences))


def _noise(model: DrawsModel, values: Array, covariance: Array, errors: Array) -> list[str]:
    """Estimate what the noise of the draws adds: products of two halves have none of it.

    Where all rows share their noise the halves agree by chance; the error of a mean does not.
    """
    halves = np.array_split(np.arange(len(values)), 2)
    influences = [
        model.per_observation(
            centered(model.log_terms[rows]).T @ centered(values[rows]) / (len(rows) - 1)
        )
        for rows in halves
    ]
    variances = np.diag(covariance)
    shared = model.counts @ (influences[0] * influences[1])
    # A variance is a square of means over draws: twice their relative error.
    off = float(np.max(ratio(np.maximum(abs(variances - shared), 2 * errors), variances)))
    if off <= UNCERTAIN:
        return []
    return [
        f"The variance is uncertain by about {off:.0%} of itself, by the noise of the draws: the "
        "first and the second half of the draws, or their Monte-Carlo error, differ by so much. "
        "Usual causes: few or strongly correlated draws, or chains that have not mixed. Draw more "
        "of them."
    ]


def _mixing(series: Array, size: float) -> list[str]:
    """Look for strong autocorrelation and for blocks of draws around different means."""
    apart = np.max(split_rhat(series, BLOCKS))
    found = []
    if size < FEWEST_EFFECTIVE:
        found.append(
            f"The {len(series)} draws are worth {size:.0f} independent ones (effective sample size "
            f"by their autocorrelation), and {FEWEST_EFFECTIVE} are needed: draw more of them."
        )
    if apart > MIXED:
        found.append(
            f"Split R-hat over {BLOCKS} blocks of the draws is {apart:.2f}, above {MIXED}: chains "
            "have not mixed, or are in different modes. Run them longer, or reparametrize."
        )
    return found


def _belonging(model: DrawsModel, over: Array) -> list[str]:
    """Hold standard errors against the posterior's, which are alike if the model is about right."""
    # Sampling weights make a posterior that is narrower by their size, and are no reason to doubt.
    w = model.weights if model.weight_kind == "sampling" else np.ones(1)
    over = over / np.sqrt(np.sum(w**2) / np.sum(w))
    off = over[(over < BELONGING[0]) | (over > BELONGING[1])]
    if off.size == 0:
        return []
    cause = (
        "rows that depend on each other or vary far more than the likelihood lets them"
        if off[0] > 1
        else "a prior that says ten times as much as the data"
    )
    return [
        f"The standard error is {off[0]:.2g} times the posterior standard deviation: draws and "
        "terms do not belong together? Give the log-likelihood (not times a factor or summed) of "
        "the rows behind this posterior, at these draws, in their order: `from_draws(draws, lambda "
        f"theta: ...)` makes it so. Another cause is {cause}; then the number is right."
    ]
