"""Very many evaluations against the formula by hand: ratios of CPU time, and peak memory.

Run ``python -m benchmarks many_evaluations``. By hand there are two formulas: with the covariance
of all evaluations, which `infer` keeps as a product of factors, and with its diagonal alone.
"""

import resource

import numpy as np

import implicit_delta as idm
from benchmarks.timing import Case, cpu_seconds, timed

K, D, N = 2000, 150, 1000


class Problem:
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
        J, A = self.derivatives()
        return np.sqrt(np.diag(J @ np.linalg.solve(A, J.T)))

    def lean(self):
        """The same without the matrix of all evaluations."""
        J, A = self.derivatives()
        half = np.linalg.solve(np.linalg.cholesky(A), J.T)
        return np.sqrt(np.einsum("dk,dk->k", half, half))

    def derivatives(self):
        """Jacobian of psi and information, by hand."""
        value, rest = self.psi(self.theta), self.y - self.X @ self.theta
        J = 0.1 * (1 - value**2)[:, None] * self.Z
        return J, self.X.T @ self.X / (rest @ rest / (N - self.X.shape[1]))


def cases():
    problem, name = Problem(), f"K = {K} evaluations that bend, d = {D}: "
    for hand in (problem.hand, problem.lean):
        np.testing.assert_allclose(problem.ours(), hand(), rtol=1e-9)
    yield Case(name + "all by hand", 5, problem.ours, problem.hand)
    yield Case(name + "diagonal by hand", 5, problem.ours, problem.lean)


def main():
    """Print time and memory for K = 100 000."""
    large = Problem(100_000, 50)
    estimate, seconds = timed(lambda: idm.infer(large.model, large.psi), clock=cpu_seconds)
    band = timed(lambda: estimate.confidence_interval(simultaneous=True), clock=cpu_seconds)[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"K = 100000, d = 50: {seconds:.1f} s, band {band:.1f} s, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
