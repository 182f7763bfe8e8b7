"""Wald against likelihood-ratio intervals where observations are few."""

import numpy as np
from scipy.special import expit, logit

import implicit_delta as idm
from experiments.coverage.study import Study, asked, profiled


def normal_variance(rng, level, n=15):
    """The variance of a normal sample."""
    y = rng.normal(size=n)

    def loglik(th):
        return -((y - th[0]) ** 2) * np.exp(-2 * th[1]) / 2 - th[1]

    def score(th):
        scaled = (y - th[0]) * np.exp(-th[1])
        return np.column_stack([scaled * np.exp(-th[1]), scaled**2 - 1])

    model = idm.from_loglik(loglik, [y.mean(), np.log(y.std())], score=score)
    return wald_and_profile(model, lambda th: np.exp(2 * th[1]), 1.0, level)


def odds_ratio(rng, level, each=20, chances=(0.3, 0.6)):
    """The odds ratio of a 2 x 2 table: two groups of the same size, success or failure."""
    successes = rng.binomial(each, chances)
    group = np.repeat([0.0, 1.0], each)
    y = np.concatenate([np.arange(each) < count for count in successes]).astype(float)

    def loglik(th):
        eta = th[0] + th[1] * group
        return y * eta - np.logaddexp(0, eta)

    def score(th):
        rest = y - expit(th[0] + th[1] * group)
        return np.column_stack([rest, rest * group])

    if np.any((successes == 0) | (successes == each)):
        raise idm.ConvergenceError("The odds ratio of a table with an empty cell is not finite.")
    log_odds = logit(successes / each)
    model = idm.from_loglik(loglik, [log_odds[0], np.diff(log_odds)[0]], score=score)
    truth = np.exp(np.diff(logit(chances))[0])
    return wald_and_profile(model, lambda th: np.exp(th[1]), truth, level)


def wald_and_profile(model, psi, truth, level):
    """Ask for either interval."""
    return {
        "Infinitesimal (Wald)": asked(lambda: idm.infer(model, psi), truth, level),
        "profile": profiled(lambda: idm.profile(model, psi, level), truth, level),
    }


STUDIES = (
    Study("variance of a normal", 15, normal_variance),
    Study("odds ratio of a 2 x 2 table", 40, odds_ratio),
)
