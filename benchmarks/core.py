"""The NumPy core: cost of an interval beside the fit, and the paper's network both ways.

Run with ``python -m benchmarks.core``; timings are ratios within one run.
"""

import numpy as np
from scipy.special import expit

import implicit_delta as idm
from benchmarks.timing import timed
from experiments.network import Network
from experiments.one_d.tasks import SIN


def small_likelihood():
    """d = 6, n = 200, scalar psi, no derivatives given."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 5))])
    y = (rng.random(200) < expit(X @ [0.2, 1.0, -1.0, 0.5, 0.0, 0.0])).astype(float)

    def loglik(b):
        return y * (X @ b) - np.logaddexp(0, X @ b)

    theta = idm.from_loglik(loglik, start=np.zeros(6)).theta

    def interval():
        model = idm.from_loglik(loglik, theta)
        return idm.infer(model, lambda b: expit(b[0] + b[1])).confidence_interval()

    one = timed(lambda: [loglik(theta) for _ in range(100)], 20)[1] / 100
    _, fit = timed(lambda: idm.from_loglik(loglik, start=np.zeros(6)), 5)
    _, cost = timed(interval, 20)
    model = idm.from_loglik(loglik, theta)
    passes = idm.infer(model, lambda b: expit(b[0] + b[1])).diagnostics.passes
    print("An interval for a logistic regression without derivatives (d = 6, n = 200)")
    print(f"  one evaluation of the likelihood  {one * 1e6:8.1f} us")
    print(f"  the fit                           {fit * 1e3:8.2f} ms")
    print(f"  infer, on top of it               {cost * 1e3:8.2f} ms  (limit: 30 ms)")
    print(f"  in evaluations: {passes} made, time of {cost / one:.0f}")


class SinTask:
    """The paper's sin task: 160 fixed inputs, 1 hidden layer of 50 tanh units, d = 151."""

    network, l2 = Network(), 1.0

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.x, self.y = SIN.draw(rng)
        self.start = rng.uniform(-1, 1, size=self.network.d)
        self.grid = np.arange(-2, 2, 0.05)

    def fit(self):
        return idm.from_residuals(
            lambda theta: self.y - self.network.predict(theta, self.x),
            start=self.start,
            jacobian=lambda theta: -self.network.jacobian(theta, self.x),
            l2=self.l2,
        )


def sin_network(n_jobs=1):
    """The 80 x 80 covariance of predictions, by one factorization and by 160 refits."""
    task = SinTask()
    model, fit = timed(task.fit)

    def psi(theta):
        return task.network.predict(theta, task.grid)

    solved = idm.infer(model, psi, idm.Infinitesimal(curvature="ggn"), strict=False)
    refitted = idm.infer(
        model, psi, idm.FiniteDifference(curvature="ggn", n_jobs=n_jobs), strict=False
    )
    inside = ((task.grid >= -1.5) & (task.grid < -0.7)) | ((task.grid >= 0.35) & (task.grid < 1.15))
    ratio = refitted.standard_error / solved.standard_error
    print(f"The paper's network on the sin task (d = {model.d}, n = {model.n}, l2 = {task.l2:g})")
    print(f"  fit from a random start      {fit:8.3f} s")
    print(
        f"  covariance, one solve (GGN)  {solved.diagnostics.seconds:8.3f} s  "
        f"{solved.diagnostics.seconds / fit:.1%} of the fit (limit: 5 %)"
    )
    print(
        f"  covariance, 160 refits       {refitted.diagnostics.seconds:8.3f} s  "
        f"{refitted.diagnostics.seconds / fit:.1f} fits"
    )
    print(
        f"  ratio of standard errors where the data are: {ratio[inside].min():.3f} to "
        f"{ratio[inside].max():.3f} (limit: 5 %), elsewhere {ratio[~inside].min():.3f} to "
        f"{ratio[~inside].max():.3f}"
    )


def main():
    small_likelihood()
    print()
    sin_network(n_jobs=2)


if __name__ == "__main__":
    main()
