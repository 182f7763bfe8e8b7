"""Assemble an estimate: the only place that makes one of an evaluation and a response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from implicit_delta._core.factored import Covariance, Factored
from implicit_delta._core.rounding import is_same
from implicit_delta._core.types import Array
from implicit_delta._core.warn import begin_answer, warn, warned_since
from implicit_delta.errors import NonlinearityWarning
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.diagnostics import DEBIASED
from implicit_delta.estimate.quantiles import welch_df
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import TotalError, stretched, total_error
from implicit_delta.inference.dispersion import warn_of_dispersion
from implicit_delta.inference.guards import (
    SANDWICHED,
    STRAIGHTENED,
    check_bend,
    check_stop,
    guard,
)
from implicit_delta.inference.influence import Sandwich, rows_of
from implicit_delta.inference.limits import told_of_limits
from implicit_delta.inference.model_part import model_part
from implicit_delta.inference.polish import move_by_polish
from implicit_delta.inference.sources import by_source
from implicit_delta.inference.stopped import (
    check_memorized,
    moves_to_come,
    told,
    warn_of_what_data_do_not_tell,
)
from implicit_delta.inference.target import Target, target_of
from implicit_delta.inference.training_noise import TrainingNoise, training_noise
from implicit_delta.methods.base import Response
from implicit_delta.models.base import FittedModel, Strongest
from implicit_delta.numerics.arrays import ratio

BENT_DROPS, BENT_WARNS = 0.01, 0.05  # of the variance of psi over draws, by what is not linear


@dataclass(frozen=True)
class Cost:
    """Passes over the data and seconds since an answer was begun."""

    model: FittedModel | None
    passes_before: int
    started: float
    bytes_before: tuple[int, int] = (0, 0)

    @classmethod
    def start(cls, model: FittedModel | None = None) -> "Cost":
        """Begin to count."""
        if model is None:
            return cls(None, 0, begin_answer())
        return cls(model, model.passes, begin_answer(), model.travelled_bytes)

    @property
    def passes(self) -> int:
        """Passes over the data made in this process."""
        return 0 if self.model is None else self.model.passes - self.passes_before

    @property
    def travel(self) -> dict[str, float]:
        """Numbers that travel to shards and back, if the model has any."""
        if self.model is None or not self.model.shards:
            return {}
        now, before = self.model.travelled_bytes, self.bytes_before
        sent, received = (float(b - a) for a, b in zip(before, now, strict=True))
        return {"shards": float(self.model.shards), "sent": sent, "received": received}

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return perf_counter() - self.started

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of the warnings so far."""
        return warned_since(self.started)


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
    part = model_part(evaluation, response, sandwich, brought, influence=influence, debias=debias)
    drift, noise = np.nan, training_noise(evaluation)
    if evaluation.fitted is not None:
        drift = guard(evaluation.model, response, part.raw, strict, debias, noise.variance)
    if sandwich is not None and sandwich.stopped and response.directions is not None:
        errors = np.sqrt(part.covariance.diagonal())
        check_memorized(evaluation.model, response, errors, strict)
    if part.by_model:
        warn_of_dispersion(evaluation.model)
    limits = told_of_limits(evaluation)
    total = total_error(
        evaluation,
        part.covariance,
        part.rows,
        _robust_draws(response, part.covariance, part.replaced),
        lambda rows: part.sandwich.positive(part.sandwich.of_rows(evaluation.model, rows)),
        whole=response.whole,
        others=noise.parts,
    )
    bend = response.nonlinearity * _weight_of_bend(response, part.covariance, total)
    plainly = evaluation.fitted is not None and evaluation.fitted.sandwiched
    advice = SANDWICHED if plainly else STRAIGHTENED
    check_bend(bend, strict, evaluation, response, advice)
    if response.doubt is not None:
        warn(str(response.doubt), type(response.doubt))
    errors = np.sqrt(total.covariance.diagonal())
    own = sandwich is not None or brought is not None or response.refitted
    claimed = None if own or evaluation.fitted is None else evaluation.model.facts.host.covariance
    to_come = moves_to_come(evaluation, response)
    if to_come is not None:
        drift = check_stop(to_come, errors)
        warn_of_what_data_do_not_tell(evaluation.model, response)
    polished = move_by_polish(evaluation, errors)
    fitted = evaluation.fitted
    stop = {} if fitted is None else {**told(fitted), **fitted.precision.note}
    target = Target(DEBIASED) if debias else target_of(evaluation, errors)
    return Estimate(
        value=float(evaluation.value[0]) if evaluation.scalar else evaluation.value,
        covariance=total.covariance,  # type: ignore[arg-type]
        names=evaluation.names,
        method=response.method,
        diagnostics=Diagnostics(
            drift=drift,
            smallest_curvature=response.smallest_curvature,
            nonlinearity=bend,
            bias=response.bias,
            asymmetry=part.asymmetry,
            residual=response.residual,
            shrinkage=target.shrinkage,
            passes=cost.passes + response.passes,
            seconds=cost.seconds,
            notes={
                **evaluation.notes,
                **response.notes,
                **polished,
                **stop,
                **limits,
                **part.notes,
                **noise.notes(total.covariance),
                **cost.travel,
            },
            warnings=cost.warnings,
        ),
        influence=total.influence,
        parts=by_source(evaluation, response, part, total),  # type: ignore[arg-type]
        draws=total.draws,
        errors_add=total.errors_add,
        df=_total_df(evaluation, part.df, total, noise) if df is None else df,
        target=target.text,
        scale=evaluation.scale,
        acceleration=response.acceleration,
        rows=None
        if evaluation.fitted is None
        else rows_of(evaluation.model, part.sandwich, claimed, total.influence is not None),
        deviations=_deviations(evaluation) if influence else None,
        drift=to_come,
        strongest=_strongest(evaluation, response, part.sandwich)
        if total.influence is None
        else None,
    )


