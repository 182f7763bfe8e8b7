"""Stochastic training of a torch module, with any torch optimizer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_delta.core.types import Array
from implicit_delta.models.program import Step
from implicit_delta.models.terms import RowTerms
from implicit_delta.models.torch.module import TorchFunctional


def training(
    functional: TorchFunctional, terms: RowTerms, theta: Array, optimizer: Any, n: int
) -> Step:
    """Start a training; see `Program.trainer`."""
    with functional.context():
        leaves = functional.leaves(theta)
    stepper = _stepper(optimizer, list(leaves.values()))

    def step(batch: Any, weights: Tensor, slope: Callable[[Array], Array]) -> Array:
        def closure() -> Tensor:
            stepper.zero_grad()
            loss: Tensor = functional.call(_mean_loss, leaves, terms, batch, weights)
            loss.backward()  # type: ignore[no-untyped-call]
            extra = functional.views(functional.flat(slope(_joined(leaves)) / n))
            for name, p in leaves.items():
                p.grad = extra[name] if p.grad is None else p.grad + extra[name]
            return loss.detach()

        with functional.context():
            stepper.step(closure)  # type: ignore[arg-type]
        return _joined(leaves)

    return step


def _mean_loss(module: nn.Module, terms: RowTerms, batch: Any, weights: Tensor) -> Tensor:
    """Minus the mean of the weighted terms of a batch."""
    loss: Tensor = -(weights * terms(module, batch)).mean()
    return loss


def _stepper(optimizer: Any, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if isinstance(optimizer, (int, float)):
        return torch.optim.SGD(parameters, lr=float(optimizer))
    if not callable(optimizer):
        raise TypeError(
            f"optimizer is {type(optimizer).__name__}, which was made for other parameters: give a "
            "function that makes one, `lambda p: torch.optim.Adam(p, lr=1e-3)`, or a learning rate."
        )
    made = optimizer(parameters)
    if isinstance(made, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS compares losses, and those of different minibatches cannot be compared. Use "
            "SGD, Adam or another stochastic optimizer, or `FiniteDifference()` on all data."
        )
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer(parameters) returned a {type(made).__name__}; give a learning rate or a "
            "function that makes a torch optimizer, such as "
            "`lambda parameters: torch.optim.Adam(parameters, lr=1e-3)`."
        )
    return made


def _joined(leaves: dict[str, nn.Parameter]) -> Array:
    vector = torch.cat([p.detach().reshape(-1) for p in leaves.values()])
    return vector.cpu().numpy().astype(np.float64, copy=False)
