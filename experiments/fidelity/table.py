"""The published table: each standard error over the spread of retrainings, cell by cell.

A cell is a setting and a question. The spread of a smooth question is taken on the rows that the
standard error is about, that of a statistic in the population.
"""

from collections import defaultdict
from math import isfinite, nan

import numpy as np

from experiments.fidelity.data import test_rows
from experiments.fidelity.questions import questions
from experiments.fidelity.retrainings import POPULATION, data_set_of
from experiments.records import save_records

FAIR, GOOD = (0.67, 1.5), (0.8, 1.25)  # of a cell, and of the geometric mean over cells


def cells(setting, retrained, answered):
    """Rows of the table for one setting.

    Parameters
    ----------
    retrained : dict of list
        Answers of the retrainings of each kind.
    answered : dict of list
        Rows of each column for the networks of this setting.
    """
    for question in questions(setting, test_rows(setting)):
        name = question.name + (POPULATION if question.jumps else "")
        values = {kind: numbers(rows, name) for kind, rows in retrained.items()}
        spread = deviation(values["data"])
        ways = {"bootstrap": ratio_of_bootstrap(retrained["bootstrap"], name, spread)}
        for column, rows in answered.items():
            mine = [row for row in rows if row["question"] == question.name]
            ways[column] = ratio_of_column(mine, spread)
        yield {
            "setting": setting.name,
            "question": question.name,
            "mean": float(np.mean(values["data"])),
            "spread": spread,
            "spread_error": 1 / np.sqrt(2 * len(values["data"]) - 2),
            "initialization": deviation(values["initialization"]) / spread,
            "order": within(retrained["order"], "order", name) / spread,
            **{f"{way}{part}": found for way in ways for part, found in ways[way].items()},
        }


def ratio_of_column(rows, spread):
    """Root of the mean variance over the spread; shares of data sets warned about and refused."""
    if not rows:
        return {"": nan}
    errors = [row["se"] for row in rows if "se" in row]
    return {
        "": root_mean_square(errors) / spread,
        "_warned": np.mean([bool(row.get("warned")) for row in rows]),
        "_refused": 1 - len(errors) / len(rows),
    }


def ratio_of_bootstrap(rows, name, spread):
    return {"": within(rows, "bootstrap", name) / spread}


def within(rows, kind, name):
    """Standard deviation within data sets."""
    sets = defaultdict(list)
    for row in rows:
        sets[data_set_of(kind, row["number"])].append(row[name])
    return root_mean_square([deviation(values) for values in sets.values()])


def summary(table, columns):
    """Geometric mean, share of fair cells and silent failures of each column and question."""
    for column in columns:
        names = dict.fromkeys(row["question"] for row in table)
        for question in (*names, "all"):
            chosen = [row for row in table if question in (row["question"], "all")]
            yield {"column": column, "question": question, **summarized(chosen, column)}


def summarized(rows, column):
    answered = [row for row in rows if isfinite(row.get(column, nan))]
    ratios = [row[column] for row in answered]
    count = lambda holds: sum(holds(row, column) for row in answered)
    return {
        "cells": len(rows),
        "answered": len(answered),
        "geometric_mean": float(np.exp(np.mean(np.log(ratios)))) if ratios else nan,
        "fair": count(is_fair) / len(answered) if answered else nan,
        "lowest": min(ratios, default=nan),
        "highest": max(ratios, default=nan),
        "silently_wrong": count(is_silently_wrong),
        "false_alarms": count(is_false_alarm),
    }


def is_silently_wrong(row, column):
    """Whether a cell is out of bounds and not warned about."""
    return not is_fair(row, column) and not is_warned(row, column)


def is_false_alarm(row, column):
    return is_fair(row, column) and is_warned(row, column)


def is_fair(row, column):
    return FAIR[0] <= row[column] <= FAIR[1]


def is_warned(row, column):
    """Whether half of the networks of a cell were warned about, or more."""
    return row.get(f"{column}_warned", 0) >= 0.5


def publish(table, columns, results):
    """Write the table and its summary as csv and as a page."""
    totals = list(summary(table, columns))
    save_records(results / "table.csv", table)
    save_records(results / "summary.csv", totals)
    (results / "table.md").write_text(page(table, totals, columns), encoding="utf-8")
    return totals


def page(table, totals, columns):
    questions = dict.fromkeys(row["question"] for row in totals)
    geometric = {(row["column"], row["question"]): row for row in totals}
    first = markdown(
        ["geometric mean of ratios", *questions, "fair cells", "silently wrong", "false alarms"],
        [
            [
                column,
                *(f"{geometric[column, q]['geometric_mean']:.2f}" for q in questions),
                f"{geometric[column, 'all']['fair']:.0%}",
                *(str(geometric[column, "all"][k]) for k in ("silently_wrong", "false_alarms")),
            ]
            for column in columns
        ],
    )
    second = markdown(
        ["setting", "question", "spread", "new weights", "order", *columns],
        [
            [
                row["setting"],
                row["question"],
                f"{row['spread']:.2g}",
                *(f"{row[part]:.2f}" for part in ("initialization", "order")),
                *(marked(row, column) for column in columns),
            ]
            for row in table
        ],
    )
    return f"{HEAD}\n{first}\n{NOTES}\n{second}"


HEAD = """# Standard errors of networks over the spread of retrainings
"""
NOTES = """
Ratio of the standard error to the spread of the answer over 200 retrainings on fresh data (5 % of
it uncertain), cell by cell; bold outside of 0.67 to 1.5, with a star if a warning was given, a dash
if all six networks were refused. New weights and order: the spread with fresh initial weights too,
and with nothing fresh but the order of the minibatches, over the spread.
"""


def marked(row, column):
    ratio = row.get(column, nan)
    if not isfinite(ratio):
        return "-"
    text = f"{ratio:.2f}"
    text = text if is_fair(row, column) else f"**{text}**"
    return text + ("*" if is_warned(row, column) else "")


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def numbers(rows, name):
    return [row[name] for row in rows]


def deviation(values):
    return float(np.std(values, ddof=1)) if len(values) > 1 else nan


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else nan
