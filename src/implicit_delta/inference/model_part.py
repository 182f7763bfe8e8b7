"""The model's part of an error: its own variance, a robust one, one that is claimed or brought."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.core.factored import Covariance, Factored, quadratic
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.influence import Sandwich, checked_directions
from implicit_delta.linalg.arrays import ratio, symmetric
from implicit_delta.methods.base import Response
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import dispersion_of
from implicit_delta.models.processes import processes_of
from implicit_delta.models.sources import (
    measurement_variance,
    with_stated_errors,
    without_measurements,
)

MANY, SPARE = 500, 8  # evaluations whose range is looked for, with probes beyond their rank
ROUNDING = 1e-11  # of the largest variance: what may be left outside of that range
MOST_KEPT = 10**7  # influences that a robust variance keeps unasked


@dataclass(frozen=True)
class ModelPart:
    """The error of psi that is due to the model.

    Attributes
    ----------
    raw : (K, K) array or Factored
        The covariance of the response itself, symmetric.
    covariance : (K, K) array or Factored
        The one that counts.
    df : float or (K,) array
    rows : (n, K) array or None
        Influences of the observations, where they are needed or few.
    sandwich : Sandwich
        What makes covariances of rows.
    judged : Sandwich or None
        The robust variance whose small samples matter.
    response : Response
        That of the method, robust only where it accounts for what was requested.
    by_model : bool
        Whether it rests on the variance that the model has.
    replaced : bool
        Whether it is another than that of the response.
    asymmetry : float
    notes : mapping
    """

    raw: Covariance
    covariance: Covariance
    df: float | Array
    rows: Array | None
    sandwich: Sandwich
    judged: Sandwich | None
    response: Response
    by_model: bool
    replaced: bool
    asymmetry: float
    notes: Mapping[str, float | str]


def model_part(
    evaluation: Evaluation,
    response: Response,
    asked: Sandwich | None,
    brought: Array | None,
    *,
    influence: bool,
    debias: bool,
) -> ModelPart:
    """Choose the variance: brought, asked for, claimed by the fit, or the model's own."""
    if asked is not None and not asked.by_method:
        response = replace(response, robust=False)
    by_rows = evaluation.sample == "training" and not response.whole
    plain = asked or (_of_rows(evaluation) if by_rows else Sandwich())
    judged = _judged(evaluation, response, asked, plain if by_rows else None)
    df = _model_df(evaluation, response, asked)
    robust = None if response.robust else asked
    rank = evaluation.size if evaluation.fitted is None else evaluation.fitted.d
    _check_response(evaluation, response)
    raw, asymmetry, notes = _symmetric(response.covariance, rank)
    rows = _influence(evaluation, response, plain, influence or by_rows, robust is not None)
    claimed = None if brought is not None else _claimed(evaluation, response, robust, raw)
    covariance: Covariance = raw
    if brought is not None:
        covariance, notes = _brought(evaluation, brought), {**notes, "variance": "covariance="}
    elif robust is not None:
        of_rows = _robust(evaluation, response, robust, rows)
        covariance, _, projected = _symmetric(of_rows, rank)
        notes = {**notes, **projected}
    elif claimed is not None:
        covariance = claimed
    elif debias and np.isfinite(evaluation.model.facts.df):
        covariance, df = _renoised(evaluation, raw)
    if claimed is not None and not by_rows:
        notes = {**notes, "variance": str(evaluation.model.facts.host.covariance)}
    elif robust is not None or by_rows:
        notes = {**notes, "variance": str(plain)}
    replaced = covariance is not raw and not debias
    by_model = not (replaced or claimed is not None or response.robust or by_rows or debias)
    return ModelPart(
        raw, covariance, df, rows, plain, judged if brought is None else None, response,
        by_model and evaluation.fitted is not None, replaced, asymmetry, notes,
    )  # fmt: skip


