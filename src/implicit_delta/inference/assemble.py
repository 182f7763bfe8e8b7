"""Assemble an estimate: the only place that makes one of an evaluation and a response."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import NonlinearityWarning
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import stretched, total_error
from implicit_delta.inference.guards import check_bend, guard
from implicit_delta.inference.influence import Sandwich, checked_directions
from implicit_delta.inference.polish import move_by_polish
from implicit_delta.inference.small_samples import warn_of_small_samples
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics.arrays import ratio, symmetric

BENT_DROPS, BENT_WARNS = 0.01, 0.05  # of the variance of psi over draws, by what is not linear
MOST_KEPT = 10**7  # influences that a robust variance keeps unasked


@dataclass(frozen=True)
class Cost:
    """Passes over the data and seconds since an answer was begun."""

    model: FittedModel | None
    passes_before: int
    started: float

    @classmethod
    def start(cls, model: FittedModel | None = None) -> "Cost":
        """Begin to count."""
        return cls(model, 0 if model is None else model.passes, perf_counter())

    @property
    def passes(self) -> int:
        """Passes over the data made in this process."""
        return 0 if self.model is None else self.model.passes - self.passes_before

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return perf_counter() - self.started


def assemble(
    evaluation: Evaluation,
    response: Response,
    *,
    sandwich: Sandwich | None = None,
    influence: bool = False,
    strict: bool = True,
    cost: Cost | None = None,
) -> Estimate:
    """Make the estimate: symmetry, guards, robust variance, sources of error, diagnostics.

    Parameters
    ----------
    evaluation : Evaluation
        The whole question.
    response : Response
        The answer of a method.
    sandwich : Sandwich, optional
        The robust variance that was asked for; a response that is robust by itself has none.
    influence : bool
        Keep the influence of each observation.
    strict : bool
        Refuse very doubtful results instead of warning of them.
    cost : Cost, optional
        Begun with the question.
    """
    cost = cost or Cost.start()
    if sandwich is not None:
        warn_of_small_samples(sandwich, evaluation.model, response)
    sandwich = None if response.robust else sandwich
    covariance, asymmetry, notes = _symmetric(response.covariance)
    drift = np.nan
    if evaluation.fitted is None:
        check_bend(response.nonlinearity, strict)
    else:
        drift = guard(evaluation.model, response, covariance, strict)
    rows = _influence(evaluation, response, sandwich, influence)
    if sandwich is not None and rows is not None:
        covariance = sandwich.of_rows(evaluation.model, rows)
    elif sandwich is not None:
        directions = checked_directions(evaluation.model, response)
        covariance = sandwich.of_directions(evaluation.model, directions)
    if sandwich is not None:
        covariance, _, projected = _symmetric(covariance)
        notes = {**notes, **projected}
    plain = sandwich or Sandwich()
    total = total_error(
        evaluation,
        covariance,
        rows,
        _robust_draws(response, covariance, sandwich),
        lambda rows: plain.of_rows(evaluation.model, rows),
    )
    if response.doubt is not None:
        warn(str(response.doubt), type(response.doubt))
    polished = move_by_polish(evaluation, np.sqrt(np.diag(total.covariance)))
    asked = {} if sandwich is None else {"variance": str(sandwich)}
    return Estimate(
        value=float(evaluation.value[0]) if evaluation.scalar else evaluation.value,
        covariance=total.covariance,
        names=evaluation.names,
        method=response.method,
        diagnostics=Diagnostics(
            drift=drift,
            smallest_curvature=response.smallest_curvature,
            nonlinearity=response.nonlinearity,
            asymmetry=asymmetry,
            residual=response.residual,
            passes=cost.passes + response.passes,
            seconds=cost.seconds,
            notes={**evaluation.notes, **response.notes, **notes, **polished, **asked},
        ),
        influence=total.influence,
        parts=total.parts,
        draws=total.draws,
        errors_add=total.errors_add,
    )


def _robust_draws(response: Response, covariance: Array, sandwich: Sandwich | None) -> Array | None:
    """Stretch draws to the robust covariance; none are kept of a psi that bends over them.

    The sandwich is that of the linear part of psi, and a stretched draw of another psi may be a
    value that psi never takes.
    """
    bent = float(response.notes.get("nonlinear_share", 0.0)) if sandwich is not None else 0.0
    if bent > BENT_WARNS:
        warn(
            f"{bent:.0%} of the variance of psi over the draws is not linear in the parameters, "
            "and a robust variance is that of the linear part: it is doubtful here, and there are "
            "no percentiles. Use `Bootstrap()`, which is robust and follows a psi that bends.",
            NonlinearityWarning,
        )
    draws = None if bent > BENT_DROPS else response.draws
    return stretched(draws, response.covariance, covariance)


def _influence(
    evaluation: Evaluation, response: Response, sandwich: Sandwich | None, asked: bool
) -> Array | None:
    """Make the influences, (n, K), where rows are asked for, or few enough to keep unasked."""
    needed = asked or evaluation.sample == "training"
    if not needed and sandwich is None:
        return None
    model = evaluation.model
    directions = checked_directions(model, response)
    if needed or model.n * evaluation.size <= MOST_KEPT:
        return (sandwich or Sandwich()).influences(model, directions)
    return None


def _symmetric(raw: Array) -> tuple[Array, float, dict[str, float | str]]:
    """Symmetrize, measure the asymmetry, and drop negative eigenvalues if there are any."""
    errors = np.sqrt(np.clip(np.diag(raw), 0, None))
    size = np.outer(errors, errors)
    gap = abs(raw - raw.T)
    asymmetry = float(np.max(ratio(gap, size)))
    covariance = symmetric(raw)
    values, vectors = np.linalg.eigh(covariance)
    negative = values < -1e-12 * max(values[-1], 0.0)
    if not np.any(negative):
        return covariance, asymmetry, {}
    kept = np.clip(values, 0, None)
    dropped = {"negative_eigenvalues_dropped": float(np.sum(negative))}
    return np.asarray((vectors * kept) @ vectors.T), asymmetry, dict(dropped)
