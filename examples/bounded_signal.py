"""
A signal that cannot be negative
================================

Counts in bins: a flat background and a peak at a known place, whose strength is at least zero. Half
of all samples without a signal have their maximum at the bound, so a symmetric interval makes no
sense there. The likelihood-ratio interval of `profile` holds the strengths that the data do not
exclude, among those that exist.

``pip install "implicit-delta[plot]"``.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import implicit_delta as idm

BINS = np.linspace(-3, 3, 30)
PEAK = np.exp(-0.5 * BINS**2)


def fitted(counts):
    def loglik(th):
        rate = th[0] + th[1] * PEAK
        return counts * np.log(rate) - rate

    return idm.from_loglik(loglik, start=[counts.mean(), 1.0], bounds=[(0.1, None), (0, None)])


# %%
# Five experiments
# ----------------
# The same background and stronger and stronger signals.

rng = np.random.default_rng(5)
STRENGTHS = [0.0, 0.0, 2.0, 4.0, 8.0]
models = [fitted(rng.poisson(8.0 + strength * PEAK)) for strength in STRENGTHS]
for strength, model in zip(STRENGTHS, models, strict=True):
    low, high = idm.profile(model, lambda th: th[1]).interval
    print(f"true {strength:.0f}: fitted {model.theta[1]:.2f}, interval {low:.2f} to {high:.2f}")

# %%
# Which bound is active, and what it costs
# ----------------------------------------
# The multiplier is the rise of the log-likelihood if the bound is raised by one.

warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)  # so close to a bound, infer warns
for model in models:
    print(idm.infer(model, lambda th: th[0]).diagnostics.notes["constraints"])

# %%
# In a picture
# ------------

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for row, (strength, model) in enumerate(zip(STRENGTHS, models, strict=True)):
    low, high = idm.profile(model, lambda th: th[1]).interval
    ax.plot([low, high], [row, row], color="C0", lw=3)
    ax.plot(model.theta[1], row, "o", color="C0")
    ax.plot(strength, row, "|", color="k", ms=14)
ax.axvline(0, color="0.7", lw=1)
ax.set(xlabel="strength of the signal", yticks=[], title="Intervals, fits and truths")
plt.show()
