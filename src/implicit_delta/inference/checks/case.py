"""A case: one answer, with what its checks look at, each number computed when first needed."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from implicit_delta.core.factored import Covariance
from implicit_delta.core.types import Array
from implicit_delta.estimate.diagnostics import DEBIASED
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import TotalError, stretched, total_error
from implicit_delta.inference.influence import Sandwich
from implicit_delta.inference.model_part import ModelPart, stated_variance
from implicit_delta.inference.stopped import moves_to_come
from implicit_delta.inference.target import Target, target_of
from implicit_delta.inference.training_noise import TrainingNoise
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.base import Response
from implicit_delta.models.boundaries import near_limits
from implicit_delta.models.model import FittedModel
from implicit_delta.models.sources import without_measurements

NOISE_EXPLAINS = 2.0  # times the noise of a training: a move by less is in the budget already
BENT_DROPS = 0.01  # of the variance of psi over draws, by what is not linear


@dataclass(frozen=True)
class Case:
    """An evaluation, the response of a method, and the options of the call.

    Attributes
    ----------
    evaluation : Evaluation
    response : Response
    part : ModelPart
        The error that is due to the model.
    noise : TrainingNoise
    sandwich : Sandwich or None
        The robust variance that was requested.
    debias, strict : bool
        As in `infer`.
    """

    evaluation: Evaluation
    response: Response
    part: ModelPart
    noise: TrainingNoise
    sandwich: Sandwich | None = None
    debias: bool = False
    strict: bool = True

    @property
    def model(self) -> FittedModel | None:
        """The fitted model, if there is one."""
        return self.evaluation.fitted

    @cached_property
    def to_come(self) -> Array | None:
        """Moves of psi, (K,), that going on with a training that stopped early would make."""
        return moves_to_come(self.evaluation, self.response)

    @cached_property
    def score(self) -> Array:
        """Score at the parameters, (d,)."""
        model, known = self.evaluation.model, self.response.score
        return model.score(model.theta) if known is None else known

    @cached_property
    def drift(self) -> float:
        """Standard errors by which finishing the training would move psi; NaN if unknown.

        With noise of the training in psi, drift is what this noise does not explain.
        """
        if self.to_come is not None:
            return float(np.max(ratio(abs(self.to_come), self.errors)))
        if self.model is None:
            return np.nan
        if self.response.directions is None:
            return self.response.drift
        noise = self.noise.variance
        errors = np.sqrt(self.part.raw.diagonal() + noise)
        return drift_of(
            self.score, self.response.directions, errors, NOISE_EXPLAINS * np.sqrt(noise)
        )

    @cached_property
    def total(self) -> TotalError:
        """The error of psi from all sources."""
        part = self.part
        found = total_error(
            self.evaluation,
            part.covariance,
            part.rows,
            self._draws(),
            self._of_rows,
            whole=self.response.whole,
            others=self.noise.parts,
        )
        if self.evaluation.sample != "training" or self.response.whole:
            return found
        stated = stated_variance(self.evaluation.model, self.response)
        parts = {**found.parts, "model": found.parts["model"] + stated}
        return replace(found, covariance=found.covariance + stated, parts=parts)

    def _of_rows(self, rows: Array) -> Covariance:
        """Make the covariance of influences of the rows that were sampled."""
        sampled, sandwich = without_measurements(self.evaluation.model), self.part.sandwich
        return sandwich.positive(sandwich.of_rows(sampled, rows))

    @cached_property
    def errors(self) -> Array:
        """Standard errors, (K,)."""
        return np.asarray(np.sqrt(self.total.covariance.diagonal()))

    @cached_property
    def bend(self) -> float:
        """Nonlinearity of psi within half a standard error, as far as it shows in the interval.

        It grows with the errors of the parameters, which a robust variance may find larger, and
        is diluted by errors of other sources.
        """
        model = self.total.parts.get("model", self.part.covariance)
        found, own, whole = (
            np.sqrt(V.diagonal()) for V in (self.response.covariance, model, self.total.covariance)
        )
        diluted = np.minimum(ratio(own, whole, otherwise=1.0), 1.0)
        weight = float(np.max(ratio(own, found, otherwise=1.0) * diluted))
        return self.response.nonlinearity * weight

    @cached_property
    def near(self) -> str:
        """Limits of the constraints that are close by."""
        limited = self.model is not None and self.model.space.constraints is not None
        return "; ".join(map(str, near_limits(self.evaluation.model))) if limited else ""

    @cached_property
    def target(self) -> Target:
        """Sentence on what the interval covers, and the shrinkage."""
        return Target(DEBIASED) if self.debias else target_of(self.evaluation, self.errors)

    @property
    def nonlinear_share(self) -> float:
        """Share of the variance of draws that is not linear, where the variance is replaced."""
        notes = self.response.notes
        return float(notes.get("nonlinear_share", 0.0)) if self.part.replaced else 0.0

    def _draws(self) -> Array | None:
        """Stretch draws to another covariance; none are kept of a psi that bends over them.

        The sandwich is that of the linear part of psi, and a stretched draw of another psi may be
        a value that psi never takes.
        """
        draws = None if self.nonlinear_share > BENT_DROPS else self.response.draws
        return stretched(draws, self.response.covariance, self.part.covariance)


def drift_of(
    score: Array, directions: Array, errors: Array, explained: Array | float = 0.0
) -> float:
    """Return by how many standard errors psi would still move if training were finished."""
    moves = np.maximum(abs(score @ directions) - explained, 0.0)
    return float(np.max(ratio(moves, errors)))
