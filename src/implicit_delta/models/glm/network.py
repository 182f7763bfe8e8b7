"""Multilayer perceptrons in NumPy: terms, scores and exact curvature products.

The notation is the usual one: activations ``a_l = s(z_l)``, ``z_l = a_(l-1) W_l + c_l``, the last
layer without s. A dot on a name is a derivative along a direction (Pearlmutter's R-operator), k
directions at a time along the first axis.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit

from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Likelihood, Product
from implicit_delta.models.facts import Curvature
from implicit_delta.models.glm.likelihood import OutputLikelihood, blocks, root_matrices
from implicit_delta.models.glm.outcomes import rescaled
from implicit_delta.models.rows import Whitened

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


def cut_layers(b: Any, widths: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Cut (..., D) coefficients into weights (..., in, out) and biases (..., out) by layer."""
    start = 0
    for inputs, outputs in pairwise(widths):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        shape = (*b.shape[:-1], inputs, outputs)
        yield b[..., start:middle].reshape(shape), b[..., middle:end]
        start = end


@dataclass(frozen=True, eq=False, repr=False)
class Network(OutputLikelihood):
    """A perceptron whose last layer has the outputs of a likelihood.

    Attributes
    ----------
    X : (n, p) array
    widths : tuple of int
        Units of each layer, the inputs first and the outputs last.
    activation : {"identity", "logistic", "tanh", "relu"}
    likelihood : Likelihood
    targets : (n,) array
    center : (D,) array, optional
        Coefficients at which the network is replaced by its tangent: outputs are linear in the
        step from there.
    """

    linear = False

    X: Array
    widths: tuple[int, ...]
    activation: str
    likelihood: Likelihood
    targets: Any
    center: Array | None = None

    def terms(self, b: Array) -> Array:
        return np.asarray(self.likelihood.terms(self._at(b)[1][-1], self.targets))

    def score(self, b: Array, weights: Array) -> Array:
        layers, activations = self._at(b)
        return self._gradient(layers, activations, weights[:, None] * self._slope(activations))

    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        layers, activations = self._at(b)
        if curvature == "ggn" and 2 * v.shape[1] >= v.shape[0]:
            return self._gauss_newton(layers, activations, weights) @ v
        w = weights[:, None]
        # Neither Gauss-Newton nor the curvature of a tangent has residuals.
        exact = curvature == "hessian" and self.center is None
        delta = w * self._slope(activations) * exact
        curve = self.likelihood.curvature(activations[-1])

        def curved(moved: Array) -> Array:
            return np.asarray(w * curve(moved))

        block = max(1, LARGEST_BLOCK // (len(self.X) * max(self.widths)))
        parts = [v[:, i : i + block] for i in range(0, v.shape[1], block)]
        return np.hstack([self._product(layers, activations, delta, curved, v) for v in parts])

    def size(self, d: int) -> int:
        return self.widths[-1]

    @property
    def density(self) -> Likelihood:
        return self.likelihood

    def rescaled(self, factor: float) -> "Network":
        return replace(self, likelihood=rescaled(self.likelihood, factor))

    def outputs(self, b: Array) -> Array:
        """Outputs of all rows, (n, C)."""
        return self._at(b)[1][-1]

    def pulled(self, b: Array, top: Array) -> Array:
        """Derivative of the outputs times `top` (n, C), summed: (D,)."""
        return self._gradient(*self._at(b), top)

    def pulled_by_row(self, b: Array, top: Array) -> Array:
        """Derivative of the outputs times `top` (n, C), row by row: (n, D)."""
        return self._pull(*self._at(b), top)

    def terms_along(self, b: Array, v: Array) -> Array:
        layers, activations = self._at(b)
        moved = self._push(layers, activations, list(cut_layers(v.T, self.widths)))[-1]
        return np.asarray(np.einsum("nc,knc->nk", self._slope(activations), moved))

    def redrawn(self, b: Array, weights: Array, rng: np.random.Generator) -> "Network":
        outputs = self._at(b)[1][-1]
        return replace(self, targets=self.likelihood.redraw(outputs, self.targets, rng, weights))

    def whitened(self, b: Array, v: Array) -> Iterator[Whitened]:
        for part in blocks(len(self.X), max(self.widths) * v.shape[1]):
            yield replace(self, X=self.X[part], targets=self.targets[part])._whitened(b, v)

    def curvature_noise(
        self, b: Array, weights: Array, rng: np.random.Generator, count: int
    ) -> Array:
        layers, activations = self._at(b)
        roots = root_matrices(self.likelihood.root(activations[-1]), activations[-1])
        columns = []
        for _ in range(count):
            noise = np.sqrt(weights)[:, None] * rng.standard_normal(activations[-1].shape)
            top = np.einsum("nij,ni->nj", roots, noise)
            columns.append(self._gradient(layers, activations, top))
        return np.stack(columns, axis=1)

    def touching(self, b: Array) -> "Network":
        return self if self.center is not None else replace(self, center=b)

    def __repr__(self) -> str:
        return f"{self.likelihood!r}, perceptron {'-'.join(map(str, self.widths))}"

    def _whitened(self, b: Array, v: Array) -> Whitened:
        """Whitened rows, all at once."""
        (layers, activations), likelihood = self._at(b), self.likelihood
        moved = self._push(layers, activations, list(cut_layers(v.T, self.widths)))[-1]
        outputs = activations[-1]
        rows = np.moveaxis(np.asarray(likelihood.root(outputs)(moved)), 0, -1)
        residuals = likelihood.residual(outputs, self.targets)
        return Whitened(rows, residuals, likelihood.spread(outputs))

    def _gradient(self, layers: Layers, activations: list[Array], top: Array) -> Array:
        """Derivative of the outputs times `top`, summed over rows, in all coefficients: (D,)."""
        parts: list[Array] = []
        for below, delta in self._backward(layers, activations, top):
            parts += [delta.sum(axis=0), (below.T @ delta).ravel()]
        return np.concatenate(parts[::-1])

    def _product(
        self, layers: Layers, activations: list[Array], delta: Array, curve: Product, v: Array
    ) -> Array:
        """Minus the derivative of the score along v, or its Gauss-Newton part."""
        steps = list(cut_layers(v.T, self.widths))
        moved = self._push(layers, activations, steps)
        delta_dot = -curve(moved[-1])
        products: list[Array] = []
        for layer in reversed(range(len(layers))):
            W, V = layers[layer][0], steps[layer][0]
            below, z_dot = activations[layer], moved[layer]
            first = self._first(below)
            gradient = below.T @ delta_dot + np.swapaxes(first * z_dot, 1, 2) @ delta
            products += [delta_dot.sum(axis=1), gradient.reshape(len(gradient), -1)]
            back = delta @ W.T
            delta_dot = (delta_dot @ W.T + delta @ np.swapaxes(V, 1, 2)) * first
            delta_dot += back * self._second(below) * z_dot
            delta = back * first
        return -np.concatenate(products[::-1], axis=1).T

    def _gauss_newton(self, layers: Layers, activations: list[Array], weights: Array) -> Array:
        """The whole matrix ``J' w H J``, from rows of ``S' J`` with ``H = S S'``."""
        size = sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.widths))
        total = np.zeros((size, size))
        rows_at_once = max(1, LARGEST_ROWS // size)
        for column in self._root_columns(activations[-1]):
            delta = np.sqrt(weights)[:, None] * column
            for start in range(0, len(self.X), rows_at_once):
                part = slice(start, start + rows_at_once)
                rows = self._pull(layers, [a[part] for a in activations], delta[part])
                total += rows.T @ rows
        return total

    def _root_columns(self, outputs: Array) -> Array:
        """Columns of the root S of the curvature in each row, (C, n, C)."""
        return np.moveaxis(root_matrices(self.likelihood.root(outputs), outputs), 1, 0)

    def _pull(self, layers: Layers, activations: list[Array], top: Array) -> Array:
        """Derivative of the outputs times `top`, row by row, in all coefficients: (n, D)."""
        parts: list[Array] = []
        for below, delta in self._backward(layers, activations, top):
            outer = below[:, :, None] * delta[:, None, :]
            parts += [delta, outer.reshape(len(delta), -1)]
        return np.concatenate(parts[::-1], axis=1)

    def _forward(self, layers: Layers) -> list[Array]:
        """Inputs, hidden activations and outputs."""
        activations = [self.X]
        for i, (W, c) in enumerate(layers):
            z = activations[-1] @ W + c
            activations.append(z if i == len(layers) - 1 else ACTIVATIONS[self.activation][0](z))
        return activations

    def _backward(
        self, layers: Layers, activations: list[Array], delta: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Yield each layer's inputs and the derivative delta in its z, the last layer first."""
        for layer in reversed(range(len(layers))):
            below = activations[layer]
            yield below, delta
            if layer:
                delta = (delta @ layers[layer][0].T) * self._first(below)

    def _push(self, layers: Layers, activations: list[Array], steps: Layers) -> list[Array]:
        """Derivative of z in each layer along the steps, (k, n, units); that of the inputs is 0."""
        moved = [np.zeros((1, *self.X.shape))]
        for (W, _), (V, u), below in zip(layers, steps, activations[:-1], strict=True):
            a_dot = self._first(below) * moved[-1]
            moved.append(a_dot @ W + below @ V + u[:, None, :])
        return moved

    def _at(self, b: Array) -> tuple[Layers, list[Array]]:
        """Layers and activations; of a tangent those of its center, with moved outputs."""
        if self.center is None:
            layers = list(cut_layers(b, self.widths))
            return layers, self._forward(layers)
        layers = list(cut_layers(self.center, self.widths))
        activations = self._forward(layers)
        steps = list(cut_layers((b - self.center)[None], self.widths))
        *hidden, outputs = activations
        return layers, [*hidden, outputs + self._push(layers, activations, steps)[-1][0]]

    def _slope(self, activations: list[Array]) -> Array:
        return np.asarray(self.likelihood.slope(activations[-1], self.targets))

    def _first(self, a: Array) -> Array:
        return np.asarray(ACTIVATIONS[self.activation][1](a))

    def _second(self, a: Array) -> Array:
        return np.asarray(ACTIVATIONS[self.activation][2](a))
