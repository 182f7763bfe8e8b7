"""
Is the network better than the logit?
=====================================

Two classifiers, by scikit-learn and by torch, were trained on the same 400 rows and judged by the
same 300 others. The network's loss is a little lower: is it better, or lucky? Each loss is
uncertain, but the two share all of their data, so that most of their errors cancel in the
difference. `join` knows how much, from the influence of each row on either model.

``pip install "implicit-delta[torch,sklearn,plot]"``. ``REPEATS=400`` in the environment makes the
check precise.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import implicit_delta as idm

# %%
# Two models of the same rows
# ---------------------------
# Both are penalized alike, and the network is trained to its maximum.

REPEATS = int(os.environ.get("REPEATS", 20))  # data sets for the check by brute force
L2 = 2.0


def sample(rng, n):
    X = rng.normal(size=(n, 2))
    return X, (rng.random(n) < expit(1.5 * X[:, 0] + X[:, 1] ** 2 - 1)).astype(float)


def logit_of(X, y):
    return LogisticRegression(C=1 / L2, tol=1e-8).fit(X, y)


def network_of(X, y):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    train(net.double(), *tensors(X, y))
    return net


def tensors(X, y):
    return torch.as_tensor(X), torch.as_tensor(y)[:, None]


def train(net, X, y):
    optimizer = torch.optim.LBFGS(
        net.parameters(), max_iter=300, tolerance_grad=1e-7, tolerance_change=1e-10,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimizer.zero_grad()
        fit = torch.nn.functional.binary_cross_entropy_with_logits(net(X), y, reduction="sum")
        loss = fit + L2 / 2 * sum(w.pow(2).sum() for w in net.parameters())
        loss.backward()
        return loss

    optimizer.step(closure)


# %%
# The loss of each, for the population that the 300 rows come from
# ----------------------------------------------------------------
# An `Average` counts the sampling error of these rows too, and ``influence=True`` keeps the part
# that each row of either sample has in the error.


def losses_on(X, y):
    """The loss of each row, by either model."""

    def by_logit(reg):
        p = reg.predict_proba(X)[:, 1]
        return -(y * np.log(p) + (1 - y) * np.log1p(-p))

    def by_network(net):
        rows, t = tensors(X, y)
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        return loss(net(rows), t, reduction="none")[:, 0]

    return by_logit, by_network


rng = np.random.default_rng(1)
X, y = sample(rng, 400)
by_logit, by_network = losses_on(*sample(rng, 300))
logit = idm.infer(
    idm.from_sklearn(logit_of(X, y), X, y),
    idm.Average(by_logit), names="logit", robust=True, influence=True,
)  # fmt: skip
network = idm.infer(
    idm.from_torch(network_of(X, y), tensors(X, y), idm.Bernoulli(), l2=L2),
    idm.Average(by_network), names="network", robust=True, influence=True,
)  # fmt: skip
both = idm.join(logit, network)
print(both, end="\n\n")

# %%
# The difference
# --------------
# Its error is much smaller than that of either loss, and than what two separate experiments would
# have.

gain = both.contrast("logit - network")
apart = np.hypot(logit.standard_error, network.standard_error)
print(gain, end="\n\n")
print({part: round(error, 4) for part, error in gain.budget.items()})
print(f"Standard error as if they were independent: {apart:.4f}", end="\n\n")

# %%
# Any other function of the two: the share of the logit's loss that the network saves.

print(both.apply(lambda v: 1 - v[1] / v[0], names="share saved"), end="\n\n")

# %%
# Against brute force
# -------------------
# We know where the data come from, so that both samples can be drawn again and again.

values = []
for _ in range(REPEATS):
    X, y = sample(rng, 400)
    by_logit, by_network = losses_on(*sample(rng, 300))
    other = by_network(network_of(X, y)).detach().numpy()
    values.append(np.mean(by_logit(logit_of(X, y)) - other))
print(f"Standard deviation over {REPEATS} repetitions {np.std(values, ddof=1):.4f}, "
      f"standard error from one of them {gain.standard_error:.4f}")  # fmt: skip

fig, ax = plt.subplots(figsize=(6.4, 2.4), layout="constrained")
rows = {"logit": logit, "network": network, "difference": gain}
for k, one in enumerate(rows.values()):
    ax.errorbar(
        one.value, k, xerr=1.96 * one.standard_error, fmt="o", color="C3" if k == 2 else "C0"
    )
ax.axvline(0.0, color="0.6", lw=0.8)
ax.set(yticks=range(3), yticklabels=list(rows), xlabel="loss", ylim=(2.5, -0.5))
plt.show()
