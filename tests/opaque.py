"""Problems for evaluations without derivative, with their exact standard errors."""

from dataclasses import dataclass

import numpy as np

from implicit_delta import from_loglik
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.model import FittedModel
from implicit_delta.models.rows import sum_of_blocks
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights


@dataclass(frozen=True, eq=False)
class Diagonal:
    """One dependent observation with log-likelihood -sum(curvatures * theta^2) / 2."""

    curvatures: np.ndarray

    n, symmetric, outputs, passes = 1, True, None, 0

    @classmethod
    def of(cls, curvatures):
        """Make a model at its maximum, of whose evaluations only values are known."""
        theta = np.zeros(len(curvatures))
        return FittedModel(
            theta, cls(curvatures), Weights(np.ones(1)), space=Space(language=Opaque())
        )

    @property
    def d(self):
        return self.curvatures.size

    def terms(self, theta):
        return np.array([-self.curvatures @ theta**2 / 2])

    def score(self, theta, weights):
        return -weights[0] * self.curvatures * theta

    def curvature(self, theta, weights, v):
        return weights[0] * (self.curvatures * v.T).T

    def terms_along(self, theta, v):
        yield slice(0, 1), (-self.curvatures * theta @ v)[None]

    def sum_blocks(self, theta, v, reduce, *row_arrays):
        return sum_of_blocks(self, theta, v, reduce, *row_arrays)

    def batch_score(self, theta, weights, rows):
        raise NotImplementedError("one observation has no minibatches")


class Opaque(VectorLanguage):
    """A language without derivatives."""

    def jacobian(self, psi, theta, units):
        raise NotImplementedError("evaluations of this model are opaque")


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
