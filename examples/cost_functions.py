"""
Binned and extended likelihoods
===============================

The costs that `iminuit` and `zfit` users know, each a function of a few lines: counts in bins, a
sample whose number of events is random, or both. A log-likelihood returns one value per bin or
event; what is not a sum over events (the expected number) is divided among them.

``pip install "implicit-delta"``.
"""

import numpy as np
from scipy.special import gammaln
from scipy.stats import expon, norm

import implicit_delta as idm

rng = np.random.default_rng(4)
peak, decay = norm(5.0, 0.4), expon(scale=6.0)
events = np.concatenate([peak.rvs(rng.poisson(250), rng), decay.rvs(rng.poisson(1500), rng)])
low, high = 0.0, 15.0
events = events[(events > low) & (events < high)]


# %%
# Two densities, each normalized within the range
# -----------------------------------------------


def densities(x, th):
    signal = norm.pdf(x, th.place, th.width) / np.diff(norm.cdf([low, high], th.place, th.width))
    return signal, expon.pdf(x, scale=th.scale) / expon.cdf(high, scale=th.scale)


def shares(edges, th):
    signal = np.diff(norm.cdf(edges, th.place, th.width))
    background = np.diff(expon.cdf(edges, scale=th.scale))
    return signal / signal.sum(), background / background.sum()


# %%
# Extended, without bins
# ----------------------
# ``sum(log(S s(x) + B b(x))) - (S + B)``: the expected number is shared by the events.


def extended(x, rates):
    return lambda th: np.log(rates(x, th)) - (th.S + th.B) / len(x)


def rates(x, th):
    signal, background = densities(x, th)
    return th.S * signal + th.B * background


start = {"S": 200.0, "B": 1400.0, "place": 5.2, "width": 0.5, "scale": 5.0}
bounds = {"S": (0, None), "B": (0, None), "width": (0.05, None), "scale": (0.1, None)}
unbinned = idm.from_loglik(extended(events, rates), start=start, bounds=bounds)
print(unbinned.summary())

# %%
# Extended, in bins
# -----------------
# Poisson counts; with the constant, the log-likelihood compares with that of other programs.


def extended_binned(counts, edges, expected):
    def loglik(th):
        mean = expected(edges, th)
        return counts * np.log(mean) - mean - gammaln(counts + 1)

    return loglik


def expected(edges, th):
    signal, background = shares(edges, th)
    return th.S * signal + th.B * background


counts, edges = np.histogram(events, bins=60, range=(low, high))
binned = idm.from_loglik(extended_binned(counts, edges, expected), start=start, bounds=bounds)

# %%
# In bins, the number fixed
# -------------------------
# Only the shape is fitted: a multinomial, in which the fraction of the signal is a parameter.


def binned_shape(counts, edges, probabilities):
    return lambda th: counts * np.log(probabilities(edges, th))


def mixture(edges, th):
    signal, background = shares(edges, th)
    return th.f * signal + (1 - th.f) * background


shape_start = {"f": 0.1, "place": 5.2, "width": 0.5, "scale": 5.0}
shape_bounds = {"f": (0, 1), "width": (0.05, None), "scale": (0.1, None)}
shape = idm.from_loglik(
    binned_shape(counts, edges, mixture), start=shape_start, bounds=shape_bounds
)

# %%
# The same place of the peak, three times; and the signal as a fraction
# ---------------------------------------------------------------------

for name, model in (("unbinned", unbinned), ("binned", binned), ("shape", shape)):
    place = idm.infer(model, "place")
    print(f"{name:10} place {place.value:.4f} +- {place.standard_error:.4f}")
ratio = idm.infer(binned, lambda th: th.S / (th.S + th.B))
fraction = idm.infer(shape, "f")
print(f"fraction   {ratio.value:.4f} +- {ratio.standard_error:.4f} from S and B")
print(f"fraction   {fraction.value:.4f} +- {fraction.standard_error:.4f} from the shape")
assert abs(ratio.value - fraction.value) < 1e-4
