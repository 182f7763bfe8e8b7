"""Training of many networks of one setting at once: their weights are stacked, (R, ...).

The optimizers of torch work number by number, so a stack of R trainings by one optimizer is R
trainings. What is random about one of them (order of its minibatches) comes from its own source.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.func import functional_call, vmap
from torch.nn import functional as F

from experiments.fidelity.networks import network

STEPS, EPOCHS = 64, 10  # states that are kept: after each of the last steps, and epochs
LOSSES = {
    "binary": F.binary_cross_entropy_with_logits,
    "classes": F.cross_entropy,
    "regression": F.mse_loss,
}


@dataclass(frozen=True)
class Trained:
    """Stacked states: at the start, at the end, and after each of the last steps and epochs."""

    start: dict
    end: dict
    steps: list
    epochs: list

    def of(self, index):
        """Take the states of one of the networks."""
        pick = lambda state: {name: value[index].clone() for name, value in state.items()}
        return Trained(
            pick(self.start),
            pick(self.end),
            list(map(pick, self.steps)),
            list(map(pick, self.epochs)),
        )


def train(setting, seeds, rows, orders):
    """Train one network for each seed of its weights, data set and source of minibatches."""
    template = network(setting, 0)
    start = stacked([network(setting, seed).state_dict() for seed in seeds])
    weights = {name: value.clone().requires_grad_() for name, value in start.items()}
    optimizer = make_optimizer(setting, weights.values())
    x, y = (torch.as_tensor(np.stack([getattr(r, name) for r in rows])) for name in "xy")
    loss = losses(setting, template)
    steps, epochs = [], []
    for batches in epochs_of_batches(setting, orders):
        for index in batches:
            optimizer.zero_grad()
            loss(weights, *(taken(z, index) for z in (x, y))).sum().backward()
            optimizer.step()
            steps = [*steps[1 - STEPS :], snapshot(weights)]
        epochs = [*epochs[1 - EPOCHS :], steps[-1]]
    return Trained(start, steps[-1], steps, epochs)


def predictions(setting, states, x):
    """Outputs of every network of a stack for the same rows, (R, m) or (R, m, 3)."""
    template = network(setting, 0)
    one = lambda state: functional_call(template, state, (torch.as_tensor(x),))
    with torch.no_grad():
        count = len(next(iter(states.values())))
        return torch.stack([one({k: v[r] for k, v in states.items()}) for r in range(count)])


def losses(setting, template):
    """Loss of each network of a stack on its own minibatch, (R,)."""

    def one(weights, x, y):
        return LOSSES[setting.outcome](functional_call(template, weights, (x,)), y)

    return vmap(one)


def make_optimizer(setting, weights):
    options = {"lr": setting.rate, "weight_decay": setting.decay}
    if setting.optimizer == "sgd":
        return torch.optim.SGD(weights, momentum=0.9, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[setting.optimizer](
        weights, **options
    )


def epochs_of_batches(setting, orders):
    """For each epoch the indices of its minibatches, (R, b), every network in its own order."""
    size = setting.batch or setting.n
    for _ in range(setting.epochs):
        order = torch.as_tensor(np.stack([rng.permutation(setting.n) for rng in orders]))
        yield order.split(size, dim=1)


def taken(z, index):
    return z[torch.arange(len(z))[:, None], index]


def stacked(states):
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def snapshot(weights):
    return {name: value.detach().clone() for name, value in weights.items()}
