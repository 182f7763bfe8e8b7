"""Multilayer perceptrons in NumPy: terms, scores and exact curvature products.

The notation is the usual one: activations ``a_l = s(z_l)``, ``z_l = a_(l-1) W_l + c_l``, the last
layer without s. A dot on a name is a derivative along a direction (Pearlmutter's R-operator), k
directions at a time along the first axis.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit, logsumexp

from implicit_delta._core.types import Array
from implicit_delta.models.base import Curvature
from implicit_delta.models.glm.model import Likelihood
from implicit_delta.models.glm.predictors import Response

LARGEST_BLOCK = 2**20  # numbers per activation when many directions go together
LARGEST_ROWS = 2**22  # numbers in the rows that a Gauss-Newton matrix is summed from at a time

Layers: TypeAlias = list[tuple[Array, Array]]

# s as a function of z, then s' and s'' as functions of the activation a.
ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], ...]] = {
    "identity": (lambda z: z, lambda a: np.ones_like(a), lambda a: np.zeros_like(a)),
    "logistic": (expit, lambda a: a * (1 - a), lambda a: a * (1 - a) * (1 - 2 * a)),
    "tanh": (np.tanh, lambda a: 1 - a**2, lambda a: -2 * a * (1 - a**2)),
    "relu": (lambda z: np.maximum(z, 0), lambda a: (a > 0) * 1.0, lambda a: np.zeros_like(a)),
}


@dataclass(frozen=True, eq=False)
class Network(Likelihood):
    """A perceptron whose last layer feeds a response.

    Attributes
    ----------
    X : (n, p) array
    widths : tuple of int
        Units of each layer, the inputs first and the outputs last.
    activation : {"identity", "logistic", "tanh", "relu"}
    head : Head
        The log-likelihood as a function of the outputs.
    """

    X: Array
    widths: tuple[int, ...]
    activation: str
    head: "Head"

    def terms(self, b: Array) -> Array:
        return self.head.terms(self._forward(self._layers(b))[-1])

    def score(self, b: Array, weights: Array) -> Array:
        layers = self._layers(b)
        activations = self._forward(layers)
        delta = weights[:, None] * self.head.slope(activations[-1])
        gradients = []
        for (W, _), below in zip(reversed(layers), reversed(activations[:-1]), strict=True):
            gradients.append(np.concatenate([(below.T @ delta).ravel(), delta.sum(axis=0)]))
            delta = (delta @ W.T) * self._first(below)
        return np.concatenate(gradients[::-1])

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        layers = self._layers(b)
        activations = self._forward(layers)
        if curvature == "ggn" and 2 * v.shape[1] >= v.shape[0]:
            return self._gauss_newton(layers, activations, weights) @ v
        block = max(1, LARGEST_BLOCK // (len(self.X) * max(self.widths)))
        columns = [v[:, i : i + block] for i in range(0, v.shape[1], block)]
        return np.hstack(
            [self._product(layers, activations, weights, part, curvature) for part in columns]
        )

    def terms_along(self, b: Array, v: Array) -> Array:
        layers = self._layers(b)
        activations = self._forward(layers)
        slope = self.head.slope(activations[-1])
        moved = self._push(layers, activations, self._directions(v))[-1]
        return np.asarray(np.einsum("nc,knc->nk", slope, moved))

    def _product(
        self,
        layers: Layers,
        activations: list[Array],
        weights: Array,
        v: Array,
        curvature: Curvature,
    ) -> Array:
        """Minus the derivative of the score along v, or its Gauss-Newton part."""
        exact = curvature == "hessian"
        steps = self._directions(v)
        moved = self._push(layers, activations, steps)
        w = weights[:, None]
        delta = w * self.head.slope(activations[-1]) * exact  # Gauss-Newton has no residuals
        delta_dot = -w * self.head.bend(activations[-1], moved[-1])
        products = []
        for layer in reversed(range(len(layers))):
            W, below = layers[layer][0], activations[layer]
            V, z_dot = steps[layer][0], moved[layer]
            a_dot = self._first(below) * z_dot
            gradient = below.T @ delta_dot + np.swapaxes(a_dot, 1, 2) @ delta
            products += [delta_dot.sum(axis=1), gradient.reshape(len(gradient), -1)]
            back = delta @ W.T
            delta_dot = delta_dot @ W.T + delta @ np.swapaxes(V, 1, 2)
            delta_dot = delta_dot * self._first(below) + back * self._second(below) * z_dot
            delta = back * self._first(below)
        return -np.concatenate(products[::-1], axis=1).T

    def _gauss_newton(self, layers: Layers, activations: list[Array], weights: Array) -> Array:
        """The whole matrix ``J' w H J``, from rows of ``H^(1/2) J``: one product of matrices."""
        size = sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.widths))
        total = np.zeros((size, size))
        rows_at_once = max(1, LARGEST_ROWS // size)
        for delta in self.head.roots(activations[-1]):
            weighted = np.sqrt(weights)[:, None] * delta
            for start in range(0, len(self.X), rows_at_once):
                part = slice(start, start + rows_at_once)
                rows = self._pull([a[part] for a in activations], layers, weighted[part])
                total += rows.T @ rows
        return total

    def _pull(self, activations: list[Array], layers: Layers, delta: Array) -> Array:
        """Derivative of the outputs times delta, row by row, in all coefficients: (n, D)."""
        parts: list[Array] = []
        for (W, _), below in zip(reversed(layers), reversed(activations[:-1]), strict=True):
            outer = below[:, :, None] * delta[:, None, :]
            parts += [delta, outer.reshape(len(delta), -1)]
            delta = (delta @ W.T) * self._first(below)
        return np.concatenate(parts[::-1], axis=1)

    def _forward(self, layers: Layers) -> list[Array]:
        """Inputs, hidden activations and outputs."""
        activations = [self.X]
        for i, (W, c) in enumerate(layers):
            z = activations[-1] @ W + c
            activations.append(z if i == len(layers) - 1 else ACTIVATIONS[self.activation][0](z))
        return activations

    def _push(self, layers: Layers, activations: list[Array], steps: Layers) -> list[Array]:
        """Derivative of z in each layer along the steps, (k, n, units); that of the inputs is 0."""
        moved = [np.zeros((1, *self.X.shape))]
        for (W, _), (V, u), below in zip(layers, steps, activations[:-1], strict=True):
            a_dot = self._first(below) * moved[-1]
            moved.append(a_dot @ W + below @ V + u[:, None, :])
        return moved

    def _layers(self, b: Array) -> Layers:
        return [(W[0], c[0]) for W, c in self._directions(b[:, None])]

    def _directions(self, v: Array) -> Layers:
        """Cut (D, k) into weights (k, in, out) and biases (k, out) of each layer."""
        layers, start, rows = [], 0, v.T
        for inputs, outputs in pairwise(self.widths):
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            W = rows[:, start:middle].reshape(-1, inputs, outputs)
            layers.append((W, rows[:, middle:end]))
            start = end
        return layers

    def _first(self, a: Array) -> Array:
        return np.asarray(ACTIVATIONS[self.activation][1](a))

    def _second(self, a: Array) -> Array:
        return np.asarray(ACTIVATIONS[self.activation][2](a))


class Head(ABC):
    """The log-likelihood of each row as a function of its C outputs.

    All heads have their canonical link, so their curvature is never negative.
    """

    @abstractmethod
    def terms(self, z: Array) -> Array:
        """(n, C) to (n,)."""

    @abstractmethod
    def slope(self, z: Array) -> Array:
        """Derivative in the outputs, (n, C)."""

    @abstractmethod
    def bend(self, z: Array, moved: Array) -> Array:
        """Minus the second derivative H times moves (k, n, C) of the outputs."""

    @abstractmethod
    def roots(self, z: Array) -> Array:
        """Vectors r_j with ``H = sum_j r_j r_j'`` in each row, (C, n, C)."""


@dataclass(frozen=True, eq=False)
class OneOutput(Head):
    """A response of a single output."""

    response: Response

    def terms(self, z: Array) -> Array:
        return self.response.terms(z[:, 0])

    def slope(self, z: Array) -> Array:
        return self.response.slope(z[:, 0])[:, None]

    def bend(self, z: Array, moved: Array) -> Array:
        return np.asarray(self.response.bend(z[:, 0])[:, None] * moved)

    def roots(self, z: Array) -> Array:
        return np.sqrt(self.response.bend(z[:, 0]))[None, :, None]


@dataclass(frozen=True, eq=False)
class OneOfSeveral(Head):
    """Softmax over classes; `classes` (n, C) has the class of each row, as zeros and a one."""

    classes: Array

    def terms(self, z: Array) -> Array:
        return np.asarray(np.sum(self.classes * z, axis=1) - logsumexp(z, axis=1))

    def slope(self, z: Array) -> Array:
        return self.classes - _softmax(z)

    def bend(self, z: Array, moved: Array) -> Array:
        P = _softmax(z)
        return np.asarray(P * (moved - np.sum(P * moved, axis=-1, keepdims=True)))

    def roots(self, z: Array) -> Array:
        # diag(p) - p p' = R R' with R = diag(sqrt p) - p sqrt(p)', because p sums to one.
        P = _softmax(z)
        return np.asarray(np.stack([root * (one - P) for root, one in _columns(P)]))


def _columns(P: Array) -> Iterator[tuple[Array, Array]]:
    """Each column of sqrt(P), (n, 1), with the unit vector of its class."""
    return ((np.sqrt(P[:, j : j + 1]), one) for j, one in enumerate(np.eye(P.shape[1])))


def _softmax(z: Array) -> Array:
    return np.asarray(np.exp(z - logsumexp(z, axis=1, keepdims=True)))
