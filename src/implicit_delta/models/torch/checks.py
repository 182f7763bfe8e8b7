"""What is checked before any work starts: shapes, numbers, and that nothing is random."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.module_checks import (
    check_finite,
    check_numbers,
    check_one_per_row,
    check_same,
)
from implicit_delta.models.torch.data import Batches, Rows, Stream, leaves
from implicit_delta.models.torch.graph import Quadratic, graph_bytes
from implicit_delta.models.torch.module import Functional
from implicit_delta.models.torch.terms import Supervised, Written

PROBE_ROWS = 16
NOT_THE_SAME = (
    "The same parameters gave two different log-likelihoods (terms differ by {gap:.2g} of their "
    "mean size). Usual causes: dropout that ignores eval mode (`F.dropout(x)` needs "
    "`training=self.training`), random augmentation in the dataset, data read in another order "
    "each time, or noise drawn in the loss. Remove the randomness, or fix its seed within the "
    "function."
)


def check_arguments(module: Any, l2: float, batch_size: int | None) -> None:
    """Refuse what is not a module, a penalty or a batch size."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}.")
    check_numbers(l2, batch_size)


def row_bytes(
    functional: Functional, flat: Tensor, terms: Supervised | Written, rows: Rows | Stream
) -> int:
    """Bytes that the graph of second derivatives takes for each row of data."""
    batch = next(iter(Batches(rows, PROBE_ROWS, functional.dtype, functional.device).loaded()))
    tensors = leaves(batch)
    count = max(1, len(tensors[0]) if tensors and tensors[0].ndim else 1)

    def build() -> Quadratic:
        return Quadratic(lambda point: functional(terms, point, batch).sum(), flat)

    _check_batch(functional, flat, terms, batch)
    with torch.random.fork_rng(devices=[]):
        return max(1, graph_bytes(build, (flat, *tensors)) // count)


def check_terms(
    functional: Functional, flat: Tensor, terms: Supervised | Written, batches: Batches
) -> tuple[int, ...]:
    """Run the loss twice over all data; if both runs agree, return how many terms a batch has."""
    with torch.random.fork_rng(devices=[]):
        runs = [
            [_check_batch(functional, flat, terms, batch) for batch in loaded]
            for loaded in (batches.loaded(), batches)
        ]
    first, second = (torch.cat(run).double().cpu().numpy() for run in runs)
    if len(first) != len(second):
        raise UnsupportedModelError(
            f"The data had {len(first)} rows when read first and {len(second)} the second time. "
            "Give data that can be read again and again: tensors, a Dataset or a DataLoader, not "
            "a generator."
        )
    check_finite(first, "dtype=torch.float64")
    check_same(first, second, torch.finfo(functional.dtype).eps, NOT_THE_SAME)
    return tuple(len(part) for part in runs[0])


def check_penalty(functional: Functional, flat: Tensor, penalty: Callable[..., Any]) -> None:
    """Insist that a penalty is one finite number with a gradient."""
    value = functional(penalty, flat.detach().requires_grad_())
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ValueError(
            f"penalty(module) returned {value!r:.60}; it must return one number, as a tensor that "
            "depends on the module's parameters, for example "
            "`sum(p.abs().sum() for p in module.parameters())`."
        )
    if not bool(torch.isfinite(value)):
        raise ValueError(f"penalty(module) is {value.item()} at the given parameters.")


def _check_batch(
    functional: Functional, flat: Tensor, terms: Supervised | Written, batch: Any
) -> Tensor:
    if isinstance(terms, Supervised):
        _check_supervised(functional, flat, terms, batch)
    values = functional(_watched(terms), flat, batch)
    if not isinstance(values, Tensor):
        raise ValueError(
            f"loglik(module, batch) returned {type(values).__name__}, not a tensor of "
            "log-likelihoods, one per row of the batch."
        )
    check_one_per_row(values.shape, "loglik(module, batch)")
    return values.detach()


def _watched(terms: Supervised | Written) -> Callable[[nn.Module, Any], Any]:
    """Notice when the log-likelihood switches the module to training mode."""

    def watched(module: nn.Module, batch: Any) -> Any:
        values = terms(module, batch)
        if any(part.training for part in module.modules()):
            raise UnsupportedModelError(
                "loglik(module, batch) calls `module.train()`: dropout would make the terms "
                "random, and BatchNorm would make each of them depend on the others in its batch. "
                "Leave the mode alone; the module is in eval mode."
            )
        return values

    return watched


def _check_supervised(functional: Functional, flat: Tensor, terms: Supervised, batch: Any) -> None:
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise UnsupportedModelError(
            f"{type(terms.likelihood).__name__}() needs batches (x, y) or (x1, x2, ..., y), but a "
            f"batch is a {type(batch).__name__}"
            f"{f' of {len(batch)}' if isinstance(batch, (tuple, list)) else ''}. Give a function "
            "`loglik(module, batch)` that returns the log-likelihood of each row instead."
        )
    outputs = functional(terms.outputs, flat, batch)
    if not isinstance(batch[-1], Tensor):
        raise ValueError(f"The targets are a {type(batch[-1]).__name__}, not a tensor.")
    terms.likelihood.check(outputs.detach().cpu().numpy(), batch[-1].cpu().numpy())
