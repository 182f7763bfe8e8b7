"""Standard errors of noisy log-likelihoods beside those without noise.

Noise is a pseudo-random function of theta, the same at each call with the same theta: in every row,
of a standard deviation (of the sum of all rows) from 1e-7 to 1e-2; and that of float32 and of an
ODE solver. Stored in noise.json: how many of the seeds are answered, the largest error of a
standard error, and whether a finding names the noise. Run with ``python -m benchmarks.noise``.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from scipy.stats import norm

import implicit_delta as idm

STORED = Path(__file__).with_suffix(".json")
LEVELS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SEEDS = range(5)
TIMES = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24.0])


def data(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])


def normal(seed):
    rng, _ = data(seed, 60, 2)
    y = rng.normal(1.0, 2.0, size=60)
    return lambda th: norm.logpdf(y, th[0], np.exp(th[1])), np.array([0.5, 0.5])


def logit(seed):
    rng, X = data(seed, 300, 3)
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))) * 1.0
    return lambda th: y * (X @ th) - np.logaddexp(0, X @ th), np.zeros(3)


def collinear(seed):
    """Two columns of correlation 0.98."""
    rng, X = data(seed, 300, 3)
    X[:, 2] = X[:, 1] + 0.2 * X[:, 2]
    y = rng.poisson(np.exp(X @ [0.5, 0.3, 0.2])) * 1.0
    return lambda th: y * (X @ th) - np.exp(X @ th), np.zeros(3)


def weibull(seed):
    rng, X = data(seed, 200, 2)
    t = rng.weibull(1.5, size=200) * np.exp(0.3 * X[:, 1])

    def loglik(th):
        k, z = np.exp(th[2]), np.log(t) - X @ th[:2]
        return th[2] + k * z - np.exp(k * z) - np.log(t)

    return loglik, np.array([0.1, 0.1, 0.1])


def kinetics(seed, rtol=1e-10, atol=1e-10):
    """One compartment with absorption, by an ODE solver."""
    rng = np.random.default_rng(seed)

    def concentration(ka, ke, V, rtol, atol):
        found = solve_ivp(
            lambda t, a: [-ka * a[0], ka * a[0] - ke * a[1]],
            (0, TIMES[-1]), [100.0, 0.0], t_eval=TIMES, rtol=rtol, atol=atol,
        )  # fmt: skip
        return found.y[1] / V

    y = np.log(concentration(1.2, 0.15, 20.0, 1e-10, 1e-10)) + 0.15 * rng.normal(size=TIMES.size)

    def loglik(th):
        ka, ke, V = np.exp(th[:3])
        return norm.logpdf(y, np.log(concentration(ka, ke, V, rtol, atol)), np.exp(th[3]))

    return loglik, np.array([0.0, -1.7, 2.8, -1.7])


def single(seed):
    """A logit that computes in float32."""
    rng, X = data(seed, 300, 3)
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))) * 1.0
    Z, z = X.astype(np.float32), y.astype(np.float32)

    def loglik(th):
        eta = Z @ np.asarray(th, dtype=np.float32)
        return (z * eta - np.logaddexp(np.float32(0), eta)).astype(np.float64)

    return loglik, np.zeros(3)


def perturbed(loglik, level, seed):
    def noisy(th):
        terms = np.asarray(loglik(np.asarray(th, dtype=float)))
        key = np.append(np.asarray(th, dtype=float), seed).view(np.uint64)
        noise = np.random.default_rng(key).normal(size=terms.size)
        return terms + level / np.sqrt(terms.size) * noise

    return noisy


def cases():
    """Names, and functions of a seed to a noisy and an exact log-likelihood and a start."""
    for make in (normal, logit, collinear, weibull):
        for level in LEVELS:
            yield f"{make.__name__} {level:g}", lambda seed, make=make, level=level: (
                perturbed(make(seed)[0], level, seed), *make(seed),
            )  # fmt: skip
    yield "float32", lambda seed: (single(seed)[0], *logit(seed))
    for rtol in (1e-6, 1e-4, 1e-3, 1e-2):
        yield f"ODE {rtol:g}", lambda seed, rtol=rtol: (
            kinetics(seed, rtol, rtol)[0], *kinetics(seed),
        )  # fmt: skip


def measure(noisy, exact, start):
    """Relative error of the standard errors, calls, codes of findings; or the refusal."""
    calls = [0]

    def counted(th):
        calls[0] += 1
        return noisy(th)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = idm.infer(idm.from_loglik(exact, start=start), idm.parameters)
        try:
            model = idm.from_loglik(counted, start=start)
            found = idm.infer(model, idm.parameters)
        except (idm.ImplicitDeltaError, ArithmeticError, ValueError) as error:
            return {"refused": f"{type(error).__name__}: {error}", "calls": calls[0]}
    off = np.max(abs(found.standard_error / truth.standard_error - 1))
    moved = np.max(abs(model.theta - truth.value) / truth.standard_error)
    codes = [finding.code for finding in found.diagnostics.findings]
    return {"off": float(off), "moved": float(moved), "calls": calls[0], "codes": codes}


def main():
    wanted = sys.argv[1:]
    table = {}
    for name, make in cases():
        if wanted and not any(name.startswith(w) for w in wanted):
            continue
        found = [measure(*make(seed)) for seed in SEEDS]
        answered = [row for row in found if "off" in row]
        table[name] = {
            "answered": len(answered),
            "off": max((row["off"] for row in answered), default=None),
            "moved": max((row["moved"] for row in answered), default=None),
            "named": sum("noise" in row["codes"] for row in answered),
            "calls": int(np.median([row["calls"] for row in found])),
            "refusals": sorted({row["refused"][:200] for row in found if "refused" in row}),
        }
        row = table[name]
        print(name, {k: v for k, v in row.items() if k != "refusals"}, flush=True)
        print(*row["refusals"], sep="\n    ", flush=True)
    if not wanted:
        STORED.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
