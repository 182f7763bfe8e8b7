"""
A training loop of your own: an error bar from a bonus
=======================================================

No part of the library sees this model: it is trained by an ordinary loop with Adam, a schedule and
minibatches. All that `refit` asks for is that the loop can add a bonus to its objective. It trains
with a little of psi added and with a little of psi taken away; how far psi moves is its variance.

``pip install "implicit-delta[torch,plot]"``.
"""

import copy

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import implicit_delta as idm

torch.manual_seed(0)
torch.set_num_threads(1)
n = 1000
X = torch.randn(n, 4)
y = (X[:, 0] - X[:, 1] * X[:, 2] + torch.randn(n) > 0).float()
X_new = torch.randn(200, 4)

# %%
# The loop as it was, with three changes: a ``bonus``, a start at a good fit instead of random
# weights, and a seed of its own. The bonus belongs to the *sum* of the log-likelihoods, so where
# the loss is a mean it is divided by n. The penalty makes the optimum a strict one.

WEIGHT_DECAY = 1e-3


def mean_loss(net, x, labels):
    penalty = WEIGHT_DECAY / 2 * sum(p.square().sum() for p in net.parameters())
    return F.binary_cross_entropy_with_logits(net(x).squeeze(1), labels) + penalty


def train(bonus, start, epochs):
    net = copy.deepcopy(start)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(n, generator=generator).split(100):
            optimizer.zero_grad()
            loss = mean_loss(net, X[rows], y[rows]) - bonus(net) / n
            loss.backward()
            optimizer.step()
        schedule.step()
    return net


start = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
good = train(lambda net: 0.0, start, epochs=200)

# %%
# Psi: the average predicted probability of new customers.


def average_probability(net):
    return torch.sigmoid(net(X_new)).mean()


by_refits = idm.refit(lambda bonus: train(bonus, good, epochs=60), average_probability)
print(by_refits)
print(by_refits.diagnostics.notes)

# %%
# The same question for the part of the library that does look inside: `from_torch` takes the
# curvature, finishes the training and solves. The two agree as well as a training of 60 epochs
# finds its optimum; what it leaves out is missing from the variance.

model = idm.polish(
    idm.from_torch(good, (X, y), idm.Bernoulli(), l2=n * WEIGHT_DECAY, dtype=torch.float64)
)
solved = idm.infer(model, lambda net: torch.sigmoid(net(X_new.double())).mean())
print(solved)
print(f"ratio of the standard errors: {by_refits.standard_error / solved.standard_error:.2f}")

# %%
# The picture: both answers.

fig, ax = plt.subplots(figsize=(7, 1.8), layout="constrained")
for row, estimate in enumerate([by_refits, solved]):
    low, high = estimate.confidence_interval()
    ax.plot([low, high], [row, row], lw=3, solid_capstyle="butt")
    ax.plot(estimate.value, row, "ko")
ax.set_yticks([0, 1], ["five training runs", "one linear solve"])
ax.set(ylim=(-0.6, 1.6), xlabel="average probability, 95 % interval")
plt.show()
