"""
A treatment effect by g-computation: did the program help?
===========================================================

A health program was offered to some villages and not to others, more often to the poor ones. The
effect on the whole population is found by g-computation: fit the outcome given treatment and
confounders, predict everybody under treatment and without, and take the difference of the means.
Its standard error must know three things: that the regression was estimated, that the people are a
sample, and that neighbors are alike.

The data are simulated, so the truth is known.

``pip install "implicit-delta[statsmodels,plot]"``.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy.special import expit
from scipy.stats import norm

import implicit_delta as idm

REPEATS = int(os.environ.get("REPEATS", 200))  # surveys for the check by brute force


def survey(rng, villages=120, people=25):
    """People in villages: wealth decides about treatment, and both about health."""
    village = np.repeat(np.arange(villages), people)
    climate = rng.normal(scale=0.6, size=villages)[village]  # shared, and not observed
    wealth = rng.normal(size=villages)[village] + rng.normal(size=village.size)
    treated = (rng.random(villages) < expit(-rng.normal(size=villages)))[village] | (wealth < -2)
    chance = expit(-0.5 + 0.7 * treated + 0.8 * wealth - 0.3 * treated * wealth + climate)
    healthy = rng.random(village.size) < chance
    return pd.DataFrame(
        {"village": village, "wealth": wealth, "treated": treated * 1, "healthy": healthy * 1}
    )


data = survey(np.random.default_rng(7))
results = smf.logit("healthy ~ treated * wealth", data).fit(disp=0)
model = idm.from_statsmodels(results)

# %%
# The question is one line: everybody treated against nobody. `population=True` says that the people
# are a sample of the population we speak about, and the very one that the model was fitted to, so
# that both errors are added with their correlation.

effect = idm.average_comparison("treated", population=True)
alone = idm.infer(model, effect, names="risk difference")
clustered = idm.infer(model, effect, clusters=data.village, names="risk difference")
print("as if all were independent")
print(alone)
print("\nneighbors alike")
print(clustered)

# %%
# Ignoring the villages would make the interval too short by this factor:

print(f"{clustered.standard_error / alone.standard_error:.2f}")

# %%
# The clustered standard error is the whole of it. A simulation of many surveys, with an estimate
# in each, says what it should be.


def estimate(seed):
    again = survey(np.random.default_rng(seed))
    fit = smf.logit("healthy ~ treated * wealth", again).fit(disp=0)
    return (fit.predict(again.assign(treated=1)) - fit.predict(again.assign(treated=0))).mean()


repeats = np.array([estimate(seed) for seed in range(1000, 1000 + REPEATS)])
spread = repeats.std(ddof=1)
doubt = spread / np.sqrt(2 * (len(repeats) - 1))
print(f"standard deviation over {len(repeats)} surveys: {spread:.4f} +- {doubt:.4f}")
print(f"clustered standard error from one survey:   {clustered.standard_error:.4f}")

# %%
# The picture: what one survey says about the spread of the estimate, with and without its villages.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
center = repeats.mean()
ax.hist(repeats - center, bins=20, density=True, color="0.8", label=f"{REPEATS} surveys")
grid = np.linspace(-4 * spread, 4 * spread, 200)
for estimate_, name in [(alone, "as if independent"), (clustered, "neighbors alike")]:
    ax.plot(grid, norm.pdf(grid, scale=estimate_.standard_error), label=name)
ax.set(xlabel="risk difference, less its mean", yticks=[])
ax.legend(frameon=False)
plt.show()
