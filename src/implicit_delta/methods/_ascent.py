"""The one refit behind finite differences, the bootstrap and profiles: climb from theta."""

from dataclasses import dataclass

import numpy as np

from implicit_delta._typing import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.infinitesimal import DENSE_LIMIT
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.numerics.maximizers import (
    Maximizer,
    Maximum,
    Objective,
    Scale,
    lbfgs,
    newton_krylov,
)
from implicit_delta.numerics.solvers import factorize


@dataclass(frozen=True)
class Push:
    r"""What is added to the objective: :math:`\lambda (\psi - c) - \rho (\psi - c)^2 / 2`.

    Without stiffness it is the paper's :math:`\lambda \psi`. With it the sum is bounded however
    large lambda is, and its maximum is also that of :math:`L + \lambda' \psi` among all theta
    with the same psi, with the multiplier :math:`\lambda' = \lambda - \rho (\psi - c)`.
    """

    evaluation: Evaluation
    lam: float
    center: float = 0.0
    stiffness: float = 0.0

    def value(self, theta: Array) -> float:
        """Add to the objective; minus infinity where psi is not defined."""
        try:
            gap = float(self.evaluation(theta)[0]) - self.center
        except EvaluationError:
            return -np.inf
        return self.lam * gap - self.stiffness * gap**2 / 2

    def multiplier(self, theta: Array) -> float:
        """Differentiate with respect to psi."""
        if not self.stiffness:
            return self.lam
        return self.lam - self.stiffness * (float(self.evaluation(theta)[0]) - self.center)

    def gradient(self, theta: Array) -> Array:
        """Differentiate with respect to theta, (d,)."""
        return np.asarray(self.multiplier(theta) * self.evaluation.jacobian(theta)[0])

    def curve(self, theta: Array, v: Array) -> Array:
        """Multiply v by the curvature of the spring; that of psi itself is left out."""
        if not self.stiffness:
            return np.zeros_like(v)
        slope = self.evaluation.jacobian(theta)[0]
        return np.asarray(self.stiffness * np.multiply.outer(slope, slope @ v))


@dataclass(frozen=True)
class Ascent:
    """How to climb from the maximum of a model to that of one close to it.

    Attributes
    ----------
    maximizer : Maximizer
    scale : Scale or None
        Coordinates in which the objective is close to -|z|^2 / 2, where d allows a factorization.
    curvature : {"hessian", "ggn"}
    """

    maximizer: Maximizer
    scale: Scale | None
    curvature: Curvature = "hessian"

    @classmethod
    def of(
        cls, model: FittedModel, maximize: Maximizer | None = None, curvature: Curvature = "hessian"
    ) -> "Ascent":
        """Choose by the number of parameters what the caller has left open."""
        if model.d > DENSE_LIMIT:
            return cls(maximize or newton_krylov, None, curvature)
        matrix = model.information(model.theta, np.eye(model.d), curvature)
        return cls(maximize or lbfgs, factorize((matrix + matrix.T) / 2), curvature)

    def __call__(
        self, model: FittedModel, push: Push | None = None, start: Array | None = None
    ) -> Maximum:
        """Maximize the model's objective, and the push if there is one, from its theta."""

        def value(theta: Array) -> float:
            return model.objective(theta) + (push.value(theta) if push else 0.0)

        def gradient(theta: Array) -> Array:
            return model.score(theta) + (push.gradient(theta) if push else 0.0)

        def curve(theta: Array, v: Array) -> Array:
            product = model.information(theta, v, self.curvature)
            return product + push.curve(theta, v) if push else product

        begin = model.theta if start is None else start
        problem = Objective(value, gradient, curve, self._stiffened(push, begin))
        return self.maximizer.maximize(problem, begin)

    def _stiffened(self, push: Push | None, theta: Array) -> Scale | None:
        if push is None or not push.stiffness or self.scale is None:
            return self.scale
        return Stiffened.by(self.scale, push.evaluation.jacobian(theta)[0], push.stiffness)


@dataclass(frozen=True)
class Stiffened:
    r"""The scale of :math:`A + \rho g g'`, made from that of A by one rank-one correction.

    With :math:`H H' = A^{-1}` and :math:`u = H' g` it is :math:`H (I + \rho u u')^{-1/2} =
    H (I - \beta u u')`, where :math:`\beta |u|^2 = 1 - (1 + \rho |u|^2)^{-1/2}`.
    """

    scale: Scale
    u: Array
    beta: float

    @classmethod
    def by(cls, scale: Scale, slope: Array, stiffness: float) -> "Stiffened":
        """Correct the scale for a spring of this stiffness along the slope of psi."""
        u = scale.half_transpose(slope)
        square = float(u @ u)
        shrink = 1 - 1 / np.sqrt(1 + stiffness * square)
        return cls(scale, u, shrink / square if square > 0 else 0.0)

    def half(self, z: Array) -> Array:
        """Return H (I - beta u u') z."""
        return self.scale.half(z - self.beta * self.u * (self.u @ z))

    def half_transpose(self, g: Array) -> Array:
        """Return (I - beta u u') H' g."""
        z = self.scale.half_transpose(g)
        return np.asarray(z - self.beta * self.u * (self.u @ z))
