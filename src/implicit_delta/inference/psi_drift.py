"""Drift of psi on the way to the maximum: the end of a climb that is about psi."""

import logging
from dataclasses import dataclass, field

import numpy as np

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import described_range
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.numerics.arrays import ratio
from implicit_delta.numerics.solvers import conjugate_gradient

logger = logging.getLogger("implicit_delta")
# The standard error to 1 %, and the response itself to about 14 % of its length: see `Look`.
SOLVER = conjugate_gradient(rtol=1e-2, certify=False)
UNKNOWN = (ConvergenceError, EvaluationError, NotAMaximumError)


@dataclass(frozen=True, eq=False)
class Look:
    r"""Standard errors and drift of every psi_k at one point, (K,).

    With w about :math:`A^{-1} g` and p about :math:`A^{-1} s`, the step that is planned, the drift
    is :math:`w's + p'(g - A w)`: both errors multiply.
    """

    slopes: Array
    errors: Array
    drift: Array
    curvature: Curvature

    @classmethod
    def at(cls, model: FittedModel, psi: Psi, step: Array) -> "Look":
        """Solve with the Hessian, or where that is not positive with the Gauss-Newton matrix."""
        slopes = Evaluation.of(model, psi).jacobian(model.theta)
        try:
            return cls._solved(model, slopes, step, "hessian")
        except NotAMaximumError as error:
            try:
                return cls._solved(model, slopes, step, "ggn")
            except UnsupportedModelError:
                raise error from None

    def __str__(self) -> str:
        return (
            f"When psi was last looked at, it was {np.max(self.drift):.2g} standard errors from "
            f"where it will end (standard error {described_range(self.errors)})."
        )

    @classmethod
    def _solved(
        cls, model: FittedModel, slopes: Array, step: Array, curvature: Curvature
    ) -> "Look":
        def curve(v: Array) -> Array:
            return model.information(model.theta, v, curvature)

        solution = SOLVER.solve(curve, slopes.T, floor=model.l2 if curvature == "ggn" else 0.0)
        errors = np.sqrt(np.diag(solution.quadratic))
        move = solution.x.T @ model.score(model.theta)
        move = move + (slopes.T - curve(solution.x)).T @ step
        return cls(slopes, errors, ratio(np.abs(move), errors), curvature)


@dataclass
class PsiDrift:
    """A climb is done when the drift of psi is below a tolerance; keeps the last look at it."""

    model: FittedModel
    psi: Psi
    tolerance: float
    last: Look | None = field(default=None, init=False)

    def __call__(self, theta: Array, step: Array) -> bool:
        """Look only where the step that is planned moves psi by little, as it was seen last."""
        if self.last is not None:
            ahead = ratio(np.abs(self.last.slopes @ step), self.last.errors)
            if np.max(ahead) > self.tolerance:
                return False
        try:
            self.last = Look.at(self.model.at(theta), self.psi, step)
        except UNKNOWN:  # the climb goes on to where there is an answer
            return False
        logger.info("polish: %d passes. %s", self.model.passes, self.last)
        return bool(np.max(self.last.drift) <= self.tolerance)
