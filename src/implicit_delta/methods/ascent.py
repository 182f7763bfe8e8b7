"""Climb from the maximum of one objective to that of another close to it."""

from dataclasses import dataclass

import numpy as np

from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.linalg.solvers import Factor, factorize
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.optimize import (
    Maximizer,
    Maximum,
    Minimize,
    Objective,
    as_maximizer,
    lbfgs,
    newton_krylov,
)


@dataclass(frozen=True)
class Ascent:
    """A maximizer with the coordinates that suit a model and all models close to it.

    Attributes
    ----------
    maximizer : Maximizer
    scale : Factor or None
        Coordinates in which the objective is close to -|z|^2 / 2, where d allows a factorization.
    curvature : {"hessian", "ggn"}
    """

    maximizer: Maximizer
    scale: Factor | None
    curvature: Curvature = "hessian"

    @classmethod
    def of(
        cls,
        model: FittedModel,
        maximizer: Maximizer | Minimize | None = None,
        curvature: Curvature = "hessian",
    ) -> "Ascent":
        """Choose by the number of parameters what the caller has left open."""
        given = as_maximizer(maximizer)
        if model.d > DENSE_LIMIT:
            return cls(given or newton_krylov, None, curvature)
        matrix = model.information(model.theta, np.eye(model.d), curvature)
        return cls(given or lbfgs, factorize(symmetric(matrix)), curvature)

    def climb(self, model: FittedModel, push: "Push | None" = None) -> Maximum:
        """Maximize the model's objective from its theta, pushed or not."""

        def curve(theta: Array, v: Array) -> Array:
            return model.information(theta, v, self.curvature)

        value = model.objective if push is None else push.value
        gradient = model.score if push is None else push.gradient
        return self.maximizer.maximize(Objective(value, gradient, curve, self.scale), model.theta)


@dataclass(frozen=True)
class Push:
    """The objective L + lam * psi; its curvature is left to that of L."""

    evaluation: Evaluation
    lam: float

    def value(self, theta: Array) -> float:
        """L + lam * psi."""
        psi = float(self.evaluation(theta)[0])
        return self.evaluation.model.objective(theta) + self.lam * psi

    def gradient(self, theta: Array) -> Array:
        """Gradient of that, (d,)."""
        slope = self.evaluation.jacobian(theta)[0]
        return np.asarray(self.evaluation.model.score(theta) + self.lam * slope)
