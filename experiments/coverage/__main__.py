"""Simulated coverage of intervals, over all studies: ``python -m experiments.coverage``.

A study is listed in one of the modules below, in its tuple ``STUDIES``. The counts of its chunks
of data sets are stored in ``results/coverage/counts``, from which a run resumes, and their table
in ``results/coverage/table.csv``. Studies of which ``before_counts.csv`` has the rows were run
before counts were kept, and are run again when the command is.
"""

import ast
import inspect
from collections import Counter, defaultdict

import numpy as np

import implicit_delta as idm
from experiments.command import command_parser, results_folder
from experiments.coverage import (
    bounds,
    equations,
    evaluations,
    limits,
    metrics,
    ranking,
    ranking_by_hand,
    small_samples,
    standard_errors,
)
from experiments.coverage.study import CHUNK
from experiments.records import load_records, resume, save_records

STUDIES = (
    *small_samples.STUDIES,
    *standard_errors.STUDIES,
    *evaluations.STUDIES,
    *ranking.STUDIES,
    *ranking_by_hand.STUDIES,
    *metrics.STUDIES,
    *equations.STUDIES,
    *bounds.STUDIES,
    *limits.STUDIES,
)
KEYS = ("task", "n", "chunk")
NOT_COUNTED = {*KEYS, "method", "settings", "release", "took"}


def main(arguments=None):
    parser = command_parser("experiments.coverage", __doc__.splitlines()[0])
    options = parser.parse_args(arguments)
    results = results_folder(options)
    for row in run(STUDIES, results, quick=options.quick, n_jobs=options.jobs):
        print(
            f"{row['task']:<44} n={row['n']:<6} {row['method']:<22} {row['nominal']:.0%} nominal "
            f"{row['coverage']:7.1%} +- {row['binomial_error']:.1%}, warned {row['warned']:.0%}, "
            f"silent {row['silent_coverage']:.1%}"
        )


def run(studies, results, *, quick=False, n_jobs=1):
    """Compute what is missing and return the table, one row per task, n and method."""
    if len({(study.task, study.n) for study in studies}) < len(studies):
        raise ValueError("Two studies have the same task and n.")
    release = idm.__version__.partition(".dev")[0]
    for study in studies:
        chunks = 1 if quick else study.replications // CHUNK
        resume(
            lambda task, n, number, study=study: [
                {**row, "release": release} for row in study.chunk(number)
            ],
            [(study.task, study.n, number) for number in range(chunks)],
            KEYS,
            path=counts_path(results, study),
            settings=(study, CHUNK, code_of(study)),
            n_jobs=n_jobs,
            label=f"{study.task}, n = {study.n}",
        )
    return table(studies, results)


def table(studies, results):
    """Make the table of what is counted; a study without counts has rows from before them."""
    before, rows = load_records(results / "coverage" / "before_counts.csv"), []
    for study in studies:
        parts = load_records(counts_path(results, study))
        rows += tabulate(study, parts) if parts else [r for r in before if _is_of(study, r)]
    path = results / "coverage" / "table.csv"
    save_records(path, rows)
    return load_records(path)


def _is_of(study, row):
    return (row["task"], row["n"]) == (study.task, study.n)


def counts_path(results, study):
    return results / "coverage" / "counts" / f"{study.task}_{study.n}.csv".replace(" ", "_")


def code_of(study):
    """Code of the study's module without comments and docstrings: a change starts it over.

    A new version of the library does not; the column `release` says which it was.
    """
    module = inspect.getmodule(getattr(study.trial, "func", study.trial))
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def tabulate(study, parts):
    """Rows of one study, one per method."""
    replications = CHUNK * len({part["chunk"] for part in parts})
    totals = defaultdict(Counter)
    for part in parts:
        numbers = {name: part[name] for name in part if name not in NOT_COUNTED}
        totals[part["method"]].update(numbers)
    for method, total in totals.items():
        share = total["covered"] / replications
        yield {
            "task": study.task,
            "n": study.n,
            "method": method,
            "nominal": study.nominal,
            "covered": total["covered"],
            "replications": replications,
            "failed": total["failed"],
            "coverage": share,
            "binomial_error": float(np.sqrt(share * (1 - share) / replications)),
            "warned": total["warned"] / replications,
            "silent_coverage": _ratio(total["silent_covered"], total["silent"]),
            "bias": _ratio(total["error"], total["estimates"]),
            "spread": _spread(total),
            "above": _ratio(total["above"], total["estimates"]),
            "release": parts[0]["release"],
        }


def _ratio(part, whole):
    return part / whole if whole else np.nan


def _spread(total):
    """Standard deviation over data sets of the error in standard errors: 1 if these are right."""
    count = total["estimates"]
    if count < 2:
        return np.nan
    mean = total["error"] / count
    return float(np.sqrt((total["squared_error"] / count - mean**2) * count / (count - 1)))


if __name__ == "__main__":
    main()
