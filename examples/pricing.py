"""
Prices: how much will the best one for each customer earn?
===========================================================

A shop has shown random prices to 2000 visitors and knows who bought. A logistic regression of
buying on price and features gives every visitor an optimal price, and the sum over visitors a
profit that looks good on a slide. How sure is it?

The evaluation is the solution of an optimization, :math:`h(x) = \\max_p g_\\theta(x, p) (p - c)`,
averaged over a finite sample of visitors. It has a gradient all the same: by the envelope theorem
that of :math:`g` at the optimal price, as if the price were fixed.

``pip install "implicit-delta[plot]"``. ``REPEATS=20`` in the environment makes it short.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit, wrightomega
from scipy.stats import norm

import implicit_delta as idm

# %%
# The experiment
# --------------
# The chance to buy falls with the price, faster where the second feature is large. The
# shop does not know these coefficients; we do, and can check its intervals later.

REPEATS = int(os.environ.get("REPEATS", 400))  # experiments for the check by brute force
COST, HIGHEST = 2.0, 8.0
TRUTH = np.array([2.0, 0.8, -0.4, -0.9, -0.25, 0.0])
rng = np.random.default_rng(0)


def visitors(rng, n):
    return rng.normal(size=(n, 2)) @ [[1.0, 0.3], [0.0, 0.6]]


def design(x, price):
    columns = [np.ones(len(x)), x[:, 0], x[:, 1], price, price * x[:, 1], price * x[:, 0]]
    return np.column_stack(columns)


def experiment(rng, n=2000):
    x, price = visitors(rng, n), rng.uniform(COST, HIGHEST, size=n)
    X = design(x, price)
    return X, (rng.random(n) < expit(X @ TRUTH)).astype(float)


def fit(X, bought):
    return idm.from_loglik(
        lambda theta: bought * (X @ theta) - np.logaddexp(0, X @ theta),
        start=np.zeros(6),
        score=lambda theta: (bought - expit(X @ theta))[:, None] * X,
        names=["constant", "x1", "x2", "price", "price x2", "price x1"],
    )


model = fit(*experiment(rng))
print(idm.infer(model, idm.parameters), end="\n\n")

# %%
# The evaluation
# --------------
# With :math:`g = 1 / (1 + e^{-u - s p})` and s < 0, setting the derivative of the profit to zero
# leaves :math:`-s (p - c) = 1 + e^{u + s p}`, which Wright's omega function solves. Prices end
# where the experiment did. Nothing here is written for a differentiation library.


def best_price(theta, x):
    u = theta[0] + x @ theta[1:3]
    s = np.minimum(theta[3] + theta[4] * x[:, 1] + theta[5] * x[:, 0], -1e-9)
    return np.minimum(COST - (1 + wrightomega(u + s * COST - 1)) / s, HIGHEST)


def profit(theta, x):
    price = best_price(theta, x)
    return expit(design(x, price) @ theta) * (price - COST)


audience = visitors(rng, 3000)
estimate = idm.infer(model, idm.Average(lambda theta: profit(theta, audience)), names="profit")
print(estimate.summary(), end="\n\n")

# %%
# Two sources of error: the model comes from 2000 visitors, and the profit is averaged over 3000.
# Most of the error would stay if the whole population were known: more price experiments, not more
# visitors, would narrow the interval.
#
# What the envelope theorem says
# ------------------------------
# The gradient by hand: differentiate the profit at a fixed price, and put in the optimal one.

price = best_price(model.theta, audience)
D = design(audience, price)
chance = expit(D @ model.theta)
gradient = ((chance * (1 - chance) * (price - COST))[:, None] * D).mean(axis=0)
by_hand = np.sqrt(gradient @ np.linalg.solve(model.information(model.theta, np.eye(6)), gradient))
print(f"Standard error due to the model: {estimate.budget['model']:.5f}")
print(f"by hand, with the envelope theorem: {by_hand:.5f}", end="\n\n")
assert abs(by_hand / estimate.budget["model"] - 1) < 1e-3

# %%
# Against brute force
# -------------------
# We know the truth, so we can do what the shop cannot: run the experiment 400 times.

values, covered = [], []
truth = profit(TRUTH, visitors(np.random.default_rng(1), 400_000)).mean()
for _ in range(REPEATS):
    again, others = fit(*experiment(rng)), visitors(rng, 3000)
    answer = idm.infer(again, idm.Average(lambda theta, x=others: profit(theta, x)))
    values.append(answer.value)
    covered.append(answer.confidence_interval().low < truth < answer.confidence_interval().high)
ratio = estimate.standard_error / np.std(values)
print(
    f"True profit {truth:.4f}; standard deviation over {REPEATS} experiments {np.std(values):.4f}"
)
print(f"Standard error from one experiment {estimate.standard_error:.4f}, {ratio:.2f} times that")
print(f"95 % intervals that cover the truth: {np.mean(covered):.1%}")

# %%
# The picture: profit against price for three visitors, with bands, and the 400 experiments.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
prices = np.linspace(COST, HIGHEST, 80)
for color, x in zip(
    ["C0", "C1", "C2"], np.array([[-1.0, 0.8], [0.0, 0.0], [1.0, -0.8]]), strict=True
):
    rows = design(np.tile(x, (80, 1)), prices)
    curve = idm.infer(model, lambda theta, rows=rows: expit(rows @ theta) * (prices - COST))
    low, high = curve.confidence_interval()
    left.fill_between(prices, low, high, color=color, alpha=0.2, lw=0)
    left.plot(prices, curve.value, color=color, label=f"x = ({x[0]:g}, {x[1]:g})")
    top = best_price(model.theta, x[None])[0]
    left.plot(top, profit(model.theta, x[None])[0], "o", color=color)
left.set(xlabel="price", ylabel="expected profit", title="Three visitors, best prices as dots")
left.legend(frameon=False)
right.hist(values, bins=25, density=True, color="0.8", label=f"{REPEATS} experiments")
grid = np.linspace(min(values), max(values), 200)
right.plot(grid, norm.pdf(grid, estimate.value, estimate.standard_error), "C0", label="one of them")
right.axvspan(*estimate.confidence_interval(), color="C0", alpha=0.12, lw=0)
right.axvline(truth, color="C3", ls="--", label="truth")
right.set(xlabel="average optimal profit", yticks=[], title="Estimate with 95 % interval")
right.legend(frameon=False)
plt.show()
