"""Log-likelihoods that depend on the coefficients through linear predictors only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Product
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.likelihood import OutputLikelihood, blocks, root_matrices
from implicit_delta.models.glm.outcomes import Outcome
from implicit_delta.models.rows import Whitened


@dataclass(frozen=True, eq=False, repr=False)
class LinearPredictors(OutputLikelihood):
    """One linear predictor per output and row, ``eta_c = X b_c + offset``, (n, C).

    b holds the outputs one after another, each with its p coefficients. With slopes s_c and
    curvatures H_ce of the terms, the score is ``X' w s_c`` and the information ``X' w H_ce X``.

    Attributes
    ----------
    X : (n, p) array
    outcome : Outcome
    offset : (n, 1) array or float
    base : bool
        Whether output 0 is the constant 0 and has no coefficients (the base class of softmax).
    """

    linear = True

    X: Array
    outcome: Outcome
    offset: Array | float = 0.0
    base: bool = False

    def terms(self, b: Array) -> Array:
        return self.outcome.terms(self._eta(b)).ravel()

    def score(self, b: Array, weights: Array) -> Array:
        return np.asarray((weights * self._slope(b)) @ self.X).ravel()

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        curve = self.outcome.curvature(self._eta(b), curvature)
        if 2 * v.shape[1] >= v.shape[0]:  # forming the matrix is cheaper
            return self._matrix(curve, weights, v.shape[0]) @ v
        curved = curve(self._with_base((self.X @ self._by_output(v)).T)).T[self.base :]
        return np.asarray(self.X.T @ (weights[:, None] * curved)).reshape(v.shape)

    def terms_along(self, b: Array, v: Array) -> Array:
        pairs = zip(self._slope(b), self._by_output(v), strict=True)
        return reduce(np.add, (slope[:, None] * (self.X @ step) for slope, step in pairs))

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> "LinearPredictors":
        return replace(self, outcome=self.outcome.redrawn(self._eta(b), weights, rng))

    def whitened(self, b: Array, v: Array) -> Iterator[Whitened]:
        eta = self._eta(b)
        product, residuals, spread = self.outcome.whitened(eta)
        root, steps = root_matrices(product, eta)[..., self.base :], self._by_output(v)
        for part in blocks(len(eta), eta.shape[1] * v.shape[1]):
            moved = np.stack([self.X[part] @ step for step in steps], axis=1)
            yield Whitened(root[part] @ moved, residuals[part], spread[part])

    def size(self, d: int) -> int:
        return int(d // self.X.shape[1]) + self.base

    @property
    def density(self) -> Any:
        return getattr(self.outcome, "likelihood", None)

    def rescaled(self, factor: float) -> "LinearPredictors":
        return replace(self, outcome=self.outcome.rescaled(factor))

    def __repr__(self) -> str:
        return repr(self.outcome)

    def _matrix(self, curve: Product, weights: Array, size: int) -> Array:
        """Blocks ``X' w H_ce X`` of all pairs of outputs."""
        p = self.X.shape[1]
        count = size // p
        matrix = np.empty((count, p, count, p))
        for c, unit in enumerate(np.eye(count + self.base)[self.base :]):
            moved = np.broadcast_to(unit, (len(self.X), unit.size))
            factors = weights * curve(moved).T[self.base :]
            for e in range(c + 1):
                matrix[c, :, e, :] = (self.X.T * factors[e]) @ self.X
                matrix[e, :, c, :] = matrix[c, :, e, :].T
        return matrix.reshape(size, size)

    def _eta(self, b: Array) -> Array:
        return self._with_base(self.X @ b.reshape(-1, self.X.shape[1]).T) + self.offset

    def _slope(self, b: Array) -> Array:
        """Slopes of the outputs that have coefficients, (C, n)."""
        return self.outcome.slope(self._eta(b)).T[self.base :]

    def _by_output(self, v: Array) -> Array:
        return v.reshape(-1, self.X.shape[1], v.shape[1])

    def _with_base(self, outputs: Array) -> Array:
        """Put the constant 0 before (..., C) outputs."""
        if not self.base:
            return outputs
        return np.concatenate([np.zeros_like(outputs[..., :1]), outputs], axis=-1)
