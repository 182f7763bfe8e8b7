"""Answers of iminuit, with jacobi for what is computed from its parameters."""

from copy import deepcopy

import numpy as np
from iminuit import Minuit
from iminuit.cost import LeastSquares
from jacobi import propagate

from benchmarks.peers.data import L2

HAND = {
    7: "MINOS is of parameters: the user makes the 95 % point one of them",
    8: "costs are functions of a vector: the user makes the network one",
}
CANNOT = {
    2: "errors of the Hessian; no sandwich",
    3: "errors of the Hessian; no clusters",
    4: "tried: HESSE of the check loss, which has kinks, is off by a factor, and valid",
    5: "errors of the Hessian; no sandwich",
    9: "errors of the Hessian; no Gauss-Newton matrix",
    10: "one cost function: no estimate in two steps",
}
NOTES = {6: "HESSE has the curvature of the curve too, where least squares leave it out"}


def fit_1(data):
    X, y = data[["treated", "age", "income"]].to_numpy(), data.well.to_numpy()

    def loss(b):
        eta = b[0] + X @ b[1:]
        return np.sum(np.logaddexp(0, eta) - y * eta)

    m = Minuit(loss, np.zeros(4))
    m.errordef = Minuit.LIKELIHOOD
    return m.migrad()


def ask_1(fit, data):
    fit.hesse()
    value, variance = propagate(lambda b: np.exp(b[1]), fit.values, fit.covariance)
    return value, variance**0.5


def fit_6(data):
    def curve(day, top, b, rate):
        return top * np.exp(-b * np.exp(-rate * day))

    return Minuit(LeastSquares(data.day, data.height, 1.0, curve), 30.0, 4.0, 0.1).migrad()


def ask_6(fit, data):
    fit.hesse()
    covariance = fit.covariance * fit.fmin.reduced_chi2
    value, variance = propagate(
        lambda th: np.log(th[1] / np.log(2)) / th[2], fit.values, covariance
    )
    return value, variance**0.5


def fit_7(data):
    def loss(point, k):
        scale = point / np.log(20) ** (1 / k)
        hazard = k / scale * (data.time / scale) ** (k - 1)
        return np.sum((data.time / scale) ** k - data.failed * np.log(hazard))

    m = Minuit(loss, point=20.0, k=1.0)
    m.errordef = Minuit.LIKELIHOOD
    return m.migrad()


def ask_7(fit, data):
    fit.minos("point", cl=0.95)
    point, error = fit.values["point"], fit.merrors["point"]
    return point, (point + error.lower, point + error.upper)


def ask_8(net, data):
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    net = deepcopy(net)

    def at(theta):
        vector_to_parameters(torch.tensor(np.array(theta)), net.parameters())
        return net

    def cost(theta):
        loss = cross_entropy(at(theta)(data.X), data.y, reduction="sum").item()
        return loss + L2 / 2 * np.sum(theta**2)

    def psi(theta):
        return cross_entropy(at(theta)(data.X_held), data.y_held).item()

    m = Minuit(cost, parameters_to_vector(net.parameters()).detach().numpy())
    m.errordef = Minuit.LIKELIHOOD
    m.hesse()
    value, variance = propagate(psi, m.values, m.covariance)
    return value, variance**0.5
