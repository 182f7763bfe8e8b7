"""Checks before any work starts: shapes, numbers, and that nothing is random."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.module_checks import (
    TermsRounding,
    Words,
    check_finite,
    check_one_per_row,
    check_pair,
    check_same,
    check_targets,
)
from implicit_delta.models.terms import RowTerms, SupervisedTerms
from implicit_delta.models.torch.data import Batches, can_be_cut, cut, leaves
from implicit_delta.models.torch.graph import graph_bytes
from implicit_delta.models.torch.program import TorchProgram
from implicit_delta.models.torch.reasons import REASONS

WORDS = Words("module", "a tensor", Tensor, "batches (x, y) or (x1, x2, ..., y), but a batch is a")
NOT_THE_SAME = (
    "The same parameters gave two different log-likelihoods (terms differ by {gap:.2g} of their "
    "mean size). Usual causes: dropout that ignores eval mode (`F.dropout(x)` needs "
    "`training=self.training`), random augmentation in the dataset, data read in another order "
    "each time, or noise drawn in the loss. Remove the randomness, or fix its seed within the "
    "function."
)


NOT_ALONE = (
    "The log-likelihood of a row changes with the other rows in its batch (between a batch and "
    "half of it, terms differ by {gap:.2g} of their mean size), so it is not a sum over "
    "independent rows. Usual causes: a contrastive loss, BatchNorm with the statistics of the "
    "batch, a mean over the batch inside the loss, or tensors that do not come from the batch. "
    "Make each term depend on its own row alone; rows that belong together are one observation."
)


ONCE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__


def row_bytes(program: TorchProgram, flat: Tensor, batches: Batches) -> int:
    """Bytes that the graph of second derivatives takes for each row of the first batch."""
    batch = next(batches.load())
    with torch.random.fork_rng(devices=[]):
        rows = len(program.functional(_checked_terms, flat, program.row_terms, batch))
        weights = program.functional.flat(np.ones(rows))
        known = (flat, weights, *leaves(batch))
        total = graph_bytes(lambda: program.hessian(flat, batch, weights), known)
        check_custom_functions(program, flat, batch, rows)
    return max(1, total // max(1, rows))


def check_terms(program: TorchProgram, flat: Tensor, batches: Batches) -> tuple[int, ...]:
    """Run the loss twice over all data; if both runs agree, return the number of terms by batch."""
    functional = program.functional
    with torch.random.fork_rng(devices=[]):
        checked = [functional(_checked_terms, flat, program.row_terms, b) for b in batches.load()]
        again = [program.terms(flat, batch) for batch in batches]
    first, second = (
        functional.numpy(torch.cat(run)).astype(np.float64) for run in (checked, again)
    )
    if len(first) != len(second):
        raise UnsupportedModelError(
            f"The data had {len(first)} rows when read first and {len(second)} the second time. "
            "Give data that can be read again and again: tensors, a Dataset or a DataLoader, not "
            "a generator."
        )
    check_finite(first, "dtype=torch.float64")
    batch, own = next(iter(batches)), first[: len(checked[0])]
    rounding = TermsRounding(
        lambda theta: _numbers(program, functional.flat(theta), batch),
        functional.numpy(flat),
        own,
        functional.longest_sum,
        functional.eps,
    )
    with torch.random.fork_rng(devices=[]):
        check_same(first, second, rounding, NOT_THE_SAME)
    with torch.random.fork_rng(devices=[]):  # the random numbers of the first run again
        _check_alone(program, flat, batch, own, rounding)
    return tuple(map(len, checked))


def _numbers(program: TorchProgram, flat: Tensor, batch: Any) -> Array:
    return np.asarray(program.functional.numpy(program.terms(flat, batch)), dtype=np.float64)


def _check_alone(
    program: TorchProgram, flat: Tensor, batch: Any, terms: Array, rounding: TermsRounding
) -> None:
    """Compare the terms of a batch, (b,), with those of its first half alone."""
    half = len(terms) // 2
    if not half or not can_be_cut(batch, len(terms)):
        return
    alone = _numbers(program, flat, cut(batch, 0, half))
    check_same(terms[:half], alone, rounding, NOT_ALONE)


def check_custom_functions(program: TorchProgram, flat: Tensor, batch: Any, rows: int) -> None:
    """Compare the second derivative of user-written autograd functions with differences."""
    weights = program.functional.flat(np.ones(rows))

    def gradient(point: Tensor, keep: bool = False) -> Tensor:
        loss = program.loss(point, batch, weights)
        return torch.autograd.grad(loss, point, create_graph=keep, materialize_grads=True)[0]

    point = flat.detach().requires_grad_()
    functions = _custom_functions(program.loss(point, batch, weights))
    if any(map(_is_once_differentiable, functions)):
        raise UnsupportedModelError(REASONS["once_differentiable"])
    if not functions:
        return
    precision = torch.finfo(flat.dtype).eps ** (1 / 3)
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(flat.shape, generator=generator, dtype=flat.dtype).to(flat.device)
    step = precision * (1 + flat.abs().mean()) * v
    ends = [gradient((flat + side * step).detach().requires_grad_()) for side in (1, -1)]
    along = gradient(point, keep=True) @ step
    claimed = torch.zeros_like(step)
    if along.requires_grad:
        (claimed,) = torch.autograd.grad(along, point, materialize_grads=True)
    found = (ends[0] - ends[1]) / 2
    gap = float((claimed - found).norm() / found.norm().clamp_min(1e-300))
    if gap > 100 * precision:
        raise UnsupportedModelError(
            "A `torch.autograd.Function` in the model has a second derivative that is not the "
            f"derivative of its first: along one random direction they differ by {gap:.1%}. Usual "
            "causes: a backward that is not differentiable itself, or with a factor left out. "
            'Fix its backward, write it with torch operations, or use `curvature="ggn"`.'
        )


def _is_once_differentiable(function: Any) -> bool:
    """Look for the decorator: torch need not notice, and then leaves out a part of the product."""
    backward: Any = getattr(function, "backward", None)
    while backward is not None:
        if getattr(backward, "__code__", None) is ONCE:
            return True
        backward = getattr(backward, "__wrapped__", None)
    return False


def _custom_functions(value: Tensor) -> set[Any]:
    """Autograd functions of the user's in a graph."""
    found: set[Any] = set()
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.add(getattr(type(node), "_forward_cls", None))
        seen.add(node)
        waiting.extend(parent for parent, _ in node.next_functions)
    return found


