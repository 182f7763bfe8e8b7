"""Answers of statsmodels."""

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from statsmodels.treatment.treatment_effects import TreatmentEffect

from benchmarks.peers.data import NEW

HAND = {
    1: "a function of parameters has no public call: the user differentiates",
    2: "a function of parameters has no public call: the user differentiates",
}
CANNOT = {
    6: "no least squares along a curve of one's own outside of its sandbox",
    7: "likelihoods of one's own, but Wald intervals of them alone",
    8: "no networks",
    9: "no networks",
}
NOTES = {3: "of formulas without products: it takes columns of the design for variables"}


def fit_1(data):
    return smf.logit("well ~ treated + age + income", data).fit(disp=0)


def ask_1(fit, data):
    value = np.exp(fit.params["treated"])
    return value, value * fit.bse["treated"]


def fit_2(data):
    return smf.logit("died ~ dose", data).fit(disp=0, cov_type="HC0")


def ask_2(fit, data):
    a, b = fit.params
    slope = np.array([-1 / b, a / b**2])
    return -a / b, np.sqrt(slope @ fit.cov_params() @ slope)


def fit_3(data):
    groups = {"groups": data.village, "use_correction": False}
    model = smf.logit("well ~ treated + age + income", data)
    return model.fit(disp=0, cov_type="cluster", cov_kwds=groups)


def ask_3(fit, data):
    effect = fit.get_margeff(dummy=True)
    return effect.margeff[0], effect.margeff_se[0]


def fit_4(data):
    return smf.quantreg("rent ~ size", data).fit(q=0.5)


def ask_4(fit, data):
    return fit.params["size"], fit.bse["size"]


def fit_5(data):
    model = smf.poisson("events ~ age + smoker", data, exposure=data.years)
    return model.fit(disp=0, cov_type="HC0")


def ask_5(fit, data):
    new = pd.DataFrame([NEW])
    found = fit.get_prediction(new, exposure=new.years)
    return found.predicted[0], found.se[0]


def fit_10(data):
    return smf.logit("treated ~ age + risk", data).fit(disp=0)


def ask_10(fit, data):
    outcome = sm.OLS.from_formula("gain ~ age + risk", data)
    found = TreatmentEffect(outcome, data.treated, results_select=fit).ipw()
    return found.effect[0], found.sd[0]
