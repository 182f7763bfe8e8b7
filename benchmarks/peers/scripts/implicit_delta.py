"""Answers of implicit-delta, on models of statsmodels, of torch and of our own."""

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy.special import expit

import implicit_delta as idm
from benchmarks.peers.data import L2, NEW, POINTS

HAND = {}
CANNOT = {}
NOTES = {4: "refuses the check loss and advises its bootstrap, of 200 refits"}


def fit_1(data):
    return smf.logit("well ~ treated + age + income", data).fit(disp=0)


def ask_1(fit, data):
    est = idm.infer(idm.from_statsmodels(fit), lambda b: np.exp(b.treated))
    return est.value, est.standard_error


def fit_2(data):
    return smf.logit("died ~ dose", data).fit(disp=0)


def ask_2(fit, data):
    est = idm.infer(idm.from_statsmodels(fit), lambda b: -b.Intercept / b.dose, robust=True)
    return est.value, est.standard_error


def fit_3(data):
    return smf.logit("well ~ treated + age + income", data).fit(disp=0)


def ask_3(fit, data):
    effect = idm.average_comparison("treated")
    est = idm.infer(idm.from_statsmodels(fit), effect, clusters=data.village)
    return est.value, est.standard_error


def ask_4(_, data):
    est = idm.bootstrap(
        lambda data: smf.quantreg("rent ~ size", data).fit(q=0.5),
        data,
        lambda fit: fit.params["size"],
        rng=0,
    )
    return est.value, est.standard_error


def fit_5(data):
    return smf.poisson("events ~ age + smoker", data, exposure=data.years).fit(disp=0)


def ask_5(fit, data):
    new = pd.DataFrame([NEW])
    model = idm.from_statsmodels(fit)
    est = idm.infer(model, lambda b: b.predict(new, exposure=new.years), robust=True)
    return est.value[0], est.standard_error[0]


def fit_6(data):
    return idm.from_residuals(
        lambda th: data.height - th.top * np.exp(-th.b * np.exp(-th.rate * data.day)),
        start={"top": 30.0, "b": 4.0, "rate": 0.1},
    )


def ask_6(fit, data):
    est = idm.infer(fit, lambda th: np.log(th.b / np.log(2)) / th.rate)
    return est.value, est.standard_error


def fit_7(data):
    def loglik(th):
        hazard = th.k / th.scale * (data.time / th.scale) ** (th.k - 1)
        return data.failed * np.log(hazard) - (data.time / th.scale) ** th.k

    return idm.from_loglik(loglik, start={"k": 1.0, "scale": 10.0})


def ask_7(fit, data):
    found = idm.profile(fit, lambda th: th.scale * np.log(20) ** (1 / th.k))
    return found.value, found.interval


def ask_8(net, data):
    from torch.nn.functional import cross_entropy

    model = idm.from_torch(net, (data.X, data.y), idm.Categorical(), l2=L2)
    est = idm.infer(model, lambda net: cross_entropy(net(data.X_held), data.y_held))
    return est.value, est.standard_error


def ask_9(net, data):
    import torch

    model = idm.from_torch(net, (data.X, data.y), idm.Categorical(), l2=L2)
    points = torch.tensor(POINTS).double()
    est = idm.infer(model, lambda net: net(points).flatten(), idm.Infinitesimal(curvature="ggn"))
    return est.value, est.covariance


def fit_10(data):
    X = np.column_stack([np.ones(len(data)), data.age, data.risk])
    t, y = data.treated.to_numpy(), data.gain.to_numpy()

    def equations(th):
        p = expit(X @ th[:3])
        means = t / p * (y - th[3]), (1 - t) / (1 - p) * (y - th[4])
        return np.column_stack([(t - p)[:, None] * X, *means])

    return idm.from_equations(equations, start=np.zeros(5))


def ask_10(fit, data):
    est = idm.infer(fit, lambda th: th[3] - th[4])
    return est.value, est.standard_error
