"""Shards on a Dask cluster of processes on one machine: scaling, and bytes that travel; `compress`.

Run ``python -m benchmarks shards_dask``. A logit with 8 parameters in 8 parts that workers make by
themselves. Printed are the seconds of `information` (one step of conjugate gradients) with one and
with two workers, the bytes of a step and of an `infer` for tables of three sizes, and the fit of a
logit to 300 000 rows beside that to the distinct ones, counted by `compress`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from distributed import Client, LocalCluster

import implicit_delta as idm
from benchmarks.size import peak_memory
from benchmarks.timing import medians

COLUMNS, PARTS, ROUNDS = 8, 8, 7
TRUTH = np.linspace(-0.5, 0.5, COLUMNS)


def main() -> None:
    with ExitStack() as stack:
        clients = {workers: stack.enter_context(started(workers)) for workers in (1, 2)}
        for n in (10_000, 100_000, 1_000_000):
            compared(n, clients)
    counted()


@contextmanager
def started(workers: int) -> Iterator[Client]:
    """Start so many processes."""
    cluster = LocalCluster(
        n_workers=workers, processes=True, threads_per_worker=1, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(workers, timeout=120)
        yield client


def compared(n: int, clients: dict[int, Client]) -> None:
    """Take turns, so that both see the same load of the machine."""
    models = {
        workers: idm.from_shards(builder(n // PARTS), range(PARTS), client=client)
        for workers, client in clients.items()
    }
    steps = {k: partial(m.information, m.theta, np.ones(COLUMNS)) for k, m in models.items()}
    taken = medians(steps, ROUNDS, perf_counter)
    print(
        f"{n:>9,} rows: a step {taken[1]:.3f} s with one worker, {taken[2]:.3f} s with two, "
        f"efficiency {taken[1] / taken[2] / 2:.0%}"
    )
    model = models[2]
    before = model.travelled_bytes
    steps[2]()
    sent, received = np.subtract(model.travelled_bytes, before)
    method = idm.Infinitesimal(solver=idm.conjugate_gradient())
    notes = idm.infer(model, lambda b: b[0], method, strict=False).diagnostics.notes
    print(
        f"  bytes of a step: {sent} sent, {received} received; of `infer`: {notes['sent']:.0f} and "
        f"{notes['received']:.0f}",
        flush=True,
    )


def builder(rows: int) -> Callable[[int], idm.FittedModel]:
    """Make parts with so many rows from their number."""

    def build(number: int) -> idm.FittedModel:
        rng = np.random.default_rng(number)
        X = rng.normal(size=(rows, COLUMNS))
        y = rng.random(rows) < 1 / (1 + np.exp(-X @ TRUTH))
        return idm.from_loglik(
            lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
            theta=TRUTH,
            score=lambda b: (y - 1 / (1 + np.exp(-X @ b)))[:, None] * X,
        )

    return build


def counted(n: int = 300_000) -> None:
    """Fit a logit to all rows and to distinct ones."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(0, 10, n), "kind": rng.integers(0, 6, n)})
    table["bought"] = (rng.random(n) < 1 / (1 + np.exp(1 - 0.1 * table["age"]))).astype(int)
    found = []
    for squeeze in (False, True):
        with peak_memory() as peak:
            started = perf_counter()
            few = idm.compress(table) if squeeze else table.assign(count=1)
            fit = smf.glm(
                "bought ~ age + C(kind)", few, family=sm.families.Binomial(),
                freq_weights=few["count"],
            ).fit()  # fmt: skip
            error = idm.infer(idm.from_statsmodels(fit), "age", robust=True).standard_error
            taken = perf_counter() - started
        found.append((taken, error))
        print(f"{len(few):>9,} rows: {taken:6.2f} s, {peak[0] / 2**20:4.0f} MB, error {error:.9f}")
    print(
        f"  {found[0][0] / found[1][0]:.0f} times faster, {found[1][1] / found[0][1] - 1:.1e} off"
    )


if __name__ == "__main__":
    main()
