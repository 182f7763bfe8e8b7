"""Cases of the limits that the library is held to, beside formulas written by hand.

Run ``python -m benchmarks table``, with ``--match Satellite`` for some of them. ``before`` is the
number of the version before the limits were set; what needs data or another library is left out
where these are missing.
"""

import os
import subprocess
import sys
import warnings
from functools import cached_property, partial
from pathlib import Path
from statistics import median

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

import implicit_delta as idm
from benchmarks.timing import Case, cpu_seconds, timed


class Logit:
    """A logistic regression with a log-likelihood of its own, fitted by Newton steps."""

    def __init__(self, n, d, seed=0):
        rng = np.random.default_rng(seed)
        self.X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
        self.y = (rng.random(n) < expit(self.X @ rng.normal(size=d) / np.sqrt(d))).astype(float)
        self.theta = self.newton(np.zeros(d), np.ones(n))
        self.row = rng.normal(size=d) / np.sqrt(d)
        self.rows = rng.normal(size=(2000, d)) / np.sqrt(d)

    def newton(self, b, w):
        fall = np.inf
        while fall > 1e-14:
            slope = self.X.T @ (w * (self.y - expit(self.X @ b)))
            step = np.linalg.solve(self.information(b, w), slope)
            b, fall = b + step, step @ slope
        return b

    def information(self, b, w=1.0):
        p = expit(self.X @ b)
        return (self.X * (w * p * (1 - p))[:, None]).T @ self.X

    def loglik(self, b):
        eta = self.X @ b
        return self.y * eta - np.logaddexp(0, eta)

    def score(self, b):
        return (self.y - expit(self.X @ b))[:, None] * self.X

    def psi(self, b):
        return expit(self.row @ b)

    def by_hand(self):
        p = self.psi(self.theta)
        g = p * (1 - p) * self.row
        return np.sqrt(g @ np.linalg.solve(self.information(self.theta), g))

    def with_score(self):
        model = idm.from_loglik(self.loglik, self.theta, score=self.score)
        return idm.infer(model, self.psi).standard_error

    def without_score(self):
        return idm.infer(idm.from_loglik(self.loglik, self.theta), self.psi).standard_error

    @cached_property
    def hosted(self):
        import statsmodels.api as sm

        return idm.from_statsmodels(sm.Logit(self.y, self.X).fit(disp=0, start_params=self.theta))

    def many(self):
        return idm.infer(self.hosted, lambda b: self.rows @ b).standard_error

    def many_by_hand(self):
        factor = cho_factor(self.information(self.theta))
        covariance = self.rows @ cho_solve(factor, self.rows.T)
        return np.sqrt(np.diag(covariance))


def cases():
    warnings.simplefilter("ignore")
    p = Logit(2000, 300)
    yield Case("from_loglik with score, n = 2000, d = 300", 10, p.with_score, p.by_hand, before=231)
    for d, before, faster in ((20, 245.0, 6), (100, 1260.0, 30)):
        p = Logit(2000, d)
        name = f"from_loglik without score, n = 2000, d = {d}"
        yield Case(name, before / faster, p.without_score, p.by_hand, before=before)
    p = Logit(5000, 150)
    yield Case("K = 2000 evaluations, d = 150", 5, p.many, p.many_by_hand, before=49)
    yield Case("K = 1e5 evaluations, d = 50: peak", 1, surface_peak, unit="GiB")
    for likelihood in (idm.Gaussian(0.5), idm.Gaussian()):
        name = f"a second from_jax model and infer, {likelihood}"
        yield Case(name, 0.02, partial(again_in_jax, likelihood), unit="s", before=0.5)
    yield from satellite_cases()


SURFACE = """
import numpy as np, statsmodels.api as sm, warnings
import implicit_delta as idm
from benchmarks.scaling import glm_fit, logit, resident
warnings.simplefilter("ignore")
X, y = logit(5000, 50)
model, new = idm.from_statsmodels(glm_fit(X, y)), logit(100_000, 50, seed=1)[0]
held = resident("VmRSS")
idm.infer(model, lambda b: new @ b).standard_error
print((resident("VmHWM") - held) / 2**30)
"""


def surface_peak():
    """Peak memory of standard errors at 1e5 points; a refusal counts as infinite."""
    done = subprocess.run([sys.executable, "-c", SURFACE], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else np.inf


def again_in_jax(likelihood, rounds=5):
    """Median CPU seconds of a model and its standard error, of a function that has been seen.

    A variance that is estimated is a constant of the compiled program, so that it is not shared.
    """
    import jax

    rng = np.random.default_rng(0)
    apply = lambda w, x: jax.numpy.tanh(x @ w["a"]) @ w["b"]
    psi = lambda w: apply(w, np.ones((3, 5))).sum()

    def answer():
        weights = {"a": rng.normal(size=(5, 4)), "b": rng.normal(size=4)}
        data = rng.normal(size=(200, 5)), rng.normal(size=200)
        model = idm.from_jax(weights, data, likelihood, apply=apply, l2=1.0)
        idm.infer(model, psi, idm.Infinitesimal(curvature="ggn"), strict=False)

    answer()
    return median(timed(answer, clock=cpu_seconds)[1] for _ in range(rounds))


def satellite_cases():
    """Ours beside laplace-torch with Kronecker factors, which are 20 % off; and products."""
    directory = os.environ.get("IMPLICIT_DELTA_DATA")
    if not directory:
        print("Satellite is left out: give --data DIR or set IMPLICIT_DELTA_DATA")
        return
    import torch

    from benchmarks import satellite

    torch.set_num_threads(1)
    data = satellite.load_satellite(Path(directory))
    module, _ = satellite.trained(data, np.ones(len(data.y)))
    gradient = satellite.held_out_loss(module, data)[1]

    def ours(solver):
        method = idm.Infinitesimal(solver, "ggn")
        return idm.infer(satellite.fitted(module, data), satellite.held_out(data), method)

    def kron():
        return satellite.laplace_standard_error(
            module, data.X, data.y, gradient, satellite.L2, "kron"
        )

    name, solver = "Satellite, d = 2156: ", idm.conjugate_gradient(rtol=1e-3)
    yield Case(
        name + "products to 1e-3", 66, lambda: ours(solver).diagnostics.passes, unit="passes",
        before=106,
    )  # fmt: skip
    kron()  # where laplace-torch is missing, the rest is left out here
    yield Case(name + "to 1e-3", 2.5, lambda: ours(solver), kron, "x kron", before=5.6)
    yield Case(
        name + "by factorization", 17.5, lambda: ours(idm.cholesky), kron, "x kron", before=70
    )
