"""
The last launch of Challenger: how sure could one have been?
============================================================

Before the launch of 28 January 1986, O-rings of the rocket boosters had been damaged on 7 of 23
flights, the more often the colder it was. The forecast for the launch was 31 degrees Fahrenheit.
A logistic regression written in NumPy, the probability of damage at 31 degrees, and an honest
error bar on it.

Data: Dalal, Fowlkes and Hoadley (1989), JASA 84, 945-957. ``make demo`` runs this file.
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import implicit_delta as idm

parser = argparse.ArgumentParser(description="The last launch of Challenger, with an error bar.")
parser.add_argument("--picture", default="demo.png", help="where to write the picture")
picture = parser.parse_args().picture

TEMPERATURE = np.array(
    [66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58]
)
DAMAGED = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])

# %%
# The model
# ---------
# The log-odds of damage are linear in the temperature. The log-likelihood returns one value per
# flight; the library does the summing.


def log_odds(theta, temperature):
    return theta[0] + theta[1] * (temperature - 70)


def loglik(theta):
    return DAMAGED * log_odds(theta, TEMPERATURE) - np.logaddexp(0, log_odds(theta, TEMPERATURE))


model = idm.from_loglik(loglik, start=[0, 0], names=["at 70 F", "per degree"])
print(idm.infer(model, idm.parameters))

# %%
# The questions
# -------------
# An evaluation, psi, is any function of the fitted parameters. A log-odds of zero is an even chance
# of damage, so the test against zero in the table is of interest here.


def damage(theta):
    return log_odds(theta, np.array([31, 70]))


answers = idm.infer(model, damage, names=["log-odds at 31 F", "log-odds at 70 F"])
print(answers.summary())

# %%
# On the scale of probabilities:

low, high = expit(answers.contrast([1, 0]).confidence_interval(0.95))
print(f"Probability of damage at 31 F: {expit(answers.value[0]):.4f}, "
      f"95 % interval {low:.3f} to {high:.4f}")  # fmt: skip

# %%
# A second opinion: refits with a little of psi added to the log-likelihood and a little taken
# away, as in the paper.

refits = idm.infer(model, lambda theta: log_odds(theta, 70), idm.FiniteDifference())
print(f"Standard error of the log-odds at 70 F: {answers.standard_error[1]:.4f} by one linear "
      f"solve, {refits.standard_error:.4f} by two refits")  # fmt: skip

# %%
# The picture
# -----------
# The whole curve, with intervals at each temperature and a band that holds all of it at once.

grid = np.linspace(30, 85, 111)
curve = idm.infer(model, lambda theta: log_odds(theta, grid))
fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
low, high = expit(curve.confidence_interval(simultaneous=True))
ax.fill_between(grid, low, high, color="C0", alpha=0.12, lw=0, label="95 % band, simultaneous")
low, high = expit(curve.confidence_interval())
ax.fill_between(grid, low, high, color="C0", alpha=0.25, lw=0, label="95 % interval, pointwise")
ax.plot(grid, expit(curve.value), color="C0", label="fitted probability of damage")
ax.plot(TEMPERATURE, DAMAGED, "o", color="black", ms=4, alpha=0.6, label="23 flights")
ax.axvline(31, color="C3", ls="--", lw=1)
ax.annotate("forecast for\nthe launch", (31, 0.04), xytext=(32, 0.04), color="C3", fontsize=9)
ax.set(xlabel="temperature at launch (F)", ylabel="O-ring damage", xlim=(30, 85))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
fig.savefig(picture, dpi=150)
print(f"Wrote {picture}")
