"""Questions about a network, each about fixed rows of the population: losses, averages, metrics.

A smooth one is a function of the outputs; the others are a `Statistic` of units. Rows are fixed, so
that the spread of an answer over retrainings is the network's alone. Statistics jump from row to
row, and their model's error is that of the population: their spread is taken over more rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit, softmax

import implicit_delta as idm
from experiments.fidelity.training import LOSSES

BINS = 10
HIGH = 1.0  # a prediction of a regression that counts as high


@dataclass(frozen=True)
class Smooth:
    """A smooth function of the outputs, (m,) or (m, 3), as a tensor without axes."""

    name: str
    value: Callable
    jumps = False

    def psi(self, x):
        return lambda net: self.value(net(x))

    def of(self, outputs):
        return float(self.value(outputs.double()))


@dataclass(frozen=True)
class Counted:
    """A statistic of units that are smooth in the outputs."""

    name: str
    units: Callable
    function: Callable
    jumps = True

    def psi(self, x):
        return idm.Statistic(lambda net: self.units(net(x)), self.function)

    def of(self, outputs):
        units = self.units(outputs.double()).numpy()
        return float(self.function(units, np.ones(len(units))))


def questions(setting, rows):
    """The questions of a setting about these rows."""
    y, group = torch.as_tensor(rows.y), torch.as_tensor(rows.group)
    y = y if setting.outcome == "classes" else y.double()
    prediction = PREDICTIONS[setting.outcome]
    difference = lambda p: p[group].mean() - p[~group].mean()
    return (
        Smooth("loss", lambda f: LOSSES[setting.outcome](f, y)),
        Smooth("average", lambda f: prediction(f).mean()),
        Smooth("gap", lambda f: difference(prediction(f))),
        *STATISTICS[setting.outcome](rows.y),
    )


PREDICTIONS = {
    "binary": torch.sigmoid,
    "classes": lambda f: f.softmax(dim=-1)[:, 0],
    "regression": lambda f: f,
}


def of_binary(y):
    same = lambda f: f
    return (
        Counted("accuracy", same, lambda f, w: np.average((f > 0) == (y > 0), weights=w)),
        Counted("auc", same, lambda f, w: auc(f, y, w)),
        Counted("ece", same, lambda f, w: calibration_error(expit(f), y, w)),
    )


def of_classes(y):
    """Rank by the log-odds of the first class; calibration of the class on top."""
    same = lambda f: f
    odds = lambda f: f[:, 0] - f[:, 1:].logsumexp(dim=-1)
    right = lambda f: f.argmax(axis=1) == y
    top = lambda f: softmax(f, axis=1).max(axis=1)
    return (
        Counted("accuracy", same, lambda f, w: np.average(right(f), weights=w)),
        Counted("auc", odds, lambda f, w: auc(f, (y == 0).astype(float), w)),
        Counted("ece", same, lambda f, w: calibration_error(top(f), right(f), w)),
    )


def of_regression(y):
    same = lambda f: f
    return (
        Counted("share", same, lambda f, w: np.average(f > HIGH, weights=w)),
        Counted("r2", same, lambda f, w: squared_correlation(f, y, w)),
    )


STATISTICS = {"binary": of_binary, "classes": of_classes, "regression": of_regression}


def auc(score, y, weight):
    """Share of pairs of a positive and a negative row that are in order."""
    order = np.argsort(score)
    positive, negative = (weight * y)[order], (weight * (1 - y))[order]
    return positive @ np.cumsum(negative) / (positive.sum() * negative.sum())


def calibration_error(p, y, weight):
    """Distance of probability and share, averaged over bins of equal width."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return np.abs(np.bincount(bins, weight * (p - y), BINS)).sum() / weight.sum()


def squared_correlation(f, y, weight):
    center = lambda z: z - np.average(z, weights=weight)
    f, y = center(f), center(y)
    return (weight @ (f * y)) ** 2 / ((weight @ f**2) * (weight @ y**2))
