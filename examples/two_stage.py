"""
Price and demand in two stages: what does a tax do?
====================================================

Prices are high where demand is, so a regression of sales on prices mistakes one for the other. A
cost that moves the price and nothing else, an instrument, tells them apart: two-stage least
squares. The question is not the elasticity but what follows from it: the revenue of a tax. Its
error must know that the first stage was estimated, that prices and demand move together, and that
shops of a town are alike.

The data are simulated, so the truth is known.

``pip install "implicit-delta[plot]"``.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

import implicit_delta as idm

REPEATS = int(os.environ.get("REPEATS", 200))  # samples for the check by brute force
TAX, ELASTICITY = 0.10, -1.5


def market(rng, towns=200, shops=5):
    """Log prices and log sales of shops; wholesale cost and transport move the price alone."""
    town = np.repeat(np.arange(towns), shops)
    taste = rng.normal(scale=0.3, size=towns)[town] + rng.normal(scale=0.3, size=town.size)
    cost = rng.normal(scale=0.2, size=(towns, 2))[town] + rng.normal(scale=0.2, size=(town.size, 2))
    price = 1.0 + cost @ [0.6, 0.4] + 0.5 * taste + rng.normal(scale=0.1, size=town.size)
    sales = 3.0 + ELASTICITY * price + taste + rng.normal(scale=0.2, size=town.size)
    return town, cost, price, sales


def fit(town, cost, price, sales):
    """Two-step GMM: more instruments than regressors, so that the extra one tests the others."""
    Z = np.column_stack([np.ones(len(price)), cost])
    X = np.column_stack([np.ones(len(price)), price])
    return idm.from_equations(
        lambda b: Z * (sales - X @ b)[:, None],
        start=[0.0, 0.0],
        weighting="iterated",
        clusters=town,
        names=["intercept", "elasticity"],
    )


def loss(b):
    """Share of the sales that a tax on the price costs."""
    return 1 - (1 + TAX) ** b[1]


# %%
# One sample. Least squares finds half of the elasticity; the instruments find it, and Hansen's J
# does not object to them.

town, cost, price, sales = market(np.random.default_rng(0))
print("least squares:", np.polyfit(price, sales, 1)[0].round(2))
model = fit(town, cost, price, sales)
print(idm.infer(model, idm.parameters))
print(model.facts.hansen)

# %%
# The answer: the share of sales that a tax of 10 % costs. Shops of a town share taste and costs,
# and without `clusters=` the interval would be too short.

estimate = idm.infer(model, loss, names="loss of sales")
print(estimate)
print(f"without clusters: {idm.infer(model, loss, robust=True).standard_error:.4f}")

# %%
# Brute force: other samples, the same question.

rng = np.random.default_rng(1)
others = np.array([loss(fit(*market(rng)).theta) for _ in range(REPEATS)])
print(f"standard error {estimate.standard_error:.4f}, spread over samples {others.std():.4f}")

fig, ax = plt.subplots(figsize=(6, 3))
ax.hist(others, bins=20, color="0.8", label=f"{REPEATS} other samples")
ax.axvline(1 - (1 + TAX) ** ELASTICITY, color="k", ls=":", label="truth")
low, high = estimate.confidence_interval()
ax.plot([low, high], [1, 1], lw=4, label="95 % interval of one sample")
ax.set_xlabel("share of sales lost")
ax.legend()
fig.tight_layout()
plt.show()
