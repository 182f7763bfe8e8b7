"""The delta method: the covariance of psi from a covariance of the parameters."""

from dataclasses import dataclass

import numpy as np

from implicit_delta.core.factored import quadratic
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import covariance_root
from implicit_delta.methods.base import Method, Response, first_of
from implicit_delta.methods.probe import probe
from implicit_delta.methods.slopes import lines_of, slope_mismatch
from implicit_delta.models.covariance import parameter_covariance
from implicit_delta.models.model import FittedModel

FLAT = (
    "psi does not change with the parameters: its derivative is exactly zero. Does psi use its "
    "argument? If it does, it is piecewise constant (a count, a rank, an argmax): use "
    "`Simulation()` or `Smoothed(psi)`, which follow steps."
)


@dataclass(frozen=True, repr=False)
class DeltaMethod(Method):
    r"""The covariance :math:`J V J'`, with J the Jacobian of psi and V that of the parameters."""

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Differentiate psi, and compare it with its tangent half a standard error away."""
        V = parameter_covariance(model)
        jacobian = evaluation.jacobian(model.theta)
        if not np.any(jacobian):
            raise EvaluationError(FLAT)
        directions, covariance = V @ jacobian.T, quadratic(jacobian, V)
        root = covariance_root(V)
        seen = probe(
            evaluation, jacobian, directions, covariance, np.zeros(model.d), exact=False,
            draw=lambda z: root @ z,
        )  # fmt: skip
        errors = np.sqrt(covariance.diagonal())
        lines = lines_of(evaluation, jacobian, errors, lambda z: root @ z, whitened=True)
        return Response(
            covariance=covariance,
            directions=directions,
            method=repr(self),
            nonlinearity=seen.nonlinearity,
            bent=seen.most,
            findings=first_of(slope_mismatch(lines, errors) if evaluation.is_function else None),
        )
