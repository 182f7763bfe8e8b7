"""A parameter near its bound: a signal of at least zero above a background, in counts of bins."""

from functools import partial

import numpy as np

import implicit_delta as idm
from experiments.coverage.study import Study, profiled

BINS, BACKGROUND = 30, 8.0
PEAK = np.exp(-0.5 * np.linspace(-3, 3, BINS) ** 2)


def standard_error(signal):
    """Standard error of the signal at the true rates."""
    design = np.column_stack([np.ones(BINS), PEAK])
    information = design.T @ (design / (BACKGROUND + signal * PEAK)[:, None])
    return np.sqrt(np.linalg.inv(information)[1, 1])


def signal_at(distance):
    """Solve for the signal that is so many of its own standard errors above zero."""
    signal = 0.0
    for _ in range(100):
        signal = distance * standard_error(signal)
    return signal


def bounded_signal(rng, level, distance):
    """Interval of the signal by `profile`."""
    truth = signal_at(distance)
    counts = rng.poisson(BACKGROUND + truth * PEAK)

    def loglik(th):
        rate = np.maximum(th[0] + th[1] * PEAK, 1e-300)
        return counts * np.log(rate) - rate

    def score(th):
        rest = counts / np.maximum(th[0] + th[1] * PEAK, 1e-300) - 1
        return np.column_stack([rest, rest * PEAK])

    model = idm.from_loglik(
        loglik, start=[counts.mean(), 1.0], score=score, bounds=[(0.1, None), (0, None)]
    )
    return {"profile": profiled(lambda: idm.profile(model, lambda th: th[1], level), truth, level)}


STUDIES = tuple(
    Study(
        f"signal {distance} standard errors from its bound",
        BINS,
        partial(bounded_signal, distance=float(distance)),
        replications=1000,
    )
    for distance in (0, 1, 3)
)
