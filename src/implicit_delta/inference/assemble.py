"""Assemble an estimate: the only place that makes one of an evaluation and a response."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import NonlinearityWarning, UnsupportedModelError
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.quantiles import welch_df
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import TotalError, stretched, total_error
from implicit_delta.inference.dispersion import warn_of_dispersion
from implicit_delta.inference.guards import check_bend, guard
from implicit_delta.inference.influence import Sandwich, checked_directions
from implicit_delta.inference.polish import move_by_polish
from implicit_delta.inference.small_samples import warn_of_small_samples
from implicit_delta.inference.target import DEBIASED, Target, target_of
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel
from implicit_delta.models.claimed import Claimed
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
    brought: Array | None = None,
    df: float | None = None,
    debias: bool = False,
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
    brought : (d, d) array, optional
        A covariance of the parameters to take instead of the model's own.
    df : float, optional
        Degrees of freedom to take instead of those that the variance has.
    debias : bool
        The model is one Newton step without its penalty away from its penalized maximum.
    influence : bool
        Keep the influence of each observation.
    strict : bool
        Refuse very doubtful results instead of warning of them.
    cost : Cost, optional
        Begun with the question.
    """
    cost = cost or Cost.start()
    by_rows = evaluation.sample == "training" and not response.whole
    plain = sandwich or (_of_rows(evaluation) if by_rows else Sandwich())
    judged = _judged(evaluation, response, sandwich, plain if by_rows else None)
    if judged is not None and brought is None:
        warn_of_small_samples(judged, evaluation.model, response)
    own_df = _model_df(evaluation, response, sandwich)
    sandwich = None if response.robust else sandwich
    covariance, asymmetry, notes = _symmetric(response.covariance)
    drift = np.nan
    if evaluation.fitted is not None:
        drift = guard(evaluation.model, response, covariance, strict, debias)
    rows = _influence(evaluation, response, plain, influence or by_rows, sandwich is not None)
    if debias and sandwich is None and np.isfinite(evaluation.model.df):
        # the variance that the penalized fit has estimated holds its bias too
        excess = evaluation.model.dispersion()  # unknown for several outputs
        covariance = covariance * (excess if np.isfinite(excess) else 1.0)
        own_df = float(np.sum(evaluation.model.counts)) - evaluation.model.d
    if brought is not None:
        covariance = _brought(evaluation, response, brought)
    elif sandwich is not None and rows is not None:
        covariance = sandwich.of_rows(evaluation.model, rows)
    elif sandwich is not None:
        directions = checked_directions(evaluation.model, response)
        covariance = sandwich.of_directions(evaluation.model, directions)
    if sandwich is not None:
        covariance, _, projected = _symmetric(covariance)
        notes = {**notes, **projected}
    claimed = None if brought is not None else _claimed(evaluation, response, sandwich)
    covariance = covariance if claimed is None else claimed
    replaced = any(other is not None for other in (sandwich, brought, claimed))
    by_model = not (replaced or response.robust or by_rows or debias)
    if by_model and evaluation.fitted is not None:
        warn_of_dispersion(evaluation.model)
    total = total_error(
        evaluation,
        covariance,
        rows,
        _robust_draws(response, covariance, replaced),
        lambda rows: plain.of_rows(evaluation.model, rows),
        whole=response.whole,
    )
    bend = response.nonlinearity * _weight_of_bend(response, covariance, total)
    check_bend(bend, strict, plain=not response.falls)
    if response.doubt is not None:
        warn(str(response.doubt), type(response.doubt))
    errors = np.sqrt(np.diag(total.covariance))
    polished = move_by_polish(evaluation, errors)
    asked = {"variance": "covariance="} if brought is not None else {}
    asked |= {} if sandwich is None and not by_rows else {"variance": str(plain)}
    if claimed is not None and not by_rows:
        asked = {"variance": str(evaluation.model.claimed)}
    target = Target(DEBIASED) if debias else target_of(evaluation, errors)
    return Estimate(
        value=float(evaluation.value[0]) if evaluation.scalar else evaluation.value,
        covariance=total.covariance,
        names=evaluation.names,
        method=response.method,
        diagnostics=Diagnostics(
            drift=drift,
            smallest_curvature=response.smallest_curvature,
            nonlinearity=response.nonlinearity,
            bias=response.bias,
            asymmetry=asymmetry,
            residual=response.residual,
            shrinkage=target.shrinkage,
            passes=cost.passes + response.passes,
            seconds=cost.seconds,
            notes={**evaluation.notes, **response.notes, **notes, **polished, **asked},
        ),
        influence=total.influence,
        parts=total.parts,
        draws=total.draws,
        errors_add=total.errors_add,
        df=_total_df(evaluation, own_df, total) if df is None else df,
        target=target.text,
        acceleration=response.acceleration,
    )


