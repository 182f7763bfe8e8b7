"""
A band around a scikit-learn pipeline
=====================================

A pipeline of splines and ridge regression is fitted to a noisy curve. Where does the curve lie, all
of it at once? Pointwise intervals miss somewhere; a simultaneous band covers the whole curve with
the stated probability. Psi is ``lambda pipe: pipe.predict(grid)``: it receives a fitted copy of the
pipeline.

``pip install "implicit-delta[sklearn,plot]"``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

import implicit_delta as idm

# %%
# The truth is known here, to look at later.


def truth(x):
    return np.sin(3 * x) + 0.5 * x


rng = np.random.default_rng(3)
X = rng.uniform(-2, 2, size=(200, 1))
y = truth(X[:, 0]) + rng.normal(scale=0.4, size=200)
pipe = make_pipeline(StandardScaler(), SplineTransformer(n_knots=12), Ridge(alpha=0.1)).fit(X, y)

# %%
# The joint covariance of 101 predictions, from one factorization.

grid = np.linspace(-2, 2, 101)[:, None]
curve = idm.infer(idm.from_sklearn(pipe, X, y), lambda pipe: pipe.predict(grid))
pointwise = curve.confidence_interval()
band = curve.confidence_interval(simultaneous=True)
print(f"covariance: {curve.covariance.shape}, by {curve.method}")

inside = (band.low <= truth(grid[:, 0])) & (truth(grid[:, 0]) <= band.high)
print(f"the band is {np.mean(band.high - band.low) / np.mean(pointwise.high - pointwise.low):.2f} "
      f"times as wide as the pointwise intervals and holds the truth at {inside.mean():.0%} of the "
      "points")  # fmt: skip

# %%
# Where is the maximum of the curve, and how sure are we? The place of a maximum is a smooth
# function of the curve near it: one Newton step from the highest grid point.


def place_of_maximum(pipe):
    fitted = pipe.predict(grid)
    k = int(np.argmax(fitted))
    slope = (fitted[k + 1] - fitted[k - 1]) / 2
    bend = fitted[k + 1] - 2 * fitted[k] + fitted[k - 1]
    return grid[k, 0] - slope / bend * (grid[1, 0] - grid[0, 0])


print(idm.infer(idm.from_sklearn(pipe, X, y), place_of_maximum))

# %%
# The picture.

fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(X[:, 0], y, ".", color="black", alpha=0.35, label="data")
curve.plot(ax, x=grid[:, 0], simultaneous=True, label="fitted curve")
ax.plot(grid, truth(grid), "--", color="C3", label="truth")
ax.set(xlabel="x", ylabel="y")
ax.legend(frameon=False)
plt.show()
