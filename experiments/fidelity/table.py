"""The published table: each standard error over the spread of retrainings, cell by cell.

A cell is a setting and a question. The spread of a smooth question is taken on the rows that the
standard error is about, that of a statistic in the population.
"""

from collections import Counter, defaultdict
from math import isfinite, nan

import numpy as np
from scipy.stats import skew

from experiments.fidelity.data import test_rows
from experiments.fidelity.questions import questions
from experiments.fidelity.retrainings import POPULATION, data_set_of

FAIR, GOOD = (0.67, 1.5), (0.8, 1.25)  # of a cell, and of the geometric mean over cells
OFTEN = 0.5  # of the networks of a cell


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
            "retrainings": len(values["data"]),
            "mean": float(np.mean(values["data"])),
            "spread": spread,
            "skew": float(skew(values["data"])) if spread else nan,
            "initialization": deviation(values["initialization"]) / spread,
            "order": within(retrained["order"], "order", name) / spread,
            **{f"{way}{part}": found for way in ways for part, found in ways[way].items()},
        }


def ratio_of_column(rows, spread):
    """Root of the mean variance over the spread, its parts likewise, and what was told."""
    if not rows:
        return {"": nan}
    errors = numbers(rows, "se")
    told = Counter(kind for row in rows for kind in kinds(row))
    return {
        "": root_mean_square(errors) / spread,
        "_sets": len(rows),
        "_model": root_mean_square(numbers(rows, "model")) / spread,
        "_training": root_mean_square(numbers(rows, "training")) / spread,
        "_warned": sum(bool(kinds(row)) for row in rows) / len(rows),
        "_by": " ".join(kind for kind, count in told.items() if count >= OFTEN * len(rows)),
        "_refused": 1 - len(errors) / len(rows),
    }


def kinds(row):
    """Categories of the warnings that came with a standard error."""
    return row["warned"].split(" | ") if row.get("warned") else []


def ratio_of_bootstrap(rows, name, spread):
    sets = {data_set_of("bootstrap", row["number"]) for row in rows}
    return {"": within(rows, "bootstrap", name) / spread, "_sets": len(sets)}


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
    answered = [row for row in rows if is_answered(row, column)]
    ratios = numbers(answered, column)
    count = lambda holds: sum(holds(row, column) for row in answered)
    return {
        "cells": len(rows),
        "answered": len(answered),
        "geometric_mean": float(np.exp(np.mean(np.log(ratios)))) if ratios else nan,
        "fair": count(is_fair) / len(answered) if answered else nan,
        "lowest": min(ratios, default=nan),
        "highest": max(ratios, default=nan),
        "warned": count(is_warned),
        "silently_wrong": count(is_silently_wrong),
        "false_alarms": count(is_false_alarm),
    }


def alarms(table, column):
    """For each category of warning: cells it was given in, how many of them false."""
    told = {kind for row in table for kind in row.get(f"{column}_by", "").split()}
    for kind in sorted(told):
        those = [row for row in table if kind in row.get(f"{column}_by", "").split()]
        false = sum(is_fair(row, column) for row in those)
        yield {"warning": kind, "cells": len(those), "false_alarms": false}


def reason(row, column):
    """Part of the error that is off by more: its share of the spread against the true share."""
    order = row["order"] if isfinite(row["order"]) else 0.0
    true = {"model": max(1 - order**2, 0.0) ** 0.5, "training": order}
    found = {part: row.get(f"{column}_{part}", nan) for part in true}
    found = {part: share if isfinite(share) else 0.0 for part, share in found.items()}
    part = max(true, key=lambda name: abs(found[name] ** 2 - true[name] ** 2))
    size = "large" if found[part] > true[part] else "small"
    return f"{part} too {size}: {found[part]:.2f} for {true[part]:.2f}"


def is_answered(row, column):
    return isfinite(row.get(column, nan))


def is_silently_wrong(row, column):
    """Whether a cell is out of bounds and not warned about."""
    return not is_fair(row, column) and not is_warned(row, column)


def is_false_alarm(row, column):
    return is_fair(row, column) and is_warned(row, column)


def is_miss(row, column):
    return is_answered(row, column) and not is_fair(row, column)


def is_fair(row, column):
    return FAIR[0] <= row[column] <= FAIR[1]


def is_warned(row, column):
    """Whether half of the networks of a cell were warned about, or more."""
    return row.get(f"{column}_warned", 0) >= OFTEN


def numbers(rows, name):
    return [row[name] for row in rows if name in row]


def deviation(values):
    return float(np.std(values, ddof=1)) if len(values) > 1 else nan


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else nan
