"""Response of a posterior mean to the weight of each row: its covariance with the row's term."""

from dataclasses import dataclass

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import NotDeterministicWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import Method, Response, check_moved
from implicit_delta.models.base import FittedModel, scatter_of
from implicit_delta.models.draws import DrawsModel
from implicit_delta.numerics.arrays import ratio

UNCERTAIN = 0.2  # of a variance by the noise of the draws: a tenth of a standard error


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
        check_moved(evaluation.names, values, "draw")
        directions = centered(values) / (len(values) - 1)
        covariance = scatter_of(model.influences(model.theta, directions), model.counts)
        return Response(
            covariance=covariance,
            directions=directions,
            method=f"{type(self).__name__}(draws={len(values)})",
            score=np.zeros(len(values)),
            doubt=_doubt(model, values, covariance),
            notes=_notes(values, covariance),
        )


def centered(values: Array) -> Array:
    """Subtract the mean over draws."""
    return np.asarray(values - values.mean(axis=0))


def _notes(values: Array, covariance: Array) -> dict[str, float | str]:
    """Compare with the spread of psi over the posterior."""
    over = np.sqrt(ratio(np.diag(covariance), np.var(values, axis=0, ddof=1)))
    return {"posterior_sd_ratio": float(np.max(over))}


def _doubt(model: DrawsModel, values: Array, covariance: Array) -> Warning | None:
    """Estimate what the noise of the draws adds: products of two halves have none of it."""
    halves = np.array_split(np.arange(len(values)), 2)
    influences = [
        model.per_observation(
            centered(model.log_terms[rows]).T @ centered(values[rows]) / (len(rows) - 1)
        )
        for rows in halves
    ]
    shared = model.counts @ (influences[0] * influences[1])
    off = float(np.max(abs(1 - ratio(shared, np.diag(covariance), otherwise=1.0))))
    if off <= UNCERTAIN:
        return None
    return NotDeterministicWarning(
        f"The variance is uncertain by about {off:.0%} of itself: the first and the second half "
        "of the draws differ by so much. Usual causes: few or strongly correlated draws, or "
        "chains that have not mixed. Draw more of them."
    )
