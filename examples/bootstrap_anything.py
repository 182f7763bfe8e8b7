"""
A forest: an error bar without a likelihood
===========================================

A random forest maximizes no likelihood, but it can be fitted again. `bootstrap` does that with rows
drawn anew, here whole schools, and reads the error of whatever is computed from the fit off the
replicates.

``pip install "implicit-delta[sklearn,plot]"`` and pandas.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

import implicit_delta as idm

rng = np.random.default_rng(0)
schools, pupils = 40, 8
school = np.repeat(np.arange(schools), pupils)
hours = rng.uniform(0, 10, size=school.size)
grade = 50 + 20 * np.tanh(hours / 3 - 1) + 4 * rng.normal(size=schools)[school]
data = pd.DataFrame(
    {"school": school, "hours": hours, "grade": grade + rng.normal(scale=6, size=school.size)}
)

# %%
# A fit is a function of the data, and psi a function of what it returns. The seed of the forest is
# fixed, so that the same rows give the same forest: noise of the fit itself would be warned about.


def fit(data):
    forest = RandomForestRegressor(15, min_samples_leaf=20, random_state=0)
    return forest.fit(data[["hours"]], data["grade"])


grid = pd.DataFrame({"hours": np.linspace(0.5, 9.5, 10)})


def curve(forest):
    return forest.predict(grid)


band = idm.bootstrap(fit, data, curve, clusters="school", replicates=100, rng=0, jackknife=False)
rows = idm.bootstrap(fit, data, curve, replicates=100, rng=0, jackknife=False)
print(np.round(band.standard_error, 2))
print(np.round(rows.standard_error, 2))

# %%
# Pupils of one school are alike: errors that take rows for independent are too small. The band is
# that of the forest, which smooths: it covers what forests of such data would say on average.

ax = band.plot(x=grid["hours"], label="schools drawn")
ax.plot(data["hours"], data["grade"], ".", ms=2, color="gray")
ax.set(xlabel="hours of study", ylabel="grade")

# %%
# The rise from 2 to 8 hours, with intervals that are read off its replicates.


def rise(forest):
    low, high = forest.predict(pd.DataFrame({"hours": [2.0, 8.0]}))
    return high - low


estimate = idm.bootstrap(fit, data, rise, clusters="school", replicates=200, rng=1, jackknife=False)
print(estimate)
for kind in ["normal", "percentile", "basic"]:
    print(f"{kind:10s} " + "{:.1f} to {:.1f}".format(*estimate.confidence_interval(kind=kind)))
plt.show()
