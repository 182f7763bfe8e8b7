"""Networks of ten and a hundred million parameters: conjugate gradients in little memory.

Run ``python -m benchmarks size``. Networks of 3 linear layers in float32 with 2048 rows; psi is a
mean logit. The smaller one is solved to 1 % of its standard error, the larger one for a few
iterations, each in a process of its own. Memory is what the process takes beyond the module and
the data, in vectors of d float32 numbers: at its peak and after each phase. The C library keeps
freed blocks of less than 32 MB, which some layers have, for later; with the environment variable
``MALLOC_MMAP_THRESHOLD_`` set, as in the second table, it returns them, and what is left is in use.
"""

import os
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from time import process_time, sleep

import torch
from torch import nn

import implicit_delta as idm
from benchmarks.timing import Case

INPUTS, CLASSES, ROWS = 1000, 10, 2048
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}


def cases():
    name = "d = 1e7, n = 2048: memory above the module"
    yield Case(name, 12, lambda: peak_of(2700, 0), unit="vectors", before=31.6)
    name += ", in use"
    yield Case(name, 12, lambda: peak_of(2700, 0, **RETURNED), unit="vectors")


def main() -> None:
    for width, iterations, environment in ((2700, 0, {}), (2700, 0, RETURNED), (9500, 2, {})):
        print(in_process(width, iterations, **environment))


def peak_of(width: int, iterations: int, **environment: str) -> float:
    """Largest peak of all phases."""
    return float(in_process(width, iterations, **environment).split()[-2])


def in_process(width: int, iterations: int, **environment: str) -> str:
    command = [sys.executable, "-m", "benchmarks.size", str(width), str(iterations)]
    done = subprocess.run(
        command, env=os.environ | environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def measure(width: int, iterations: int) -> None:
    """Build a network, solve, and print memory and times by phase."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(INPUTS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, CLASSES),
    )  # fmt: skip
    X, y = torch.randn(ROWS, INPUTS), torch.randint(CLASSES, (ROWS,))
    d = sum(p.numel() for p in net.parameters())
    warm_up(net, X, y)
    psi = lambda net: net(X[:256])[:, 0].mean()
    solver = idm.conjugate_gradient(rtol=0.01, max_iterations=iterations or None)
    method, peaks, start = idm.Infinitesimal(solver, "ggn"), [], resident()

    def phase(name, function):
        began = process_time()
        with peak_memory(start) as peak:
            found = function()
        peaks.append(peak[0] / (4 * d))
        held = (resident() - start) / (4 * d)
        print(f"  {name:34}{peaks[-1]:7.1f}{held:7.1f}{process_time() - began:8.1f}")
        return found

    print(f"d = {d:,}, n = {ROWS}{'':17}   peak   held   CPU s")
    model = phase("from_torch", lambda: idm.from_torch(net, (X, y), idm.Categorical(), l2=1.0))
    # What the functions return is dropped at once: vectors are not held for the next phase.
    phase("psi, its gradient and the check", lambda: model.jacobian(psi, model.theta).size)
    phase("score", lambda: model.score(model.theta).size)
    for name in ("first product, with its graphs", "further product"):
        phase(name, lambda: model.information(model.theta, model.theta, "ggn").size)
    print(f"  {phase('infer', lambda: answer(model, psi, method))}")
    print(f"  peak memory {max(peaks):.1f} vectors\n")


def answer(model: idm.FittedModel, psi, method: idm.Infinitesimal) -> str:
    try:
        estimate = idm.infer(model, psi, method, strict=False)
        return f"standard error {estimate.standard_error:.6f} to 1 %"
    except idm.ConvergenceError as error:
        return str(error).partition(". Usual")[0]


def warm_up(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
    """Make torch allocate its buffers before memory is measured."""
    loss = nn.functional.cross_entropy(net(X[:64]), y[:64])
    torch.autograd.grad(loss, list(net.parameters()))
    small = idm.from_torch(
        nn.Linear(2, 2), (torch.ones(4, 2), torch.arange(4) % 2), idm.Categorical()
    )
    small.information(small.theta, small.theta, "ggn")


@contextmanager
def peak_memory(start: int | None = None):
    """Sample the resident memory of this process; yields a list with the peak rise in bytes."""
    start, peak, done = resident() if start is None else start, [0], threading.Event()

    def sample() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident() - start)
            sleep(0.005)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    warnings.simplefilter("ignore", idm.DriftWarning)
    measure(*map(int, sys.argv[1:]))
