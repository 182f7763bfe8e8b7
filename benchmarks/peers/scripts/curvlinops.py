"""Answers of curvlinops: linear operators of curvature, everything around them by the user."""

import math

import torch
from curvlinops import (
    EFLinearOperator,
    GGNLinearOperator,
    HessianLinearOperator,
    JacobianLinearOperator,
)
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from benchmarks.peers.data import L2, POINTS

HAND = {
    1: "curvature alone: the user trains a module and writes value, gradient and solve",
    2: "curvature and empirical Fisher: the user trains a module and writes the sandwich",
    6: "curvature alone: the user trains a module and writes value, gradient and solve",
    8: "curvature alone: the user writes value, gradient, ridge and solve",
    9: "curvature and Jacobian: the user writes ridge and solve",
}
CANNOT = {
    3: "the empirical Fisher is of rows; no scatter of clusters",
    4: "the check loss has no curvature",
    5: "no empirical Fisher of a Poisson loss",
    7: "no intervals",
    10: "one loss: no estimate in two steps",
}
NOTES = {}


def fit_1(data):
    X = torch.tensor(data[["treated", "age", "income"]].to_numpy())
    y = torch.tensor(data[["well"]].to_numpy()).double()
    net, loss = nn.Linear(3, 1).double(), nn.BCEWithLogitsLoss(reduction="sum")
    options = {"max_iter": 1000, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(net.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        value = loss(net(X), y)
        value.backward()
        return value

    optimizer.step(closure)
    return net, loss, [(X, y)]


def ask_1(fit, data):
    net, loss, batches = fit
    params = list(net.parameters())
    H = HessianLinearOperator(net, loss, params, batches) @ torch.eye(4).double()
    odds = net.weight[0, 0].exp()
    g = parameters_to_vector(torch.autograd.grad(odds, params, materialize_grads=True))
    return odds, (g @ torch.linalg.solve(H, g)).sqrt()


def fit_2(data):
    X, y = torch.tensor(data[["dose"]].to_numpy()), torch.tensor(data[["died"]].to_numpy()).double()
    net, loss = nn.Linear(1, 1).double(), nn.BCEWithLogitsLoss(reduction="sum")
    options = {"max_iter": 1000, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(net.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        value = loss(net(X), y)
        value.backward()
        return value

    optimizer.step(closure)
    return net, loss, [(X, y)]


def ask_2(fit, data):
    net, loss, batches = fit
    params = list(net.parameters())
    H = HessianLinearOperator(net, loss, params, batches) @ torch.eye(2).double()
    dose = -net.bias[0] / net.weight[0, 0]
    g = parameters_to_vector(torch.autograd.grad(dose, params))
    u = torch.linalg.solve(H, g)
    return dose, (u @ (EFLinearOperator(net, loss, params, batches) @ u)).sqrt()


def fit_6(data):
    class Curve(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Parameter(torch.tensor([30.0, 4.0, 0.1]).double())

        def forward(self, day):
            top, b, rate = self.theta
            return top * torch.exp(-b * torch.exp(-rate * day))

    day, height = (torch.tensor(data[[name]].to_numpy()) for name in ("day", "height"))
    net, loss = Curve(), nn.MSELoss(reduction="sum")
    options = {"max_iter": 1000, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(net.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        value = loss(net(day), height)
        value.backward()
        return value

    optimizer.step(closure)
    return net, loss, [(day, height)]


def ask_6(fit, data):
    net, loss, [(day, height)] = fit
    ggn = GGNLinearOperator(net, loss, [net.theta], [(day, height)]) @ torch.eye(3).double()
    noise = loss(net(day), height) / (len(day) - 3)
    _, b, rate = net.theta
    time = (b / math.log(2)).log() / rate
    (g,) = torch.autograd.grad(time, net.theta)
    return time, (noise * (g @ torch.linalg.solve(ggn / 2, g))).sqrt()


def ask_8(net, data):
    params, loss = list(net.parameters()), nn.CrossEntropyLoss(reduction="sum")
    H = HessianLinearOperator(net, loss, params, [(data.X, data.y)])
    A = H @ torch.eye(27).double() + L2 * torch.eye(27).double()
    psi = cross_entropy(net(data.X_held), data.y_held)
    g = parameters_to_vector(torch.autograd.grad(psi, params))
    return psi, (g @ torch.linalg.solve(A, g)).sqrt()


def ask_9(net, data):
    params, loss = list(net.parameters()), nn.CrossEntropyLoss(reduction="sum")
    points = torch.tensor(POINTS).double()
    ggn = GGNLinearOperator(net, loss, params, [(data.X, data.y)])
    A = ggn @ torch.eye(27).double() + L2 * torch.eye(27).double()
    J = JacobianLinearOperator(net, params, [(points, points)]) @ torch.eye(27).double()
    return net(points).flatten(), J @ torch.linalg.solve(A, J.T)
