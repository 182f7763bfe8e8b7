"""Log-likelihood without a score: traced derivatives beside differences and a formula by hand.

Run with ``python -m benchmarks.own_loglik``. A logit, n = 2000: all in, from a start and from a
given maximum, in interleaved rounds of CPU time, by medians. "Differences" is the same function
with its parameters turned into floats first, which cannot be traced.
"""

from statistics import median
from time import process_time

import numpy as np
from scipy.special import expit

import implicit_delta as idm

ROUNDS = 5
AIMS = {20: 6, 100: 30}  # times faster than by differences


class Problem:
    """A logit with a log-likelihood of its own."""

    def __init__(self, d, n=2000, seed=0):
        rng = np.random.default_rng(seed)
        self.X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
        self.y = (rng.random(n) < expit(self.X @ rng.normal(size=d) / np.sqrt(d))) * 1.0
        self.row = rng.normal(size=d) / np.sqrt(d)
        self.theta = self.newton()

    def newton(self):
        theta = np.zeros(self.X.shape[1])
        for _ in range(20):
            slope = self.X.T @ (self.y - expit(self.X @ theta))
            theta = theta + np.linalg.solve(self.information(theta), slope)
        return theta

    def information(self, theta):
        p = expit(self.X @ theta)
        return (self.X * (p * (1 - p))[:, None]).T @ self.X

    def loglik(self, theta):
        eta = self.X @ theta
        return self.y * eta - np.logaddexp(0, eta)

    def opaque(self, theta):
        return self.loglik(np.asarray(theta, dtype=np.float64))

    def psi(self, theta):
        return expit(self.row @ theta)

    def hand(self):
        """Information matrix and one solve at the maximum."""
        p = self.psi(self.theta)
        g = p * (1 - p) * self.row
        return np.sqrt(g @ np.linalg.solve(self.information(self.theta), g))

    def ours(self, loglik=None, **place):
        model = idm.from_loglik(loglik or self.loglik, **(place or {"theta": self.theta}))
        return idm.infer(model, self.psi, strict=False).standard_error

    def fitted(self, loglik=None):
        return self.ours(loglik, start=np.zeros(self.theta.size))


def cases(d):
    """Functions by name, all of the same standard error."""
    problem = Problem(d)
    return {
        "hand": problem.hand,
        "traced, theta given": problem.ours,
        "differences, theta given": lambda: problem.ours(problem.opaque),
        "traced, fitted": problem.fitted,
        "differences, fitted": lambda: problem.fitted(problem.opaque),
    }


def seconds(functions):
    """Median CPU seconds of each function, all called once in each round."""
    found = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = process_time()
            function()
            found[name].append(process_time() - started)
    return {name: median(times) for name, times in found.items()}


def main():
    """Print how many times faster tracing is, and what is left beside the formula."""
    for d, aim in AIMS.items():
        functions = cases(d)
        errors = {
            name: function() / functions["hand"]() - 1 for name, function in functions.items()
        }
        times = seconds(functions)
        for kind in ("theta given", "fitted"):
            traced, other = times[f"traced, {kind}"], times[f"differences, {kind}"]
            print(
                f"d = {d:3d}, {kind:11s}: {other / traced:5.1f} x faster than differences "
                f"(aim {aim}), {traced / times['hand']:6.1f} x hand, "
                f"{1e3 * traced:.0f} ms, error {abs(errors[f'traced, {kind}']):.0e}"
            )


if __name__ == "__main__":
    main()
