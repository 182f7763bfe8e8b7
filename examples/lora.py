"""
How sure is a fine-tuned adapter?
=================================

A network is frozen, a small low-rank adapter is trained on top of it, and inference is about the
adapter alone.
"""

# %%
# A tiny network, trained on much data, stands for the one that was downloaded. Then comes a small
# table of another kind, which shifts one class.

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import implicit_delta as idm

torch.manual_seed(0)


def sample(n, shift):
    x = torch.randn(n, 4, dtype=torch.float64)
    logits = torch.stack([x[:, 0] + shift, torch.sin(2 * x[:, 1]), x[:, 2] * x[:, 3]], dim=1)
    return {"features": x, "labels": torch.distributions.Categorical(logits=logits).sample()}


base = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)).double()
large, small = sample(4000, shift=0.0), sample(300, shift=1.0)
optimizer = torch.optim.Adam(base.parameters(), lr=0.02)
for _ in range(200):
    optimizer.zero_grad()
    F.cross_entropy(base(large["features"]), large["labels"]).backward()
    optimizer.step()

# %%
# The adapter adds a matrix of rank two to a weight. Only its factors and the last bias are trained.


class LowRank(nn.Module):
    def __init__(self, linear, rank=2):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(0.3 * torch.randn(rank, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T


net = nn.Sequential(LowRank(base[0]), base[1], LowRank(base[2])).double()
trained = [p for name, p in net.named_parameters() if "lora" in name or name == "2.linear.bias"]
l2 = 2.0
optimizer = torch.optim.Adam(trained, lr=0.02)
for _ in range(300):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(small["features"]), small["labels"], reduction="sum")
    (loss + l2 / 2 * sum(p.square().sum() for p in trained)).backward()
    optimizer.step()

# %%
# ``parameters=`` names what was trained; nothing has to be frozen for it. The batches are dicts, so
# ``outputs=`` and ``targets=`` say where the logits and the labels come from. PEFT names its
# factors ``lora_A`` and ``lora_B`` too: there the pattern is the same.

model = idm.from_torch(
    net,
    small,
    idm.Categorical(),
    outputs=lambda net, batch: net(batch["features"]),
    targets=lambda batch: batch["labels"],
    parameters=["*.lora_*", "2.linear.bias"],
    l2=l2,
)
model

# %%
# How often does the tuned network expect each class on new rows?

new = sample(1000, shift=1.0)["features"]


def shares(net):
    return torch.softmax(net(new), dim=1).mean(0)


estimate = idm.infer(
    idm.polish(model), shares, idm.Infinitesimal(curvature="ggn"), names=["A", "B", "C"]
)
print(estimate)

# %%
# The expected shares with their 95 % intervals, and the shares before tuning as crosses.

estimate.plot()
plt.plot(shares(base).detach(), range(3), "kx")
plt.show()
