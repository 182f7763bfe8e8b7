"""Predictions of linear predictors: a mean of ``X b + offset``, with its derivative in b."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.models.glm.likelihood import blocks
from implicit_delta.models.glm.network import Network

MOST_ROWS = 2**14  # of a sum whose second derivative is found
TURN = 1e-4  # of the linear predictor: a step for second derivatives, which are for diagnostics


class Response(ABC):
    """Predicted outcomes as a function of E linear predictors and the R parameters after these."""

    predictors: int = 1

    @abstractmethod
    def value(self, eta: Array, rest: Array) -> Array:
        """Predict from (m, E) and (R,): (m,) or (m, C)."""

    @abstractmethod
    def pull(self, eta: Array, rest: Array, weights: Array) -> tuple[Array, Array | None]:
        """Differentiate weighted outcomes, (K, m) or (K, m, C), row by row.

        In the linear predictors, (K, m, E), and in the rest, (K, m, R) or None if that is zero.
        """


@dataclass(frozen=True, eq=False)
class Mean(Response):
    """One mean: the inverse link of one linear predictor, with its derivative."""

    inverse: Callable[[Array], Array]
    derivative: Callable[[Array], Array]

    def value(self, eta: Array, rest: Array) -> Array:
        return np.asarray(self.inverse(eta[:, 0]))

    def pull(self, eta: Array, rest: Array, weights: Array) -> tuple[Array, Array | None]:
        return (weights * self.derivative(eta[:, 0]))[..., None], None

    def turn(self, eta: Array) -> Array:
        """Second derivative, (m,), by central differences of the first."""
        z = eta[:, 0]
        with np.errstate(all="ignore"):
            return (self.derivative(z + TURN) - self.derivative(z - TURN)) / (2 * TURN)


@dataclass(frozen=True, eq=False)
class Binary(Response):
    """Probabilities of two classes, from one linear predictor of the second."""

    inverse: Callable[[Array], Array]

    def value(self, eta: Array, rest: Array) -> Array:
        p = self.inverse(eta[:, 0])
        return np.column_stack([1 - p, p])

    def pull(self, eta: Array, rest: Array, weights: Array) -> tuple[Array, Array | None]:
        p = self.inverse(eta[:, 0])
        return ((weights[..., 1] - weights[..., 0]) * p * (1 - p))[..., None], None


@dataclass(frozen=True, eq=False)
class Softmax(Response):
    """Probabilities of classes; the first has the linear predictor 0 if it is the base."""

    predictors: int
    base: bool = True

    def value(self, eta: Array, rest: Array) -> Array:
        whole = np.column_stack([np.zeros(len(eta)), eta]) if self.base else eta
        return np.asarray(softmax(whole, axis=1))

    def pull(self, eta: Array, rest: Array, weights: Array) -> tuple[Array, Array | None]:
        p = self.value(eta, rest)
        mean = np.sum(weights * p, axis=-1, keepdims=True)
        return (p * (weights - mean))[..., self.base :], None


@dataclass(frozen=True, eq=False)
class Rows:
    """Design matrix (m, p) and offset of some rows, with the linear predictors of the last b."""

    X: Array
    offset: Array | float = 0.0
    _last: LastCache = field(init=False, default_factory=LastCache, repr=False)

    def eta(self, B: Array) -> Array:
        """Linear predictors (m, E) of coefficients (p, E)."""
        kept: Array = self._last.get(
            B, "eta", lambda: self.X @ B + np.reshape(self.offset, (-1, 1))
        )
        return kept


@dataclass(frozen=True, eq=False)
class LinearPrediction:
    """Predictions of rows by a response to linear predictors.

    Attributes
    ----------
    rows : Rows
    response : Response
    index : sequence or None
    places : (q,) array of int
        Columns of the design that are others than those of the rows: scenarios share the rest.
    columns : (m, q) array
    """

    rows: Rows
    response: Response
    index: Any = None
    places: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    columns: Array = field(default_factory=lambda: np.empty((1, 0)))

    def value(self, theta: Array) -> Array:
        return self.response.value(*self._predictors(theta))

    def slope(self, theta: Array, weights: Array | None) -> Array:
        eta, rest = self._predictors(theta)
        if weights is None:
            return self._by_row(eta, rest)
        pulled, others = self.response.pull(eta, rest, weights)
        own = np.moveaxis(pulled, -1, 1)  # (K, E, m)
        slopes = own @ self.rows.X
        if self.places.size:
            slopes[..., self.places] = own @ self.columns
        after = np.zeros((len(weights), rest.size)) if others is None else others.sum(axis=1)
        return np.concatenate([slopes.reshape(len(weights), -1), after], axis=1)

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        """Second derivatives of weighted sums (K, m) along steps (S, d): (K, S).

        They are for a diagnostic: of one sum over many rows some are taken, the same ones always.
        None for a response to several linear predictors.
        """
        if not isinstance(self.response, Mean):
            return None
        if len(weights) == 1 and weights.size > MOST_ROWS:
            some = np.random.default_rng(0).choice(weights.size, MOST_ROWS, replace=False)
            found = self._picked(some).bends(theta, weights[:, some], steps)
            return None if found is None else found * (weights.size / some.size)
        eta, _ = self._predictors(theta)
        turn = weights * self.response.turn(eta)
        own = steps[:, : self.rows.X.shape[1]].T
        total = np.zeros((len(weights), len(steps)))
        for part in blocks(len(eta), len(steps)):
            total += turn[:, part] @ (self._design(part) @ own) ** 2
        return total

    def _picked(self, rows: NDArray[np.intp]) -> "LinearPrediction":
        """Take some rows."""
        offset = np.broadcast_to(self.rows.offset, len(self.rows.X))[rows]
        columns = self.columns[rows] if self.places.size else self.columns
        return replace(self, rows=Rows(self.rows.X[rows], offset), columns=columns)

    def _design(self, part: slice) -> Array:
        X = self.rows.X[part].copy()
        if self.places.size:
            X[:, self.places] = self.columns[part]
        return X

    def _by_row(self, eta: Array, rest: Array) -> Array:
        """Differentiate each row, (m, d), and each of its outcomes, (m, C, d)."""
        shape = self.response.value(eta, rest).shape
        weights = np.ones((1, *shape))
        if len(shape) == 2:
            weights = np.broadcast_to(np.eye(shape[1])[:, None, :], (shape[1], *shape))
        pulled, others = self.response.pull(eta, rest, weights)
        slopes = (pulled[..., None] * self._design(slice(None))[:, None, :]).reshape(
            *pulled.shape[:2], -1
        )
        after = np.zeros((*pulled.shape[:2], rest.size)) if others is None else others
        whole = np.concatenate([slopes, after], axis=-1)
        return whole[0] if len(shape) == 1 else np.moveaxis(whole, 0, 1)

    def _predictors(self, theta: Array) -> tuple[Array, Array]:
        """Linear predictors (m, E), and the parameters that come after their coefficients."""
        E, p = self.response.predictors, self.rows.X.shape[1]
        B = theta[: E * p].reshape(E, p).T.copy()
        if not self.places.size:
            return self.rows.eta(B), theta[E * p :]
        moved = self.columns @ B[self.places]
        B[self.places] = 0.0
        return self.rows.eta(B) + moved, theta[E * p :]


NONE = np.empty(0)


@dataclass(frozen=True, eq=False)
class NetworkPrediction:
    """Predictions of rows by a response to the outputs of a perceptron."""

    network: Network
    response: Response
    index: Any = None

    def value(self, theta: Array) -> Array:
        return self.response.value(self.network.outputs(theta), NONE)

    def slope(self, theta: Array, weights: Array | None) -> Array:
        outputs = self.network.outputs(theta)
        if weights is not None:
            tops, _ = self.response.pull(outputs, NONE, weights)
            return np.stack([self.network.pulled(theta, top) for top in tops])
        shape = self.response.value(outputs, NONE).shape
        each = np.eye(shape[1])[:, None, :] if len(shape) == 2 else np.ones((1, 1))
        tops, _ = self.response.pull(outputs, NONE, np.broadcast_to(each, (len(each), *shape)))
        rows = [self.network.pulled_by_row(theta, top) for top in tops]
        return rows[0] if len(shape) == 1 else np.stack(rows, axis=1)

    def bends(self, theta: Array, weights: Array, steps: Array) -> Array | None:
        return None

    def tangent(self, theta: Array) -> "NetworkPrediction":
        """Predict by the tangent of the network at theta."""
        return replace(self, network=self.network.touching(theta))


def _same(eta: Array) -> Array:
    return eta


LINEAR, LOG = Mean(_same, np.ones_like), Mean(np.exp, np.exp)