def _check_response(evaluation: Evaluation, response: Response) -> None:
    """Raise if the fields of a response have a wrong type, shape or sign."""
    found, K = response.covariance, evaluation.size
    if not isinstance(found, Factored):
        _check_floats(response, "covariance", found, (K, K))
    model = evaluation.fitted
    d = (
        None if model is None or (not model.rows.symmetric) else model.d
    )  # these have a dual per equation
    shapes = {"directions": (d, K), "draws": (None, K), "acceleration": (K,), "score": (d,)}
    for name, shape in shapes.items():
        if (value := getattr(response, name)) is not None:
            _check_floats(response, name, value, shape)
            if not np.all(np.isfinite(value)):
                raise ValueError(f"{response.method} returned {name} that are not finite.")
    for name in ("drift", "nonlinearity", "residual", "passes"):
        if getattr(response, name) < 0:
            value = getattr(response, name)
            raise ValueError(f"{response.method} returned {name}={value:.3g}: it is a size, >= 0.")
    report([_negative_variance(evaluation, response)], strict=True)


def _negative_variance(evaluation: Evaluation, response: Response) -> Finding | None:
    """Find a variance that is negative, or not a number."""
    V = response.covariance.diagonal()
    if np.all(np.isfinite(V)) and np.min(V) >= -ROUNDING * np.max(abs(V)):
        return None
    k = int(np.argmin(np.nan_to_num(V, nan=-np.inf)))
    return Finding(
        "error",
        "negative_variance",
        f"{response.method} found a variance of {V[k]:.3g} for {evaluation.names[k]!r}, which has "
        "no square root.",
        number=float(V[k]),
        causes=(
            "refits that are not converged, or end at different optima; noise larger than the "
            "response",
        ),
        remedies=("Use another method, such as `Infinitesimal()`, or a larger push.",),
        error=ConvergenceError,
    )


def _check_floats(response: Response, name: str, value: Any, shape: tuple[int | None, ...]) -> None:
    """Raise unless a value is an array of floats of some shape; None stands for any length."""
    real = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == len(shape)
    if real and all(m in (None, n) for m, n in zip(shape, np.shape(value), strict=True)):
        return
    K = len(response.covariance) if name != "covariance" else shape[0]
    text = str(tuple("any" if n is None else n for n in shape)).replace("'", "")
    raise ValueError(
        f"{response.method} returned {value!r:.60} as {name} of {K} values of psi: it must be an "
        f"array of floats of shape {text}."
    )


def _robust(
    evaluation: Evaluation, response: Response, sandwich: Sandwich, rows: Array | None
) -> Covariance:
    model, V = evaluation.model, response.covariance
    directions = checked_directions(model, response)
    if isinstance(V, Factored) and response.basis is not None and not sandwich.stopped:
        found: Covariance = Factored(V.left, sandwich.of_basis(model, response.basis))
    elif rows is None:
        found = sandwich.of_directions(without_measurements(model), directions)
    else:
        found = sandwich.of_rows(without_measurements(model), rows)
    return sandwich.positive(found) + stated_variance(model, response)


def stated_variance(model: FittedModel, response: Response) -> Covariance | float:
    """Variance of what was measured once, whose row says nothing of it."""
    if response.directions is None:
        return 0.0
    V, many = response.covariance, response.basis is not None
    v = response.directions if response.basis is None else response.basis
    found = measurement_variance(model, model.theta, v)
    if found is None:
        return 0.0
    return Factored(V.left, found) if many and isinstance(V, Factored) else found


def _renoised(evaluation: Evaluation, covariance: Covariance) -> tuple[Covariance, float]:
    """Estimate the noise anew: that of the penalized fit holds its bias too."""
    model = evaluation.model
    excess = dispersion_of(model)  # unknown for several outputs
    freedom = float(np.sum(model.weights.counts)) - model.d
    return covariance * (excess if np.isfinite(excess) else 1.0), freedom


def _brought(evaluation: Evaluation, brought: Array) -> Covariance:
    """Carry a covariance of the parameters over to psi."""
    if evaluation.sample == "training":
        raise ValueError(
            'Average(sample="training") needs to know how each row moves the parameters, which '
            "covariance= does not tell. Use robust= or clusters=."
        )
    J = evaluation.jacobian(evaluation.model.theta)
    return quadratic(J, brought)


