"""
Marginal effects after a logit: did a new way of teaching help?
================================================================

Did a new way of teaching economics help? Spector and Mazzeo (1980) recorded for 32 students
whether their grade improved (`GRADE`), their previous average (`GPA`), a test of what they knew
before (`TUCE`), and whether they were taught the new way (`PSI`). The coefficients of a logit are
log-odds ratios, which few people can read. What they can read is computed *from* the model, and
needs an error bar of its own.

The data come with statsmodels: ``pip install "implicit-delta[statsmodels,plot]"``.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
import statsmodels.formula.api as smf

import implicit_delta as idm

students = sm.datasets.spector.load_pandas().data
results = smf.logit("GRADE ~ GPA + TUCE + PSI", students).fit(disp=0)
model = idm.from_statsmodels(results)

# %%
# **Average marginal effects.** For the new method, the change of the probability between 0 and 1;
# for the two numbers, the mean derivative. Each is one line.

method = idm.infer(model, idm.average_comparison("PSI"), influence=True)
slopes = [idm.infer(model, idm.average_slope(name), influence=True) for name in ("GPA", "TUCE")]
effect = idm.join(*slopes, method)
print(effect)

# %%
# statsmodels has these three ready-made, and they agree to the last digits.

ready_made = results.get_margeff(at="overall", dummy=True)
gap = np.max(abs(effect.standard_error / ready_made.margeff_se - 1))
print(f"largest relative difference to get_margeff: {gap:.1e}")
assert gap < 1e-8

# %%
# **An elasticity.** By how many percent does the probability rise if the average rises by one
# percent? ``(1 - p) * GPA * coefficient``, averaged. No question has that name, so psi is a
# function; the parameters that it gets predict.


def elasticity(params):
    return ((1 - params.predict()) * students.GPA.to_numpy()).mean() * params["GPA"]


print(idm.infer(model, elasticity))
assert np.isclose(
    idm.infer(model, elasticity).standard_error,
    results.get_margeff(at="overall", method="eyex").margeff_se[0],
    rtol=1e-8,
)

# %%
# **A counterfactual** that no package has ready-made: if every student were taught the new way,
# how many of the 32 would improve, and how many more than did? The interval of a count that
# cannot be negative is made on the logarithmic scale.


def improved(params):
    return params.predict(students.assign(PSI=1)).sum()


count = idm.infer(model, improved)
low, high = count.confidence_interval(transform="log")
print(f"{count.value:.1f} students would improve, {low:.1f} to {high:.1f}")
print(f"{students.GRADE.sum():.0f} did")

# %%
# **Which students carry the answer?** The influence of each row is the change of psi when one more
# student like this is added.

influence = method.influence[:, 0]
strongest = np.argsort(-abs(influence))[:3]
print(students.iloc[strongest].assign(influence=influence[strongest].round(3)))

# %%
# The picture: the three effects with their intervals.

effect.plot()
plt.show()
