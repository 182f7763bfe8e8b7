"""The quadratic task as the paper runs it, against the length of training.

The paper's intervals are those "after convergence", and the number of steps is not given. So the
network of `coverage` is trained on, on the same data sets and from the same starts, and IDM and
the delta method are evaluated at several lengths on the way. The records have the root mean squared
residual too: sqrt(RSS / n), in place of which a simulation may have the noise that was drawn.
"""

from dataclasses import dataclass, replace

import numpy as np

from experiments.one_d import coverage
from experiments.one_d.bands import (
    LABELS,
    SINGLE,
    Training,
    delta_bands,
    draw_starts,
    fit_as_paper,
    implicit_delta_bands,
)
from experiments.one_d.table import BULK, mean_over
from experiments.one_d.table import tabulate as coverage_table
from experiments.one_d.tasks import NOISE, QUADRATIC, grid
from experiments.records import resume, save_picture

METHODS = ("idm", "delta")


@dataclass(frozen=True)
class Config:
    """Steps of the fits, of which each refit has a fifth, and the size of the study."""

    data_sets: int = 200
    points: int = 11
    steps: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    training: Training = SINGLE


FULL = Config()
QUICK = Config(data_sets=6, points=5, steps=(500, 2_000))


def run(config=FULL, seed=0, *, path=None, n_jobs=1):
    """Error and standard error at every length and grid point, for each data set."""
    return resume(
        lambda data_set: one_data_set(config, seed, data_set),
        [(k,) for k in range(config.data_sets)], ("data_set",), path=path,
        settings=(config.points, config.steps, config.training, seed), n_jobs=n_jobs,
        label="lengths",
    )  # fmt: skip


def one_data_set(config, seed, data_set):
    task, points = QUADRATIC, grid(config.points)
    rng = coverage.stream(seed, task.name, data_set)
    x, y = task.draw(rng)
    network = config.training.network
    theta, *_ = draw_starts(network, rng)
    rows, done = [], 0
    for steps in config.steps:
        rest = replace(config.training, steps=steps - done)
        theta, _ = fit_as_paper(task, x, y, theta, rest)
        training = replace(config.training, steps=steps, refit_steps=steps // 5)
        bands, _ = implicit_delta_bands(task, x, y, theta, points, training)
        bands |= delta_bands(task, x, y, theta, points, training)
        rmse = float(np.sqrt(np.mean((y - network.predict(theta, x)) ** 2)))
        rows += [
            {"task": task.name, "steps": steps, "method": method, **row, "rmse": rmse}
            for method in METHODS
            for row in coverage.pointwise(task, points, bands[method])
        ]
        done = steps
    return rows


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    config = QUICK if quick else FULL
    records = run(config, seed, path=results / "one_d/lengths.csv.gz", n_jobs=n_jobs)
    save_picture(plot(records), results / "one_d/lengths.png")


def tabulate(records, *, true_noise=False):
    """For each length, in order: the table of `coverage`, with RSS / n or the true noise."""
    lengths = sorted({row["steps"] for row in records})
    factor = lambda row: NOISE / row["rmse"] if true_noise else 1.0
    return {
        steps: coverage_table(
            [
                row | {"std_error": factor(row) * row["std_error"]}
                for row in records
                if row["steps"] == steps
            ]
        )
        for steps in lengths
    }


def plot(records):
    """Coverage, and standard errors over the spread of the fits, against the length of training."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for true_noise, line, noise in ((False, "-", "RSS / n"), (True, ":", "true noise")):
        tables = tabulate(records, true_noise=true_noise)
        for method in METHODS:
            color, _ = coverage.STYLES[method]
            label = f"{LABELS[method].split(',')[0]}, {noise}"
            cover, ratio = (
                [of(table, method) for table in tables.values()] for of in (_coverage, _ratio)
            )
            left.plot(list(tables), cover, line, marker=".", color=color, label=label)
            right.plot(list(tables), ratio, line, marker=".", color=color, label=label)
    left.axhline(95, color="k", lw=0.8, ls="--")
    right.axhline(1, color="k", lw=0.8, ls="--")
    left.set(ylabel="coverage (%), mean over x")
    right.set(ylabel="standard error / spread, |x| ≤ 1.2", ylim=(None, 1.05))
    for ax in (left, right):
        ax.set(xlabel="steps of gradient descent", xscale="log")
    left.legend(fontsize=10, frameon=False)
    figure.tight_layout()
    return figure


def _coverage(table, method):
    return 100 * mean_over(table, QUADRATIC.name, method)


def _ratio(table, method):
    over = lambda key: mean_over(table, QUADRATIC.name, method, key, BULK)
    return over("std_error") / over("spread")
