"""The program of a torch module: its terms on a batch, their derivatives, and training."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap

from implicit_delta.core.types import Array
from implicit_delta.models.program import Calculus, Function, Product, Program, Step
from implicit_delta.models.torch.data import can_be_cut, cut, leaves, map_tensors
from implicit_delta.models.torch.graph import gradient, hessian, linearize
from implicit_delta.models.torch.module import TorchFunctional
from implicit_delta.models.torch.tangent import TangentFunctional
from implicit_delta.models.torch.training import training

# Vectors at once, or else one by one. Together they share calls of kernels, not what these read: 16
# took 0.2 to 0.8 times the time of one by one on batches of up to 2 MB (perceptrons, convnets,
# BERT), which a cache holds and which leave room for 32, and 1.0 to 3.6 times beyond.
FEW = 32


@dataclass(frozen=True, eq=False)
class TorchProgram(Program):
    """The program of a torch module."""

    calculus = Calculus(
        gradient, hessian, linearize, vjp, vmap, map_tensors, lambda batch: list(leaves(batch)),
        lambda value: torch.eye(value.numel(), dtype=value.dtype, device=value.device),
    )  # fmt: skip

    functional: TorchFunctional

    def run(self, function: Function, *arguments: Any) -> Any:
        return function(*arguments)

    def product(self, build: Callable[..., Product], *arguments: Any) -> Product:
        multiply = build(*arguments)
        room = self.at_once(_rows(*arguments[1:]))
        most = room if room >= FEW else 1

        def product(block: Tensor) -> Tensor:
            parts = [multiply(part) for part in torch.split(block, most)]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return product

    def block(self, rows: Array, size: int) -> Tensor:
        return self.functional.flat(rows)

    def output_size(self, flat: Tensor, batch: Any) -> int:
        whole = not can_be_cut(batch, len(next(leaves(batch), flat)))
        return len(self.outputs(flat, batch if whole else cut(batch, 0, 1))[0].flatten())

    def trainer(self, theta: Array, optimizer: Any, n: int) -> Step:
        return training(self.functional, self.row_terms, theta, optimizer, n)

    def tangent(self, theta: Array) -> "TorchProgram":
        whole = self.functional
        if isinstance(whole, TangentFunctional):
            return self
        center = whole.flat(theta.copy()).detach()
        parts = {field.name: getattr(whole, field.name) for field in fields(whole)}
        return replace(self, functional=TangentFunctional(**parts, center=center))


def _rows(batch: Any = None, weights: Any = None) -> int:
    """Rows of a batch; of a penalty one."""
    return len(next(leaves(batch if weights is None else weights), "1"))
