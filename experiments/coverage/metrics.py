"""Metrics of a classifier on held-out rows: AUC and accuracy, with and without the rows' own error.

The truth of the logit is the metric of the population at the true parameters. A network has none:
there it is the mean metric, in the population, over trainings on other data (of its expectation).
"""

from functools import cache, partial

import numpy as np
from scipy.special import expit

import implicit_delta as idm
from experiments.coverage.study import Study, asked

N = M = 300
REPLICATIONS = 600  # the binomial error of 95 % is 0.9 %
POPULATION = 200_000
TRAININGS = 200  # behind the truth of a network: to a fourteenth of the spread between trainings
SCORES = np.array([-0.5, 1.0, 0.5, -0.5])
HIDDEN, L2 = 4, 0.5


def auc(y):
    """Share of pairs of a positive and a negative row that are in order, by weight."""

    def share(score, weight):
        order = np.argsort(score)
        positive = (weight * y)[order]
        negative = (weight * (1 - y))[order]
        return positive @ np.cumsum(negative) / (positive.sum() * negative.sum())

    return share


def accuracy(y):
    """Share of rows that are on their side of zero, by weight."""
    return lambda score, weight: weight @ ((score > 0) == (y > 0)) / weight.sum()


METRICS = {"AUC": auc, "accuracy": accuracy}


def outcomes(model, units, y, truths, level):
    """Ask for each metric, and for the interval that the error of the model alone would give."""
    found = {}
    for name, metric in METRICS.items():
        ask = cache(partial(idm.infer, model, idm.Statistic(units, metric(y))))
        found[name] = whole = asked(ask, truths[name], level)
        found[f"{name}, model part alone"] = whole if whole.refused else model_part(whole, ask())
    return found


def model_part(whole, estimate):
    """Judge the same estimate with the error of the model alone."""
    share = estimate.budget["model"] / estimate.standard_error
    return whole._replace(covered=abs(whole.error) <= 1.96 * share, error=whole.error / share)


# Logit


def people(rng, n):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])
    return X, (rng.random(n) < expit(X @ SCORES)).astype(float)


@cache
def truths_of_logit():
    X, y = people(np.random.default_rng(1), POPULATION)
    return {name: metric(y)(X @ SCORES, np.ones(len(y))) for name, metric in METRICS.items()}


def logit(rng, level):
    (X, y), (rows, labels) = people(rng, N), people(rng, M)
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(4),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )
    return outcomes(model, lambda b: rows @ b, labels, truths_of_logit(), level)


# A small network, trained to its penalized maximum from one start


def waves(rng, n):
    x = rng.normal(size=(n, 2))
    return x, (rng.random(n) < expit(2 * np.sin(1.5 * x[:, 0]) + x[:, 1])).astype(float)


def network():
    import torch

    torch.manual_seed(0)
    layers = torch.nn.Linear(2, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
    return torch.nn.Sequential(*layers).double()


def trained(x, y, start=None):
    import torch

    net = network()
    net.load_state_dict(net.state_dict() if start is None else start)
    X, Y = torch.as_tensor(x), torch.as_tensor(y)
    optimizer = torch.optim.LBFGS(
        net.parameters(),
        max_iter=2000,
        tolerance_grad=1e-8,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        terms = torch.nn.functional.binary_cross_entropy_with_logits(
            net(X)[:, 0], Y, reduction="sum"
        )
        loss = terms + L2 / 2 * sum((p**2).sum() for p in net.parameters())
        loss.backward()
        return loss

    optimizer.step(closure)
    return net


@cache
def start_of_networks():
    """Weights trained on much data: every training then ends near the same maximum."""
    return trained(*waves(np.random.default_rng(2), 5000)).state_dict()


@cache
def truths_of_network():
    import torch

    rng = np.random.default_rng(1)
    x, y = waves(rng, POPULATION)
    found = []
    for _ in range(TRAININGS):
        net = trained(*waves(rng, N), start_of_networks())
        with torch.no_grad():
            score = net(torch.as_tensor(x))[:, 0].numpy()
        found.append({name: m(y)(score, np.ones(len(y))) for name, m in METRICS.items()})
    return {name: float(np.mean([each[name] for each in found])) for name in METRICS}


def small_network(rng, level):
    import torch

    (x, y), (rows, labels) = waves(rng, N), waves(rng, M)
    net = trained(x, y, start_of_networks())
    model = idm.from_torch(net, (torch.as_tensor(x), torch.as_tensor(y)), idm.Bernoulli(), l2=L2)
    fresh = torch.as_tensor(rows)
    return outcomes(model, lambda m: m(fresh)[:, 0], labels, truths_of_network(), level)


study = partial(Study, replications=REPLICATIONS)
STUDIES = (
    study("metrics of a logit, held-out rows", N, logit),
    study("metrics of a small network, held-out rows", N, small_network),
)
