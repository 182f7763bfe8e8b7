"""Table of a study of coverage: what is covered at each input, and its means over regions."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from experiments.one_d.tasks import SIN

ROUNDING = 1e-9  # of grid points
BULK = (-1.2, 1.2)  # three quarters of the inputs of the quadratic task
SIMULATED = {
    "simulation": ("idm", "True spread of the paper's fit"),
    "simulation_public": ("public", "True spread of the finished fit"),
    "simulation_finished": ("mixture", "True spread of the mixture"),
}
REGIONS = {  # where the grids have points, none of them at a border
    "sin": {
        "left of the data": (-2.0, -1.5),
        "on the data, left": (-1.5, -0.7),
        "between": SIN.gap,
        "on the data, right": (0.35, 1.15),
        "right of the data": (1.15, 2.0),
    },
    "quadratic": {"x < -1.2": (-2.0, -1.3), "|x| <= 1.2": BULK, "x > 1.2": (1.3, 2.0)},
}


def tabulate(records):
    """One row for each task, method and x: share of data sets covered, and its binomial error.

    An interval that is refused counts as missed; beside that, the share that is `answered`, the
    share covered of those, and `covered_anyway` by the numbers behind the refusals. The standard
    error is the median over data sets; the bias and the spread are those of the predictions. A
    "simulation" has the errors of another method and their standard deviation over all data sets
    for a standard error: what a perfect estimate of the spread would give.
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

    error: np.ndarray  # NaN where a fit has failed
    std_error: np.ndarray
    freedom: np.ndarray
    answered: np.ndarray

    @classmethod
    def of(cls, rows):
        keys = ("error", "std_error", "freedom")
        answered = np.array([not row.get("refused") for row in rows])
        return cls(*(np.array([row[key] for row in rows]) for key in keys), answered)

    def simulated(self):
        error = self.error[np.isfinite(self.error)]
        spread = np.full(error.size, np.std(error, ddof=1))
        return _Cell(error, spread, np.full(error.size, np.inf), np.full(error.size, True))

    def summary(self):
        inside = abs(self.error) <= student.ppf(0.975, self.freedom) * self.std_error
        fitted = np.isfinite(self.error)
        covered, n = float(np.mean(inside & self.answered)), inside.size
        return {
            "covered": covered,
            "binomial_error": float(np.sqrt(covered * (1 - covered) / n)),
            "bias": float(np.mean(self.error[fitted])),
            "spread": float(np.std(self.error[fitted], ddof=1)),
            "std_error": float(np.median(self.std_error[fitted])),
            "data_sets": n,
            "answered": float(np.mean(self.answered)),
            "covered_answered": _share(inside[self.answered]),
            "covered_anyway": _share(inside[fitted]),
        }


def _share(flags):
    return float(np.mean(flags)) if flags.size else np.nan


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


def over_regions(table, task, method, key="covered"):
    """Percent of a column by region, and the lowest with its x, as text."""
    parts = []
    for name, within in REGIONS[task].items():
        if column(table, task, method, key, within):
            parts.append(f"{name} {100 * mean_over(table, task, method, key, within):.0f}")
    low, x = lowest(table, task, method, key)
    return f"{', '.join(parts)}; lowest {100 * low:.0f} at x = {x:g}"


def lowest(table, task, method, key="covered"):
    """Smallest number of a column, and the first x where it is."""
    rows = [row for row in table if (row["task"], row["method"]) == (task, method)]
    return min((row[key], row["x"]) for row in rows)
