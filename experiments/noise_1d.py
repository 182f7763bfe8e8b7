"""The noise that the paper's fits leave on the quadratic task: RSS / n, where the truth is known.

With 25 observations that is too small, and so is every standard error that is a multiple of it.
Here only the fits of `coverage_1d` are repeated, on the same data sets and from the same starts.
"""

import numpy as np

from experiments import coverage_1d
from experiments.bands_1d import draw_starts, fit_as_paper
from experiments.records import resume
from experiments.tasks_1d import NOISE, QUADRATIC, TASKS


def run(config=coverage_1d.FULL, seed=0, *, path=None, n_jobs=1):
    """Root mean squared residual of each data set."""

    def compute(task, data_set):
        rng = coverage_1d.stream(seed, task, data_set)
        x, y = TASKS[task].draw(rng)
        network = config.training.network
        start, *_ = draw_starts(network, rng)
        theta, _ = fit_as_paper(TASKS[task], x, y, start, config.training)
        return [{"rmse": float(np.sqrt(np.mean((y - network.predict(theta, x)) ** 2)))}]

    return resume(
        compute, [(QUADRATIC.name, k) for k in range(config.data_sets)], ("task", "data_set"),
        path=path, settings=(config.training, seed), n_jobs=n_jobs, label="noise",
    )  # fmt: skip


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    config = coverage_1d.QUICK if quick else coverage_1d.FULL
    run(config, seed, path=results / "noise_1d.csv", n_jobs=n_jobs)


def with_true_noise(records, noises):
    """IDM's records of coverage as they would be, were the noise known instead of estimated."""
    factor = {(row["task"], row["data_set"]): NOISE / row["rmse"] for row in noises}
    return [
        row | {"std_error": row["std_error"] * factor[row["task"], row["data_set"]]}
        for row in records
        if row["method"] == "idm" and (row["task"], row["data_set"]) in factor
    ]
