"""
Dose-response: which dose works on half of them?
================================================

Two classics of bioassay. How much of a poison kills half of the tobacco budworms, and how much more
do females survive than males? And which concentration of ferulic acid halves the growth of the
roots of ryegrass? The effective dose is a ratio of parameters, or a parameter inside a curve: it is
computed *from* the fit.

The numbers agree with those of R: ``MASS::dose.p`` and ``drc``.

``pip install "implicit-delta[plot]"``.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import implicit_delta as idm

# %%
# Dead or alive
# -------------
# Batches of 20 moths of either sex got 1 to 32 micrograms (Venables and Ripley, 2002, p. 190). The
# log-odds of death are linear in the number of doublings of the dose.

DOSE = np.tile([1, 2, 4, 8, 16, 32], 2)
MALE = np.repeat([1, 0], 6)
DEAD = np.array([1, 4, 9, 13, 18, 20, 0, 2, 6, 10, 12, 16])


def log_odds(th, male, doublings):
    return th[0] + th[1] * male + th[2] * doublings


def loglik(th):
    eta = log_odds(th, MALE, np.log2(DOSE))
    return DEAD * eta - 20 * np.logaddexp(0, eta)


moths = idm.from_loglik(loglik, start=[0, 0, 0], names=["constant", "male", "per doubling"])

# %%
# The dose that kills a half has log-odds zero. On the scale of doublings it is a ratio of
# coefficients, and so is the difference of the sexes. Only for the last one is zero a hypothesis.


def doses(th):
    female, male = -th[0] / th[2], -(th[0] + th[1]) / th[2]
    return [female, male, female - male]


lethal = idm.infer(moths, doses, names=["female", "male", "female - male"])
print(lethal)

# %%
# In micrograms, with intervals made on the logarithmic scale:

low, high = 2 ** np.array(lethal.confidence_interval())
for name, dose, *ends in zip(["female", "male"], 2**lethal.value, low, high, strict=False):
    print(f"{name:6}: {dose:.2f} micrograms, {ends[0]:.2f} to {ends[1]:.2f}")
print(f"Females survive {2 ** lethal.value[2]:.2f} times the dose, {low[2]:.2f} to {high[2]:.2f}")

# %%
# Dividing by an estimate bends psi. The likelihood-ratio interval needs no choice of a scale: the
# one of the dose is two to the power of the one of the doublings.

in_doublings = idm.profile(moths, lambda th: -th[0] / th[2], name="female, doublings")
in_micrograms = idm.profile(moths, lambda th: 2 ** (-th[0] / th[2]), name="female, micrograms")
print(in_doublings)
print(in_micrograms)
print(
    "two to the power of the first: {:.2f} to {:.2f}".format(*2 ** np.array(in_doublings.interval))
)

# %%
# Growth
# ------
# Root length of ryegrass, in centimeters, against the concentration of ferulic acid (Inderjit,
# Streibig and Olofsdotter, 2002): a log-logistic curve between an upper limit ``d`` and a lower
# limit ``c``, by least squares.

ACID = np.repeat([0, 0.94, 1.88, 3.75, 7.5, 15, 30], [6, 3, 3, 3, 3, 3, 3])
ROOT = np.array(
    [7.58, 8.00, 8.3286, 7.25, 7.375, 7.9625, 8.3556, 6.9143, 7.75, 6.8714, 6.45, 5.9222,
     1.925, 2.8857, 4.2333, 1.1875, 0.8571, 1.0571, 0.6875, 0.525, 0.825, 0.25, 0.22, 0.44]
)  # fmt: skip


def root(th, acid):
    b, c, d, e = th
    return c + (d - c) / (1 + (acid / e) ** b)


grass = idm.from_residuals(
    lambda th: ROOT - root(th, ACID),
    start=[2, 0.5, 8, 3],
    variance="unbiased",
    names=["b, steepness", "c, lower", "d, upper", "e, half"],
)
print(idm.infer(grass, idm.parameters))

# %%
# ``summary(drm(rootl ~ conc, data = ryegrass, fct = LL.4()))`` prints the standard errors 0.46506,
# 0.21219, 0.18857 and 0.18573. The doses that take away 10, 50 and 90 percent of what can be taken
# away:

SHARES = np.array([0.1, 0.5, 0.9])


def effective(th):
    return th[3] * (SHARES / (1 - SHARES)) ** (1 / th[0])


model_based = idm.infer(grass, effective, names=["ED10", "ED50", "ED90"])
print(model_based)

# %%
# The scatter of the roots depends on the dose. The sandwich does not ask for equal variances:

print(idm.infer(grass, effective, robust="HC1", names=["ED10", "ED50", "ED90"]))

# %%
# The picture
# -----------

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
doublings = np.linspace(-0.5, 5.5, 121)
for color, sex, name in [("C0", 0, "female"), ("C1", 1, "male")]:
    curve = idm.infer(moths, lambda th, sex=sex: log_odds(th, sex, doublings))
    left.fill_between(2**doublings, *expit(curve.confidence_interval()), color=color, alpha=0.2)
    left.plot(2**doublings, expit(curve.value), color=color, label=name)
    left.plot(DOSE[sex == MALE], DEAD[sex == MALE] / 20, "o", color=color)
    left.plot([low[sex], high[sex]], [0.5, 0.5], color=color, lw=3, solid_capstyle="butt")
left.set(xscale="log", xlabel="dose (micrograms)", ylabel="share of moths killed")
left.set_xticks([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32], minor=False)
left.legend(frameon=False)
acid = np.geomspace(0.3, 30, 100)
curve = idm.infer(grass, lambda th: root(th, acid))
right.fill_between(acid, *curve.confidence_interval(simultaneous=True), color="C2", alpha=0.2)
right.plot(acid, curve.value, color="C2", label="95 % band, simultaneous")
right.plot(np.maximum(ACID, 0.3), ROOT, "o", color="black", ms=4, alpha=0.6)
half = root(grass.theta, grass.theta[3])
right.plot(model_based.confidence_interval().low[1], half, "|", color="C3", ms=12)
right.plot(model_based.confidence_interval().high[1], half, "|", color="C3", ms=12)
right.plot(model_based.value[1], half, "o", color="C3", label="half of the effect")
right.set(xscale="log", xlabel="ferulic acid (mM; 0.3 stands for none)", ylabel="root length (cm)")
right.legend(frameon=False)
plt.show()
