"""Likelihoods that see the coefficients through linear predictors only: ``eta = X b + offset``."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, log_ndtr, logsumexp

from implicit_delta._core.types import Array
from implicit_delta.models.base import Curvature
from implicit_delta.models.glm.model import Likelihood


class Response(ABC):
    """Log-likelihood of each row as a function of its linear predictor, all (n,)."""

    @abstractmethod
    def terms(self, eta: Array) -> Array:
        """Up to a constant."""

    @abstractmethod
    def slope(self, eta: Array) -> Array:
        """First derivative of the terms."""

    @abstractmethod
    def bend(self, eta: Array) -> Array:
        """Minus the second derivative (observed information)."""

    @abstractmethod
    def expected_bend(self, eta: Array) -> Array:
        """Its expectation over y (expected information, Gauss-Newton), never negative."""


@dataclass(frozen=True, eq=False)
class LinearPredictor(Likelihood):
    """Terms of one linear predictor per row.

    With slopes s and bends c of the terms, the score is ``X' w s`` and the information
    ``X' w c X``; its Gauss-Newton part is the expected information.
    """

    X: Array
    response: Response
    offset: Array | float = 0.0

    def terms(self, b: Array) -> Array:
        """Log-likelihood of each observation."""
        return self.response.terms(self._eta(b))

    def score(self, b: Array, weights: Array) -> Array:
        """Gradient of the weighted sum."""
        return np.asarray((weights * self.response.slope(self._eta(b))) @ self.X)

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """Minus its Hessian times v."""
        bend = self.response.expected_bend if curvature == "ggn" else self.response.bend
        factor = weights * bend(self._eta(b))
        if v.shape[1] < v.shape[0]:
            return np.asarray(self.X.T @ (factor[:, None] * (self.X @ v)))
        return np.asarray((self.X.T * factor) @ self.X @ v)

    def terms_along(self, b: Array, v: Array) -> Array:
        """Slope times the change of the predictor."""
        return self.response.slope(self._eta(b))[:, None] * (self.X @ v)

    def _eta(self, b: Array) -> Array:
        return np.asarray(self.X @ b + self.offset)


@dataclass(frozen=True, eq=False)
class Normal(Response):
    """Squared error over a known variance: ``-(y - eta)^2 / 2 s2``."""

    y: Array
    s2: float

    def terms(self, eta: Array) -> Array:
        return -((self.y - eta) ** 2) / (2 * self.s2)

    def slope(self, eta: Array) -> Array:
        return (self.y - eta) / self.s2

    def bend(self, eta: Array) -> Array:
        return np.full(eta.shape, 1 / self.s2)

    expected_bend = bend


@dataclass(frozen=True, eq=False)
class Logistic(Response):
    """A 0/1 outcome with log-odds eta."""

    y: Array

    def terms(self, eta: Array) -> Array:
        # log(1 + exp(eta)) without overflow, in a fifth of the time of logaddexp.
        return self.y * eta - np.maximum(eta, 0) - np.log1p(np.exp(-abs(eta)))

    def slope(self, eta: Array) -> Array:
        return np.asarray(self.y - expit(eta))

    def bend(self, eta: Array) -> Array:
        p = expit(eta)
        return np.asarray(p * (1 - p))

    expected_bend = bend


@dataclass(frozen=True, eq=False)
class NormalOgive(Response):
    """A 0/1 outcome with probability ``Phi(eta)`` (probit)."""

    y: Array

    def terms(self, eta: Array) -> Array:
        return np.asarray(log_ndtr((2 * self.y - 1) * eta))

    def slope(self, eta: Array) -> Array:
        return np.asarray((2 * self.y - 1) * _inverse_mills((2 * self.y - 1) * eta))

    def bend(self, eta: Array) -> Array:
        z = (2 * self.y - 1) * eta
        mills = _inverse_mills(z)
        return np.asarray(mills * (mills + z))

    def expected_bend(self, eta: Array) -> Array:
        return np.asarray(_inverse_mills(eta) * _inverse_mills(-eta))


@dataclass(frozen=True, eq=False)
class Counts(Response):
    """A Poisson count with log-mean eta."""

    y: Array

    def terms(self, eta: Array) -> Array:
        return np.asarray(self.y * eta - np.exp(eta) - gammaln(self.y + 1))

    def slope(self, eta: Array) -> Array:
        return self.y - np.exp(eta)

    def bend(self, eta: Array) -> Array:
        return np.exp(eta)

    expected_bend = bend


@dataclass(frozen=True, eq=False)
class Softmax(Likelihood):
    """Terms of one linear predictor per class and row; class 0 may have the constant predictor 0.

    b holds the classes one after another, each with its p coefficients. With probabilities P the
    score of class c is ``X' w (Y_c - P_c)`` and the information of classes c and e is
    ``X' w (P_c [c = e] - P_c P_e) X``.

    Attributes
    ----------
    X : (n, p) array
    Y : (n, C) array
        The class of each row, as zeros and a one.
    base : bool
        Whether class 0 has no coefficients of its own.
    """

    X: Array
    Y: Array
    base: bool

    def terms(self, b: Array) -> Array:
        """Log-probability of the observed class."""
        eta = self._eta(b)
        return np.asarray(np.sum(self.Y * eta, axis=1) - logsumexp(eta, axis=1))

    def score(self, b: Array, weights: Array) -> Array:
        """Gradient of the weighted sum."""
        residuals = self._free(self.Y - self._probabilities(b))
        return np.asarray((weights[:, None] * residuals).T @ self.X).ravel()

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """Minus its Hessian times v; with the canonical link both curvatures are the same."""
        P = self._free(self._probabilities(b))
        if v.shape[1] < v.shape[0]:
            moves = np.einsum("np,cpk->nck", self.X, self._by_class(v), optimize=True)
            pushed = P[:, :, None] * (moves - np.einsum("nc,nck->nk", P, moves)[:, None, :])
            pushed *= weights[:, None, None]
            pulled = np.einsum("np,nck->cpk", self.X, pushed, optimize=True)
            return np.asarray(pulled).reshape(v.shape)
        return np.asarray(self._matrix(P, weights) @ v)

    def terms_along(self, b: Array, v: Array) -> Array:
        """Residuals times the change of the predictors, summed over classes."""
        residuals = self._free(self.Y - self._probabilities(b))
        along = np.zeros((len(self.X), v.shape[1]))
        for residual, step in zip(residuals.T, self._by_class(v), strict=True):
            along += residual[:, None] * (self.X @ step)
        return along

    def _matrix(self, P: Array, weights: Array) -> Array:
        classes, p = P.shape[1], self.X.shape[1]
        matrix = np.empty((classes, p, classes, p))
        for c in range(classes):
            for e in range(c + 1):
                factor = weights * P[:, c] * ((c == e) - P[:, e])
                matrix[c, :, e, :] = (self.X.T * factor) @ self.X
                matrix[e, :, c, :] = matrix[c, :, e, :].T
        return matrix.reshape(classes * p, classes * p)

    def _by_class(self, v: Array) -> Array:
        return v.reshape(-1, self.X.shape[1], v.shape[1])

    def _eta(self, b: Array) -> Array:
        eta = self.X @ b.reshape(-1, self.X.shape[1]).T
        return np.column_stack([np.zeros(len(eta)), eta]) if self.base else eta

    def _probabilities(self, b: Array) -> Array:
        eta = self._eta(b)
        return np.asarray(np.exp(eta - logsumexp(eta, axis=1, keepdims=True)))

    def _free(self, by_class: Array) -> Array:
        return by_class[:, 1:] if self.base else by_class


def _inverse_mills(z: Array) -> Array:
    """Density over distribution function of the normal, also far in the tail."""
    return np.asarray(np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi))