def _claimed(
    evaluation: Evaluation, response: Response, sandwich: Sandwich | None, raw: Covariance
) -> Covariance | None:
    """Make the covariance J C J', (K, K), with C that of the fit, if nothing else was asked for.

    Where C is all that is known of the model, it is that of the response, `raw`. A psi that jumps
    has no Jacobian J: the curvature times the directions stands for it.
    """
    model = evaluation.fitted
    claimed = None if model is None else model.facts.host.covariance
    if model is None or claimed is None or response.refitted or sandwich is not None:
        return None
    if not model.rows.symmetric:
        return raw
    slopes = np.zeros(1) if response.draws is not None else evaluation.jacobian(model.theta)
    smooth = response.draws is None and model.space.chart is not None  # zero if constraints fix it
    if not smooth and not np.all(np.any(slopes, axis=-1)):
        slopes = model.information(model.theta, checked_directions(model, response)).T
    return quadratic(slopes, claimed.covariance)


def _of_rows(evaluation: Evaluation) -> Sandwich:
    """Return the sandwich of an average over the training rows where none was asked for."""
    claimed = None if evaluation.fitted is None else evaluation.fitted.facts.host.covariance
    if claimed is None or evaluation.sample != "training":
        return Sandwich()
    if not claimed.by_rows:
        evaluation.model.facts.require_rows()
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
    claimed = None if evaluation.fitted is None else evaluation.fitted.facts.host.covariance
    if claimed is None or response.refitted or not claimed.by_rows:
        return None
    return _sandwich_of(claimed)


def _model_df(
    evaluation: Evaluation, response: Response, sandwich: Sandwich | None
) -> float | Array:
    """Degrees of freedom of the model's part, one number or (K,)."""
    if evaluation.fitted is None:
        return np.inf
    claimed = evaluation.model.facts.host.covariance
    if sandwich is None and claimed is not None and not response.refitted:
        return claimed.df
    if sandwich is None or (response.robust and sandwich.clusters is None):
        return evaluation.model.facts.df
    return sandwich.df(evaluation.model, response)


def _influence(
    evaluation: Evaluation, response: Response, sandwich: Sandwich, needed: bool, robust: bool
) -> Array | None:
    """Make the influences, (n, K), where rows are needed, or few and here: kept unasked."""
    if not needed and not robust:
        return None
    model = evaluation.model
    directions = checked_directions(model, response)
    if needed or (not processes_of(model).count and model.n * evaluation.size <= MOST_KEPT):
        return with_stated_errors(model, directions, sandwich.influences(model, directions))
    return None


def _symmetric(raw: Covariance, rank: int) -> tuple[Covariance, float, dict[str, float | str]]:
    """Symmetrize, measure the asymmetry, and drop negative eigenvalues if there are any.

    Eigenvalues are those of the correlations, so that units of psi do not matter.
    """
    if isinstance(raw, Factored):
        found, count = raw.positive()
        return found, 0.0, {"negative_eigenvalues_dropped": float(count)} if count else {}
    if len(raw) == 1 and raw[0, 0] >= 0:
        return raw, 0.0, {}
    errors = np.sqrt(np.clip(np.diag(raw), 0, None))
    size = np.outer(errors, errors)
    asymmetry = float(np.max(ratio(abs(raw - raw.T), size)))
    covariance = symmetric(raw)
    units = np.where(errors > 0, errors, 1.0)
    values, vectors = eigen(covariance / np.outer(units, units), rank)
    negative = values < -1e-12 * max(values[-1], 0.0)
    if not np.any(negative):
        return covariance, asymmetry, {}
    root = units[:, None] * vectors * np.sqrt(np.clip(values, 0, None))
    return root @ root.T, asymmetry, {"negative_eigenvalues_dropped": float(np.sum(negative))}


def eigen(covariance: Array, rank: int) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and vectors; of many evaluations those of the range alone.

    With K much larger than d nearly all are zero, and take a minute for K = 5000.
    """
    K = len(covariance)
    if K < MANY or rank + SPARE > K // 4:
        return np.linalg.eigh(covariance)
    probes = np.random.default_rng(0).normal(size=(K, rank + SPARE))
    q, _ = np.linalg.qr(covariance @ probes)
    inner = q.T @ covariance
    if np.max(abs(covariance - q @ inner)) > ROUNDING * np.max(np.diag(covariance)):
        return np.linalg.eigh(covariance)
    values, vectors = np.linalg.eigh(symmetric(inner @ q))
    return values, q @ vectors
