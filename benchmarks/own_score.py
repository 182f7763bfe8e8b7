"""A log-likelihood with `score=` and many parameters: beside the formula written by hand.

Run ``python -m benchmarks.own_score``. A logit; theta given, or fitted from zero (by hand: Newton
steps). CPU seconds by medians over interleaved rounds, and the calls of the score.
"""

from statistics import median
from time import process_time

import numpy as np
from scipy.special import expit

import implicit_delta as idm

ROUNDS = 7
SIZES = ((200, 6), (2000, 20), (2000, 50), (2000, 100), (2000, 300), (4000, 1000))
AIM = 10.0  # times the formula by hand, at n = 2000 and d = 300


class Problem:
    """A logit, fitted; with a ridge or a penalty of the same size if so told."""

    def __init__(self, n, d, ridge=0.0, penalty=None):
        rng = np.random.default_rng(0)
        self.X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
        self.y = (rng.random(n) < expit(self.X @ rng.normal(size=d) / np.sqrt(d))).astype(float)
        self.ridge, self.scores = ridge, 0
        self.prior = {"l2": ridge} if penalty is None else {"penalty": penalty}
        self.theta = self.newton()
        self.row = rng.normal(size=d) / np.sqrt(d)

    def newton(self):
        b, fall = np.zeros(self.X.shape[1]), np.inf
        while fall > 1e-14:
            slope = self.X.T @ (self.y - expit(self.X @ b)) - self.ridge * b
            step = np.linalg.solve(self.information(b), slope)
            b, fall = b + step, step @ slope
        return b

    def information(self, b):
        p = expit(self.X @ b)
        ridge = self.ridge * np.eye(b.size)
        return (self.X * (p * (1 - p))[:, None]).T @ self.X + ridge

    def loglik(self, b):
        eta = self.X @ b
        return self.y * eta - np.logaddexp(0, eta)

    def score(self, b):
        self.scores += 1
        return (self.y - expit(self.X @ b))[:, None] * self.X

    def psi(self, b):
        return expit(self.row @ b)

    def hand(self, theta=None):
        theta = self.theta if theta is None else theta
        p = self.psi(theta)
        g = p * (1 - p) * self.row
        return np.sqrt(g @ np.linalg.solve(self.information(theta), g))

    def ours(self):
        model = idm.from_loglik(self.loglik, self.theta, score=self.score, **self.prior)
        return idm.infer(model, self.psi).standard_error

    def hand_from_start(self):
        return self.hand(self.newton())

    def ours_from_start(self):
        start = np.zeros(self.theta.size)
        model = idm.from_loglik(self.loglik, start=start, score=self.score, **self.prior)
        return idm.infer(model, self.psi).standard_error

    def counted(self):
        """Calls of the score, all in."""
        self.scores = 0
        self.ours()
        return self.scores


def cases():
    """Rows of the common table."""
    from benchmarks.timing import Case

    plain = Problem(2000, 300)
    told = {"ours": plain.ours, "hand": plain.hand}
    yield Case("from_loglik with score, d = 300", AIM, before=231, **told)
    fits = {"ours": plain.ours_from_start, "hand": plain.hand_from_start}
    yield Case("from_loglik with score, d = 300, from a start", AIM, **fits)
    unit = "calls of the score"
    yield Case("scores, d = 300", 100, plain.counted, None, unit, before=2403)
    ridge = Problem(2000, 300, ridge=6.0)
    yield Case("with score and l2, d = 300", 2 * AIM, ridge.ours, ridge.hand)


def ratio(ours, hand, rounds=ROUNDS):
    """Median CPU seconds of both, in turn, and the relative difference of their results."""
    gap, seconds = abs(ours() / hand() - 1), ([], [])
    for _ in range(rounds):
        for function, times in zip((ours, hand), seconds, strict=True):
            started = process_time()
            function()
            times.append(process_time() - started)
    return median(seconds[0]), median(seconds[1]), gap


def main():
    """Print the table."""
    print(f"{'':34} {'ms':>8} {'by hand':>8} {'ratio':>7} {'scores':>7} {'apart':>8}")
    rows = [(f"n = {n}, d = {d}", Problem(n, d)) for n, d in SIZES]
    rows.append(("n = 2000, d = 300, l2", Problem(2000, 300, 6.0)))
    squares = lambda b: 3.0 * np.sum(b**2)
    rows.append(("n = 2000, d = 100, penalty", Problem(2000, 100, 6.0, squares)))
    for name, problem in rows:
        for what, ours, hand in (
            ("", problem.ours, problem.hand),
            (", start", problem.ours_from_start, problem.hand_from_start),
        ):
            mine, others, gap = ratio(ours, hand)
            problem.scores = 0
            ours()
            print(
                f"{name + what:34} {1e3 * mine:8.1f} {1e3 * others:8.2f} {mine / others:7.1f} "
                f"{problem.scores:7d} {gap:8.0e}"
            )


if __name__ == "__main__":
    main()
