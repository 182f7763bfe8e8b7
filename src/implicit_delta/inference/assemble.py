"""Assemble an estimate: the only place that makes one of an evaluation and a response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from implicit_delta.core.factored import Covariance, Factored
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.rounding import is_same
from implicit_delta.core.types import Array
from implicit_delta.core.warn import begin_answer, warned_since
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.quantiles import welch_df
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import TotalError
from implicit_delta.inference.checks import findings_of
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.influence import Sandwich, rows_of
from implicit_delta.inference.model_part import model_part
from implicit_delta.inference.polish import move_by_polish
from implicit_delta.inference.sources import by_source
from implicit_delta.inference.stopped import told
from implicit_delta.inference.training_noise import TrainingNoise, training_noise
from implicit_delta.methods.base import Response
from implicit_delta.models.coordinates import active_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of
from implicit_delta.models.strongest import Strongest, strongest


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
        return cls(model, model.rows.passes, begin_answer(), _bytes(model))

    @property
    def passes(self) -> int:
        """Passes over the data made in this process."""
        return 0 if self.model is None else self.model.rows.passes - self.passes_before

    @property
    def travel(self) -> dict[str, float]:
        """Numbers that travel to shards and back, if the model has any."""
        shards = 0 if self.model is None else processes_of(self.model).count
        if self.model is None or not shards:
            return {}
        now, before = _bytes(self.model), self.bytes_before
        sent, received = (float(b - a) for a, b in zip(before, now, strict=True))
        return {"shards": float(shards), "sent": sent, "received": received}

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return perf_counter() - self.started

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of the warnings so far."""
        return warned_since(self.started)


def _bytes(model: FittedModel) -> tuple[int, int]:
    """Bytes that were sent to shards and received from them so far."""
    traffic = processes_of(model).traffic
    return traffic.sent, traffic.received


@dataclass(frozen=True)
class Options:
    """The rest of a call of `infer`.

    Attributes
    ----------
    sandwich : Sandwich or None
        The robust variance that was requested; a response that is robust by itself has none.
    covariance : (d, d) array or None
        A covariance of the parameters to take instead of the model's own.
    df : float or None
        Degrees of freedom to take instead of those that the variance has.
    debias : bool
        The model is one Newton step without its penalty away from its penalized maximum.
    influence : bool
        Keep the influence of each observation.
    strict : bool
        Refuse very doubtful results instead of warning of them.
    cost : Cost or None
        Begun with the question.
    findings : tuple of Finding or None
        Of the caller, before those of the checks.
    fit : str
        Identity of the fitted model.
    """

    sandwich: Sandwich | None = None
    covariance: Array | None = None
    df: float | None = None
    debias: bool = False
    influence: bool = False
    strict: bool = True
    cost: Cost | None = None
    findings: tuple[Finding | None, ...] = ()
    fit: str = ""


def assemble(evaluation: Evaluation, response: Response, options: Options) -> Estimate:
    """Make the estimate: symmetry, guards, robust variance, sources of error, diagnostics."""
    sandwich, brought, influence = options.sandwich, options.covariance, options.influence
    cost, strict = options.cost or Cost.start(), options.strict
    part = model_part(
        evaluation, response, sandwich, brought, influence=influence, debias=options.debias
    )
    noise = training_noise(evaluation)
    case = Case(evaluation, response, part, noise, sandwich, options.debias, strict)
    found = report((*options.findings, *findings_of(case), *response.findings), strict)
    total, target, fitted = case.total, case.target, evaluation.fitted
    own = sandwich is not None or brought is not None or response.refitted
    claimed = None if own or fitted is None else fitted.facts.host.covariance
    return Estimate(
        value=float(evaluation.value[0]) if evaluation.scalar else evaluation.value,
        covariance=total.covariance,  # type: ignore[arg-type]
        names=evaluation.names,
        method=response.method,
        diagnostics=Diagnostics(
            drift=case.drift,
            smallest_curvature=response.smallest_curvature,
            nonlinearity=case.bend,
            bias=response.bias,
            asymmetry=part.asymmetry,
            residual=response.residual,
            shrinkage=target.shrinkage,
            passes=cost.passes + response.passes,
            seconds=cost.seconds,
            notes={
                **evaluation.notes,
                **response.notes,
                **move_by_polish(evaluation, case.errors),
                **({} if fitted is None else {**told(fitted), **fitted.facts.precision.note}),
                **_constraints(case),
                **part.notes,
                **noise.notes(total.covariance),
                **cost.travel,
            },
            warnings=cost.warnings,
            findings=(*evaluation.findings, *found),
        ),
        influence=total.influence,
        parts=by_source(evaluation, response, part, total),  # type: ignore[arg-type]
        draws=total.draws,
        errors_add=total.errors_add,
        df=_total_df(evaluation, part.df, total, noise) if options.df is None else options.df,
        target=target.text,
        scale=evaluation.scale,
        acceleration=response.acceleration,
        rows=None
        if evaluation.fitted is None
        else rows_of(
            evaluation.model, part.sandwich, claimed, total.influence is not None, options.fit
        ),
        deviations=_deviations(evaluation) if influence else None,
        drift=case.to_come,
        strongest=_strongest(evaluation, response, part.sandwich)
        if total.influence is None
        else None,
    )


def _strongest(
    evaluation: Evaluation, response: Response, sandwich: Sandwich
) -> Callable[[Array, int], Strongest] | None:
    """Find strong rows later, on the shards where these live."""
    here = evaluation.fitted is None or not processes_of(evaluation.model).count
    if here or response.directions is None or not sandwich.by_terms:
        return None
    model = evaluation.model
    return partial(strongest, model, model.theta, response.directions)


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


def _constraints(case: Case) -> dict[str, str]:
    """Note the active constraints with their multipliers, and limits close by."""
    if case.model is None or case.model.space.constraints is None:
        return {}
    near = {"near": case.near} if case.near else {}
    return {"constraints": str(active_constraints(case.model)), **near}
