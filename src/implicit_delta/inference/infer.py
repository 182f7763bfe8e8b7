"""The front door: from a fitted model and an evaluation to an estimate."""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from implicit_delta._core.clusters import Clusters
from implicit_delta._core.limits import DENSE_LIMIT
from implicit_delta._core.types import Array, Psi
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.budget import add_up
from implicit_delta.inference.guards import guard
from implicit_delta.inference.influence import (
    Correction,
    influence_of,
    sandwich,
    small_sample_factor,
)
from implicit_delta.methods.base import Method, Response
from implicit_delta.methods.bootstrap import Bootstrap
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics.solvers import Solver, cholesky, conjugate_gradient


def infer(
    model: FittedModel,
    psi: Psi,
    method: Method | None = None,
    *,
    robust: bool | Correction = False,
    clusters: Sequence[Any] | Array | None = None,
    influence: bool = False,
    strict: bool = True,
    names: Sequence[str] | str | None = None,
) -> Estimate:
    """Put an error bar on anything computed from a fitted model.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions.
    psi : callable
        The evaluation: a function of the model in its own language (a parameter vector, a module,
        an estimator) that returns a number or a one-dimensional array; or `parameters`. It is an
        `Average` if it stands for a population, is wrapped in `Smoothed` if it jumps, and takes an
        argument `rng` if it is random (see `Replicated`).
    method : Method, optional
        How the response to ``L + lambda * psi`` is found. Left out, it is chosen like this:

        ===================================  =============================================
        d up to 1000, or up to 500 K (5000)  ``Infinitesimal(solver=cholesky)``
        d beyond                             ``Infinitesimal(solver=conjugate_gradient)``
        ===================================  =============================================

        and ``estimate.method`` says what it was.
    robust : bool or {"HC0", "HC1", "CR0", "CR1", "CR1S"}
        Variance that stays valid when the model is misspecified (sandwich). True is "HC0", or
        "CR0" with clusters: no small-sample factor. "HC1" is n / (n - d) times that; with G
        clusters "CR1" is G / (G - 1) times that, and "CR1S" (n - 1) / (n - d) times "CR1",
        as in Stata and statsmodels. A `Bootstrap` is robust by itself.
    clusters : (n,) array, optional
        Labels of groups within which observations may be dependent; the variance is then the
        clustered sandwich, or for `Bootstrap` that of resampling whole groups.
    influence : bool
        Keep the influence of each observation in ``estimate.influence``.
    strict : bool
        Refuse results that are very doubtful (drift above 1, a psi that does not even move
        both ways); with False these become warnings.
    names : sequence of str, optional
        Names of the evaluations, for tables.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    >>> model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    >>> rate = idm.infer(model, lambda th: np.exp(th[0]))
    >>> print(f"{rate.value:.3f} +- {rate.standard_error:.3f}")
    2.500 +- 0.559
    """
    if not isinstance(model, FittedModel):
        raise TypeError(
            f"infer needs a fitted model, not {type(model).__name__}. Make one with `from_loglik`, "
            "`from_residuals`, `from_statsmodels`, `from_sklearn`, `from_torch` or `from_jax`."
        )
    started, passes = perf_counter(), model.passes
    evaluation = Evaluation.of(model, psi, names)
    if method is None:
        method = _default_method(model, bool(robust) or clusters is not None or influence)
    groups = None if clusters is None else Clusters.of(clusters, model.weights)
    factor = small_sample_factor(model, robust, groups)
    if isinstance(method, Bootstrap):  # robust by itself, and draws clusters whole
        method, robust, groups = replace(method, clusters=groups), False, None
    response = method.respond(model, evaluation)
    covariance, asymmetry, notes = _covariance(response)
    drift = guard(model, response, covariance, strict)
    rows = None
    if robust or groups is not None or influence or evaluation.sample == "training":
        rows = influence_of(model, response)
    if rows is not None and (robust or groups is not None):
        covariance = sandwich(rows, model.weights, groups, factor)
    budget = add_up(
        evaluation,
        covariance,
        rows,
        response.draws,
        lambda rows: sandwich(rows, model.weights, groups, factor),
    )
    diagnostics = Diagnostics(
        drift=drift,
        smallest_curvature=response.smallest_curvature,
        linearity=response.linearity,
        asymmetry=asymmetry,
        residual=response.residual,
        passes=model.passes - passes + response.passes,
        seconds=perf_counter() - started,
        notes={**evaluation.notes, **response.notes, **notes},
    )
    return Estimate(
        value=float(evaluation.value[0]) if evaluation.scalar else evaluation.value,
        covariance=budget.covariance,
        names=evaluation.names,
        method=response.method,
        diagnostics=diagnostics,
        influence=budget.influence,
        parts=budget.parts,
        draws=budget.draws,
    )


def _default_method(model: FittedModel, by_rows: bool) -> Method:
    """Solve; more tightly when the direction itself is used, and not only the variance."""
    if not by_rows:
        return Infinitesimal(curvature=model.curvature)
    solver: Solver = cholesky if model.d <= DENSE_LIMIT else conjugate_gradient(rtol=1e-6)
    return Infinitesimal(solver=solver)


def _covariance(response: Response) -> tuple[Array, float, dict[str, float | str]]:
    """Symmetrize, measure the asymmetry, and drop negative eigenvalues if there are any."""
    raw = response.covariance
    errors = np.sqrt(np.clip(np.diag(raw), 0, None))
    size = np.outer(errors, errors)
    gap = abs(raw - raw.T)
    asymmetry = float(np.max(np.divide(gap, size, out=np.zeros_like(gap), where=size > 0)))
    covariance = (raw + raw.T) / 2
    values, vectors = np.linalg.eigh(covariance)
    negative = values < -1e-12 * max(values[-1], 0.0)
    if not np.any(negative):
        return covariance, asymmetry, {}
    kept = np.clip(values, 0, None)
    notes = {"negative_eigenvalues_dropped": float(np.sum(negative))}
    return np.asarray((vectors * kept) @ vectors.T), asymmetry, dict(notes)
