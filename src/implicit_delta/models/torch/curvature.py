"""Curvature of the objective on one batch, as products and, for few parameters, as a matrix."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor
from torch.func import vjp, vmap

from implicit_delta._core.types import Array
from implicit_delta.likelihoods import Likelihood, Product
from implicit_delta.models.torch.graph import Linearization
from implicit_delta.models.torch.module import Functional
from implicit_delta.models.torch.terms import Supervised

JACOBIAN_BYTES = 2**26  # of the output Jacobians held at a time


@dataclass(frozen=True, eq=False)
class GaussNewton:
    r"""The generalized Gauss-Newton matrix of a batch, :math:`\sum_i w_i J_i' H_i J_i`."""

    linearization: Linearization
    curvature: Product
    weights: Tensor

    @classmethod
    def of(
        cls,
        outputs: Callable[[Tensor], Tensor],
        flat: Tensor,
        likelihood: Likelihood,
        weights: Tensor,
    ) -> "GaussNewton":
        """Linearize the outputs, a function of the flat parameters."""
        linearization = Linearization(outputs, flat)
        value = linearization.value
        columns = weights.to(value.dtype).view(-1, *[1] * (value.ndim - 1))
        return cls(linearization, likelihood.curvature(value), columns)

    def times(self, v: Tensor) -> Tensor:
        """The matrix times every row of (k, d): forwards, curve, backwards."""
        moved = self.linearization.forward(v)
        return self.linearization.backward(self.weights * self.curvature(moved))


def dense_gauss_newton(
    functional: Functional, supervised: Supervised, flat: Tensor, batch: Any, weights: Tensor
) -> Array:
    r"""The same matrix from the Jacobian of every row: :math:`U'U` with rows :math:`S_i' J_i`.

    One backward pass per output and a symmetric product, instead of d passes.
    """

    def outputs(point: Tensor, row: Any) -> Tensor:
        made: Tensor = functional(supervised.outputs, point, [*(x[None] for x in row), None])
        return made[0]

    def factor(row: Any, weight: Tensor) -> Tensor:
        value, pull = vjp(lambda point: outputs(point, row), flat)  # type: ignore[misc]
        basis = torch.eye(value.numel(), dtype=value.dtype, device=value.device)
        root = supervised.likelihood.root(value)(basis.view(-1, *value.shape)).flatten(1)
        scaled = weight.sqrt().to(value.dtype) * root.T
        rows: Tensor = vmap(pull)(scaled.reshape(-1, *value.shape))[0]
        return rows

    inputs, d = batch[:-1], flat.numel()
    with torch.no_grad():
        size = functional(supervised.outputs, flat, [*(x[:1] for x in inputs), None]).numel()
    chunk = max(1, JACOBIAN_BYTES // (8 * size * d))
    matrix = np.zeros((d, d), order="F")
    for start in range(0, len(weights), chunk):
        rows = slice(start, start + chunk)
        factors = vmap(factor)([x[rows] for x in inputs], weights[rows])
        U = factors.reshape(-1, d).detach().double().cpu().numpy()
        matrix = dsyrk(1.0, U.T, beta=1.0, c=matrix, overwrite_c=True, lower=True)
    return np.asarray(np.tril(matrix) + np.tril(matrix, -1).T)
