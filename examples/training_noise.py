"""
What did the last minibatches leave in it?
==========================================

A network is trained by SGD, and stops after some epoch. Had the rows come in another order, it
would be another network, and its mean prediction another number, on the very same data. That noise
is no part of the sampling error which a standard error is usually about; here it is a line of the
budget.

``pip install "implicit-delta[torch,plot]"``. ``REPEATS=100`` in the environment makes the check
precise.
"""

# %%
# A network and its last epochs
# -----------------------------
# The states are *copied*: a ``state_dict`` holds the parameters themselves, which go on changing.

import copy
import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import implicit_delta as idm

REPEATS = int(os.environ.get("REPEATS", 12))  # trainings for the check by brute force
ROWS, BATCH, EPOCHS, KEPT, DECAY = 200, 20, 50, 30, 5e-3

generator = torch.Generator().manual_seed(0)
x = torch.randn(ROWS, 2, generator=generator)
y = (torch.rand(ROWS, generator=generator) < torch.sigmoid(2 * x.prod(1))).float()
customers = torch.randn(500, 2, generator=generator)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def train(order):
    torch.manual_seed(1)  # one start for all trainings: only the order of the rows differs
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer, shuffle, states = sgd(net.parameters()), torch.Generator().manual_seed(order), []
    for _ in range(EPOCHS):
        for rows in torch.randperm(ROWS, generator=shuffle).split(BATCH):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(net(x[rows])[:, 0], y[rows])
            (loss + DECAY / 2 * sum((p**2).sum() for p in net.parameters())).backward()
            optimizer.step()
        states.append(copy.deepcopy(net.state_dict()))
    return net, states[-KEPT:]


net, states = train(order=0)

# %%
# A line of the budget
# --------------------
# Psi is the mean probability among 500 customers. It wobbles from epoch to epoch, and ``training``
# is the standard deviation of that wobble, without a slow drift. (The Gauss-Newton curvature:
# a network that stopped after some epoch is not at a maximum.)


def uptake(net):
    return torch.sigmoid(net(customers.to(net[0].weight.dtype))).mean()


def described(estimate):
    errors = {part: f"{error:.4f}" for part, error in estimate.budget.items()}
    print(f"{estimate.value:.3f}", errors, estimate.diagnostics.notes["training_noise"], sep="\n  ")


ggn = idm.Infinitesimal(curvature="ggn")
model = idm.from_torch(
    net, (x, y), idm.Bernoulli(), l2=DECAY * ROWS, dtype=torch.float64, checkpoints=states
)
last = idm.infer(model, uptake, ggn)
described(last)

# %%
# Had nobody kept the states, a continued training shows the same, with the optimizer and the batch
# size of the training. It starts at the last state, and looks at the ends of further epochs.

again = idm.continue_training(model, sgd, batch_size=BATCH, steps=30, every=ROWS // BATCH, rng=0)
described(idm.infer(again, uptake, ggn))

# %%
# Averaged weights are rid of it
# ------------------------------
# The mean of the last states has little of that noise. ``averaged(model).module`` is the network to
# deploy.

mean = idm.infer(idm.averaged(model), uptake, ggn)
described(mean)

# %%
# By brute force
# --------------
# Trainings on the same rows in other orders, and the averages of their last states.

others = [train(order) for order in range(1, REPEATS + 1)]
ends = [uptake(other).item() for other, _ in others]


def at_mean(kept):
    center = copy.deepcopy(net)
    center.load_state_dict({k: torch.stack([s[k] for s in kept]).mean(0) for k in kept[0]})
    return uptake(center).item()


means = [at_mean(kept) for _, kept in others]
for name, found, values in (("last", last, ends), ("averaged", mean, means)):
    spread = np.std(values, ddof=1)
    print(f"{name}: {found.budget['training']:.4f} for a spread of {spread:.4f}")

# %%
# The wobble, and the end of each of the other trainings.

path = [uptake(model.at(theta).module).item() for theta in model.facts.training.checkpoints]
_, ax = plt.subplots(figsize=(6, 3), layout="compressed")
ax.plot(range(EPOCHS - KEPT, EPOCHS), path, "o-", label="one training")
ax.plot(np.full(REPEATS, EPOCHS), ends, "_", color="0.4", ms=12, label="others, their ends")
ax.plot(np.full(REPEATS, EPOCHS + 1), means, "_", color="C1", ms=12, label="others, averaged")
ax.set(xlabel="epoch", ylabel="mean probability")
ax.legend()