def _claimed(evaluation: Evaluation, response: Response, sandwich: Sandwich | None) -> Array | None:
    """Make the covariance J C J', (K, K), with C that of the fit, if nothing else was asked for.

    A psi that jumps has no Jacobian J: the curvature times the directions stands for it.
    """
    model = evaluation.fitted
    if model is None or model.claimed is None or response.refitted or sandwich is not None:
        return None
    slopes = np.zeros(1) if response.draws is not None else evaluation.jacobian(model.theta)
    if not np.all(np.any(slopes, axis=-1)):
        slopes = model.information(model.theta, checked_directions(model, response)).T
    return np.asarray(slopes @ model.claimed.covariance @ slopes.T)


def _of_rows(evaluation: Evaluation) -> Sandwich:
    """Return the sandwich of an average over the training rows where none was asked for."""
    claimed = None if evaluation.fitted is None else evaluation.fitted.claimed
    if claimed is None or evaluation.sample != "training":
        return Sandwich()
    if not claimed.by_rows:
        raise UnsupportedModelError(
            f"The error of an average over the training rows is made of these rows, and {claimed} "
            "is not a sum over rows or clusters. Ask for `robust=True` or give `clusters=`; or "
            'use sample="unknown", an upper bound.'
        )
    return _sandwich_of(claimed)


def _sandwich_of(claimed: Claimed) -> Sandwich:
    """Make the sandwich of rows or clusters that a fit claims."""
    if claimed.name in ("HC2", "HC3"):
        return Sandwich(name=claimed.name)
    plain, corrected = ("HC0", "HC1") if claimed.clusters is None else ("CR0", "CR1S")
    return Sandwich(claimed.clusters, claimed.factor, plain if claimed.factor == 1 else corrected)


def _judged(
    evaluation: Evaluation, response: Response, asked: Sandwich | None, of_rows: Sandwich | None
) -> Sandwich | None:
    """Return the robust variance whose small samples matter: asked for, of rows, or claimed."""
    if asked is not None or of_rows is not None:
        return asked or of_rows
    claimed = None if evaluation.fitted is None else evaluation.fitted.claimed
    if claimed is None or response.refitted or not claimed.by_rows:
        return None
    return _sandwich_of(claimed)


def _model_df(
    evaluation: Evaluation, response: Response, sandwich: Sandwich | None
) -> float | Array:
    """Degrees of freedom of the model's part, one number or (K,)."""
    if evaluation.fitted is None:
        return np.inf
    claimed = evaluation.model.claimed
    if sandwich is None and claimed is not None and not response.refitted:
        return claimed.df
    if sandwich is None or (response.robust and sandwich.clusters is None):
        return evaluation.model.df
    return sandwich.df(evaluation.model, response)


def _total_df(evaluation: Evaluation, own: float | Array, total: TotalError) -> float | Array:
    """Degrees of freedom of all parts: of the model's, and of clusters of evaluation rows."""
    if len(total.parts) < 2 or evaluation.sample == "training":
        return own
    sampling = np.inf if evaluation.sampling is None else evaluation.sampling.df
    if total.errors_add:
        return np.minimum(own, sampling) if np.isfinite(sampling) else own
    known = {"model": own, "evaluation": sampling}
    parts = {name: np.diag(V) for name, V in total.parts.items()}
    return welch_df(list(parts.values()), [known.get(name, np.inf) for name in parts])


def _weight_of_bend(response: Response, covariance: Array, total: TotalError) -> float:
    """Return how much of the bend of psi shows in the interval.

    It grows with the errors of the parameters, which a robust variance may find larger, and is
    diluted by errors of other sources.
    """
    model = total.parts.get("model", covariance)
    found, own, whole = (
        np.sqrt(np.diag(V)) for V in (response.covariance, model, total.covariance)
    )
    diluted = np.minimum(ratio(own, whole, otherwise=1.0), 1.0)
    return float(np.max(ratio(own, found, otherwise=1.0) * diluted))


def _brought(evaluation: Evaluation, response: Response, brought: Array) -> Array:
    """Carry a covariance of the parameters over to psi."""
    if evaluation.sample == "training":
        raise ValueError(
            'Average(sample="training") needs to know how each row moves the parameters, which '
            "covariance= does not tell. Use robust= or clusters=."
        )
    J = evaluation.jacobian(evaluation.model.theta)
    return np.asarray(J @ brought @ J.T)


def _robust_draws(response: Response, covariance: Array, replaced: bool) -> Array | None:
    """Stretch draws to another covariance; none are kept of a psi that bends over them.

    The sandwich is that of the linear part of psi, and a stretched draw of another psi may be a
    value that psi never takes.
    """
    bent = float(response.notes.get("nonlinear_share", 0.0)) if replaced else 0.0
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
    evaluation: Evaluation, response: Response, sandwich: Sandwich, needed: bool, robust: bool
) -> Array | None:
    """Make the influences, (n, K), where rows are needed, or few enough to keep unasked."""
    if not needed and not robust:
        return None
    model = evaluation.model
    directions = checked_directions(model, response)
    if needed or model.n * evaluation.size <= MOST_KEPT:
        return sandwich.influences(model, directions)
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
