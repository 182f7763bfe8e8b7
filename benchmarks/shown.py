"""Table of the stored benchmarks for the site and the report: a header and rows of text.

The last entry of a row is True if it misses its aim.
"""

import json
from pathlib import Path

STORED = Path(__file__).with_name("results.json")


def benchmarks():
    """Ratios to formulas by hand and counts, with the aims."""
    rows = []
    for name, row in sorted(json.loads(STORED.read_text()).items()):
        numbers = [row["value"], row["aim"], row["before"]]
        cells = ["" if x is None else f"{x:.3g}" for x in numbers]
        rows.append([name, *cells, row["unit"], not row["value"] <= row["aim"]])
    return ["work", "stored", "aim", "before", "unit"], rows
