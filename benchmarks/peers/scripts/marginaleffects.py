"""Answers of marginaleffects for Python, on models of statsmodels."""

import pandas as pd
import statsmodels.formula.api as smf
from marginaleffects import avg_comparisons, hypotheses, predictions

from benchmarks.peers.data import NEW

HAND = {5: "predictions know no exposure: the user multiplies value and error"}
CANNOT = {
    6: "models of statsmodels, scikit-learn, linearmodels and pyfixest; no curve of one's own",
    7: "no likelihoods of one's own, no likelihood-ratio intervals",
    8: "no networks",
    9: "no networks",
    10: "takes weights for known: the error of the propensities is left out",
}
NOTES = {}


def fit_1(data):
    return smf.logit("well ~ treated + age + income", data).fit(disp=0)


def ask_1(fit, data):
    found = hypotheses(fit, "np.exp(treated) = 0")
    return found["estimate"][0], found["std_error"][0]


def fit_2(data):
    return smf.logit("died ~ dose", data).fit(disp=0, cov_type="HC0")


def ask_2(fit, data):
    found = hypotheses(fit, "-Intercept / dose = 0")
    return found["estimate"][0], found["std_error"][0]


def fit_3(data):
    groups = {"groups": data.village, "use_correction": False}
    model = smf.logit("well ~ treated + age + income", data)
    return model.fit(disp=0, cov_type="cluster", cov_kwds=groups)


def ask_3(fit, data):
    found = avg_comparisons(fit, variables="treated")
    return found["estimate"][0], found["std_error"][0]


def fit_4(data):
    return smf.quantreg("rent ~ size", data).fit(q=0.5)


def ask_4(fit, data):
    found = hypotheses(fit, "size = 0")
    return found["estimate"][0], found["std_error"][0]


def fit_5(data):
    model = smf.poisson("events ~ age + smoker", data, exposure=data.years)
    return model.fit(disp=0, cov_type="HC0")


def ask_5(fit, data):
    new = pd.DataFrame([NEW])
    found = predictions(fit, newdata=new)
    return NEW["years"] * found["estimate"][0], NEW["years"] * found["std_error"][0]
