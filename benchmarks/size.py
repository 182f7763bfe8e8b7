"""Networks of ten and a hundred million parameters: conjugate gradients in little memory.

Run ``python -m benchmarks size``. Networks of 3 linear layers in float32 with 2048 rows; psi is a
mean logit. The smaller one is solved to 1 % of its standard error, the larger one for a few
iterations. Memory is what the process takes at its peak beyond the module and the data, in vectors
of d float32 numbers (for ten million, half of it is graphs and vectors are float64). An iteration
is one product with the curvature; it is compared with one gradient of the objective.
"""

import os
import threading
import warnings
from contextlib import contextmanager
from time import perf_counter, sleep

import torch
from torch import nn

import implicit_delta as idm
from benchmarks.timing import timed

INPUTS, CLASSES, ROWS = 1000, 10, 2048


def main() -> None:
    warnings.simplefilter("ignore", idm.DriftWarning)
    for width, iterations in ((2700, None), (9500, 2)):
        measure(width, iterations)


def measure(width: int, iterations: int | None) -> None:
    """Build a network, solve, and print memory and times."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(INPUTS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, CLASSES),
    )  # fmt: skip
    X, y = torch.randn(ROWS, INPUTS), torch.randint(CLASSES, (ROWS,))
    d = sum(p.numel() for p in net.parameters())
    warm_up(net, X, y)
    with peak_memory() as peak:
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=1.0)
        gradient = timed(lambda: model.score(model.theta))[1]  # the vector itself is not kept
        product = lambda: model.information(model.theta, model.theta, "ggn")
        first, further = timed(product)[1], timed(product)[1]
        started = perf_counter()
        solver = idm.conjugate_gradient(rtol=0.01, max_iterations=iterations)
        try:
            method = idm.Infinitesimal(solver, "ggn")
            estimate = idm.infer(model, lambda net: net(X[:256])[:, 0].mean(), method, strict=False)
            found = f"standard error {estimate.standard_error:.4f} to 1 %"
        except idm.ConvergenceError as error:
            found = str(error).partition(". Usual")[0]
        taken = perf_counter() - started
    print(f"d = {d:,}, n = {ROWS}: {found}")
    print(f"  peak memory            {peak[0] / (4 * d):6.1f} vectors of d float32")
    print(f"  one gradient           {gradient:6.1f} s")
    print(
        f"  the first product      {first / gradient:6.2f} gradients, with the graphs that are kept"
    )
    print(f"  each further product   {further / gradient:6.2f} gradients")
    print(f"  the whole of infer     {taken:6.1f} s\n")


def warm_up(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
    """Make torch allocate its buffers before memory is measured."""
    loss = nn.functional.cross_entropy(net(X[:64]), y[:64])
    torch.autograd.grad(loss, list(net.parameters()))
    small = idm.from_torch(
        nn.Linear(2, 2), (torch.ones(4, 2), torch.arange(4) % 2), idm.Categorical()
    )
    small.information(small.theta, small.theta, "ggn")


@contextmanager
def peak_memory():
    """Sample the resident memory of this process; yields a list with the peak rise in bytes."""
    start, peak, done = resident(), [0], threading.Event()

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
    main()
