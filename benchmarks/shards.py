"""A table that does not fit into memory: Parquet parts walked one after the other.

Run ``python -m benchmarks shards [rows]``. A logit with 8 parameters, in parts of 250 000 rows that
are read again in every walk (``keep=0``). Printed are the peak of the resident memory beyond what
Python and its libraries take and with it, the number of walks of one `infer`, the time of a walk
and the share of reading in it, and all this for a tenth of the rows, which shows that cost is
linear and memory is constant.
"""

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import implicit_delta as idm
from benchmarks.size import peak_memory

COLUMNS, PART = 8, 250_000
TRUTH = np.linspace(-0.5, 0.5, COLUMNS)


def main(rows: int = 1_000_000) -> None:
    """Compare a table with a tenth of it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), rows)
        for some in (paths[: max(len(paths) // 10, 1)], paths):
            measure(some)


def write(folder: Path, rows: int) -> list[Path]:
    """Write the parts."""
    paths = []
    for number in range(max(rows // PART, 1)):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(PART, COLUMNS))
        y = rng.random(PART) < 1 / (1 + np.exp(-X @ TRUTH))
        table = pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": y.astype(float)})
        paths.append(folder / f"{number:04d}.parquet")
        pq.write_table(table, paths[-1])
    return paths


def measure(paths: list[Path]) -> None:
    """Fit over all parts and ask for one evaluation."""
    reads: list[Path] = []
    seconds = [0.0]

    def build(path: Path) -> idm.FittedModel:
        reads.append(path)
        started = perf_counter()
        table = pq.read_table(path)
        X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(COLUMNS)])
        y = table["y"].to_numpy()
        seconds[0] += perf_counter() - started

        def probability(b):
            return 1 / (1 + np.exp(-X @ b))

        return idm.from_loglik(
            lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
            theta=TRUTH,
            score=lambda b: (y - probability(b))[:, None] * X,
        )

    with peak_memory() as peak:
        worked, started = process_time(), perf_counter()
        model = idm.polish(idm.from_shards(build, paths, keep=0))
        fitted, reads_of_fit = perf_counter() - started, reads.count(paths[-1])
        estimate = idm.infer(model, lambda b: 1 / (1 + np.exp(-b.sum())), robust=True)
        taken = perf_counter() - started - fitted
        worked = process_time() - worked
    walks = reads.count(paths[-1]) - reads_of_fit
    print(f"{model.n:,} rows in {len(paths)} parts: standard error {estimate.standard_error:.3g}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"  peak memory      {peak[0] / 2**20:6.0f} MB, {most:.0f} MB with Python and libraries")
    passes = estimate.diagnostics.passes
    print(f"  from_shards and polish: {reads_of_fit} walks, {fitted:.1f} s")
    print(f"  infer, robust:          {walks} walks, {taken:.1f} s, {passes} passes")
    both, millions = fitted + taken, model.n / 1e6
    print(f"  per million rows {both / millions:6.1f} s, {worked / millions:.1f} s of work")
    print(f"  reading          {seconds[0] / both:6.0%} of it\n", flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
