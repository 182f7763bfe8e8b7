"""Products with the curvature that a standard error to 1 % takes: an MNIST perceptron.

Run ``python -m benchmarks mnist_products --data DIR``, where DIR (or the environment variable
IMPLICIT_DELTA_DATA) holds ``mnist/``. A 784-128-10 ReLU network (d = 101 770, float32) is trained
on 10,000 images with l2 = 1; psi is its mean cross-entropy on 1000 others. Without residuals that
are kept, rounding lets directions come back.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import implicit_delta as idm
from benchmarks.timing import Case
from experiments.data import load_split

L2, ROWS, HELD_OUT, EPOCHS, BATCH = 1.0, 10_000, 1000, 5, 100


def cases() -> Iterator[Case]:
    directory = os.environ.get("IMPLICIT_DELTA_DATA")
    if not directory:
        print("MNIST is left out: give --data DIR or set IMPLICIT_DELTA_DATA")
        return
    torch.set_num_threads(1)
    X, y, X_new, y_new = images(Path(directory))
    net = trained(X, y)

    def passes(memory: int) -> int:
        solver = idm.conjugate_gradient(rtol=0.01, memory=memory)
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=L2)
        psi = lambda net: cross_entropy(net(X_new), y_new)
        estimate = idm.infer(model, psi, idm.Infinitesimal(solver, "ggn"), strict=False)
        return estimate.diagnostics.passes

    name, kept = "MNIST, d = 101770, to 1 %: ", idm.conjugate_gradient.memory
    yield Case(name + "passes", 66, lambda: passes(kept), unit="passes", before=144)
    yield Case(name + "no residuals kept", 144, lambda: passes(0), unit="passes")


def images(directory: Path) -> tuple[torch.Tensor, ...]:
    """Return training and held-out images as vectors, with their classes."""
    data = load_split("mnist", directory=directory)
    order = np.random.default_rng(0).permutation(len(data.y))[: ROWS + HELD_OUT]
    X = torch.as_tensor(np.asarray(data.X)[order], dtype=torch.float32).reshape(len(order), -1)
    y = torch.as_tensor(np.asarray(data.y)[order], dtype=torch.int64)
    X = X / X.max()
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def trained(X: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Train by Adam for a few epochs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            penalty = L2 / 2 * sum(p.square().sum() for p in net.parameters()) / len(y)
            loss = cross_entropy(net(X[rows]), y[rows]) + penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net
