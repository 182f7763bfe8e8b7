"""Figure "coverage": share of pointwise 95 % intervals that cover the truth, both 1D tasks."""

from dataclasses import dataclass
from time import process_time

import numpy as np

from experiments.one_d.bands import (
    LABELS,
    SINGLE,
    Training,
    all_bands,
    draw_starts,
    fit_as_paper,
)
from experiments.one_d.public import default_band, public_band
from experiments.one_d.table import SIMULATED, tabulate
from experiments.one_d.tasks import TASKS, grid
from experiments.records import resume, save_picture, save_records

PUBLIC = {"default": default_band, "public": public_band}
STYLES = {
    "literal": ("C0", "-"),
    "idm": ("C0", ":"),
    "delta": ("C1", "-"),
    "gp": ("C2", "-"),
    "public": ("C3", "-"),
    "default": ("C5", "-"),
    "mixture": ("C3", "-"),
    "weakest": ("C1", "-"),
    "evidence": ("C4", "-"),
    "simulation": ("0.6", "-"),
    "simulation_public": ("0.6", "-"),
    "simulation_finished": ("0.6", "-"),
}
ROWS = {
    "as in the paper": ("literal", "idm", "delta", "gp", "simulation"),
    "the library, a refusal counts as missed": ("public", "default", "simulation_public"),
    "not in the library": ("mixture", "weakest", "evidence", "simulation_finished"),
}


@dataclass(frozen=True)
class Config:
    """Data sets per task, grid points, and how the network is trained as in the paper.

    The public routes have the first half of the data sets, for lack of time.
    """

    data_sets: int = 200
    public_data_sets: int = 100
    points: int = 21
    training: Training = SINGLE


FULL = Config()
QUICK = Config(
    data_sets=6,
    public_data_sets=6,
    points=9,
    training=Training(steps=4_000, refit_steps=500, single=True),
)


def run(config=FULL, seed=0, *, path=None, n_jobs=1):
    """Error and standard error of every method at every grid point, for each data set."""
    jobs = [(name, k) for k in range(config.data_sets) for name in TASKS]

    def compute(name, data_set):
        return one_data_set(config, seed, name, data_set)

    settings = (config.points, config.training, seed)
    return resume(
        compute, jobs, ("task", "data_set"), path=path, settings=settings, n_jobs=n_jobs,
        label="coverage",
    )  # fmt: skip


def run_public(config=FULL, seed=0, *, path=None, n_jobs=1):
    """The same data sets and fits by the library's public routes, see `public`."""
    jobs = [(name, k) for k in range(config.public_data_sets) for name in TASKS]

    def compute(name, data_set):
        return by_public_names(config, seed, name, data_set)

    settings = ("public", config.points, config.training, seed)
    return resume(
        compute, jobs, ("task", "data_set"), path=path, settings=settings, n_jobs=n_jobs,
        label="coverage, public names",
    )  # fmt: skip


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    config = QUICK if quick else FULL
    records = []
    for study, file in ((run, "coverage"), (run_public, "coverage_public")):
        records += study(config, seed, path=results / f"one_d/{file}.csv.gz", n_jobs=n_jobs)
    save_records(results / "one_d/coverage_table.csv", tabulate(records))
    save_picture(plot(records), results / "one_d/coverage.png")


def stream(seed, name, data_set):
    """Randomness of one data set, which depends on nothing but its number."""
    return np.random.default_rng([seed, list(TASKS).index(name), data_set])


def one_data_set(config, seed, name, data_set):
    task, points = TASKS[name], grid(config.points)
    rng = stream(seed, name, data_set)
    x, y = task.draw(rng)
    bands, _, halvings = all_bands(task, x, y, rng, points, config.training)
    return [
        {"method": method, **row, "halvings": int(halvings)}
        for method, band in bands.items()
        for row in pointwise(task, points, band)
    ]


def by_public_names(config, seed, name, data_set):
    """Rows of the public routes; the first of each has its processor time, the training apart."""
    task, points, network = TASKS[name], grid(config.points), config.training.network
    rng = stream(seed, name, data_set)
    x, y = task.draw(rng)
    start, *_ = draw_starts(network, rng)
    theta, _ = fit_as_paper(task, x, y, start, config.training)
    rows = []
    for method, make in PUBLIC.items():
        started = process_time()
        band = make(network, x, y, theta, start, points)
        new = [{"method": method, **row} for row in pointwise(task, points, band)]
        new[0]["cpu"] = process_time() - started
        rows += new
    return rows


def pointwise(task, points, band):
    """Rows of a band, one for each grid point: error, standard error, freedom, and if refused."""
    columns = {
        "x": points,
        "error": band.value - task.truth(points),
        "std_error": band.std_error,
        "freedom": band.freedom,
    }
    columns = {key: np.broadcast_to(column, points.shape) for key, column in columns.items()}
    answered = np.broadcast_to(band.answered, points.shape)
    return [
        {key: float(column[k]) for key, column in columns.items()}
        | ({} if answered[k] else {"refused": 1})
        for k in range(points.size)
    ]


def plot(records):
    """Coverage against x: the paper's figure, the library's own, what is not in the library."""
    import matplotlib.pyplot as plt

    table = tabulate(records)
    known = {row["method"] for row in table}
    figure, axes = plt.subplots(len(ROWS), 2, figsize=(10, 11), sharex=True, sharey=True)
    for axs, (title, methods) in zip(axes, ROWS.items(), strict=True):
        for ax, task in zip(axs, ("quadratic", "sin"), strict=True):
            for method in methods:
                if method in known:
                    _draw(ax, table, task, method)
            if "public" in methods and "public" in known:
                _draw(ax, table, task, "public", "covered_anyway", ", strict=False", ":")
            _dress(ax, TASKS[task], f"{task}, {title}")
    for ax in axes[-1]:
        ax.set_xlabel("x")
    figure.tight_layout()
    return figure


def _draw(ax, table, task, method, key="covered", addition="", other_line=None):
    chosen = [row for row in table if (row["task"], row["method"]) == (task, method)]
    x, covered, error = (np.array([row[k] for row in chosen]) for k in ("x", key, "binomial_error"))
    color, line = STYLES[method]
    line = other_line or line
    label = (LABELS.get(method) or SIMULATED[method][1]).removeprefix("Not in the library: ")
    figures = f"{100 * covered.mean():.0f}, {100 * covered.min():.0f} %"
    ax.plot(x, 100 * covered, line, color=color, label=f"{label}{addition}: {figures}")
    ax.fill_between(x, 100 * (covered - error), 100 * (covered + error), color=color, alpha=0.15)


def _dress(ax, task, title):
    ax.axhline(95, color="k", lw=0.8, ls="--")
    if task.name == "sin":
        for low, high in ((-1.5, -0.7), (0.35, 1.15)):
            ax.axvspan(low, high, color="0.93", zorder=0)
    ax.set(ylabel="coverage (%)", ylim=(-85, 103), xlim=(-2, 2))
    ax.set_title(title, fontsize=11)
    ax.set_yticks(range(0, 101, 20))  # the legend has the room below
    ax.legend(
        loc="lower center", fontsize=9, title="mean and lowest", title_fontsize=9, frameon=False
    )