def check_penalty(program: TorchProgram, flat: Tensor) -> None:
    """Insist that a penalty, if there is one, is one finite number with a gradient."""
    if program.penalty is None:
        return
    value: Any = program.loss(flat.detach().requires_grad_())
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ValueError(
            f"penalty(module) returned {value!r:.60}; it must return one number, as a tensor that "
            "depends on the module's parameters, for example "
            "`sum(p.abs().sum() for p in module.parameters())`."
        )
    if not bool(torch.isfinite(value)):
        raise ValueError(f"penalty(module) is {value.item()} at the given parameters.")


def _checked_terms(module: nn.Module, terms: RowTerms, batch: Any) -> Any:
    """Compute the terms of a batch once, and check everything on the way."""
    if isinstance(terms, SupervisedTerms):
        if terms.pairs:
            check_pair(batch, terms.likelihood, WORDS)
        targets = terms.targets(batch)
        check_targets(targets, WORDS)
        outputs = terms.outputs(module, batch)
        if not isinstance(outputs, Tensor):
            what = "outputs(module, batch)" if terms.outputs_of else "The module"
            raise UnsupportedModelError(
                f"{what} returns a {type(outputs).__name__}, not a tensor of outputs. Give a "
                "function that does, such as `outputs=lambda module, batch: "
                "module(*batch[:-1]).logits`; or instead of the likelihood a function "
                "`loglik(module, batch)` that returns the log-likelihood of each row."
            )
        terms.likelihood.check(outputs.detach().cpu().numpy(), targets.detach().cpu().numpy())
        values = terms.likelihood.terms(outputs, targets)
    else:
        values = terms(module, batch)
    if any(part.training for part in module.modules()):
        raise UnsupportedModelError(
            "loglik(module, batch) calls `module.train()`: dropout would make the terms random, "
            "and BatchNorm would make each of them depend on the others in its batch. Leave the "
            "mode alone; the module is in eval mode."
        )
    check_one_per_row(values, Tensor, WORDS)
    return values.detach()
