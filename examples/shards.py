"""
A table in many files: one model, and never more than two files in memory
=========================================================================

Trips of a taxi company lie in one Parquet file for each month. The question is how the chance of a
tip depends on the length of the trip, with errors that are clustered by driver; and drivers drive
in all months. The table need not fit into memory: `from_shards` reads one file after the other, and
adds up. A cluster of machines has the same line, with ``client=``.

``pip install "implicit-delta[plot]" pyarrow``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import expit

import implicit_delta as idm

# %%
# Twelve files
# ------------
# Months differ in size. Every driver has an inclination of his own, on which all his trips depend.

MONTHS, DRIVERS = 12, 200
rng = np.random.default_rng(0)
inclination = 0.7 * rng.normal(size=DRIVERS)
folder = tempfile.TemporaryDirectory()


def month(rows):
    driver, km = rng.integers(DRIVERS, size=rows), rng.gamma(2.0, 3.0, size=rows)
    tip = rng.random(rows) < expit(-0.8 + 0.12 * km + inclination[driver])
    return pa.table({"driver": driver, "km": km, "tip": tip.astype(float)})


for number in range(MONTHS):
    path = Path(folder.name) / f"{number + 1:02d}.parquet"
    pq.write_table(month(int(rng.integers(1000, 4000))), path)
paths = sorted(Path(folder.name).glob("*.parquet"))

# %%
# One model
# ---------
# `build` makes the model of one file, at parameters that all files share. It does not fit: that is
# done over all files by `polish`. With ``keep=0`` a file is read again in every walk.


def columns(path):
    table = pq.read_table(path)
    return np.column_stack([np.ones(len(table)), table["km"]]), table["tip"].to_numpy()


def build(path):
    X, tip = columns(path)
    return idm.from_loglik(
        lambda theta: tip * (X @ theta) - np.logaddexp(0, X @ theta),
        theta=[0.0, 0.0],
        score=lambda theta: (tip - expit(X @ theta))[:, None] * X,
        names=["constant", "km"],
    )


model = idm.polish(idm.from_shards(build, paths, keep=0))
print(model)

# %%
# Errors
# ------
# Labels of the clusters are given for all rows, in the order of the files. Drivers are in several
# files, and their sums are added up by label.

km = np.linspace(0.5, 25, 40)


def chance(theta):
    return expit(theta[0] + theta[1] * km)


drivers = np.concatenate([pq.read_table(path, columns=["driver"])["driver"] for path in paths])
alone = idm.infer(model, chance)
together = idm.infer(model, chance, clusters=drivers)
ratio = together.standard_error / alone.standard_error
print(f"clustered errors are {ratio.min():.1f} to {ratio.max():.1f} times as large")

# %%
# Averages over rows that stay where they are
# -------------------------------------------
# By how much would the chance grow if each trip were one kilometer longer? The average and its
# derivative are taken where the trips are. These are the trips of the fit, ``sample="training"``,
# and one number for each comes here; of other trips sums alone.


def longer(theta, path):
    X, _ = columns(path)
    return expit(X @ theta + theta[1]) - expit(X @ theta)


print(idm.infer(model, idm.Average(idm.on_shards(longer), sample="training")))

# %%
# The strongest trips of all files, from three of each:

slope = idm.infer(model, "km")
print(slope.top_influence(3))

# %%
# The chance of a tip with its band.

fig, ax = plt.subplots(layout="constrained")
for estimate, label, color in [(together, "by driver", "C1"), (alone, "trips alone", "C0")]:
    low, high = estimate.confidence_interval(simultaneous=True)
    ax.fill_between(km, low, high, color=color, alpha=0.4, label=label)
ax.plot(km, together.value, color="k")
ax.set(xlabel="length of the trip (km)", ylabel="chance of a tip")
ax.legend(title="errors")

folder.cleanup()
plt.show()
