"""Response of a root of estimating equations: the implicit function theorem."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import Method, Response, first_of
from implicit_delta.methods.probe import Probe, probe
from implicit_delta.methods.slopes import lines_of, slope_mismatch
from implicit_delta.models.equation_rows import Root
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.rows import RootRows

NOISELESS = 1e-12  # of the size of psi: a standard error that is rounding

FLAT = (
    "psi does not change with the parameters: its derivative is exactly zero. Does psi use its "
    "argument? If it does, it is piecewise constant (a count, a rank, an argmax), and for a root "
    "of equations there is `bootstrap(fit, data, psi)`, which fits to resampled rows."
)


@dataclass(frozen=True, repr=False)
class ImplicitFunction(Method):
    r"""Weights v of the equations with :math:`-B' v = g`, one solve per psi.

    B is the Jacobian of the summed equations and g the gradient of psi. The influence of row i is
    :math:`v' m_i`; directions live in the space of the equations, and not of theta.
    """

    clustered: bool = False

    def by_clusters(self, clusters: Clusters) -> "ImplicitFunction":
        """Remember that rows are taken for dependent, which a J test may not have known."""
        return replace(self, clustered=True)

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Solve, and make the plain sandwich of the influences."""
        jacobian = evaluation.jacobian(model.theta)
        if not np.any(jacobian):
            raise EvaluationError(FLAT)
        root = _root_of(model)
        v = root.duals(jacobian.T)
        covariance = model.scatter(model.theta, v, model.facts.host.clusters)
        _check_noise(evaluation, jacobian, covariance)
        score, steps = model.score(model.theta), root.moves(v)
        seen, mismatch = Probe(np.nan), None
        if steps is not None:
            draw = lambda z: objective_of(model).units * z  # noqa: E731
            seen = probe(evaluation, jacobian, steps, covariance, score, exact=False, draw=draw)
            errors = np.sqrt(np.diag(covariance))
            lines = lines_of(evaluation, jacobian, errors, draw, whitened=False)
            mismatch = slope_mismatch(lines, errors) if evaluation.is_function else None
        return Response(
            covariance=covariance,
            directions=v,
            method=f"{type(self).__name__}(solver={'gmres' if steps is None else 'lu'})",
            nonlinearity=seen.nonlinearity,
            bent=seen.most,
            score=score,
            findings=(*seen.findings, *first_of(mismatch)),
            notes=_notes(model, self.clustered),
        )


def _root_of(model: Any) -> Root:
    assert isinstance(model.rows, RootRows)
    return model.rows.root(model.theta, model.weights)


def _notes(model: FittedModel, clustered: bool) -> Mapping[str, float | str]:
    if model.facts.hansen is None:
        return {}
    if clustered and model.facts.host.clusters is None:
        return {"hansen_j": "made for independent rows; give `clusters=` to `from_equations`"}
    J, df, p = model.facts.hansen
    return {"hansen_j": J, "hansen_df": float(df), "hansen_p_value": p}


def _check_noise(evaluation: Evaluation, jacobian: Array, covariance: Array) -> None:
    """Refuse a psi that the equations of every row determine in the same way."""
    errors, moving = np.sqrt(np.diag(covariance)), np.any(jacobian, axis=1)
    size = np.abs(jacobian) @ np.abs(evaluation.model.theta)
    still = np.flatnonzero(moving & (errors <= NOISELESS * size))
    if still.size:
        raise EvaluationError(
            f"{evaluation.names[still[0]]} has no error: the equations that determine it are zero "
            "in every row, so that no row says how uncertain it is. Usual causes: equations that "
            "were averaged before they were returned, or a constant."
        )
