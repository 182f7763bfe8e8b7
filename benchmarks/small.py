"""CPU time of `infer` on small models beside another checkout, interleaved within one run.

Run with ``python -m benchmarks.small OTHER/src`` from a checkout. Two processes that stay, one for
each source, take turns; n = 50, d = 2. "again" asks a model that has been asked before, "first" one
that was just made (which takes no part in the time). The numbers are medians of milliseconds and
the ratio of these.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import process_time

NAMES = ("log-likelihood", "residuals", "equations", "statsmodels", "scikit-learn", "torch")
ROUNDS, CALLS = 30, 10
HERE = Path(__file__).resolve().parents[1]


def makers():
    """Makers of small models, by name, each with a psi."""
    import numpy as np
    import statsmodels.api as sm
    import torch
    from sklearn.linear_model import LogisticRegression

    import implicit_delta as idm

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    X = np.column_stack([np.ones(50), x])
    z = 1 + 0.5 * x + rng.normal(size=50)
    y = (rng.random(50) < 1 / (1 + np.exp(-0.5 - x))) * 1.0

    def loglik(b):
        eta = b[0] + b[1] * x
        return y * eta - np.logaddexp(0, eta)

    def equations(b):
        return (y - 1 / (1 + np.exp(-X @ b)))[:, None] * X

    def slope(b):
        return b[1]

    start = [0.0, 0.0]
    results = sm.Logit(y, X).fit(disp=0)
    logistic = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], y)
    net = torch.nn.Linear(1, 1).double()
    inputs, targets = torch.tensor(x[:, None]), torch.tensor(y)
    trained = idm.polish(idm.from_torch(net, (inputs, targets), idm.Bernoulli())).module
    return {
        "log-likelihood": (lambda: idm.from_loglik(loglik, start=start), slope),
        "residuals": (lambda: idm.from_residuals(lambda b: z - X @ b, start=start), slope),
        "equations": (lambda: idm.from_equations(equations, start=start), slope),
        "statsmodels": (lambda: idm.from_statsmodels(results), slope),
        "scikit-learn": (
            lambda: idm.from_sklearn(logistic, x[:, None], y),
            lambda e: e.coef_[0, 0],
        ),
        "torch": (
            lambda: idm.from_torch(trained, (inputs, targets), idm.Bernoulli()),
            lambda m: m.weight[0, 0],
        ),
    }


def serve():
    """Answer each line, a name and a kind, by milliseconds of CPU time per call."""
    import implicit_delta as idm

    made = makers()
    known = {name: make() for name, (make, _) in made.items()}
    for line in sys.stdin:
        name, kind = line.rstrip("\n").split("|")
        make, psi = made[name]
        models = [make() if kind == "first" else known[name] for _ in range(CALLS)]
        started = process_time()
        for model in models:
            idm.infer(model, psi)
        print("=", 1e3 * (process_time() - started) / CALLS, flush=True)


class Served:
    """A process that serves one source."""

    def __init__(self, source):
        env = os.environ | {"PYTHONPATH": f"{source}:{HERE}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.small", "--serve"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=env, stdin=pipe, stdout=pipe, text=True, cwd=HERE
        )

    def milliseconds(self, name, kind):
        self.process.stdin.write(f"{name}|{kind}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("= "):
                return float(line[2:])
        raise RuntimeError("The process has ended.")


def main(other, rounds=ROUNDS):
    sources = {"other": Served(other), "here": Served(HERE / "src")}
    print(f"{'':16} {'again':>24} {'first':>24}   other, here [ms], ratio")
    for name in (
        "log-likelihood",
        "residuals",
        "equations",
        "statsmodels",
        "scikit-learn",
        "torch",
    ):
        cells = []
        for kind in ("again", "first"):
            found = {source: [] for source in sources}
            for _ in range(rounds + 1):  # one to warm up
                for source, served in sources.items():
                    found[source].append(served.milliseconds(name, kind))
            old, new = (median(times[1:]) for times in found.values())
            cells.append(f"{old:8.2f} {new:8.2f} {new / old:6.2f}")
        print(f"{name:16} {cells[0]} {cells[1]}", flush=True)
    for served in sources.values():
        served.process.stdin.close()
        served.process.wait()


if __name__ == "__main__":
    serve() if sys.argv[1] == "--serve" else main(*sys.argv[1:2], *map(int, sys.argv[2:]))
