"""Problems for evaluations without derivative, with their exact standard errors."""

from dataclasses import dataclass, replace

import numpy as np

from implicit_delta import FittedModel, from_loglik
from implicit_delta.models.weights import Weights


@dataclass(frozen=True, eq=False)
class Diagonal(FittedModel):
    """One dependent observation with log-likelihood -sum(curvatures * (theta - center)^2) / 2."""

    curvatures: np.ndarray
    center: np.ndarray
    theta: np.ndarray
    weights: Weights
    names: None = None

    @classmethod
    def of(cls, curvatures):
        zero = np.zeros(len(curvatures))
        return cls(curvatures, zero, zero, Weights(np.ones(1)))

    @property
    def passes(self):
        return 0

    def terms(self, theta):
        return np.array([-self.curvatures @ (theta - self.center) ** 2 / 2])

    def objective(self, theta):
        return float(self.weights.values @ self.terms(theta))

    def score(self, theta):
        return -self.weights.values[0] * self.curvatures * (theta - self.center)

    def information(self, theta, v, curvature="hessian"):
        return self.weights.values[0] * (self.curvatures * v.T).T

    def terms_along(self, theta, v):
        return (-self.curvatures * (theta - self.center) @ v)[None]

    def evaluate(self, psi, theta):
        return np.asarray(psi(theta.copy()))

    def jacobian(self, psi, theta):
        raise NotImplementedError("evaluations of this model are opaque")

    def reweighted(self, weights):
        return replace(self, weights=self.weights.replaced(weights))

    def at(self, theta):
        return replace(self, theta=theta)

    def batch_score(self, theta, rows):
        raise NotImplementedError("one observation has no minibatches")

    def ascend(self, bonus, batches, optimizer):
        raise NotImplementedError("one observation has no minibatches")


def steps(count=2000, d=3):
    """A model, the share of a grid below its first coefficient, and its standard error.

    The grid is uniform with density 1/2, so that from a distance the share is linear.
    """
    X = np.random.default_rng(0).normal(size=(400, d))
    model = from_loglik(
        lambda b: -((X @ b) ** 2) / 2, np.zeros(d), score=lambda b: -X * (X @ b)[:, None]
    )
    grid = np.linspace(-1, 1, count)
    return model, lambda b: np.mean(grid < b[0]), np.sqrt(np.linalg.inv(X.T @ X)[0, 0]) / 2
