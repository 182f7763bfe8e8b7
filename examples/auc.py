"""
An AUC: how sure is it?
=======================

A clinic has fitted a risk score to 400 patients, and tried it on 300 others: its AUC is there. How
far can that number be off? Two things are random: the 400 patients that the score was fitted to,
and the 300 that it was judged by. An AUC is not a mean over patients but a share of pairs of them,
and a staircase as a function of the score, so neither the delta method nor the error of a mean
applies.

``pip install "implicit-delta[plot]"``. ``REPEATS=400`` in the environment makes the check precise.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import implicit_delta as idm

# %%
# A risk score
# ------------

REPEATS = int(os.environ.get("REPEATS", 40))  # data sets for the check by brute force
TRUTH = np.array([-0.5, 1.0, 0.5, -0.5, 0.0, 0.0])
rng = np.random.default_rng(0)


def patients(rng, n):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 5))])
    return X, (rng.random(n) < expit(X @ TRUTH)).astype(float)


def fit(X, ill):
    return idm.from_loglik(
        lambda b: ill * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(6),
        score=lambda b: (ill - expit(X @ b))[:, None] * X,
    )


model = fit(*patients(rng, 400))
others, ill = patients(rng, 300)

# %%
# Units and a function of them
# ----------------------------
# The *units* are the scores of the 300 patients, in the language of the model: smooth in its
# parameters. The *function* makes the metric of them, and counts each patient by a weight, as
# scikit-learn's metrics do: `roc_auc_score(ill, score, sample_weight=weight)` is one.


def auc_of(ill):
    def auc(score, weight):
        """Share of pairs, one ill and one not, that the score puts in order."""
        order = np.argsort(score)
        positive, negative = (weight * ill)[order], (weight * (1 - ill))[order]
        return positive @ np.cumsum(negative) / (positive.sum() * negative.sum())

    return auc


def at_threshold(score, weight):
    """Sensitivity and specificity where the score says 30 %."""
    alarm = expit(score) > 0.3
    return [np.average(alarm[ill == 1], weights=weight[ill == 1]),
            np.average(~alarm[ill == 0], weights=weight[ill == 0])]  # fmt: skip


estimate = idm.infer(model, idm.Statistic(lambda b: others @ b, auc_of(ill)))
print(estimate, end="\n\n")
print({part: round(error, 4) for part, error in estimate.budget.items()}, end="\n\n")
both = idm.infer(
    model,
    idm.Statistic(lambda b: others @ b, at_threshold),
    names=["sensitivity", "specificity"],
)
print(both, end="\n\n")

# %%
# Nearly all of the error is that of the 300 patients: more of them would help, more training data
# would not. Had several rows come from one patient, `Statistic(..., clusters=patient)` would count
# patients and not rows; and for the very rows of the training there is `sample="training"`.

# %%
# Against brute force
# -------------------
# We know the truth, so that both samples can be drawn again and again.

X, y = patients(np.random.default_rng(1), 200_000)
truth = auc_of(y)(X @ TRUTH, np.ones(len(y)))
values, covered = [], []
for _ in range(REPEATS):
    again, (rows, labels) = fit(*patients(rng, 400)), patients(rng, 300)
    psi = idm.Statistic(lambda b, rows=rows: rows @ b, auc_of(labels))
    answer = idm.infer(again, psi)
    values.append(answer.value)
    covered.append(answer.confidence_interval().low < truth < answer.confidence_interval().high)
print(f"True AUC {truth:.4f}")
print(f"Standard deviation over {REPEATS} repetitions {np.std(values):.4f}, "
      f"standard error from one of them {estimate.standard_error:.4f}")  # fmt: skip
print(f"95 % intervals that cover the truth: {np.mean(covered):.0%}")

# %%
# The picture: the two parts and their total, and the repetitions.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.barh(list(estimate.budget), list(estimate.budget.values()), color=["C0", "C1", "0.5"])
left.invert_yaxis()
left.set(xlabel="standard error of the AUC", title="Where the error comes from")
right.hist(values, bins=20, color="0.8", label=f"{REPEATS} repetitions")
low, high = estimate.confidence_interval()
right.axvspan(low, high, color="C0", alpha=0.2, label="95 % interval from one")
right.axvline(truth, color="C3", ls="--", label="truth")
right.set(xlabel="AUC", yticks=[])
right.legend(frameon=False, fontsize=9)
plt.show()
