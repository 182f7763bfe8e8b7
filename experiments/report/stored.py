"""Tables of stored records, for the report and for the site: a header and rows of text.

Every function takes the folder of the results. The last entry of a row is True if the row is a bad
one, which both pages mark; none is left out. A record that is not there raises FileNotFoundError.
What is stored beside the benchmarks has its table there (`benchmarks.shown`).
"""

import csv
from collections import Counter, defaultdict
from math import isnan, nan
from pathlib import Path

import numpy as np

from experiments.claim import by_author, load_claims
from experiments.records import load_records
from experiments.times import whole_times

Z = 2.0  # binomial errors beyond which a coverage is marked
FAIR, FAIR_SHARE = (0.67, 1.5), 0.8  # ratios of a standard error to a spread, and share of cells
CLOSE = 0.03  # distance of a mean coverage from 95 % that is not marked
PARTS = ("one_d", "classification", "vae")  # that make claims
TITLES = {  # of columns whose names are short
    "dataset": "data set",
    "std_error": "standard error",
    "monte_carlo_error": "Monte-Carlo error, relative",
    "value": "cost",
    "passes": "passes of the solve",
    "sg_refit": "refits",
    "sg_without_polish": "training + refits",
    "sg_total": "training + polish + refits",
    "training_of_solve": "training beside the solve",
    "solve_with_polish": "settle + solve",
    "solve_total": "training + settle + solve",
    "sg_refit_times_faster": "bootstrap / refits",
    "sg_without_polish_times_faster": "bootstrap / (training + refits)",
    "sg_total_times_faster": "bootstrap / (training + polish + refits)",
    "solve_times_faster": "bootstrap / solve",
    "solve_with_polish_times_faster": "bootstrap / (settle + solve)",
    "solve_total_times_faster": "bootstrap / (training + settle + solve)",
    "paper_times_faster": "bootstrap / IDM in the paper",
}


FEW = 50  # intervals without a warning: too few for a share


def coverage(results):
    """Simulated coverage of each task and method."""
    counts = ["refused", "warned", "silent"]
    header = ["task", "n", "method", "nominal", "of", "coverage", *counts, "release"]
    rows = []
    for r in _rows(results, "coverage/table.csv"):
        nominal, of = r["nominal"], r["replications"]
        found, error = r["covered"] / of, np.sqrt(nominal * (1 - nominal) / of)
        cells = [r["task"], str(r["n"]), r["method"], f"{nominal:.0%}", str(of)]
        few = (1 - r.get("warned", 0.0)) * of < FEW
        silent = "few" if few else _percent(r.get("silent_coverage"), 1)
        told = [_percent(r.get("warned"), 0), silent]
        share = f"{found:.1%} ± {error:.1%}"
        bad = bool(abs(found - nominal) > Z * error)
        release = str(r.get("release", "earlier"))
        rows.append([*cells, share, str(r["failed"]), *told, release, bad])
    return header, rows


def fidelity(results):
    """Ratios of each column for networks that stopped early, question by question."""
    found = defaultdict(dict)
    for r in _rows(results, "fidelity/summary.csv"):
        found[r["column"]][r["question"]] = r
    questions = list(next(iter(found.values())))
    counts = ["answered", "silently_wrong", "false_alarms"]
    header = ["column", *questions, "fair", "cells", "silently wrong", "false alarms"]
    rows = []
    for column, parts in found.items():
        means = [_number(parts[q].get("geometric_mean")) for q in questions]
        fair = parts["all"].get("fair", nan)
        told = [str(parts["all"][count]) for count in counts]
        rows.append([column, *means, _percent(fair, 1), *told, fair < FAIR_SHARE])
    return header, rows


def fidelity_picture(results):
    """Ratios of the default as dots."""
    return stored(results, "fidelity/ratios.png")


def fidelity_cells(results):
    """The same cell by cell; a star where a warning was given."""
    columns = dict.fromkeys(r["column"] for r in _rows(results, "fidelity/summary.csv"))
    header = ["setting", "question", "networks", "spread", "new weights", "order", *columns]
    rows = []
    for r in _rows(results, "fidelity/table.csv"):
        parts = [f"{r['spread']:.2g}", _number(r.get("initialization")), _number(r.get("order"))]
        ratios = [_starred(r, column) for column in columns]
        bad = not FAIR[0] <= r.get("default", nan) <= FAIR[1]
        networks = str(r.get("default_sets", 0))
        rows.append([r["setting"], r["question"], networks, *parts, *ratios, bad])
    return header, rows


