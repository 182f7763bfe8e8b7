"""Very many evaluations against the formula by hand: ratios of CPU time, and peak memory.

Run ``python -m benchmarks.many_evaluations``.
"""

import resource
from statistics import median
from time import process_time

import numpy as np

import implicit_delta as idm

K, D, N, ROUNDS = 2000, 150, 1000, 7


class Case:
    """Least squares with K evaluations that bend a little."""

    def __init__(self, K=K, D=D):
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((N, D))
        self.y = self.X @ rng.standard_normal(D) / 10 + rng.standard_normal(N)
        self.Z = rng.standard_normal((K, D))
        self.model = idm.from_residuals(
            lambda th: self.y - self.X @ th, start=np.zeros(D), jacobian=lambda th: -self.X
        )
        self.theta = self.model.theta

    def psi(self, th):
        return np.tanh(0.1 * (self.Z @ th))

    def ours(self):
        """Standard errors of all evaluations."""
        return idm.infer(self.model, self.psi).standard_error

    def hand(self):
        """The same by the formula, with its derivative by hand and its matrix."""
        value, rest = self.psi(self.theta), self.y - self.X @ self.theta
        J = 0.1 * (1 - value**2)[:, None] * self.Z
        A = self.X.T @ self.X / (rest @ rest / (N - self.X.shape[1]))
        V = J @ np.linalg.solve(A, J.T)
        return np.sqrt(np.diag(V))


def seconds(function):
    """CPU time of one call."""
    start = process_time()
    function()
    return process_time() - start


def main():
    """Print the ratio for K = 2000, and time and memory for K = 100 000."""
    case = Case()
    np.testing.assert_allclose(case.ours(), case.hand(), rtol=1e-9)
    pairs = [(seconds(case.ours), seconds(case.hand)) for _ in range(ROUNDS)]
    ours, hand = (median(side) for side in zip(*pairs, strict=True))
    print(f"K = {K}, d = {D}: {ours:.3f} s, by hand {hand:.3f} s, ratio {ours / hand:.1f}")
    large = Case(100_000, 50)
    est = idm.infer(large.model, large.psi)
    whole = seconds(large.ours), seconds(lambda: est.confidence_interval(simultaneous=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"K = 100000, d = 50: {whole[0]:.1f} s, band {whole[1]:.1f} s, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
