"""
Half-life and clearance of a drug
=================================

A dose is swallowed, absorbed into the blood and eliminated. The concentrations follow a system of
differential equations, which a solver of SciPy integrates: to this library it is a function like
any other. What a physician asks for are the half-life and the clearance, computed *from* the rate
constants that were fitted.

``pip install "implicit-delta[plot]"``.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import odeint
from scipy.stats import norm

import implicit_delta as idm

# %%
# Fifteen samples of blood
# ------------------------
# Hours after a dose of 100 mg, and concentrations in mg/l. They are simulated, with a half-life of
# 4.6 hours, a clearance of 3 liters an hour and errors of 10 percent.

DOSE = 100.0
HOURS = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24])
TRUE = DOSE / 20 * 1.2 / (1.2 - 0.15) * (np.exp(-0.15 * HOURS) - np.exp(-1.2 * HOURS))
CONCENTRATION = TRUE * np.exp(0.1 * np.random.default_rng(5).normal(size=HOURS.size))


def in_blood(th, hours):
    """Amount absorbed and not yet eliminated, over the volume it is distributed in."""
    ka, ke = np.exp(th.log_ka), np.exp(th.log_ke)

    def flow(t, amount):
        gut, blood = amount
        return [-ka * gut, ka * gut - ke * blood]

    amounts = odeint(flow, [DOSE, 0], np.append(0, hours), tfirst=True, rtol=1e-12, atol=1e-12)
    return amounts[1:, 1] / np.exp(th.log_V)


# %%
# A solver wants a tight tolerance: its error is noise to derivatives. The parameters have names,
# and their logarithms are fitted, since a rate is never negative. An assay is off by so many
# percent, so the logarithms of the concentrations have a constant error.


def loglik(th):
    return norm.logpdf(np.log(CONCENTRATION), np.log(in_blood(th, HOURS)), np.exp(th.log_sigma))


start = {"log_ka": 0.0, "log_ke": -1.8, "log_V": 3.0, "log_sigma": -2.0}
model = idm.from_loglik(loglik, start=start)
print(idm.infer(model, idm.parameters))

# %%
# What was asked for
# ------------------
# A function of the parameters that returns a dictionary: its keys are the names in the table. Zero
# is no hypothesis for any of them, so the tests are not of interest, the intervals are.


def questions(th):
    ka, ke, V = np.exp(th.log_ka), np.exp(th.log_ke), np.exp(th.log_V)
    return {
        "half-life (h)": np.log(2) / ke,
        "clearance (l/h)": ke * V,
        "peak after (h)": np.log(ka / ke) / (ka - ke),
    }


answers = idm.infer(model, questions)
print(answers)

# %%
# Twelve hours after the dose, is there still enough? The concentration at any time is one more
# function of the parameters, through the solver. On the logarithmic scale its band stays positive.

GRID = np.linspace(0.1, 24, 60)
band = idm.infer(model, lambda th: np.log(in_blood(th, GRID)))

# %%
# How far to trust the symmetric interval
# ---------------------------------------
# The interval of the likelihood ratio needs no choice of a scale. That of the half-life follows
# from that of the rate constant.

profile = idm.profile(model, lambda th: np.log(2) / np.exp(th.log_ke), name="half-life")
low, high = profile.interval
symmetric = answers["half-life (h)"].confidence_interval()
print(f"likelihood ratio {low:.2f} to {high:.2f} hours")
print(f"symmetric        {symmetric.low:.2f} to {symmetric.high:.2f} hours")

# %%
# In a picture
# ------------

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.fill_between(GRID, *np.exp(band.confidence_interval()), color="C0", alpha=0.25)
left.plot(GRID, np.exp(band.value), color="C0")
left.plot(HOURS, CONCENTRATION, "o", color="black", ms=4)
left.set(xlabel="hours after the dose", ylabel="concentration (mg/l)", yscale="log")
profile.plot(ax=right)
right.set(title="Half-life", xlabel="hours")
plt.show()
