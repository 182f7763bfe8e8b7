"""Upper limits beside a bound: a signal above a background, a share derived from it, a variance."""

from functools import partial

import numpy as np

import implicit_delta as idm
from experiments.coverage.bounds import BACKGROUND, BINS, PEAK, signal_at
from experiments.coverage.study import Study, limited

NOISE = 1.0  # known variance within groups


def signal_model(rng, truth):
    """Counts of bins with a background, and a signal of at least zero."""
    counts = rng.poisson(BACKGROUND + truth * PEAK)

    def loglik(th):
        rate = np.maximum(th[0] + th[1] * PEAK, 1e-300)
        return counts * np.log(rate) - rate

    def score(th):
        rest = counts / np.maximum(th[0] + th[1] * PEAK, 1e-300) - 1
        return np.column_stack([rest, rest * PEAK])

    return idm.from_loglik(
        loglik, start=[counts.mean(), 1.0], score=score, bounds=[(0.1, None), (0, None)]
    )


def signal_limits(rng, level, distance):
    """Upper limits of the signal, of its share of all counts, and of the background beside it."""
    truth = signal_at(distance)
    model = signal_model(rng, truth)
    questions = {
        "limit of the signal": (lambda th: th[1], truth),
        "limit of its share": (
            lambda th: th[1] * PEAK.sum() / (th[0] * BINS + th[1] * PEAK.sum()),
            truth * PEAK.sum() / (BACKGROUND * BINS + truth * PEAK.sum()),
        ),
        "limit of the background": (lambda th: th[0], BACKGROUND),
    }
    return {
        name: limited(lambda psi=psi: idm.limit(model, psi, level), value)
        for name, (psi, value) in questions.items()
    }


def variance_at(distance, groups):
    """Solve for the variance between groups that is so many standard errors above zero."""
    variance = 0.0
    for _ in range(200):
        variance = distance * (NOISE + variance) * np.sqrt(2 / groups)
    return variance


def variance_limit(rng, level, distance, groups=30):
    """Upper limit of a variance component, of group means with noise of a known variance."""
    truth = variance_at(distance, groups)
    y = rng.normal(0.0, np.sqrt(NOISE + truth), groups)

    def loglik(th):
        total = NOISE + th[1]
        return -0.5 * np.log(total) - 0.5 * (y - th[0]) ** 2 / total

    model = idm.from_loglik(loglik, start=[0.0, 0.5], bounds=[(None, None), (0, None)])
    ask = lambda: idm.limit(model, lambda th: th[1], level)
    return {"limit of the variance": limited(ask, truth)}


TRIALS = (
    ("upper limits, signal", BINS, signal_limits),
    ("upper limit, variance component", 30, variance_limit),
    ("upper limit, variance component", 100, partial(variance_limit, groups=100)),
)
STUDIES = tuple(
    Study(
        f"{task} {distance:g} standard errors from zero",
        n,
        partial(trial, distance=distance),
        replications=500,
    )
    for task, n, trial in TRIALS
    for distance in (0.0, 0.5, 2.0)
)
