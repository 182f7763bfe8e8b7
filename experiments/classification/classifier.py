"""The paper's classifier, one hidden layer of 50 tanh units, and the training of many at a time.

As in its appendix: parameters start uniform in [-0.1, 0.1], and RMSProp steps repeatedly through
the shuffled rows in blocks of 128, at a rate that starts at 0.01. The rate falls linearly to zero,
because at a constant rate the parameters never converge.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

UNITS = 50
BATCH_SIZE = 128
RATE = 0.01
CHECKPOINTS, EVERY = 20, 10  # last states that are kept, and how many steps apart


def train(X, y, *, steps, rng, rows=None, l2=(0.0,)):
    """Train a stack of R independent networks; R modules in float32.

    Parameters
    ----------
    X, y : array
        Features (n, p) and class numbers (n,).
    rows : (R, n') array, optional
        On which rows each network is trained; by default on all.
    l2 : sequence of R numbers
        Penalty l2 / 2 |theta|^2 on the summed loss.
    """
    rows = np.arange(len(y))[None] if rows is None else rows
    for stack in path(X, y, steps=steps, rng=rng, rows=rows, l2=l2):  # noqa: B007
        pass
    return [_module(stack, r) for r in range(len(rows))]


@dataclass(frozen=True)
class Trained:
    """One network: at the start of its training, at the end, and at some of the last steps."""

    start: nn.Module
    module: nn.Module
    checkpoints: list


def train_and_keep(X, y, *, steps, rng):
    """Train one network as `train` does, and keep its start and its last states."""
    start, kept = None, []
    rows = np.arange(len(y))[None]
    for step, stack in enumerate(path(X, y, steps=steps, rng=rng, rows=rows, l2=(0.0,))):
        if step == 0:
            start = _module(stack, 0)
        elif steps - step < CHECKPOINTS * EVERY and (steps - step) % EVERY == 0:
            kept.append(_module(stack, 0))
    return Trained(start, kept[-1], kept)


def path(X, y, *, steps, rng, rows, l2):
    """Yield the stack at the start and after each step, the same tensors every time."""
    X, y, rows = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y), torch.as_tensor(rows)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    order = torch.stack(
        [chosen[torch.randperm(len(chosen), generator=generator)] for chosen in rows]
    )
    stack = _start(len(rows), X.shape[1], int(y.max()) + 1, generator)
    ridge = torch.as_tensor(l2, dtype=torch.float32).expand(len(rows)) / rows.shape[1]
    optimizer = torch.optim.RMSprop(stack, lr=RATE, alpha=0.9)
    yield stack
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        batch = order[:, torch.arange(step * BATCH_SIZE, (step + 1) * BATCH_SIZE) % order.shape[1]]
        optimizer.zero_grad()
        _loss(stack, X[batch], y[batch], ridge).backward()
        optimizer.step()
        yield stack


def network(features, classes):
    return nn.Sequential(nn.Linear(features, UNITS), nn.Tanh(), nn.Linear(UNITS, classes))


def average_cost(X, y, dtype=torch.float64):
    """The paper's psi: average cross-entropy of a module on these rows."""
    X, y = torch.as_tensor(X, dtype=dtype), torch.as_tensor(y)
    return lambda module: cross_entropy(module(X), y)


def _start(size, features, classes, generator):
    shapes = ((features, UNITS), (1, UNITS), (UNITS, classes), (1, classes))
    draws = [torch.rand(size, *shape, generator=generator) for shape in shapes]
    return [(0.2 * draw - 0.1).requires_grad_() for draw in draws]


def _loss(stack, X, y, ridge):
    inner, shift, outer, offset = stack
    logits = torch.tanh(X @ inner + shift) @ outer + offset
    loss = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
    if not ridge.any():
        return loss
    return loss + sum((ridge / 2 * p.square().sum((1, 2))).sum() for p in stack)


def _module(stack, r):
    inner, shift, outer, offset = (p[r].detach().clone() for p in stack)
    module = network(*inner.shape[:1], outer.shape[1])
    with torch.no_grad():
        for parameter, value in zip(
            module.parameters(), (inner.T, shift[0], outer.T, offset[0]), strict=True
        ):
            parameter.copy_(value)
    return module