def _strongest(
    evaluation: Evaluation, response: Response, sandwich: Sandwich
) -> Callable[[Array, int], Strongest] | None:
    """Find strong rows later, on the shards where these live."""
    here = evaluation.fitted is None or not evaluation.model.shards
    if here or response.directions is None or not sandwich.by_terms:
        return None
    model = evaluation.model
    return partial(model.strongest, model.theta, response.directions)


def _deviations(evaluation: Evaluation) -> Array | None:
    """Shares of evaluation rows in the error of an average; none where that is another's sum."""
    units = evaluation.all_units()
    if units is None or evaluation.sampling is None:
        return None
    shares = (units - units.mean(axis=0)) / len(units)
    V, m = evaluation.sampling.covariance, len(shares)
    if isinstance(V, Factored):
        plain = V.left.shape[1] == m and V.middle is None
        alike = plain and is_same(V.left.T, shares * np.sqrt(m / (m - 1)), 1e-9)
        return shares if alike else None
    gap, errors = abs(shares.T @ shares * (m / (m - 1)) - V), np.sqrt(np.diag(V))
    return shares if np.all(gap <= 1e-9 * np.outer(errors, errors)) else None


def _total_df(
    evaluation: Evaluation, own: float | Array, total: TotalError, noise: TrainingNoise
) -> float | Array:
    """Degrees of freedom of all parts: of what is there without noise of the training, and its."""
    parts = {name: V for name, V in total.parts.items() if name not in noise.parts}
    rest = _sampled_df(evaluation, own, parts, total.errors_add)
    if not noise.parts:
        return rest
    added = [V.diagonal() for V in noise.parts.values()]
    left = np.maximum(total.covariance.diagonal() - np.sum(added, axis=0), 0.0)
    return welch_df([left, *added], [rest, *noise.df.values()])


def _sampled_df(
    evaluation: Evaluation, own: float | Array, parts: Mapping[str, Covariance], errors_add: bool
) -> float | Array:
    """Degrees of freedom of the model's part, and of clusters of evaluation rows."""
    if len(parts) < 2 or evaluation.sample == "training":
        return own
    sampling = np.inf if evaluation.sampling is None else evaluation.sampling.df
    if errors_add:
        return np.minimum(own, sampling) if np.isfinite(sampling) else own
    known = {"model": own, "evaluation": sampling}
    variances = [V.diagonal() for V in parts.values()]
    return welch_df(variances, [known.get(name, np.inf) for name in parts])


def _weight_of_bend(response: Response, covariance: Covariance, total: TotalError) -> float:
    """Return how much of the bend of psi shows in the interval.

    It grows with the errors of the parameters, which a robust variance may find larger, and is
    diluted by errors of other sources.
    """
    model = total.parts.get("model", covariance)
    found, own, whole = (
        np.sqrt(V.diagonal()) for V in (response.covariance, model, total.covariance)
    )
    diluted = np.minimum(ratio(own, whole, otherwise=1.0), 1.0)
    return float(np.max(ratio(own, found, otherwise=1.0) * diluted))


def _robust_draws(response: Response, covariance: Covariance, replaced: bool) -> Array | None:
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
