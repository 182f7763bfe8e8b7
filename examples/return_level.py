"""
The flood of a hundred years
============================

The sea at Port Pirie, South Australia: its highest level in each of 65 years. How high must a wall
be that is overtopped once in a hundred years? The answer lies beyond most of the data. It is
computed from the three parameters of a generalized extreme-value distribution, and the data say
much more about how low it can be than about how high.

The data and the analysis are those of Coles, *An Introduction to Statistical Modeling of Extreme
Values* (2001, section 3.4.1).

``pip install "implicit-delta[plot]"``.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import genextreme

import implicit_delta as idm

LEVELS = np.array(
    [4.03, 3.83, 3.65, 3.88, 4.01, 4.08, 4.18, 3.80, 4.36, 3.96, 3.98, 4.69, 3.85, 3.96,
     3.85, 3.93, 3.75, 3.63, 3.57, 4.25, 3.97, 4.05, 4.24, 4.22, 3.73, 4.37, 4.06, 3.71,
     3.96, 4.06, 4.55, 3.79, 3.89, 4.11, 3.85, 3.86, 3.86, 4.21, 4.01, 4.11, 4.24, 3.96,
     4.21, 3.74, 3.85, 3.88, 3.66, 4.11, 3.71, 4.18, 3.90, 3.78, 3.91, 3.72, 4.00, 3.66,
     3.62, 4.33, 4.55, 3.75, 4.08, 3.90, 3.88, 3.94, 4.33]
)  # fmt: skip

# %%
# The fit
# -------
# A level outside of what the distribution allows has the log-likelihood minus infinity.


def loglik(th, y=LEVELS):
    inside = 1 + th.xi * (y - th.mu) / np.exp(th.log_sigma)
    log_z = np.log(np.where(inside > 0, inside, 1.0))
    terms = -th.log_sigma - (1 + 1 / th.xi) * log_z - np.exp(-log_z / th.xi)
    return np.where(inside > 0, terms, -np.inf)


def simulate(th, rng):
    """Draw 65 other years, and return their log-likelihood; SciPy's shape is minus xi."""
    years = genextreme.rvs(-th.xi, th.mu, np.exp(th.log_sigma), size=65, random_state=rng)
    return partial(loglik, y=years)


model = idm.from_loglik(loglik, start={"mu": 3.9, "log_sigma": -1.5, "xi": 0.05}, simulate=simulate)
print(idm.infer(model, idm.parameters))

# %%
# Three answers
# -------------
# The level that is exceeded with probability 1/100 in a year. The delta method gives a symmetric
# interval, and a warning that it should not be one.


def level(th, years=100):
    return th.mu + np.exp(th.log_sigma) * ((-np.log1p(-1 / years)) ** -th.xi - 1) / th.xi


symmetric = idm.infer(model, level)
print(symmetric)

# %%
# The likelihood ratio knows that the tail may be heavier than it looks:

profile = idm.profile(model, level, name="level")
print(profile)

# %%
# And the parametric bootstrap draws 65 years again and again, and fits each of these histories. The
# levels of 2 to 1000 years come from the same fits.

PERIODS = np.array([2, 5, 10, 20, 50, 100, 200, 500, 1000])
drawn = idm.infer(
    model,
    lambda th: level(th, PERIODS),
    idm.Bootstrap(100, kind="parametric", rng=1),
    names=[f"{years} years" for years in PERIODS],
)
print(drawn)

# %%
# The standard errors of 100 years by either way are nearly the same. What differs is where the
# interval lies: only the likelihood ratio reaches much further up than down.

for name, interval in [
    ("symmetric", symmetric.confidence_interval()),
    ("likelihood ratio", profile.interval),
    ("bootstrap, percentiles", drawn["100 years"].confidence_interval(kind="percentile")),
]:
    print(f"{name:24}{interval.low:.2f} to {interval.high:.2f} m")

# %%
# In a picture
# ------------
# The levels that are exceeded once in 2 to 1000 years, with the percentiles of the bootstrap, the
# data in order, and the profile of the level of a hundred years.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.fill_between(PERIODS, *drawn.confidence_interval(kind="percentile"), color="C0", alpha=0.25)
left.plot(PERIODS, drawn.value, color="C0")
left.plot(66 / np.arange(65, 0, -1), np.sort(LEVELS), ".", color="black")
left.plot([100, 100], profile.interval, color="C3", lw=3, label="likelihood ratio")
left.set(xscale="log", xlabel="exceeded once in ... years", ylabel="level (m)")
left.legend(frameon=False)
profile.plot(ax=right)
right.set(title="Once in a hundred years", xlabel="level (m)")
plt.show()
