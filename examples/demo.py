"""
The last launch of Challenger: how sure could one have been?
============================================================

Before the launch of 28 January 1986, O-rings of the rocket boosters had been damaged on 7 of 23
flights, the more often the colder it was. The forecast for the launch was 31 degrees Fahrenheit.
A logistic regression written in NumPy, the probability of damage at 31 degrees, and an honest
error bar on it.

Data: Dalal, Fowlkes and Hoadley (1989), JASA 84, 945-957. The data and the code are in the package:
``python -m implicit_delta`` runs the same demo.
"""

import argparse
import inspect

import matplotlib

matplotlib.use("Agg")

import implicit_delta as idm
from implicit_delta import demo

parser = argparse.ArgumentParser(description="The last launch of Challenger, with an error bar.")
parser.add_argument("--picture", default="demo.png", help="where to write the picture")
picture = parser.parse_args().picture

# %%
# The model
# ---------
# The log-odds of damage are linear in the temperature. The log-likelihood returns one value per
# flight; the library does the summing.

for function in (demo.log_odds, demo.loglik, demo.fit):
    print(inspect.getsource(function))

# %%

model = demo.fit()
print(idm.infer(model, idm.parameters))

# %%
# The questions
# -------------
# An evaluation, psi, is any function of the fitted parameters. A log-odds of zero is an even chance
# of damage, so the test against zero in the table is of interest here.

print(inspect.getsource(demo.damage))

# %%

answers = demo.damage(model)
print(answers.summary())

# %%
# On the scale of probabilities:

print(demo.probability(answers))

# %%
# A second opinion: refits with a little of psi added to the log-likelihood and a little taken
# away, as in the paper.

refits = idm.infer(model, lambda theta: demo.log_odds(theta, 70), idm.FiniteDifference())
print(f"Standard error of the log-odds at 70 F: {answers.standard_error[1]:.4f} by one linear "
      f"solve, {refits.standard_error:.4f} by two refits")  # fmt: skip

# %%
# The picture
# -----------
# The whole curve, with intervals at each temperature and a band that holds all of it at once.

ax = demo.draw(model)
ax.figure.savefig(picture, dpi=150)
print(f"Wrote {picture}")
