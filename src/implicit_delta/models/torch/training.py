"""Stochastic training steps on a torch model, with any torch optimizer."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.models.base import Bonus, RowNumbers

if TYPE_CHECKING:
    from implicit_delta.models.torch.model import TorchModel


def train(
    model: "TorchModel", bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
) -> Iterator[Array]:
    """Yield theta after each step; see `FittedModel.ascend`."""
    leaves = model.functional.leaves(model.theta)
    stepper = _stepper(optimizer, list(leaves.values()))
    for rows in batches:
        batch = model.batches.take(rows)
        weights = torch.as_tensor(model.weights[rows], device=model.functional.device)

        def closure(
            rows: RowNumbers = rows, batch: Any = batch, weights: Tensor = weights
        ) -> Tensor:
            stepper.zero_grad()
            loss: Tensor = model.functional.call(_mean_loss, leaves, model, batch, weights)
            loss.backward()  # type: ignore[no-untyped-call]
            theta = _flat(leaves)
            extra = model.l2 * theta if bonus is None else model.l2 * theta - bonus(theta, rows)
            _add_gradient(leaves, extra / model.n)
            return loss.detach()

        stepper.step(closure)  # type: ignore[arg-type]
        theta = _flat(leaves)
        if not np.all(np.isfinite(theta)):
            raise ConvergenceError(
                "The stochastic training diverged: a parameter is NaN or infinite. Use a smaller "
                "learning rate."
            )
        yield theta


def _mean_loss(module: nn.Module, model: "TorchModel", batch: Any, weights: Tensor) -> Tensor:
    """Minus L / n without the ridge, its sum over rows estimated from those of the batch."""
    loss = -(weights * model.row_terms(module, batch).double()).mean()
    return loss if model.penalty is None else loss + model.penalty(module) / model.n


def _stepper(optimizer: Any, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if isinstance(optimizer, (int, float)):
        return torch.optim.SGD(parameters, lr=float(optimizer))
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


def _flat(leaves: dict[str, nn.Parameter]) -> Array:
    return np.concatenate(
        [p.detach().cpu().reshape(-1).numpy().astype(np.float64) for p in leaves.values()]
    )


def _add_gradient(leaves: dict[str, nn.Parameter], gradient: Array) -> None:
    start = 0
    for p in leaves.values():
        piece = torch.as_tensor(gradient[start : start + p.numel()]).to(p)
        p.grad = piece.view_as(p) if p.grad is None else p.grad + piece.view_as(p)
        start += p.numel()
