"""Table of the stored benchmarks for the site and the report: a header and rows of text.

The last entry of a row is True if it misses its aim.
"""

import json
from pathlib import Path

STORED = Path(__file__).with_name("results.json")
LIMITS = Path(__file__).with_name("count_limits.json")
AIM = 0.945  # coverage of 95 % limits
COUNTS = (0, 1, 2, 3, 5, 10)  # shown of the limits


def benchmarks():
    """Ratios to formulas by hand and counts, with the aims."""
    rows = []
    for name, row in sorted(json.loads(STORED.read_text()).items()):
        numbers = [row["value"], row["aim"], row["before"]]
        cells = ["" if x is None else f"{x:.3g}" for x in numbers]
        rows.append([name, *cells, row["unit"], not row["value"] <= row["aim"]])
    return ["work", "stored", "aim", "before", "unit"], rows


def benchmarks_limit_coverage():
    """Smallest coverage of 95 % limits of a signal over a known background, and at which signal."""
    rows = []
    for row in json.loads(LIMITS.read_text()):
        for method, found in row["coverage"].items():
            cells = [f"{row['background']:g}", method, f"{found['coverage']:.1%}"]
            cells += [f"{found['signal']:.2f}", str(row["falls"][method])]
            rows.append([*cells, found["coverage"] < AIM])
    return ["background", "method", "smallest coverage", "at signal", "falls"], rows


def benchmarks_limits():
    """Limits of counts at 95 % by each method, classical ones, and intervals that unify both."""
    methods = ["likelihood", "cls", "toys", "classical", "default"]
    rows = []
    for row in json.loads(LIMITS.read_text()):
        for n in COUNTS:
            limits = [f"{row['limits']['0.95'][method][n]:.2f}" for method in methods]
            low, high = row["feldman_cousins"]["0.95"][n]
            ends = [f"{row['feldman_cousins']['0.9'][n][1]:.2f}", f"{low:.2f} to {high:.2f}"]
            rows.append([f"{row['background']:g}", str(n), *limits, *ends, False])
    header = ["background", "events", *methods, "FC 90%, upper end", "FC 95%"]
    return header, rows
