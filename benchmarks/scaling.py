"""Scaling curves: CPU time and peak memory of `infer` against rows, parameters and evaluations.

Run ``python -m benchmarks scaling``, or ``python -m benchmarks.scaling --most 1e7``. Each point is
measured in a process of its own and kept in ``scaling.json``; points that are there are not made
again (``--fresh`` makes all). The exponents are those of the largest points, and
``docs/images/scaling.png`` shows all. Memory is the peak during `infer` above what the process held
before it: model, data and libraries.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from time import process_time

import numpy as np

STORED = Path(__file__).with_name("scaling.json")
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "scaling.png"
LARGE = 3  # points that an exponent is fitted to
SIZES = {
    "rows, log-likelihood with score": [10**3, 10**4, 10**5, 10**6],
    "rows, statsmodels": [10**3, 10**4, 10**5, 10**6],
    "rows, torch in batches": [10**3, 10**4, 10**5, 10**6, 10**7],
    "parameters, log-likelihood with score": [10, 30, 100, 300],
    "parameters, statsmodels": [10, 30, 100, 300, 1000],
    "parameters, torch network": [100, 300, 1000, 3000, 10_000, 30_000],
    "evaluations, d = 150": [10, 100, 1000, 10_000, 100_000],
}


def logit(n, d, seed=0):
    """Rows of a logistic regression; each coefficient moves the predictor by about 1 / sqrt(d)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    beta = rng.standard_normal(d) / np.sqrt(d)
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ beta))).astype(float)


def own_likelihood(n, d):
    import implicit_delta as idm

    X, y = logit(n, d)
    fit = glm_fit(X, y)

    def loglik(b):
        eta = X @ b
        return y * eta - np.logaddexp(0, eta)

    def score(b):
        return (y - 1 / (1 + np.exp(-X @ b)))[:, None] * X

    model = idm.from_loglik(loglik, fit.params, score=score)
    return lambda: idm.infer(model, lambda b: b[0] * b[1])


def glm_fit(X, y):
    import statsmodels.api as sm

    return sm.Logit(y, X).fit(disp=0, method="newton", tol=1e-10)


def host(n, d):
    import implicit_delta as idm

    X, y = logit(n, d)
    model = idm.from_statsmodels(glm_fit(X, y))
    return lambda: idm.infer(model, lambda b: b[0] * b[1])


def batches(n, d):
    import torch

    import implicit_delta as idm

    X, y = (torch.as_tensor(part, dtype=torch.float32) for part in logit(n, d))
    module = torch.nn.Linear(d, 1)
    data = torch.utils.data.TensorDataset(X, y[:, None])
    model = idm.from_torch(module, data, idm.Bernoulli(), l2=1.0, batch_size=2**16)
    probe, method = X[:1000], idm.Infinitesimal(curvature="ggn")
    return lambda: idm.infer(model, lambda net: net(probe).sigmoid().mean(), method, strict=False)


def network(n, d):
    import torch

    import implicit_delta as idm

    torch.manual_seed(0)
    inputs, classes = 20, 4
    width = max(1, round((d - classes) / (inputs + 1 + classes)))
    net = torch.nn.Sequential(
        torch.nn.Linear(inputs, width), torch.nn.Tanh(), torch.nn.Linear(width, classes)
    ).double()
    X, y = torch.randn(n, inputs, dtype=torch.float64), torch.randint(classes, (n,))
    model = idm.from_torch(net, (X, y), idm.Categorical(), l2=1.0)
    method = idm.Infinitesimal(curvature="ggn")
    return lambda: idm.infer(model, lambda net: net(X[:256])[:, 0].mean(), method, strict=False)


def evaluations(K, d=150):
    import implicit_delta as idm

    X, y = logit(5000, d)
    fit, new = glm_fit(X, y), logit(K, d, seed=1)[0]
    model = idm.from_statsmodels(fit)
    return lambda: idm.infer(model, lambda b: new @ b)


MAKERS = {
    "rows, log-likelihood with score": lambda n: own_likelihood(n, 10),
    "rows, statsmodels": lambda n: host(n, 10),
    "rows, torch in batches": lambda n: batches(n, 10),
    "parameters, log-likelihood with score": lambda d: own_likelihood(5000, d),
    "parameters, statsmodels": lambda d: host(10_000, d),
    "parameters, torch network": lambda d: network(2000, d),
    "evaluations, d = 150": evaluations,
}


def measure_here(curve, size):
    """Prepare, forget the peak so far, run `infer` once: CPU seconds and bytes."""
    warnings.simplefilter("ignore")
    MAKERS[curve](min(SIZES[curve]))()  # libraries, buffers
    run = MAKERS[curve](size)
    # Freed memory that the process keeps would be used again, and hide a part of the peak.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held
    held, started = resident("VmRSS"), process_time()
    run()
    return {"seconds": process_time() - started, "bytes": max(resident("VmHWM") - held, 0)}


def resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(kind)).split()[1])


def measure_apart(curve, size):
    program = (
        f"from benchmarks.scaling import *; print(json.dumps(measure_here({curve!r}, {size})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def load():
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def exponent(points, what):
    """Slope of the logarithms over the largest sizes."""
    sizes = sorted(points)[-LARGE:]
    values = [
        max(points[size][what], 1) if what == "bytes" else points[size][what] for size in sizes
    ]
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def curve_of(stored, curve):
    """Points of a curve by size, without those that failed."""
    found = {int(size): point for size, point in stored.get(curve, {}).items()}
    return {size: point for size, point in found.items() if "seconds" in point}


def print_table(stored):
    for curve in SIZES:
        points = curve_of(stored, curve)
        if len(points) < LARGE:
            continue
        print(f"{curve}: time ~ size^{exponent(points, 'seconds'):.2f}, "
              f"memory ~ size^{exponent(points, 'bytes'):.2f}")  # fmt: skip
        for size, point in sorted(points.items()):
            print(f"  {size:>10,}{point['seconds']:10.3f} s{point['bytes'] / 2**20:10.1f} MiB")


def draw(stored, path=FIGURE):
    """Draw time above and memory below, a column for what grows."""
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(curve.partition(",")[0] for curve in SIZES))
    figure, axes = plt.subplots(
        2, len(kinds), figsize=(10, 5.6), sharex="col", layout="constrained"
    )
    for curve in SIZES:
        kind, _, name = curve.partition(", ")
        points = curve_of(stored, curve)
        if len(points) < LARGE:
            continue
        sizes = sorted(points)
        for axis, what, unit in zip(
            axes[:, kinds.index(kind)], ("seconds", "bytes"), (1, 2**20), strict=True
        ):
            label = f"{name}: {exponent(points, what):.1f}"
            axis.loglog(sizes, [points[s][what] / unit for s in sizes], "o-", ms=4, label=label)
    for j, kind in enumerate(kinds):
        axes[1, j].set_xlabel(kind)
        for axis in axes[:, j]:
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes[0, 0].set_ylabel("CPU seconds of infer")
    axes[1, 0].set_ylabel("peak memory, MiB")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(most=1e6, fresh=False):
    stored = {} if fresh else load()
    for curve, sizes in SIZES.items():
        for size in sizes:
            if str(size) in stored.get(curve, {}) or size > most:
                continue
            stored.setdefault(curve, {})[str(size)] = point = measure_apart(curve, size)
            print(curve, size, point, flush=True)
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
    print_table(stored)
    draw(stored)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=float, default=1e6, help="largest size")
    parser.add_argument("--fresh", action="store_true", help="measure every point again")
    options = parser.parse_args()
    main(options.most, options.fresh)
