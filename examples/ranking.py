"""
A ranking: how often will local shops be on top?
================================================

A marketplace predicts clicks from what it knows about a visitor and an item, sorts the items by
the prediction, and applies a rule of the house: no more than two of the first three places go to
the same seller category. It wants to promise local shops a share of the first three places. The
share is a number between 0 and 1 that comes out of a sort and a rule: as a function of the click
model it is a staircase, flat almost everywhere.

``pip install "implicit-delta[plot]"``. ``REPEATS=20`` in the environment makes it short.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from scipy.stats import norm

import implicit_delta as idm

# %%
# Clicks
# ------
# Each of 12 items has a price, a rating and a category (0: local shops, 1: brands, 2: discounters),
# each visitor a taste for low prices and one for things nearby.

REPEATS = int(os.environ.get("REPEATS", 400))  # data sets for the check by brute force
TRUTH = np.array([-1.6, -0.5, 0.6, 0.4, 0.2, -0.7])
NAMES = ["constant", "price", "rating", "local", "local x nearby", "price x thrift"]
rng = np.random.default_rng(0)
CATEGORY = np.arange(12) % 3
PRICE = rng.normal(size=12) - 0.4 * (CATEGORY == 2)
RATING = rng.normal(size=12) + 0.3 * (CATEGORY == 1)


def features(visitors, items):
    """Rows for every pair of a visitor (thrift, nearby) and an item."""
    thrift, nearby = visitors[..., 0], visitors[..., 1]
    price, local = PRICE[items], CATEGORY[items] == 0
    columns = [np.ones(np.broadcast(thrift, price).shape), price, RATING[items], local]
    columns += [local * nearby, price * thrift]
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def clicks(rng, n=2000):
    X = features(rng.normal(size=(n, 2)), rng.integers(12, size=n))
    return X, (rng.random(n) < expit(X @ TRUTH)).astype(float)


def fit(X, clicked):
    return idm.from_loglik(
        lambda theta: clicked * (X @ theta) - np.logaddexp(0, X @ theta),
        start=np.zeros(6),
        score=lambda theta: (clicked - expit(X @ theta))[:, None] * X,
        names=NAMES,
    )


model = fit(*clicks(rng))
print(idm.infer(model, idm.parameters), end="\n\n")

# %%
# The first three places
# ----------------------
# If the two best items are of one category, the third place goes to the best of another category.


def top_three(theta, pairs):
    """Items in the first three places, (visitors, 3)."""
    order = np.argsort(-(pairs @ theta), axis=1)
    category = CATEGORY[order]
    third = np.argmax((category != category[:, :1]) & (np.arange(12) >= 2), axis=1)
    third = np.where(category[:, 0] == category[:, 1], third, 2)
    return np.column_stack([order[:, :2], np.take_along_axis(order, third[:, None], axis=1)])


def local_share(theta, pairs):
    """Share of local shops for each visitor: 0, 1/3 or 2/3."""
    return np.mean(CATEGORY[top_three(theta, pairs)] == 0, axis=1)


def audience(rng, m=4000):
    return features(rng.normal(size=(m, 1, 2)), np.arange(12))


pairs = audience(rng)
share = idm.Average(lambda theta: local_share(theta, pairs))

# %%
# A derivative would say that the share does not depend on the model at all, and is refused:

try:
    idm.infer(model, share)
except idm.EvaluationError as error:
    print(f"EvaluationError: {error}", end="\n\n")

# %%
# Three ways without a derivative
# -------------------------------
# `Simulation` evaluates the share at draws of the parameters. `Smoothed` finds its slope over the
# range of the estimate, so that the usual methods apply. And refits without gradients push the
# likelihood toward a larger and a smaller share, as the paper does.

ways = {
    "simulation": (share, idm.Simulation(rng=0)),
    "smoothed": (idm.Smoothed(share, rng=0), idm.Infinitesimal()),
    "refits": (share, idm.FiniteDifference(maximizer=idm.nelder_mead(tolerance=1e-2))),
}
estimates = {}
for name, (psi, method) in ways.items():
    with warnings.catch_warnings():
        # the refits look at one path of the staircase, and may find it bent
        warnings.simplefilter("ignore", idm.NonlinearityWarning)
        estimates[name] = idm.infer(model, psi, method, names=name)
    budget = estimates[name].budget
    low, high = estimates[name].confidence_interval()
    print(f"{name:10}  {estimates[name].value:.4f}  interval {low:.4f} to {high:.4f}  "
          f"model {budget['model']:.4f}  evaluation {budget['evaluation']:.4f}  "
          f"total {budget['total']:.4f}")  # fmt: skip
print("\n" + estimates["simulation"].summary(), end="\n\n")

# %%
# Against brute force
# -------------------
# We know the truth, so we can collect the clicks 400 times.

truth = np.mean([local_share(TRUTH, audience(np.random.default_rng(s), 20_000)).mean()
                 for s in range(10)])  # fmt: skip
values, covered = [], []
for seed in range(REPEATS):
    again = fit(*clicks(rng))
    others = audience(rng, 1000)
    psi = idm.Average(lambda theta, pairs=others: local_share(theta, pairs))
    answer = idm.infer(again, psi, idm.Simulation(draws=100, rng=seed))
    values.append(local_share(again.theta, pairs).mean())
    covered.append(answer.confidence_interval().low < truth < answer.confidence_interval().high)
ratio = estimates["simulation"].budget["model"] / np.std(values)
print(f"True share {truth:.4f}")
print(f"Standard deviation over {REPEATS} data sets, same visitors: {np.std(values):.4f}")
print(f"Standard error due to the model, from one of them: {ratio:.2f} times that")
print(f"95 % intervals that cover the truth: {np.mean(covered):.1%}")

# %%
# The picture: the staircase along one direction, from afar and under a lens, and the 400 data sets.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
error = idm.infer(model, idm.parameters).standard_error[3]
line = lambda t: local_share(model.theta + t * error * np.eye(6)[3], pairs).mean()
far, near = np.linspace(-2, 2, 161), np.linspace(-0.03, 0.03, 200)
left.plot(far, [line(t) for t in far], color="C0")
left.set(xlabel="coefficient of local shops, in standard errors", ylabel="share of local shops")
lens = left.inset_axes([0.08, 0.55, 0.4, 0.4])
lens.plot(near, [line(t) for t in near], color="C0", drawstyle="steps-mid", lw=1)
lens.set(xticks=[-0.03, 0.03], yticks=[])
left.indicate_inset_zoom(lens, edgecolor="0.4")
left.set_title("A slope from afar, steps under a lens")
right.hist(values, bins=25, density=True, color="0.8", label=f"{REPEATS} data sets")
grid = np.linspace(min(*values, low - 0.02), max(*values, high + 0.02), 200)
for color, (name, estimate) in zip(["C0", "C1", "C2"], estimates.items(), strict=True):
    right.plot(grid, norm.pdf(grid, estimate.value, estimate.budget["model"]), color, label=name)
right.axvline(truth, color="C3", ls="--", label="truth")
right.set(xlabel="share of local shops", yticks=[], title="Error due to the model")
right.legend(frameon=False, fontsize=9)
plt.show()
