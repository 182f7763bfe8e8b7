"""Publish the table: as csv, as a page in markdown, and as a picture."""

from math import isfinite

import numpy as np

from experiments.fidelity import table
from experiments.fidelity.table import FAIR, GOOD
from experiments.records import save_picture, save_records

HEAD = """# Standard errors of networks over the spread of retrainings

Each ratio is a standard error over the spread of the answer in 200 retrainings on fresh data (which
is 5 % uncertain). A cell is a setting and a question; it is fair from 0.67 to 1.5.
"""
NOTES = """
Bold: not fair. Star: at least half of the networks of the cell came with a warning. Dash: not run,
or refused. *Networks*: how many the default was asked about. *New weights*: the spread with fresh
initial weights too, *order*: with nothing fresh but the order of the minibatches, both over the
spread.
"""
MISSES = """
Cells of the default that are not fair. The reason is read off the records: the part of the error
that is off by more, over the spread, for what it is in truth (order, and the rest of the variance).
The skewness is that of the answers of the retrainings.
"""
ALARMS = """
Warnings of the default, by category, and how many of the warned cells were fair all the same.
"""
TICKS = [0.5, 0.67, 0.8, 1, 1.25, 1.5, 2]


def publish(rows, columns, results):
    """Write the table and its summary; return the summary."""
    totals = list(table.summary(rows, columns))
    misses = [missed(row) for row in rows if table.is_miss(row, "default")]
    save_records(results / "table.csv", rows)
    save_records(results / "summary.csv", totals)
    save_records(results / "misses.csv", misses)
    save_records(results / "alarms.csv", list(table.alarms(rows, "default")))
    (results / "table.md").write_text(page(rows, totals, misses, columns), encoding="utf-8")
    if any(table.is_answered(row, "default") for row in rows):
        save_picture(picture(rows), results / "ratios.png")
    return totals


def missed(row):
    """One miss of the default, with its reason and its warnings."""
    return {
        "setting": row["setting"],
        "question": row["question"],
        "ratio": row["default"],
        "reason": table.reason(row, "default"),
        "skew": row["skew"],
        "warned": row["default_by"] or "no",
    }


def page(rows, totals, misses, columns):
    alarms = table.alarms(rows, "default")
    parts = (
        HEAD,
        by_question(totals, columns),
        NOTES,
        by_cell(rows, columns),
        MISSES,
        listed(["setting", "question", "ratio", "reason", "skew", "warned"], misses),
        ALARMS,
        listed(["warning", "cells", "false_alarms"], alarms),
    )
    return "\n".join(parts)


def by_question(totals, columns):
    """Geometric means of the columns, and how many of their cells are fair."""
    found = {(row["column"], row["question"]): row for row in totals}
    names = dict.fromkeys(row["question"] for row in totals)
    counts = ("answered", "silently_wrong", "false_alarms")
    return markdown(
        ["geometric mean", *names, "fair", "cells", "silently wrong", "false alarms"],
        [
            [
                column,
                *(number(found[column, name]["geometric_mean"]) for name in names),
                f"{found[column, 'all']['fair']:.0%}".replace("nan%", "-"),
                *(str(found[column, "all"][count]) for count in counts),
            ]
            for column in columns
        ],
    )


def by_cell(rows, columns):
    return markdown(
        ["setting", "question", "networks", "spread", "new weights", "order", *columns],
        [
            [
                row["setting"],
                row["question"],
                str(row.get("default_sets", 0)),
                f"{row['spread']:.2g}",
                *(number(row[part]) for part in ("initialization", "order")),
                *(marked(row, column) for column in columns),
            ]
            for row in rows
        ],
    )


def marked(row, column):
    if not table.is_answered(row, column):
        return "-"
    text = number(row[column])
    text = text if table.is_fair(row, column) else f"**{text}**"
    return text + (r"\*" if table.is_warned(row, column) else "")


def number(value):
    return f"{value:.2f}" if isfinite(value) else "-"


def listed(names, rows):
    text = lambda value: number(value) if isinstance(value, float) else str(value)
    return markdown(names, [[text(row[name]) for name in names] for row in rows])


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def picture(rows):
    """Ratios of the default as dots, question by question; a cross where none was warned about."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["question"] for row in rows))
    figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
    ax.axhspan(*FAIR, color="0.93")
    ax.axhspan(*GOOD, color="0.85")
    ax.axhline(1, color="0.5", linewidth=0.8)
    for k, name in enumerate(names):
        those = [r for r in rows if r["question"] == name and table.is_answered(r, "default")]
        shift = np.linspace(-0.25, 0.25, len(those))
        for x, row in zip(k + shift, those, strict=True):
            silent = table.is_silently_wrong(row, "default")
            ax.plot(x, row["default"], "x" if silent else "o", color="C3" if silent else "C0", ms=4)
    ax.set_yscale("log")
    ax.set_yticks(
        [0.5, 0.67, 0.8, 1, 1.25, 1.5, 2], ["0.5", "0.67", "0.8", "1", "1.25", "1.5", "2"]
    )
    ax.minorticks_off()
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("standard error / spread")
    return figure
