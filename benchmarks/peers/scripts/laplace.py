"""Answers of laplace-torch: posteriors of torch modules."""

import math

import torch
from laplace import Laplace
from laplace.curvature import CurvlinopsHessian
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.data import L2, POINTS

torch.set_default_dtype(torch.float64)

HAND = {
    6: "the user trains a module, estimates the noise, and writes value, gradient and product",
    8: "variances are of outputs: for a loss the user writes gradient and product",
}
CANNOT = {
    1: "classes are a softmax of as many outputs; a logit has one",
    2: "posteriors, not sandwiches",
    3: "posteriors, not sandwiches; no clusters",
    4: "no check loss: a Gaussian or a softmax",
    5: "no Poisson: a Gaussian or a softmax",
    7: "no likelihoods of one's own, no intervals by refits",
    10: "one model: no estimate in two steps",
}
NOTES = {}


def fit_6(data):
    class Curve(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Parameter(torch.tensor([30.0, 4.0, 0.1]))

        def forward(self, day):
            top, b, rate = self.theta
            return top * torch.exp(-b * torch.exp(-rate * day))

    day, height = (torch.tensor(data[[name]].to_numpy()) for name in ("day", "height"))
    net = Curve()
    options = {"max_iter": 1000, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(net.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        value = mse_loss(net(day), height, reduction="sum")
        value.backward()
        return value

    optimizer.step(closure)
    return net, day, height


def ask_6(fit, data):
    net, day, height = fit
    noise = (mse_loss(net(day), height, reduction="sum") / (len(day) - 3)).sqrt().item()
    options = {"sigma_noise": noise, "prior_precision": 0.0}
    la = Laplace(net, "regression", "all", "full", **options)
    la.fit(DataLoader(TensorDataset(day, height), batch_size=len(day)))
    _, b, rate = net.theta
    time = (b / math.log(2)).log() / rate
    (g,) = torch.autograd.grad(time, net.theta)
    return time, (g @ la.posterior_covariance @ g).sqrt()


def ask_8(net, data):
    options = {"prior_precision": L2, "backend": CurvlinopsHessian}
    la = Laplace(net, "classification", "all", "full", **options)
    la.fit(DataLoader(TensorDataset(data.X, data.y), batch_size=len(data.X)))
    psi = cross_entropy(net(data.X_held), data.y_held)
    g = parameters_to_vector(torch.autograd.grad(psi, list(net.parameters())))
    return psi, (g @ la.posterior_covariance @ g).sqrt()


def ask_9(net, data):
    la = Laplace(net, "classification", "all", "full", prior_precision=L2)
    la.fit(DataLoader(TensorDataset(data.X, data.y), batch_size=len(data.X)))
    J, logits = la.backend.jacobians(torch.tensor(POINTS))
    return logits.flatten(), la.functional_covariance(J)