def fidelity_misses(results):
    """Cells of the default that are not fair, with the part that is off; silent ones are bad."""
    header = ["setting", "question", "ratio", "off by more", "skewness", "warned"]
    rows = []
    for r in _rows(results, "fidelity/misses.csv"):
        cells = [_number(r["ratio"]), r["reason"], _number(r["skew"]), r["warned"]]
        rows.append([r["setting"], r["question"], *cells, r["warned"] == "no"])
    return header, rows


def fidelity_alarms(results):
    """Warnings of the default by category."""
    names = ["warning", "cells", "false_alarms"]
    rows = [[*(str(r[n]) for n in names), False] for r in _rows(results, "fidelity/alarms.csv")]
    return ["warning", "cells", "of them fair"], rows


def tasks(results):
    """Coverage of the paper's one-dimensional tasks: mean over inputs, and where it is worst."""
    from experiments.one_d.bands import LABELS
    from experiments.one_d.table import SIMULATED

    names = LABELS | {method: label for method, (_, label) in SIMULATED.items()}
    groups = defaultdict(list)
    for r in _rows(results, "one_d/coverage_table.csv"):
        groups[r["task"], r["method"]].append((r["covered"], r["x"], r.get("answered", nan)))
    header = ["task", "method", "mean coverage", "smallest", "at x", "answered"]
    rows = []
    for (task, method), found in groups.items():
        least, where, _ = min(found)
        mean, _, answered = np.mean(found, axis=0)
        shown = [f"{mean:.0%}", f"{least:.0%}", f"{where:g}", _percent(answered, 0)]
        rows.append([task, names.get(method, method), *shown, bool(abs(mean - 0.95) > CLOSE)])
    return header, rows


def run_times(results):
    """Table 1: seconds of one core and ratios, in the columns of the record."""
    return _listed(results, "classification/run_times.csv", lambda row: False)


def classification(results):
    """Standard errors of the held-out cost by every method; refusals and large drifts are bad."""
    bad = lambda row: "why" in row or row.get("drift", 0) > 1
    return _listed(results, "classification/table.csv", bad)


def claims(results):
    """The paper's claims that did not hold when they were repeated."""
    return _failed(claims_of(results)[0])


def own_claims(results):
    """Claims of our own that did not hold."""
    return _failed(claims_of(results)[1])


def claim_counts(results):
    """Count of the claims that hold, of the paper and of our own."""
    rows = []
    whose = ("the paper's", "our own, beyond the paper")
    for name, part in zip(whose, claims_of(results), strict=True):
        held = Counter(c["holds"] for c in part)
        rows.append([name, *map(str, (held.total(), held[True], held[False])), False])
    return ["claims", "looked at", "hold", "do not hold"], rows


def times(results):
    """Minutes of each experiment; one whose jobs were not all timed says so."""
    rows = []
    for row in whole_times(results):
        untimed = row["untimed"]
        minutes = "not recorded" if untimed else f"{row['minutes']:,.1f}"
        rows.append([row["experiment"], minutes, str(row["jobs"]), str(untimed), bool(untimed)])
    return ["experiment", "minutes of one process", "jobs timed", "jobs not timed"], rows


def claims_of(results):
    """Claims of the paper and of our own, of all parts that have made theirs."""
    files = [results / part / "claims.json" for part in PARTS]
    return by_author([c for path in files if path.exists() for c in load_claims(path)])


def stored(results, name):
    """Path of a record or a picture that must be there."""
    if not (results / name).exists():
        raise FileNotFoundError(f"results/{name}")
    return results / name


def named(missing):
    """Name of what an error says is missing, without the folders above it."""
    return "/".join(Path(missing.filename).parts[-3:]) if missing.filename else str(missing)


def short(value):
    """Number of a table: three digits, whole beyond a hundred; text as it is."""
    if isinstance(value, float):
        value = 0.0 if abs(value) < 1e-9 else value  # rounding: the drift of a finished fit
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _rows(results, name):
    return load_records(stored(results, name))


def _listed(results, name, is_bad):
    """All columns of a record."""
    with stored(results, name).open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    rows = [
        [*(short(r.get(c, "")) for c in columns), bool(is_bad(r))] for r in _rows(results, name)
    ]
    return [TITLES.get(column, column.replace("_", " ")) for column in columns], rows


def _failed(part):
    header = ["claim", "paper", "found here"]
    return header, [[c["claim"], c["paper"], c["ours"], False] for c in part if not c["holds"]]


def _number(value):
    return "" if value is None or isnan(value) else f"{value:.2f}"


def _percent(value, digits):
    return "" if value is None or isnan(value) else f"{value:.{digits}%}"


def _starred(row, column):
    warned = row.get(f"{column}_warned", 0) >= 0.5
    return _number(row.get(column)) + ("*" if warned else "")
