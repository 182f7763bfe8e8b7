"""
A cross section, with an efficiency measured elsewhere
======================================================

A peak of decays on a falling background: how often does the particle come into being? The number of
decays in the peak has to be divided by the efficiency of the detector and by the luminosity. Both
were measured, with errors of their own. Each source is a model, the models are fitted together, and
the budget shows what to improve.

``pip install "implicit-delta[plot]"``.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import implicit_delta as idm

# %%
# Events
# ------
# Simulated masses between 4 and 7 GeV: a normal peak of 150 events on an exponential background of
# 1000. The likelihood is *extended*: the number of events is random too, and counts.

LOW, HIGH = 4.0, 7.0
rng = np.random.default_rng(3)
background = LOW + rng.exponential(1.5, size=3000)
mass = np.concatenate([rng.normal(5.3, 0.15, 150), background[background < HIGH][:1000]])


def densities(th, x):
    """Peak and background, each of area one within the window."""
    inside = norm.cdf(HIGH, th.mu, th.width) - norm.cdf(LOW, th.mu, th.width)
    peak = norm.pdf(x, th.mu, th.width) / inside
    fall = np.exp(-(x - LOW) / th.tau) / th.tau / -np.expm1(-(HIGH - LOW) / th.tau)
    return peak, fall


def terms(th, signal):
    peak, fall = densities(th, mass)
    return np.log(signal * peak + th.B * fall) - (signal + th.B) / mass.size


start = {"S": 120.0, "B": 1000.0, "mu": 5.25, "width": 0.15, "tau": 1.5}
peak = idm.from_loglik(lambda th: terms(th, th.S), start=start)
print(idm.infer(peak, ["S", "mu", "width"]))

# %%
# Calibration
# -----------
# The efficiency comes from a test beam: 412 of 500 particles were seen, and that is its likelihood.
# Of the luminosity only a value and its error are known: 10.0 and 0.25 inverse picobarns.

SEEN, SENT = 412, 500


def seen_or_not(th):
    return [np.log(th.eff), np.log1p(-th.eff)]


beam = idm.from_loglik(seen_or_not, start={"eff": 0.8}, weights=[SEEN, SENT - SEEN])
print(idm.infer(beam, "eff"))

# %%
# One fit of all
# --------------
# The number of signal events is the cross section (pb) times efficiency times luminosity (1/pb).
# The events alone cannot tell these apart, so their model is given at *one* of its maxima, with
# `theta=`; `combine` joins parameters by name and fits them all.


def expected(th):
    return th.sigma * th.eff * th.lumi


at = dict(zip(start, peak.theta, strict=True))
at |= {"sigma": at.pop("S") / (0.8 * 10.0), "eff": 0.8, "lumi": 10.0}
model = idm.combine(
    events=idm.from_loglik(lambda th: terms(th, expected(th)), theta=at),
    efficiency=beam,
    luminosity=idm.measurement(lumi=(10.0, 0.25)),
)
cross_section = idm.infer(model, "sigma")
print(cross_section)

# %%
# What each source contributes, in squares that add up:

for source, error in cross_section.budget.items():
    print(f"{source:12}{error:.3f} pb")

# %%
# More events would help, a better calibration hardly. The purity of the peak within two widths does
# not depend on the calibration at all: its budget says so.


def purity(th):
    near = np.linspace(th.mu - 2 * th.width, th.mu + 2 * th.width, 41)
    peak, fall = (np.mean(density) for density in densities(th, near))
    return expected(th) * peak / (expected(th) * peak + th.B * fall)


clean = idm.infer(model, purity, names=["purity"])
print(clean)
print({source: round(error, 4) for source, error in clean.budget.items()})

# %%
# Few events, so the likelihood-ratio interval is not symmetric. It has the calibration in it.

profile = idm.profile(model, "sigma")
print(profile)

# %%
# In a picture
# ------------

grid = np.linspace(LOW, HIGH, 121)
bins = np.linspace(LOW, HIGH, 41)


def log_spectrum(th):
    peak, fall = densities(th, grid)
    return np.log((expected(th) * peak + th.B * fall) * (bins[1] - bins[0]))


band = idm.infer(model, log_spectrum)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
counts = np.histogram(mass, bins)[0]
centers = (bins[1:] + bins[:-1]) / 2
left.errorbar(centers, counts, np.sqrt(counts), fmt=".", color="black")
left.fill_between(grid, *np.exp(band.confidence_interval()), color="C0", alpha=0.25)
left.plot(grid, np.exp(band.value), color="C0")
left.set(xlabel="mass (GeV)", ylabel="events in a bin")
sources = [source for source in cross_section.budget if source != "total"]
right.barh(sources, [cross_section.budget[source] ** 2 for source in sources], color="C0")
right.set(xlabel="variance of the cross section (pb$^2$)")
plt.show()
