"""Upper limits of a signal over a known background, and how often they hold.

Run with ``make bench ONLY=count_limits`` (ten minutes). The limits of each count by each method,
and the coverage that they have: for each background the sum of Poisson probabilities of the counts
whose limit is at least the true signal, over a grid of signals and just above each limit, where it
is the smallest. Upper ends of the intervals of Feldman and Cousins (1998), by their construction
(two-sided: where there is a lower end above zero they are not limits of the same level).
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import pdtr, xlogy
from scipy.stats import chi2, poisson

import implicit_delta as idm

STORED = Path(__file__).with_name("count_limits.json")
BACKGROUNDS = (0.0, 0.5, 1.0, 3.0, 10.0)
METHODS = ("likelihood", "cls", "toys", "default")
LEVELS = (0.9, 0.95)
FARTHEST, STEP = 20.0, 0.01  # of the true signals
SHOWN = range(11)  # counts at both levels
BESIDE = 1e-9  # relative: just above a limit


def model_of(count, background):
    """One count: its log-likelihood, and how it is drawn."""

    def loglik(th, n=count):
        return np.array([xlogy(n, th.s + background) - th.s - background])

    return idm.from_loglik(
        loglik,
        start={"s": max(count - background, 1.0)},
        bounds={"s": (0, None)},
        simulate=lambda th, rng: partial(loglik, n=rng.poisson(th.s + background)),
    )


def limit_of(count, background, method, level):
    """The library's limit."""
    named = None if method == "default" else method
    return float(idm.limit(model_of(count, background), "s", level, method=named))


def counts_needed(background):
    """Counts that a signal of the grid has in all but 1e-9 of experiments."""
    return range(int(poisson.isf(1e-9, background + FARTHEST)) + 1)


def coverage(limits, background):
    """Share of experiments whose limit is at least the signal: where it is smallest, and there."""
    limits = np.array(limits)
    above = limits[limits < FARTHEST] * (1 + BESIDE)
    signals = np.union1d(np.arange(0, FARTHEST + STEP / 2, STEP), above)
    chances = poisson.pmf(np.arange(limits.size), signals[:, None] + background)
    missed = (chances * (limits < signals[:, None])).sum(axis=1)
    worst = int(np.argmax(missed))
    return {"coverage": 1 - float(missed[worst]), "signal": float(signals[worst])}


def classical(count, background, level):
    """Garwood's limit of the sum less the background, zero at least."""
    return max(float(chi2.ppf(level, 2 * count + 2)) / 2 - background, 0.0)


def feldman_cousins(background, level):
    """Lower and upper ends for each count, published as not to rise with the background."""
    low, high = belt(background, level)
    for more in np.arange(0.05, 2.0, 0.05):
        high = np.maximum(high, belt(background + more, level)[1])
    return low, high


def belt(background, level, counts=100, farthest=30.0, step=0.005):
    """Signals in whose region of the largest likelihood ratios each count is."""
    n, signals = np.arange(counts), np.arange(0, farthest, step)
    chances = poisson.pmf(n, signals[:, None] + background)
    ratios = chances / poisson.pmf(n, np.maximum(n, background))
    order = np.argsort(-ratios, axis=1, kind="stable")
    before = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
    inside = np.zeros(chances.shape, dtype=bool)
    enough = np.column_stack([np.zeros(signals.size), before[:, :-1]]) < level
    np.put_along_axis(inside, order, enough, axis=1)
    shown = inside[:, : len(SHOWN)]
    last = signals.size - 1 - np.argmax(shown[::-1], axis=0)
    return signals[np.argmax(shown, axis=0)], signals[last]


def cls_of_sums(limit, count, background):
    """Ratio of sums of Poisson probabilities, one less the level at a limit by CLs."""
    return float(pdtr(count, limit + background) / pdtr(count, background))


def study():
    """Limits and coverage for each background."""
    found = []
    for b in BACKGROUNDS:
        row = {"background": b, "coverage": {}, "limits": {}, "feldman_cousins": {}}
        for level in LEVELS:
            needed = counts_needed(b) if level == 0.95 else SHOWN
            limits = {m: [limit_of(n, b, m, level) for n in needed] for m in METHODS}
            ends = feldman_cousins(b, level)
            row["limits"][str(level)] = {m: limits[m][: len(SHOWN)] for m in METHODS}
            row["limits"][str(level)]["classical"] = [classical(n, b, level) for n in SHOWN]
            row["feldman_cousins"][str(level)] = np.round(np.transpose(ends), 3).tolist()
            if level == 0.95:
                row["coverage"] = {m: coverage(limits[m], b) for m in METHODS}
                row["falls"] = {m: int(np.sum(np.diff(limits[m]) < -1e-6)) for m in METHODS}
                row["errors"] = {
                    "cls": max(
                        abs(cls_of_sums(x, n, b) - 0.05) for n, x in enumerate(limits["default"])
                    )
                }
        print(b, row["coverage"], row["falls"], row["error"], flush=True)
        found.append(row)
    return found


def main():
    STORED.write_text(json.dumps(study(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
