"""Standard error of a classifier's held-out loss: ours, laplace-torch and the bootstrap.

Run ``python -m benchmarks satellite --data DIR``, where DIR (or the environment variable
IMPLICIT_DELTA_DATA) holds ``satellite.csv.gz``. A 36-50-6 tanh network (d = 2156) is trained on
5148 rows with l2 = 1; psi is its mean cross-entropy on the other 1287. Everything runs on one
thread in float64, and the time of a standard error includes all that follows the training.
"""

import copy
import os
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import implicit_delta as idm
from benchmarks.laplace_satellite import (
    Satellite,
    held_out_loss,
    laplace_standard_error,
    load_satellite,
    network,
)
from benchmarks.timing import timed

L2 = 1.0
REPEATS = 3  # the shortest counts: the one least disturbed
REPLICATES, MEASURED = 50, 3


def main() -> None:
    directory = os.environ.get("IMPLICIT_DELTA_DATA")
    if not directory:
        raise SystemExit("no data: give --data DIR or set IMPLICIT_DELTA_DATA")
    torch.set_num_threads(1)
    data = load_satellite(Path(directory))
    module, training = trained(data, np.ones(len(data.y)))
    # The last of the training would take much longer than the rest and does not matter here.
    warnings.simplefilter("ignore", idm.DriftWarning)
    psi, gradient = held_out_loss(module, data)
    print(f"psi {psi:.6f}, n {len(data.y)}, d {len(gradient)}, one training {training:.1f} s\n")
    rows = ours(module, data) + laplace(module, data, gradient)
    rows.append(bootstrap(data))
    exact = rows[0][1]
    full = next((seconds for name, _, seconds in rows if name == "laplace-torch full"), np.nan)
    print(f"{'':38}{'std. error':>11}{'off by':>9}{'seconds':>9}{'full / this':>13}")
    for name, error, seconds in rows:
        print(f"{name:38}{error:11.6f}{error / exact - 1:9.2%}{seconds:9.2f}{full / seconds:13.1f}")


def ours(module: torch.nn.Module, data: Satellite) -> list[tuple[str, float, float]]:
    """Rows of the methods of this library; the exact one comes first, for comparison."""
    methods = {
        "GGN, cholesky (exact)": idm.Infinitesimal(idm.cholesky, "ggn"),
        "GGN, conjugate_gradient": idm.Infinitesimal(idm.conjugate_gradient, "ggn"),
        "GGN, conjugate_gradient(rtol=1e-4)": idm.Infinitesimal(
            idm.conjugate_gradient(rtol=1e-4), "ggn"
        ),
    }
    return [(name, *measured(module, data, method)) for name, method in methods.items()]


def measured(
    module: torch.nn.Module, data: Satellite, method: idm.Infinitesimal
) -> tuple[float, float]:
    """Return the standard error and its seconds, all checks and diagnostics included."""
    estimate, seconds = timed(
        lambda: idm.infer(fitted(module, data), held_out(data), method), REPEATS
    )
    return float(estimate.standard_error), seconds


def laplace(
    module: torch.nn.Module, data: Satellite, gradient: torch.Tensor
) -> list[tuple[str, float, float]]:
    rows = []
    try:
        for structure, repeats in {"full": 1, "kron": REPEATS, "diag": 1}.items():
            runs = [
                laplace_standard_error(module, data.X, data.y, gradient, L2, structure)
                for _ in range(repeats)
            ]
            rows.append((f"laplace-torch {structure}", *min(runs, key=lambda run: run[1])))
    except ImportError as error:
        print(f"laplace-torch is left out: {error}\n")
    return rows


def bootstrap(data: Satellite) -> tuple[str, float, float]:
    """Train on resampled rows a few times, and scale the time; the error is a rough one."""
    rng, values, started = np.random.default_rng(0), [], perf_counter()
    for _ in range(MEASURED):
        counts = np.bincount(rng.integers(len(data.y), size=len(data.y)), minlength=len(data.y))
        module, _ = trained(data, counts)
        values.append(held_out_loss(module, data)[0])
    seconds = (perf_counter() - started) * REPLICATES / MEASURED
    name = f"bootstrap, {REPLICATES} trainings ({MEASURED} made)"
    return name, float(np.std(values, ddof=1)), seconds


def trained(data: Satellite, weights: np.ndarray) -> tuple[torch.nn.Module, float]:
    """Train from random weights by L-BFGS until psi settles, as one would; time it."""
    module, started = copy.deepcopy(network()), perf_counter()
    counts = torch.as_tensor(weights, dtype=torch.float64)
    optimizer = torch.optim.LBFGS(
        module.parameters(), max_iter=1000, max_eval=2000, history_size=50,
        tolerance_grad=1e-3, tolerance_change=1e-9, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        penalty = L2 / 2 * sum(p.square().sum() for p in module.parameters())
        loss = counts @ cross_entropy(module(data.X), data.y, reduction="none") + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    return module, perf_counter() - started


def fitted(module: torch.nn.Module, data: Satellite) -> idm.FittedModel:
    return idm.from_torch(module, (data.X, data.y), idm.Categorical(), l2=L2)


def held_out(data: Satellite):
    return lambda net: cross_entropy(net(data.X_val), data.y_val)


if __name__ == "__main__":
    main()
