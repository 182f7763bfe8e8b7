"""Figure "coverage": share of pointwise 95 % intervals that cover the truth, both 1D tasks."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from experiments.one_d.bands import LABELS, SINGLE, Training, all_bands
from experiments.one_d.tasks import TASKS, grid
from experiments.records import resume, save_picture, save_records

ROUNDING = 1e-9  # of grid points
BULK = (-1.2, 1.2)  # three quarters of the inputs of the quadratic task
SIMULATED = {
    "simulation": ("idm", "Simulation of the paper's fit"),
    "simulation_finished": ("mixture", "Simulation of the mixture"),
}
STYLES = {
    "idm": ("C0", "-"),
    "literal": ("C0", ":"),
    "delta": ("C1", "-"),
    "delta_refit": ("C1", ":"),
    "gp": ("C2", "-"),
    "simulation": ("0.6", "-"),
    "evidence": ("C4", "-"),
    "weakest": ("C1", "-"),
    "mixture": ("C3", "-"),
    "simulation_finished": ("0.6", "-"),
}


@dataclass(frozen=True)
class Config:
    """Data sets per task, grid points, and how the network is trained as in the paper."""

    data_sets: int = 200
    points: int = 21
    training: Training = SINGLE


FULL = Config()
QUICK = Config(data_sets=6, points=9, training=Training(steps=4_000, refit_steps=500, single=True))


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


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    records = run(
        QUICK if quick else FULL, seed, path=results / "one_d/coverage.csv.gz", n_jobs=n_jobs
    )
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


def pointwise(task, points, band):
    """Rows of a band, one for each grid point: its error, its standard error and freedom."""
    return [
        {
            "x": float(x),
            "error": float(error),
            "std_error": float(spread),
            "freedom": float(band.freedom),
        }
        for x, error, spread in zip(
            points, band.value - task.truth(points), band.std_error, strict=True
        )
    ]


def tabulate(records):
    """One row for each task, method and x: share of data sets covered, and its binomial error.

    The standard error is the median over data sets; the bias and the spread are those of the
    predictions. "simulation" has the errors of another method and their standard deviation over
    all data sets for a standard error: what a perfect estimate of the spread would give.
    """
    groups = defaultdict(list)
    for row in records:
        groups[row["task"], row["method"], row["x"]].append(row)
    cells = {key: _Cell.of(rows) for key, rows in groups.items()}
    for (task, method, x), cell in list(cells.items()):
        for name, (source, _) in SIMULATED.items():
            if method == source:
                cells[task, name, x] = cell.simulated()
    return [{"task": t, "method": m, "x": x, **c.summary()} for (t, m, x), c in cells.items()]


@dataclass(frozen=True)
class _Cell:
    """Errors of all data sets at one point with the standard errors claimed for them."""

    error: np.ndarray
    std_error: np.ndarray
    freedom: np.ndarray

    @classmethod
    def of(cls, rows):
        return cls(*(np.array([row[key] for row in rows]) for key in cls.__annotations__))

    def simulated(self):
        spread = np.full(self.error.size, np.std(self.error, ddof=1))
        return _Cell(self.error, spread, np.full(self.error.size, np.inf))

    def summary(self):
        critical = student.ppf(0.975, self.freedom)
        covered = float(np.mean(abs(self.error) <= critical * self.std_error))
        n = self.error.size
        return {
            "covered": covered,
            "binomial_error": float(np.sqrt(covered * (1 - covered) / n)),
            "bias": float(np.mean(self.error)),
            "spread": float(np.std(self.error, ddof=1)),
            "std_error": float(np.median(self.std_error)),
            "data_sets": n,
        }


def mean_over(table, task, method, key="covered", within=(-2.0, 2.0)):
    """Mean of a column over the grid points in an interval."""
    return float(np.mean(column(table, task, method, key, within)))


def column(table, task, method, key, within):
    """A column of the table, in the order of the grid points in an interval."""
    low, high = within
    chosen = [
        (row["x"], row[key])
        for row in table
        if (row["task"], row["method"]) == (task, method)
        and low - ROUNDING <= row["x"] <= high + ROUNDING
    ]
    return [number for _, number in sorted(chosen)]


def plot(records):
    """Coverage against x: the paper's figure above, what goes beyond it below."""
    import matplotlib.pyplot as plt

    table = tabulate(records)
    rows = [
        ("as in the paper", ["idm", "delta", "gp", "simulation"]),
        ("beyond the paper", ["mixture", "weakest", "evidence", "simulation_finished"]),
    ]
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.6), sharex=True, sharey=True)
    for axs, (title, methods) in zip(axes, rows, strict=True):
        for ax, task in zip(axs, ("quadratic", "sin"), strict=True):
            for method in methods:
                _draw(ax, table, task, method)
            _dress(ax, TASKS[task], f"{task}, {title}")
    for ax in axes[1]:
        ax.set_xlabel("x")
    figure.tight_layout()
    return figure


def _draw(ax, table, task, method):
    chosen = [row for row in table if (row["task"], row["method"]) == (task, method)]
    x, covered, error = (
        np.array([row[key] for row in chosen]) for key in ("x", "covered", "binomial_error")
    )
    color, line = STYLES[method]
    label = LABELS.get(method) or SIMULATED[method][1]
    ax.plot(x, 100 * covered, line, color=color, label=f"{label}: {100 * covered.mean():.0f} %")
    ax.fill_between(x, 100 * (covered - error), 100 * (covered + error), color=color, alpha=0.15)


def _dress(ax, task, title):
    ax.axhline(95, color="k", lw=0.8, ls="--")
    if task.name == "sin":
        for low, high in ((-1.5, -0.7), (0.35, 1.15)):
            ax.axvspan(low, high, color="0.93", zorder=0)
    ax.set(title=title, ylabel="coverage (%)", ylim=(-55, 103), xlim=(-2, 2))
    ax.set_yticks(range(0, 101, 20))  # the legend has the room below
    ax.legend(loc="lower center", fontsize=8, title="mean over x", title_fontsize=8, frameon=False)
