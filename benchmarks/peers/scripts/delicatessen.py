"""Answers of Delicatessen, whose variance is the sandwich of stacked estimating equations."""

import numpy as np
from delicatessen import MEstimator, delta_method
from delicatessen.estimating_equations import ee_ipw, ee_regression
from delicatessen.utilities import aggregate_efuncs, inverse_logit

from benchmarks.peers.data import NEW

HAND = {1: "no variance of the model: the user inverts the bread"}
CANNOT = {
    4: "tried: equations that jump stay where they start, or fail, with a variance of 0",
    6: "the sandwich alone, not the variance of the model",
    7: "no likelihood, no likelihood-ratio intervals",
    8: "no networks: 27 equations by hand, and then the sandwich alone",
    9: "no networks: 27 equations by hand, and then the sandwich alone",
}
NOTES = {}


def ask_1(_, data):
    X = np.column_stack([np.ones(len(data)), data[["treated", "age", "income"]]])
    fit = MEstimator(lambda theta: ee_regression(theta, X, data.well, "logistic"), init=np.zeros(4))
    fit.estimate(deriv_method="exact")
    covariance = np.linalg.inv(fit.bread) / len(data)
    odds = lambda b: np.array([np.exp(b[1])])
    return odds(fit.theta)[0], delta_method(fit.theta, odds, covariance) ** 0.5


def ask_2(_, data):
    X = np.column_stack([np.ones(len(data)), data.dose])

    def equations(theta):
        half = np.ones(len(data)) * (theta[1] + theta[2] * theta[0])
        return np.vstack([half, ee_regression(theta[1:], X, data.died, "logistic")])

    fit = MEstimator(equations, init=[0.0, 0.0, 1.0])
    fit.estimate(deriv_method="exact")
    return fit.theta[0], fit.variance[0, 0] ** 0.5


def ask_3(_, data):
    X = np.column_stack([np.ones(len(data)), data[["treated", "age", "income"]]])
    X1, X0 = X.copy(), X.copy()
    X1[:, 1], X0[:, 1] = 1, 0

    def equations(theta):
        return aggregate_efuncs(ee_regression(theta, X, data.well, "logistic"), data.village)

    def effect(b):
        return np.array([np.mean(inverse_logit(X1 @ b) - inverse_logit(X0 @ b))])

    fit = MEstimator(equations, init=np.zeros(4))
    fit.estimate()
    return effect(fit.theta)[0], delta_method(fit.theta, effect, fit.variance) ** 0.5


def ask_5(_, data):
    X = np.column_stack([np.ones(len(data)), data.age, data.smoker])
    offset = np.log(data.years)

    def equations(theta):
        return ee_regression(theta, X, data.events, "poisson", offset=offset)

    def count(b):
        return np.array([NEW["years"] * np.exp(b[0] + NEW["age"] * b[1] + NEW["smoker"] * b[2])])

    fit = MEstimator(equations, init=[-4.0, 0.0, 0.0])
    fit.estimate(deriv_method="exact")
    return count(fit.theta)[0], delta_method(fit.theta, count, fit.variance) ** 0.5


def ask_10(_, data):
    W = np.column_stack([np.ones(len(data)), data.age, data.risk])

    def equations(theta):
        return ee_ipw(theta, data.gain, data.treated, W, weight_type="hajek")

    fit = MEstimator(equations, init=np.zeros(6))
    fit.estimate(deriv_method="exact")
    return fit.theta[0], fit.variance[0, 0] ** 0.5
